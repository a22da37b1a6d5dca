"use strict";
// The page's own behaviour: draws every chart, and answers to switches, buttons and keys.
(() => {
  const data = JSON.parse(document.getElementById("loam-data").textContent);
  const { value, text } = Loam.format;
  const hiddenAllocators = new Set();
  const views = [];

  const swatch = (look, filled) => {
    if (filled) {
      return `<svg width="16" height="14" aria-hidden="true"><rect y="1" width="14" height="12"
        fill="${look.colour}"/></svg>`;
    }
    const dash = { solid: "", dashed: "6 3", dotted: "2 3" }[look.dash];
    const hollow = look.symbol.startsWith("empty");
    const shape = look.symbol.replace("empty", "").toLowerCase();
    const fill = hollow ? "var(--ground)" : look.colour;
    const paint = `fill="${fill}" stroke="${look.colour}" stroke-width="1.5"`;
    const marks = {
      circle: `<circle cx="14" cy="7" r="4" ${paint}/>`,
      rect: `<rect x="10.5" y="3.5" width="7" height="7" ${paint}/>`,
      triangle: `<path d="M14 2.5 18 10.5H10Z" ${paint}/>`,
      diamond: `<path d="M14 2 18.5 7 14 12 9.5 7Z" ${paint}/>`,
    };
    return `<svg width="28" height="14" aria-hidden="true"><path d="M0 7H28" fill="none"
      stroke="${look.colour}" stroke-width="${look.width}" stroke-dasharray="${dash}"/>${
      marks[shape]}</svg>`;
  };

  const hiddenOf = (view) => {
    const hidden = new Set(view.hidden);
    // The switches are for allocators; a chart of one allocator's designs stays.
    for (const c of view.chart.curves) {
      if (c.label === c.allocator && hiddenAllocators.has(c.allocator)) hidden.add(c.label);
    }
    return hidden;
  };

  const draw = (view) => {
    const options = { hidden: hiddenOf(view), width: view.node.clientWidth };
    view.plot.setOption(Loam.options(view.chart, data, options), { notMerge: true });
  };

  const legend = (view) => {
    const hidden = hiddenOf(view);
    view.legend.replaceChildren(...view.chart.curves.map((curve) => {
      const button = document.createElement("button");
      button.type = "button";
      button.innerHTML = swatch(Loam.look(data, curve), view.chart.kind === "stack") + text(curve.label);
      button.setAttribute("aria-pressed", String(!hidden.has(curve.label)));
      button.addEventListener("click", () => {
        if (!view.hidden.delete(curve.label)) view.hidden.add(curve.label);
        button.setAttribute("aria-pressed", String(!hiddenOf(view).has(curve.label)));
        draw(view);
      });
      return button;
    }));
  };

  const switches = () => {
    const group = document.getElementById("switches");
    if (!group) return;
    group.replaceChildren(...data.allocators.map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      const look = Loam.look(data, { allocator: name, label: name, variant: "malloc" });
      button.innerHTML = swatch(look) + text(name);
      button.setAttribute("aria-pressed", String(!hiddenAllocators.has(name)));
      button.addEventListener("click", () => {
        if (!hiddenAllocators.delete(name)) hiddenAllocators.add(name);
        button.setAttribute("aria-pressed", String(!hiddenAllocators.has(name)));
        views.forEach((view) => { legend(view); draw(view); });
      });
      return button;
    }));
  };

  const place = (chart, x) => (chart.x.categories ? chart.x.categories[x] : String(x));

  const csv = (chart) => {
    const cell = (v) => (/[",\n]/.test(v) ? `"${String(v).replace(/"/g, '""')}"` : v);
    const x = chart.x.label || "place";
    const head = ["curve", "allocator", "variant", x, "median", "low", "high", "rounds"];
    const rows = chart.curves.flatMap((c) => c.points.map((p) =>
      [c.label, c.allocator, c.variant, place(chart, p.x), p.y, p.low, p.high, p.count]));
    return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  };

  // Drawn anew, at a fixed size and with its legend inside: the page's legend is not part of it.
  const svg = (view) => {
    const size = { width: 960, height: 560 };
    const plot = echarts.init(null, null, { renderer: "svg", ssr: true, ...size });
    const options = { hidden: hiddenOf(view), width: size.width, legend: true };
    const option = Loam.options(view.chart, data, options);
    option.backgroundColor = getComputedStyle(document.documentElement)
      .getPropertyValue("--ground").trim();
    plot.setOption(option);
    const picture = plot.renderToSVGString();
    plot.dispose();
    return picture;
  };

  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const table = (view) => {
    const { chart } = view;
    const xs = [...new Set(chart.curves.flatMap((c) => c.points.map((p) => p.x)))]
      .sort((a, b) => a - b);
    const head = chart.kind === "scatter"
      ? ["", chart.x.label, chart.y.label]
      : [chart.x.label || "", ...chart.curves.map((c) => c.label)];
    const rows = chart.kind === "scatter"
      ? chart.curves.flatMap((c) => c.points.map((p) =>
        [c.label, value(chart.x.unit, p.x), value(chart.y.unit, p.y)]))
      : xs.map((x) => [
        chart.x.categories ? chart.x.categories[x] : Number(x).toLocaleString("en"),
        ...chart.curves.map((c) => value(chart.y.unit, c.points.find((p) => p.x === x)?.y)),
      ]);
    const cell = (tag, v, i) => {
      if (i && tag === "td") return `<td class="number">${text(v)}</td>`;
      const scope = tag === "td" ? "row" : "col";
      return `<th class="${i ? "number" : ""}" scope="${scope}">${text(v)}</th>`;
    };
    const cells = (tag, row) => row.map((v, i) => cell(tag, v, i)).join("");
    return `<table><thead><tr>${cells("th", head)}</tr></thead><tbody>${
      rows.map((row) => `<tr>${cells("td", row)}</tr>`).join("")}</tbody></table>`;
  };

  // Arrow keys walk along the points; what the mouse shows, the keyboard shows.
  const walk = (view, event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") view.plot.dispatchAction({ type: "hideTip" });
    if (!step) return;
    event.preventDefault();
    const lines = view.plot.getOption().series
      .map((s, index) => ({ s, index })).filter(({ s }) => s.type !== "custom");
    if (lines.length === 0) return;
    const scatter = view.chart.kind === "scatter";
    const count = scatter ? lines.length : Math.max(...lines.map(({ s }) => s.data.length));
    view.at = ((view.at ?? (step > 0 ? -1 : count)) + step + count) % count;
    const longest = lines.reduce((a, b) => (b.s.data.length > a.s.data.length ? b : a));
    const seriesIndex = scatter ? lines[view.at].index : longest.index;
    view.plot.dispatchAction({ type: "showTip", seriesIndex, dataIndex: scatter ? 0 : view.at });
  };

  const make = (chart) => {
    const figure = document.querySelector(`[data-chart="${chart.id}"]`);
    const node = document.getElementById(chart.id);
    const plot = echarts.init(node, null, { renderer: "svg" });
    const view = { chart, node, plot, hidden: new Set(), legend: figure.querySelector(".legend") };
    views.push(view);
    draw(view);
    legend(view);
    node.addEventListener("keydown", (event) => walk(view, event));
    node.addEventListener("blur", () => plot.dispatchAction({ type: "hideTip" }));
    figure.querySelector("details").addEventListener("toggle", (event) => {
      const box = event.target.querySelector(".scroll");
      if (event.target.open && !box.firstChild) box.innerHTML = table(view);
    });
    const actions = {
      svg: () => save(`${chart.id}.svg`, "image/svg+xml", svg(view)),
      csv: () => save(`${chart.id}.csv`, "text/csv", csv(chart)),
      log: (button) => {
        chart.y.log = !chart.y.log;
        button.setAttribute("aria-pressed", String(chart.y.log));
        draw(view);
      },
    };
    for (const button of figure.querySelectorAll("[data-action]")) {
      button.addEventListener("click", () => actions[button.dataset.action](button));
    }
    new ResizeObserver(() => {
      plot.resize();
      draw(view);
    }).observe(node);
  };

  const redraw = () => {
    switches();
    views.forEach((view) => { legend(view); draw(view); });
  };

  const choice = document.getElementById("theme");
  const setTheme = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    redraw();
  };
  // A page may be without the choice.
  choice?.addEventListener("change", () => setTheme(choice.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper is white, and narrower than a screen.
  addEventListener("beforeprint", () => {
    setTheme("light");
    views.forEach((view) => view.plot.resize({ width: 660, height: 320 }));
  });
  addEventListener("afterprint", () => {
    views.forEach((view) => view.plot.resize({ width: "auto", height: "auto" }));
    setTheme(choice?.value ?? "auto");
  });

  switches();
  data.charts.forEach(make);
  // For tests: what is drawn, and how.
  window.loamReport = { data, views, svg, csv };
})();
