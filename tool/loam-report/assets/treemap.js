"use strict";
// Draws the places of one place, two levels deep, and lists them. A click on an area enters it.
(() => {
  const data = JSON.parse(document.getElementById("loam-data").textContent);
  const at = (id) => document.getElementById(id);
  const { value, text } = Loam.format;
  const [PARENT, NAME, SORT, ITEMS, OWN, ALL] = [0, 1, 2, 3, 4, 5];
  const places = data.places;
  const before = data.before;
  const inside = places.map(() => []);
  for (let i = 1; i < places.length; i++) inside[places[i][PARENT]].push(i);
  for (const list of inside) list.sort((a, b) => places[b][ALL] - places[a][ALL]);
  // Areas of fewer are not worth drawing: a place has as many elements as are seen.
  const MOST = 400;
  const LISTED = 100;

  const name = (i) => data.names[places[i][NAME]];
  const bytes = (v) => value("bytes", v);
  const whole = (v) => v.toLocaleString("en");
  const signed = (v) => (v > 0 ? "+" : v < 0 ? "-" : "") + bytes(Math.abs(v));
  const css = (key) => getComputedStyle(document.documentElement).getPropertyValue(key).trim();
  const hues = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];
  const mix = (a, b, part) => {
    const rgb = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
    const [from, to] = [rgb(a), rgb(b)];
    return `rgb(${from.map((v, i) => Math.round(v + (to[i] - v) * part)).join(",")})`;
  };
  const hash = (s) => {
    let h = 2166136261;
    for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 16777619);
    return h >>> 0;
  };
  const change = (i) => (before ? places[i][ALL] - before[i] : 0);
  // A name has the same colour wherever it stands; what is lost is drawn as a warning.
  const colour = (i) => {
    if (before) {
      const part = Math.min(1, Math.abs(change(i)) / Math.max(1, before[i], places[i][ALL] / 4));
      return mix(css("--m-same"), css(change(i) < 0 ? "--m-fallen" : "--m-grown"), part);
    }
    const own = css(hues[hash(name(i)) % hues.length]);
    if (way(i).some((up) => places[up][SORT] === data.warned)) {
      return mix(css("--m-warned"), own, places[i][SORT] === data.warned ? 0 : .25);
    }
    return mix(own, css("--m-same"), .15);
  };

  const way = (i) => {
    const up = [i];
    while (up[0] !== 0) up.unshift(places[up[0]][PARENT]);
    return up;
  };
  const facts = (i) => {
    const [, , sort, items, own, all] = places[i];
    const parts = [i === 0 ? name(i) : `${name(i)} (${data.sorts[sort]})`];
    if (items > 0) parts.push(`${whole(items)} blocks of ${bytes(own)}`);
    parts.push(`holds ${bytes(all)}, ${value("percent", all / Math.max(1, places[0][ALL]))} of all`);
    if (before) parts.push(`${signed(change(i))} since then`);
    return parts.join("; ");
  };
  const told = (i) => `${facts(i)}. ${way(i).slice(1).map(name).join(" -> ")}`;

  const state = { at: 0, chart: null };
  // The areas of a place: those in it, the place's own bytes, and what is too small to be seen.
  const areas = (i, depth) => {
    const node = { name: name(i), value: places[i][ALL], place: i,
      itemStyle: { color: colour(i), borderColor: css("--ground") } };
    const shown = inside[i].slice(0, depth === 2 ? MOST : 60);
    if (depth === 0 || shown.length === 0) return node;
    node.children = shown.map((child) => areas(child, depth - 1));
    const sum = shown.reduce((total, child) => total + places[child][ALL], 0);
    const rest = places[i][ALL] - sum - places[i][OWN];
    const grey = { color: css("--m-same"), borderColor: css("--ground") };
    if (places[i][OWN] > 0) {
      node.children.push({ name: "itself", value: places[i][OWN], place: i,
        itemStyle: { color: colour(i), borderColor: css("--ground") } });
    }
    if (rest > 0) node.children.push({ name: "smaller ones", value: rest, place: i, itemStyle: grey });
    return node;
  };

  const draw = () => {
    if (!state.chart) {
      state.chart = echarts.init(at("areas"), null, { renderer: "canvas" });
      state.chart.on("click", (event) => enter(event.data.place));
      state.chart.on("mouseover", (event) => say(event.data.place));
    }
    const top = areas(state.at, 2);
    state.chart.setOption({
      animation: false,
      tooltip: {
        confine: true,
        backgroundColor: css("--raised"), borderColor: css("--line"),
        textStyle: { color: css("--ink"), fontSize: 13 },
        extraCssText: "max-width: 32rem; white-space: normal; overflow-wrap: anywhere;",
        formatter: (event) => (event.data && event.data.place != null
          ? text(`${event.name === "itself" || event.name === "smaller ones" ? `${event.name}, ${bytes(event.value)}, of ` : ""}${facts(event.data.place)}`)
          : ""),
      },
      series: [{
        type: "treemap", roam: false, nodeClick: false, breadcrumb: { show: false },
        left: 0, right: 0, top: 0, bottom: 0, visibleMin: 60, childrenVisibleMin: 900,
        data: top.children || [top],
        label: { show: true, fontSize: 12, lineHeight: 16, color: "#fff", textBorderColor: "#000", textBorderWidth: 2,
          overflow: "truncate", formatter: (event) => `${event.name}\n${bytes(event.value)}` },
        upperLabel: { show: true, height: 20, fontSize: 12, color: css("--ink"),
          formatter: (event) => `${event.name}  ${bytes(event.value)}`, overflow: "truncate" },
        levels: [
          { itemStyle: { borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } },
          { itemStyle: { borderWidth: 3, gapWidth: 1, borderColorSaturation: .4 } },
          { itemStyle: { borderWidth: 0, gapWidth: 1 } },
        ],
      }],
    }, true);
  };

  const element = (tag, content, attributes = {}) => {
    const node = document.createElement(tag);
    if (content != null) node.textContent = content;
    for (const [key, v] of Object.entries(attributes)) node.setAttribute(key, v);
    return node;
  };
  const say = (i) => { at("place").textContent = told(i); };
  const list = () => {
    const table = at("inside");
    table.replaceChildren();
    const head = table.createTHead().insertRow();
    const columns = ["", "blocks", "own", "held", ...(before ? ["change"] : [])];
    columns.forEach((title, n) => head.append(element("th", title, n ? { class: "number", scope: "col" } : {})));
    const body = table.createTBody();
    for (const i of inside[state.at].slice(0, LISTED)) {
      const row = body.insertRow();
      const cell = element("th", null, { scope: "row" });
      const button = element("button", name(i), { type: "button" });
      button.addEventListener("click", () => enter(i));
      cell.append(button);
      row.append(cell);
      const cells = [whole(places[i][ITEMS]), bytes(places[i][OWN]), bytes(places[i][ALL]),
        ...(before ? [signed(change(i))] : [])];
      for (const one of cells) row.append(element("td", one));
    }
    if (inside[state.at].length > LISTED) {
      const row = body.insertRow();
      row.append(element("th", `${whole(inside[state.at].length - LISTED)} others`, { scope: "row" }));
    }
  };
  const trail = () => {
    const nav = at("way");
    nav.replaceChildren();
    for (const i of way(state.at)) {
      const button = element("button", name(i), { type: "button" });
      if (i === state.at) button.setAttribute("aria-current", "location");
      button.addEventListener("click", () => enter(i));
      nav.append(button);
    }
  };
  const legend = () => {
    const box = at("legend");
    box.replaceChildren();
    const entries = before
      ? [["--m-grown", "grew"], ["--m-same", "as before"], ["--m-fallen", "shrank"]]
      : [["--m-warned", data.sorts[data.warned]]];
    for (const [key, title] of entries) {
      const span = element("span");
      span.append(element("i", null, { class: "swatch", style: `background: ${css(key)}` }), title);
      box.append(span);
    }
  };
  const show = () => { draw(); list(); trail(); legend(); say(state.at); };
  const enter = (i) => { state.at = i; show(); };

  at("theme").addEventListener("change", (event) => {
    const theme = event.target.value;
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    show();
  });
  addEventListener("resize", () => { if (state.chart) { state.chart.resize(); draw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  window.loamTreemap = { data, places, inside, state, enter, name };
})();
