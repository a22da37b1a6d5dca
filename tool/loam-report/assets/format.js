"use strict";
// Figures as the tables write them, and the look of each allocator. No drawing here.
const Loam = {};

Loam.format = (() => {
  const digits = (v) => {
    const a = Math.abs(v);
    return a >= 99.95 ? v.toFixed(0) : a >= 9.995 ? v.toFixed(1) : v.toFixed(2);
  };
  // Axis labels need no trailing zeros.
  const short = (text) => text.replace(/\.0+(?=\D|$)|(\.\d*?[1-9])0+(?=\D|$)/, "$1");
  const decimal = (v) => {
    const a = Math.abs(v);
    const steps = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k", 1e3]];
    for (const [from, name, by] of steps) if (a >= from) return digits(v / (by || from)) + name;
    return a >= 1000 || Number.isInteger(v) ? v.toFixed(0) : digits(v);
  };
  const bytes = (v) => {
    const steps = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
    for (const [size, name] of steps) if (Math.abs(v) >= size) return `${digits(v / size)} ${name}`;
    return `${v.toFixed(0)} B`;
  };
  const seconds = (v) => {
    const a = Math.abs(v);
    if (a >= 1) return `${digits(v)} s`;
    if (a >= 1e-3) return `${digits(v * 1e3)} ms`;
    if (a >= 1e-6) return `${digits(v * 1e6)} us`;
    return a > 0 ? `${digits(v * 1e9)} ns` : "0 s";
  };
  const units = {
    "per-second": (v) => `${decimal(v)}/s`,
    seconds,
    nanoseconds: (v) => seconds(v * 1e-9),
    bytes,
    percent: (v) => `${digits(v * 100)}%`,
    count: decimal,
    ratio: (v) => `${digits(v)}x`,
  };
  return {
    value: (unit, v) => (v == null || !Number.isFinite(v) ? "-" : units[unit](v)),
    tick: (unit, v) => {
      if (v === 0) return unit === "percent" ? "0%" : "0";
      // On an axis 1 k stands beside 10 k, where a table writes 1000.
      return unit === "count" && v === 1000 ? "1 k" : short(units[unit](v));
    },
    text: (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`),
  };
})();

// Colour, dashes and symbol of a curve. Colour alone never tells two curves apart: seven hues that
// stay distinct under the common colour blindnesses, each with three kinds of dashes, and seven
// symbols in another rhythm. Loam and the system's malloc always look the same.
Loam.look = (() => {
  const hues = 7;
  const dashes = ["solid", "dashed", "dotted"];
  const symbols = ["triangle", "diamond", "emptyCircle", "emptyRect", "emptyTriangle",
    "emptyDiamond", "circle", "rect"];
  const fixed = {
    loam: { colour: "--c-loam", dash: "solid", symbol: "circle", width: 3.5 },
    system: { colour: "--c-system", dash: "dashed", symbol: "rect", width: 2.5 },
  };
  const nth = (i) => ({
    colour: `--c${i % hues}`,
    dash: dashes[Math.floor(i / hues) % dashes.length],
    symbol: symbols[i % symbols.length],
    width: 2,
  });
  const resolve = (look) => ({
    ...look,
    colour: getComputedStyle(document.documentElement).getPropertyValue(look.colour).trim(),
  });
  // The place among all allocators decides, so that an allocator looks the same in every chart;
  // other designs of a program come after the allocators.
  return (data, curve) => {
    if (curve.variant === "malloc" || curve.label === curve.allocator) {
      if (fixed[curve.allocator]) return resolve(fixed[curve.allocator]);
      const others = data.allocators.filter((name) => !fixed[name]);
      return resolve(nth(Math.max(0, others.indexOf(curve.allocator))));
    }
    // Designs are told apart within their chart; there may be many in a report.
    const chart = data.charts.find((c) => c.curves.includes(curve));
    const labels = (chart ? chart.curves : []).map((c) => c.label);
    const designs = labels.filter((label) => !data.allocators.includes(label));
    const hasAllocators = designs.length < labels.length;
    const before = hasAllocators ? data.allocators.filter((name) => !fixed[name]).length : 0;
    return resolve(nth(before + Math.max(0, designs.indexOf(curve.label))));
  };
})();
