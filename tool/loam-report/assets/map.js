"use strict";
// Unpacks the cells, draws those of one moment and one plane on a canvas, and says what a cell is.
(async () => {
  const map = JSON.parse(document.getElementById("loam-data").textContent);
  const at = (id) => document.getElementById(id);
  const { value } = Loam.format;
  const count = map.stretches.reduce((sum, [, cells]) => sum + cells, 0);
  const size = count * map.planes.length;

  const unpack = async () => {
    const packed = Uint8Array.from(atob(at("loam-cells").textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const cells = new Uint8Array(await new Response(stream).arrayBuffer());
    // Each moment is there as what differs from the one before.
    for (let i = size; i < cells.length; i++) cells[i] ^= cells[i - size];
    return cells;
  };
  const cells = await unpack();

  const scales = [1, 2, 3, 4, 6, 8, 12, 16, 24];
  const state = { moment: map.first, plane: 0, scale: 1, columns: 1, cell: -1 };
  const canvas = at("cells");
  const frame = at("frame");
  const rows = () => Math.max(1, Math.ceil(count / state.columns));

  // ---- Colours ----

  const rgb = (name) => {
    const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  };
  const mix = (a, b, part) => a.map((from, i) => Math.round(from + (b[i] - from) * part));
  const css = (colour) => `rgb(${colour.join(" ")})`;
  const hues = ["--c-loam", "--c0", "--c1", "--c2", "--c3", "--c5", "--c6", "--c4"];

  // The colour of each number of a plane; number 0 is no cell's.
  const colours = (plane) => {
    const table = [];
    if (plane.scale === "share") {
      const [sparse, mid, full] = ["--m-sparse", "--m-mid", "--m-full"].map(rgb);
      for (let i = 0; i <= 200; i++) {
        table[i + 1] = i < 100 ? mix(sparse, mid, i / 100) : mix(mid, full, (i - 100) / 100);
      }
      table[255] = rgb("--m-empty");
    } else if (plane.scale === "steps") {
      const [low, high] = ["--m-low", "--m-high"].map(rgb);
      const last = Math.max(1, plane.names.length - 1);
      plane.names.forEach((_, i) => { table[i + 1] = mix(low, high, i / last); });
    } else {
      const named = plane.names.length - 2;
      plane.names.forEach((_, i) => {
        table[i + 1] = rgb(i < named ? hues[i % hues.length]
          : i === named ? "--m-other" : "--m-unknown");
      });
    }
    return table;
  };

  // ---- Drawing ----

  const draw = () => {
    const plane = map.planes[state.plane];
    const table = colours(plane);
    const words = new Uint32Array(256);
    table.forEach(([r, g, b], number) => { words[number] = (255 << 24) | (b << 16) | (g << 8) | r; });
    canvas.width = state.columns;
    canvas.height = rows();
    canvas.style.width = `${state.columns * state.scale}px`;
    canvas.style.height = `${rows() * state.scale}px`;
    at("sheet").style.height = canvas.style.height;
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const start = state.moment * size + state.plane * count;
    for (let i = 0; i < count; i++) pixels[i] = words[cells[start + i]];
    context.putImageData(image, 0, 0);
    at("text").textContent = map.moments[state.moment].text;
    legend(plane, table);
    tell();
  };

  const swatch = (background, name, wide) => {
    const item = document.createElement("span");
    const box = document.createElement("i");
    box.className = wide ? "swatch ramp" : "swatch";
    box.style.background = background;
    item.append(box, name);
    return item;
  };
  const legend = (plane, table) => {
    const items = [];
    if (plane.scale === "share") {
      const stops = [0, 25, 50, 75, 100].map((p) => `${css(table[1 + 2 * p])} ${p}%`);
      items.push("0%", swatch(`linear-gradient(to right, ${stops.join(", ")})`, "100% live", true));
      if (plane.names.length) items.push(swatch(css(table[255]), plane.names[0]));
    } else {
      plane.names.forEach((name, i) => name && items.push(swatch(css(table[i + 1]), name)));
    }
    at("legend").replaceChildren(...items, plane.reading);
    for (const node of document.querySelectorAll("[data-name]")) {
      const named = map.planes.find((one) => one.scale === "names");
      node.style.background = css(colours(named)[Number(node.dataset.name)]);
    }
  };

  const fit = () => {
    const width = Math.max(64, frame.clientWidth);
    state.columns = Math.max(1, Math.floor(width / state.scale));
  };
  const zoom = (step) => {
    const place = scales.indexOf(state.scale) + step;
    if (place < 0 || place >= scales.length) return;
    state.scale = scales[place];
    fit();
    draw();
  };
  const first = () => {
    for (const scale of scales) {
      const columns = Math.max(1, Math.floor(Math.max(64, frame.clientWidth) / scale));
      if (scale === 1 || Math.ceil(count / columns) * scale <= 520) state.scale = scale;
    }
    fit();
  };

  // ---- What a cell is ----

  const address = (cell) => {
    for (const [start, cells] of map.stretches) {
      if (cell < cells) return start + cell * map.cell_bytes;
      cell -= cells;
    }
    return 0;
  };
  const about = (cell) => {
    const start = address(cell);
    const hex = (number) => `0x${number.toString(16)}`;
    const parts = map.planes.map((plane, place) => {
      const number = cells[state.moment * size + place * count + cell];
      if (plane.scale === "share") {
        return number === 0 ? "no block here at this moment" : number === 255 ? plane.names[0]
          : `${((number - 1) / 2).toFixed(1).replace(/\.0$/, "")}% live`;
      }
      if (number === 0) return null;
      if (plane.scale === "count") {
        return `${number === 255 ? "255 or more" : number} ${plane.title}`;
      }
      return `${plane.title}: ${plane.names[number - 1]}`;
    });
    return `${hex(start)} to ${hex(start + map.cell_bytes)}, ${value("bytes", map.cell_bytes)}: ${
      parts.filter(Boolean).join("; ")}.`;
  };
  const tell = () => {
    const cursor = at("cursor");
    cursor.hidden = state.cell < 0;
    if (state.cell < 0) {
      at("cell").textContent = "Point at a cell, or press an arrow key on the map, to see what is there.";
      return;
    }
    const { scale, columns } = state;
    cursor.style.left = `${(state.cell % columns) * scale}px`;
    cursor.style.top = `${Math.floor(state.cell / columns) * scale}px`;
    cursor.style.width = cursor.style.height = `${scale}px`;
    at("cell").textContent = about(state.cell);
  };
  const select = (cell) => {
    if (cell < 0 || cell >= count) return;
    state.cell = cell;
    tell();
  };
  canvas.addEventListener("pointermove", (event) => {
    const column = Math.floor(event.offsetX / state.scale);
    if (column < state.columns) {
      select(Math.floor(event.offsetY / state.scale) * state.columns + column);
    }
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -state.columns, ArrowDown: state.columns };
    if (!(event.key in steps)) return;
    event.preventDefault();
    select(state.cell < 0 ? 0 : state.cell + steps[event.key]);
  });

  // ---- Time ----

  const curves = () => {
    if (!at("curves")) return;
    const width = 1000, height = 100;
    const last = map.moments.length - 1;
    const most = Math.max(1, ...map.moments.flatMap((one) => one.values));
    const x = (i) => (i / last) * width;
    const colour = ["var(--m-full)", "var(--m-sparse)"];
    const lines = map.curves.map((name, curve) => {
      const points = map.moments.map((one, i) =>
        `${x(i).toFixed(1)},${(height - one.values[curve] / most * height).toFixed(1)}`);
      return `<polyline points="${points.join(" ")}" fill="none" stroke="${colour[curve]}"
        stroke-width="2" vector-effect="non-scaling-stroke"><title>${Loam.format.text(name)}</title>
        </polyline>`;
    });
    const marks = map.moments.map((one, i) => one.mark ? `<line x1="${x(i)}" x2="${x(i)}" y1="0"
      y2="${height}" stroke="var(--soft)" stroke-dasharray="3 3" vector-effect="non-scaling-stroke"/>`
      : "");
    at("curves").innerHTML = `<svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none">${
      marks.join("")}${lines.join("")}</svg>`;
  };
  const move = (moment) => {
    state.moment = Math.min(Math.max(0, moment), map.moments.length - 1);
    at("moment").value = state.moment;
    const one = map.moments[state.moment];
    at("moment").setAttribute("aria-valuetext", `${value("seconds", one.seconds)}${
      one.mark ? `, ${one.mark}` : ""}`);
    draw();
  };
  if (at("moment")) {
    at("moment").addEventListener("input", () => move(Number(at("moment").value)));
    let timer = 0;
    at("play").addEventListener("click", () => {
      const stop = () => {
        clearInterval(timer);
        timer = 0;
        at("play").textContent = "Play";
      };
      if (timer) return stop();
      if (state.moment === map.moments.length - 1) move(0);
      at("play").textContent = "Pause";
      timer = setInterval(() => {
        move(state.moment + 1);
        if (state.moment === map.moments.length - 1) stop();
      }, 150);
    });
  }

  // ---- The rest ----

  for (const input of document.querySelectorAll("input[name=plane]")) {
    input.addEventListener("change", () => {
      state.plane = Number(input.value);
      draw();
    });
  }
  at("smaller").addEventListener("click", () => zoom(-1));
  at("larger").addEventListener("click", () => zoom(1));
  at("theme").addEventListener("change", () => {
    if (at("theme").value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = at("theme").value;
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", () => {
    fit();
    draw();
  });
  first();
  curves();
  if (at("moment")) move(map.first);
  else draw();
  window.loamMap = { map, cells, count, state, draw, zoom, select, move, about };
})();
