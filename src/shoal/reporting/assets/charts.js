// Charts of lines with uPlot: bands, single seeds, a legend of buttons, zoom, and keys. Data: shoal/reporting/charts.py.
"use strict";
window.ShoalCharts = (() => {
  const HUES = 7;
  const MANY = 6; // bands of more lines cover each other, so each line has a plot of its own
  const DASHES = [[], [8, 4], [8, 3, 2, 3], [2, 3]];
  const charts = [];
  let palette = {};

  function readPalette() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    palette = { ink: value("--ink"), faint: value("--faint"), line: value("--line"), paper: value("--paper"), hues: [] };
    for (let i = 0; i < HUES; i += 1) palette.hues.push(value(`--hue${i}`));
  }

  const hue = (i) => palette.hues[i % HUES];
  const faded = (i, alpha) => hue(i) + Math.round(255 * alpha).toString(16).padStart(2, "0");
  const dash = (i) => DASHES[Math.floor(i / HUES) % DASHES.length];

  const colourOf = (chart, i) => chart.lines[i].colour ?? i;

  function make(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function button(text, pressed, act) {
    const node = make("button", "tool", text);
    node.type = "button";
    if (pressed !== null) node.setAttribute("aria-pressed", String(pressed));
    node.addEventListener("click", act);
    return node;
  }

  // Four digits, or as many as tell values apart that differ by `step`.
  function number(value, step = 0) {
    const size = Math.abs(value);
    if (size <= 1e-6 * step) return "0";
    const exponent = size < 1e-3 || size >= 1e12;
    const [unit, word] = exponent ? [1, ""] : [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find((each) => size >= each[0]) ?? [1, ""];
    const places = step > 0 ? Math.ceil(1 - Math.log10(step / unit)) : exponent ? -Infinity : 0;
    const digits = Math.min(Math.max(4, Math.floor(Math.log10(size / unit)) + 1 + places), 15);
    const text = exponent ? value.toExponential(digits > 4 ? digits - 1 : 2).replace(/\.?0*e\+?/, "e")
      : String(Number((value / unit).toPrecision(digits)));
    return `${text}${word}`.replaceAll("-", "−");
  }

  const shown = (chart, value, step = 0) => (chart.percent ? `${number(100 * value, 100 * step)} %` : number(value, step));

  /** The least distance between ticks, of which some are null; 0 for fewer than two. */
  const apart = (ticks) => {
    const known = ticks.filter((x) => x !== null);
    return known.length < 2 ? 0 : Math.min(...known.slice(1).map((x, i) => Math.abs(x - known[i])));
  };

  // The aligned data of uPlot, and for each of its series the line and the kind (mean, low, high, seed, other). In a
  // chart of line `only`, the means of the others are thin and grey.
  function aligned(chart) {
    const tables = [];
    const series = [];
    chart.lines.forEach((line, i) => {
      const columns = [line.x, line.mean], colour = colourOf(chart, i);
      tables.push(columns);
      if (chart.only !== undefined && i !== chart.only) {
        series.push({ line: i, kind: "other", label: "", colour });
        return;
      }
      series.push({ line: i, kind: "mean", label: line.name, colour });
      if (line.low.length) {
        columns.push(line.low, line.high);
        series.push({ line: i, kind: "low", label: "", colour }, { line: i, kind: "high", label: "", colour });
      }
      line.seeds.forEach((values) => {
        columns.push(values);
        series.push({ line: i, kind: "seed", label: "seed", colour });
      });
    });
    return { data: tables.length > 1 ? uPlot.join(tables) : tables[0], series };
  }

  const values = (chart) => chart.lines.flatMap((line) => [...line.mean, ...line.low, ...line.high]).filter((x) => x !== null);

  function positive(chart) {
    const known = [...values(chart), ...chart.lines.flatMap((line) => line.seeds.flat()).filter((x) => x !== null)];
    return known.length > 0 && known.every((value) => value > 0);
  }

  // The ends of the vertical axis: of what is shown, of the marks, and of all lines where several plots share the axis.
  function ends(chart, vertical, state) {
    const also = state.marks ? chart.marks.map((mark) => mark[1]) : [];
    if (chart.only !== undefined) also.push(...values(chart));
    const fit = vertical === "log" ? (low, high) => uPlot.rangeLog(low, high, 10, true)
      : vertical === "symlog" ? (low, high) => uPlot.rangeAsinh(low, high, 10, true)
        : (low, high) => uPlot.rangeNum(low, high, 0.1, true);
    return (_, low, high) => {
      const every = [low, high, ...also].filter((x) => x !== null && (vertical !== "log" || x > 0));
      const [least, most] = every.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
      if (chart.percent && vertical === "linear") return [Math.min(0, least), Math.max(1, most) * 1.02];
      return every.length ? fit(least, most) : [low, high];
    };
  }

  // Horizontal lines with their names, which stand at the right, the left and in the middle in turn.
  function drawMarks(plot, chart) {
    const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.fillStyle = palette.faint;
    ctx.lineJoin = "round";
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "bottom";
    chart.marks.forEach(([name, value], i) => {
      const y = plot.valToPos(value, "y", true), align = ["right", "left", "center"][i % 3];
      if (!(y >= bbox.top - 1 && y <= bbox.top + bbox.height + 1)) return;
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      ctx.lineWidth = ratio;
      ctx.strokeStyle = palette.faint;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      if (chart.only > 0) return; // the first of several plots names them
      ctx.textAlign = align;
      const below = y - bbox.top < 14 * ratio;
      const across = { right: bbox.width - 4 * ratio, left: 4 * ratio, center: bbox.width / 2 }[align];
      const place = [bbox.left + across, y + (below ? 14 : -1) * ratio], text = `${name} ${shown(chart, Number(value.toPrecision(3)))}`;
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * ratio;
      ctx.strokeStyle = palette.paper;
      ctx.strokeText(text, ...place);
      ctx.fillText(text, ...place);
    });
    ctx.restore();
  }

  // Of a series, the known values between unknown ones, of which no line is drawn; null if there are none.
  function alone(plot, number) {
    const column = plot.data[number];
    const own = [...column.keys()].filter((k) => column[k] !== undefined); // others are at the x of other lines
    const unknown = (k) => (column[k] ?? null) === null;
    const found = own.filter((k, i) => !unknown(k) && unknown(own[i - 1]) && unknown(own[i + 1]));
    return found.length ? found : null;
  }

  function seriesOptions(chart, each) {
    const stepped = chart.stairs ? uPlot.paths.stepped({ align: 1 }) : undefined;
    const few = chart.lines[each.line].mean.length < 4;
    const common = { label: each.label, paths: stepped, points: { show: false } };
    if (each.kind === "mean") {
      return {
        ...common, width: 2, stroke: () => hue(each.colour), dash: dash(each.colour),
        points: { show: few, filter: (plot, i) => (few ? null : alone(plot, i)), size: 7, fill: () => hue(each.colour) },
      };
    }
    if (each.kind === "other") return { ...common, width: 1, stroke: () => palette.line };
    if (each.kind === "seed") {
      return { ...common, width: 1, stroke: () => faded(each.colour, 0.55) };
    }
    return { ...common, width: 0, stroke: "transparent" };
  }

  function options(chart, parts, state, width, height) {
    const vertical = state.log ? "log" : chart.vertical;
    const axis = { stroke: () => palette.faint, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const mark = { stroke: () => palette.line, width: 1 };
    const decade = (x) => x === 0 || Math.abs(Math.log10(Math.abs(x)) % 1) < 1e-9;
    const sparse = vertical === "linear" ? {} : { filter: (_, ticks) => ticks.map((x) => (decade(x) ? x : null)) };
    const tick = (x, step) =>
      (x === null ? "" : chart.y.endsWith("(%)") ? number(100 * x, 100 * step) : shown(chart, x, step));
    const room = (_, texts) => Math.max(58, 16 + 8 * Math.max(0, ...(texts || []).map((text) => text.length)));
    const labels = (name) => (_, ticks) => ticks.map((x) => name(x, apart(ticks)));
    return {
      width, height,
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, dist: 8 }, points: { size: 7 },
        // The ends of intervals are series too, but are not lines that one points at.
        focus: { prox: 24, dist: (_, i, k, at, pointer) => (parts.series[i - 1].kind === "mean" ? pointer - at : Infinity) },
        ...(chart.together ? { sync: { key: chart.together } } : {}),
      },
      focus: { alpha: 0.35 },
      scales: {
        x: { time: false },
        y: {
          distr: vertical === "log" ? 3 : vertical === "symlog" ? 4 : 1,
          ...(vertical === "symlog" ? { asinh: 1 } : {}),
          range: ends(chart, vertical, state),
        },
      },
      axes: [
        { ...axis, grid: mark, ticks: mark, label: chart.x, labelSize: 22, size: 34, values: labels(number) },
        {
          ...axis, grid: { ...mark, ...sparse }, ticks: { ...mark, ...sparse }, size: room, space: 36,
          values: labels(tick),
        },
      ],
      series: [{}, ...parts.series.map((each) => seriesOptions(chart, each))],
      bands: parts.series.flatMap((each, i) =>
        each.kind === "low" ? [{ series: [i + 2, i + 1], fill: () => faded(each.colour, 0.2) }] : []),
      hooks: {
        draw: [(plot) => state.marks && drawMarks(plot, chart)],
        setCursor: [(plot) => state.read(plot)],
        setScale: [(plot, key) => state.zoomed(plot, key)],
      },
    };
  }

  // One chart in its element: a row of tools, the plot, and the legend.
  function mount(place, chart) {
    const state = {
      seeds: false, bands: chart.only !== undefined || chart.lines.length <= MANY, log: false, marks: true,
      hidden: new Set(), plot: null, read() {}, zoomed() {},
    };
    const parts = aligned(chart);
    const first = parts.data[0][0], last = parts.data[0][parts.data[0].length - 1];
    const tools = make("div", "tools"), field = make("div", "plot"), legend = make("div", "legend");
    const said = make("output", "at"), unseen = make("span", "unseen");
    field.tabIndex = 0;
    field.setAttribute("role", "img");
    field.setAttribute("aria-label", `${chart.y} over ${chart.x}; use the left and right arrow keys to read values`);
    place.append(tools, field, said, legend);

    const keys = chart.lines.map((line, i) => {
      if (chart.only !== undefined && i !== chart.only) return null;
      const key = button("", true, () => toggle(i));
      key.className = "key";
      const swatch = make("span", "swatch"), value = make("span", "reading");
      swatch.style.borderTopStyle = ["solid", "dashed", "dotted", "dotted"][Math.floor(colourOf(chart, i) / HUES) % 4];
      key.append(swatch, make("span", "", line.name), value);
      legend.append(key);
      return { key, swatch, value };
    });

    const wanted = { mean: () => true, other: () => true, low: () => state.bands, high: () => state.bands, seed: () => state.seeds };
    const visible = (each) => !state.hidden.has(each.line) && wanted[each.kind]();

    function showSeries() {
      state.plot.batch(() => parts.series.forEach((each, i) => state.plot.setSeries(i + 1, { show: visible(each) })));
    }

    function toggle(i) {
      if (state.hidden.has(i)) state.hidden.delete(i);
      else state.hidden.add(i);
      keys[i].key.setAttribute("aria-pressed", String(!state.hidden.has(i)));
      if (state.plot) showSeries();
    }

    const reset = button("Whole range", null, () => state.plot.setScale("x", { min: first, max: last }));
    reset.hidden = true;
    function tool(text, key, act) {
      tools.append(button(text, state[key], (event) => {
        state[key] = !state[key];
        event.currentTarget.setAttribute("aria-pressed", String(state[key]));
        if (state.plot) act();
      }));
    }
    if (chart.only === undefined) {
      if (chart.lines.some((line) => line.low.length)) tool("Intervals", "bands", showSeries);
      if (chart.lines.some((line) => line.seeds.length)) tool("Single seeds", "seeds", showSeries);
      if (chart.marks.length) tool("References", "marks", draw);
      if (chart.vertical === "linear" && !chart.percent && positive(chart)) tool("Logarithmic", "log", draw);
    }
    tools.append(reset);

    state.read = (plot) => {
      const at = plot.cursor.idx ?? null, x = at === null ? null : parts.data[0][at], { min, max } = plot.scales.y;
      keys.forEach((each, i) => {
        if (!each) return;
        const column = 1 + parts.series.findIndex((each) => each.line === i && each.kind === "mean");
        let k = at;
        while (k > 0 && parts.data[column][k] === undefined) k -= 1; // between two of its own x
        const found = x !== null && x <= chart.lines[i].x.at(-1) ? parts.data[column][k] ?? null : null;
        each.value.textContent = found === null ? "" : shown(chart, found, (max - min) / 100);
      });
      place.dataset.at = x === null ? "" : String(x);
      say(x);
    };

    // Where one reads, and the values for screen readers: others see them in the legend. Of plots that are read
    // together only the one that is pointed at or has the focus says it.
    function say(x) {
      const here = x !== null && (!chart.together || field.matches(":hover, :focus"));
      const read = keys.flatMap((each, i) =>
        each && !state.hidden.has(i) && each.value.textContent ? [`${chart.lines[i].name} ${each.value.textContent}`] : []);
      const at = here ? x.toLocaleString("en", { maximumSignificantDigits: 9 }).replace("-", "−") : "";
      const where = here ? `${/steps/i.test(chart.x) ? "step" : chart.x} ${at}` : "";
      const what = here && read.length ? `: ${read.join(", ")}` : "";
      if (said.textContent === where + what) return;
      unseen.textContent = what;
      said.replaceChildren(where, unseen);
    }

    state.zoomed = (plot, key) => {
      if (key === "x") reset.hidden = !(plot.scales.x.min > first || plot.scales.x.max < last);
    };

    field.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || !state.plot) return;
      event.preventDefault();
      const plot = state.plot, at = plot.cursor.idx;
      const next = at === null || at === undefined ? 0 : Math.min(Math.max(at + by, 0), parts.data[0].length - 1);
      const beside = chart.together ? charts.filter((each) => each.chart.together === chart.together) : [{ plot: () => plot }];
      for (const each of beside.map((one) => one.plot()).filter(Boolean)) {
        each.setCursor({ left: each.valToPos(parts.data[0][next], "x"), top: -100 }); // above the plot, so near no line
      }
    });

    const height = () => (chart.only !== undefined ? 180 : field.clientWidth < 420 ? 210 : 260);

    function draw() {
      const { min = null, max = null } = state.plot?.scales.x ?? {};
      if (state.plot) state.plot.destroy();
      state.plot = new uPlot(options(chart, parts, state, field.clientWidth, height()), parts.data, field);
      if (min !== null) state.plot.setScale("x", { min, max }); // the range to which the reader zoomed
      showSeries();
      repaint();
      place.dataset.ready = "true";
    }

    function repaint() {
      keys.forEach((each, i) => { if (each) each.swatch.style.borderTopColor = hue(colourOf(chart, i)); });
      if (state.plot) state.plot.redraw(false);
    }

    // A chart in a collapsed part of the page has no width until it is opened.
    new ResizeObserver(() => {
      if (field.clientWidth === 0) return;
      if (!state.plot) draw();
      else if (state.plot.width !== field.clientWidth) state.plot.setSize({ width: field.clientWidth, height: height() });
    }).observe(field);
    charts.push({ place, chart, repaint, plot: () => state.plot });
  }

  // A plot for each line on common axes, and all lines in one plot on request.
  function mountEach(place, chart, name) {
    const tools = make("div", "tools"), grid = make("div", "each"), whole = make("div", "chart whole");
    whole.hidden = true;
    const toggle = button("In one plot", false, () => {
      whole.hidden = !whole.hidden;
      grid.hidden = !whole.hidden;
      toggle.setAttribute("aria-pressed", String(!whole.hidden));
      if (!whole.childElementCount) mount(whole, chart);
    });
    tools.append(toggle);
    place.append(tools, grid, whole);
    chart.lines.forEach((_, only) => {
      const cell = make("div", "chart");
      grid.append(make("div", "charted"));
      grid.lastChild.append(cell);
      mount(cell, { ...chart, only, together: name });
    });
  }

  function start() {
    readPalette();
    const data = JSON.parse(document.getElementById("chart-data").textContent);
    for (const place of document.querySelectorAll(".chart[data-chart]")) {
      const chart = data[Number(place.dataset.chart)];
      const banded = chart.lines.filter((line) => line.low.length).length;
      if (banded > MANY) mountEach(place, chart, `chart-${place.dataset.chart}`);
      else mount(place, chart);
    }
    document.addEventListener("shoal:theme", () => {
      readPalette();
      charts.forEach((each) => each.repaint());
    });
  }

  return { start, charts };
})();
