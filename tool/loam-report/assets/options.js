"use strict";
// From a chart as data to the options of the chart library.
Loam.options = (() => {
  const { value, tick, text } = Loam.format;
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), soft: get("--soft"), line: get("--line"), ground: get("--ground") };
  };

  // Round steps for bytes: the library's own are round in tens, not in powers of two.
  const byteStep = (a, largest) => {
    if (a.unit !== "bytes" || a.log || !(largest > 0)) return undefined;
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(largest / 2) / Math.log(1024)));
    const rough = largest / unit / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].find((n) => n * power >= rough) * power * unit;
  };

  const axis = (a, colours, narrow, isX, largest) => ({
    type: a.categories ? "category" : a.log ? "log" : "value",
    data: a.categories,
    // Sizes double: 64 B, 1 KiB, 16 KiB are round, 9.77 KiB is not.
    logBase: a.unit === "bytes" ? 16 : 10,
    name: a.label,
    nameLocation: isX ? "middle" : "end",
    nameGap: isX ? 28 : 12,
    // On a phone the y axis' name would be cut off; the heading says it already.
    nameTextStyle: { color: colours.soft, fontSize: 12, align: isX ? "center" : "left" },
    scale: !a.categories && isX,
    min: !isX && !a.log ? (range) => Math.min(0, range.min) : undefined,
    axisLine: { lineStyle: { color: colours.soft } },
    axisLabel: {
      color: colours.soft, fontSize: 12, hideOverlap: true,
      // Names of places are never left out: turned, they fit.
      interval: a.categories ? 0 : undefined,
      rotate: isX && a.categories && a.categories.join("  ").length > (narrow ? 34 : 64) ? 45 : 0,
      formatter: a.categories ? undefined : (v) => tick(a.unit, v),
    },
    splitLine: { show: !isX, lineStyle: { color: colours.line } },
    minorSplitLine: { show: false },
    splitNumber: narrow ? 4 : 5,
    interval: byteStep(a, largest),
    max: byteStep(a, largest) && ((range) => {
      const step = byteStep(a, largest);
      return Math.ceil(range.max / step) * step;
    }),
  });

  const positive = (chart, p) =>
    (!chart.y.log || p.y > 0) && (!chart.x.log || p.x > 0 || chart.x.categories);

  // The range of the rounds as a filled shape behind its line.
  const band = (chart, curve, look) => {
    const points = curve.points.filter((p) => positive(chart, p) && (!chart.y.log || p.low > 0));
    if (points.length < 2 || points.every((p) => p.low === p.high)) return [];
    return [{
      type: "custom", name: curve.label, silent: true, z: 1, clip: true, tooltip: { show: false },
      // The points make the axis long enough; the shape is drawn once, with the first of them.
      data: points.flatMap((p) => [[p.x, p.high], [p.x, p.low]]),
      itemStyle: { color: look.colour },
      renderItem: (params, api) => params.dataIndex > 0 ? null : ({
        type: "polygon",
        shape: {
          points: [
            ...points.map((p) => api.coord([p.x, p.high])),
            ...points.slice().reverse().map((p) => api.coord([p.x, p.low])),
          ],
        },
        style: { fill: look.colour, opacity: 0.16 },
      }),
    }];
  };

  // Named places of the x axis: a line from top to bottom, its name turned along it.
  const markSeries = (chart, colours) => !chart.marks ? [] : [{
    type: "custom", name: "", silent: true, z: 2, clip: true, tooltip: { show: false },
    data: chart.marks.map((mark) => [mark.x, 0]),
    renderItem: (params, api) => {
      const area = params.coordSys;
      const x = api.coord([chart.marks[params.dataIndex].x, 0])[0];
      const [top, bottom] = [area.y, area.y + area.height];
      return {
        type: "group",
        children: [
          { type: "line", shape: { x1: x, y1: top, x2: x, y2: bottom },
            style: { stroke: colours.soft, lineWidth: 1, lineDash: [4, 4] } },
          { type: "text", x: x + 3, y: bottom - 4, rotation: Math.PI / 2,
            style: { text: chart.marks[params.dataIndex].label, fill: colours.soft, fontSize: 12,
              stroke: colours.ground, lineWidth: 3, // legible where a curve lies behind it
              width: area.height - 8, overflow: "truncate", verticalAlign: "top" } },
        ],
      };
    },
  }];

  // Bars from the lowest to the highest round in both directions.
  const errorBars = (curve, look) => curve.points.length === 0 ? [] : [{
    type: "custom", name: curve.label, silent: true, z: 1, tooltip: { show: false },
    data: curve.points.flatMap((p) => [[p.x, p.high], [p.x, p.low]]),
    renderItem: (params, api) => {
      if (params.dataIndex % 2) return null;
      const p = curve.points[params.dataIndex / 2];
      const range = p.x_range || [p.x, p.x];
      const line = (from, to) => {
        const [a, b] = [api.coord(from), api.coord(to)];
        const shape = { x1: a[0], y1: a[1], x2: b[0], y2: b[1] };
        return { type: "line", shape, style: { stroke: look.colour, lineWidth: 2, opacity: 0.5 } };
      };
      return {
        type: "group",
        children: [line([p.x, p.low], [p.x, p.high]), line([range[0], p.y], [range[1], p.y])],
      };
    },
  }];

  const lineSeries = (chart, curve, look, colours) => {
    const points = curve.points.filter((p) => positive(chart, p));
    const few = points.length <= 40;
    return [...band(chart, curve, look), {
      type: "line", name: curve.label, z: curve.allocator === "loam" ? 4 : 3,
      data: points.map((p) => [p.x, p.y]),
      symbol: look.symbol, symbolSize: few ? 8 : 0, showSymbol: few,
      lineStyle: { type: look.dash, width: look.width, color: look.colour },
      itemStyle: { color: look.colour, borderColor: look.colour },
      emphasis: { focus: "series" },
    }];
  };

  const barSeries = (chart, curve, look, colours) => [{
    type: "bar", name: curve.label,
    data: chart.x.categories.map((_, i) => curve.points.find((p) => p.x === i)?.y ?? null),
    itemStyle: { color: look.colour, borderColor: colours.ground, borderWidth: 1 },
    emphasis: { focus: "series" },
  }];

  // Puts the name of a point right of it, or where it covers no earlier point and no earlier name.
  const nameLayout = () => {
    let taken = [];
    let last = -1;
    const covers = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width
      && a.y < b.y + b.height && b.y < a.y + a.height;
    return ({ seriesIndex, labelRect, rect }) => {
      if (seriesIndex <= last) taken = []; // a new layout: series come in order
      last = seriesIndex;
      const { width, height } = labelRect;
      const left = rect.x - labelRect.x - width - (labelRect.x - rect.x - rect.width);
      const places = [0, -height, height, -2 * height, 2 * height]
        .flatMap((dy) => [{ dx: 0, dy }, { dx: left, dy }]);
      const at = ({ dx, dy }) => ({ x: labelRect.x + dx, y: labelRect.y + dy, width, height });
      const place = places.find((p) => !taken.some((other) => covers(at(p), other))) || places[0];
      taken.push(at(place), rect);
      return place;
    };
  };

  const scatterSeries = (chart, curve, look, colours, names) => [...errorBars(curve, look), {
    type: "scatter", name: curve.label, z: 3,
    data: curve.points.map((p) => [p.x, p.y]),
    symbol: look.symbol, symbolSize: 14,
    itemStyle: { color: look.colour, borderColor: look.colour, borderWidth: 2 },
    label: { show: true, formatter: curve.label, position: "right", color: colours.ink,
      fontSize: 12, textBorderColor: colours.ground, textBorderWidth: 2 },
    labelLayout: names,
    emphasis: { focus: "series" },
  }];

  const isBars = (chart) => chart.kind === "bars"
    || (chart.kind === "lines" && Boolean(chart.x.categories) && chart.x.categories.length <= 4);

  // Parts of a whole, lying: the names of the places have room at the left.
  const stackSeries = (chart, curve, look, colours) => [{
    type: "bar", name: curve.label, stack: "whole",
    data: chart.x.categories.map((_, i) => curve.points.find((p) => p.x === i)?.y ?? null),
    itemStyle: { color: look.colour, borderColor: colours.ground, borderWidth: 1 },
    emphasis: { focus: "series" },
  }];

  const findPoint = (curve, x) => curve.points.find((p) => p.x === x);

  const tooltip = (chart) => (items) => {
    const list = (Array.isArray(items) ? items : [items])
      .filter((item) => item.componentSubType !== "custom");
    if (list.length === 0) return "";
    const x = isBars(chart) || chart.kind === "stack" ? list[0].dataIndex : list[0].value[0];
    const place = chart.x.categories ? chart.x.categories[x] : value(chart.x.unit, x);
    const unit = chart.x.categories || chart.kind === "scatter" ? "" : ` ${chart.x.label}`;
    const rows = list
      .map((item) => {
        const curve = chart.curves.find((c) => c.label === item.seriesName);
        return { item, point: curve && findPoint(curve, x) };
      })
      .filter((row) => row.point)
      .sort((a, b) => b.point.y - a.point.y)
      .map(({ item, point }) => {
        const [low, high] = [point.low, point.high].map((v) => value(chart.y.unit, v));
        const range = point.low === point.high ? "" : ` <small>(${low} to ${high})</small>`;
        return `<div>${item.marker}${text(item.seriesName)}: `
          + `<b>${value(chart.y.unit, point.y)}</b>${range}</div>`;
      });
    const head = chart.kind === "scatter"
      ? `${text(chart.x.label)} ${place}`
      : text(place) + text(unit);
    return `<div><b>${head}</b></div>${rows.join("")}`;
  };

  // `hidden` holds labels of curves that are switched off.
  return (chart, data, { hidden = new Set(), width = 640, legend = false } = {}) => {
    const colours = theme();
    const narrow = width < 480;
    const lying = chart.kind === "stack";
    const draw = lying ? stackSeries
      : chart.kind === "scatter" ? scatterSeries : isBars(chart) ? barSeries : lineSeries;
    const shown = chart.curves.filter((curve) => !hidden.has(curve.label));
    const whole = (x) => shown.reduce((sum, c) => sum + (c.points.find((p) => p.x === x)?.y ?? 0), 0);
    const largest = lying
      ? Math.max(0, ...chart.x.categories.map((_, x) => whole(x)))
      : Math.max(...shown.flatMap((c) => c.points.map((p) => p.high)));
    const names = nameLayout();
    const series = [...shown.flatMap((c) => draw(chart, c, Loam.look(data, c), colours, names)),
      ...markSeries(chart, colours)];
    return {
      animation: false,
      backgroundColor: "transparent",
      textStyle: { fontFamily: "system-ui, sans-serif", color: colours.ink },
      aria: { enabled: true, decal: { show: isBars(chart) || lying } },
      title: legend
        ? { text: chart.title, textStyle: { color: colours.ink, fontSize: 16 } }
        : undefined,
      legend: legend
        ? { bottom: 0, data: shown.map((c) => c.label), textStyle: { color: colours.ink } }
        : { show: false },
      grid: {
        left: 8, right: chart.kind === "scatter" ? (narrow ? 56 : 96) : 20, top: legend ? 64 : 34,
        bottom: (lying || chart.x.label ? 34 : 12) + (legend ? 48 : 0), outerBoundsMode: "same",
        outerBoundsContain: "axisLabel",
      },
      tooltip: {
        trigger: chart.kind === "scatter" ? "item" : "axis", confine: true,
        backgroundColor: colours.ground, borderColor: colours.line,
        textStyle: { color: colours.ink, fontSize: 13 }, formatter: tooltip(chart),
        axisPointer: { type: isBars(chart) || lying ? "shadow" : "line" },
      },
      ...(lying ? {
        xAxis: { ...axis({ ...chart.y, log: false }, colours, narrow, true, largest), min: 0, scale: false,
          splitLine: { show: true, lineStyle: { color: colours.line } } },
        yAxis: { ...axis(chart.x, colours, narrow, false), inverse: true, name: "",
          min: undefined, max: undefined, splitLine: { show: false } },
      } : {
        xAxis: axis(chart.x, colours, narrow, true),
        yAxis: axis(chart.y, colours, narrow, false, largest),
      }),
      series,
    };
  };
})();
