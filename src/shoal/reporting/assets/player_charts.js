// Small line charts and heat maps with a cursor at the current step.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const HEIGHT = 74;

  parts.number = (value) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    const text = size >= 1000 ? value.toFixed(0) : size >= 100 ? value.toFixed(1) : size >= 0.9995 ? value.toFixed(2) : value.toFixed(3);
    return text.replace(/^-(?=[0.]+$)/, "").replace("-", "−");
  };

  /** Formats numbers between low and high, with enough digits to distinguish these two. */
  parts.numberWithin = (low, high) => {
    const digits = high > low ? Math.min(6, 1 + Math.ceil(-Math.log10(high - low))) : 0;
    return (value) => {
      const text = parts.number(value);
      const few = Number.isFinite(value) && digits > (text.split(".")[1] || "").length;
      return few ? value.toFixed(digits).replace("-", "−") : text;
    };
  };

  /** A line chart on a canvas of its own: draw(lines, steps, time), lines [{data, colour, width}]; seek is called with
   * a timestep. */
  parts.makeChart = (title, seek) => {
    const canvas = parts.el("canvas", "sp-chart", { role: "img" });
    const [name, value] = [parts.el("span"), parts.el("span", "sp-value")];
    const element = parts.el("div", "sp-charted", {}, parts.el("div", "sp-label", {}, name, value), canvas);
    let last = null;
    const at = (event) => {
      if (!last) return;
      const frame = canvas.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (event.clientX - frame.left - 2) / (frame.width - 4)));
      seek(Math.round(share * last));
    };
    let held = false;
    canvas.addEventListener("pointerdown", (event) => {
      held = true;
      canvas.setPointerCapture(event.pointerId);
      at(event);
    });
    canvas.addEventListener("pointermove", (event) => held && at(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (held = false));

    const draw = (lines, steps, time, length, colours, now) => {
      last = length;
      const width = canvas.clientWidth || 240;
      const pen = parts.fit(canvas, width, HEIGHT);
      let [low, high] = [Infinity, -Infinity];
      for (const { data } of lines) {
        for (const y of data) {
          if (y < low) low = y;
          if (y > high) high = y;
        }
      }
      const [least, most] = [low, high];
      if (!Number.isFinite(low)) [low, high] = [0, 1];
      if (low === high) [low, high] = [low - 0.5, high + 0.5];
      const across = (t) => 2 + ((width - 4) * t) / Math.max(length, 1);
      const up = (y) => 4 + ((HEIGHT - 8) * (high - y)) / (high - low);
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      if (low < 0 && high > 0) {
        pen.beginPath();
        pen.moveTo(0, Math.round(up(0)) + 0.5);
        pen.lineTo(width, Math.round(up(0)) + 0.5);
        pen.stroke();
      }
      for (const { data, colour, width: thick, opacity } of lines) {
        pen.strokeStyle = colour;
        pen.lineWidth = thick;
        pen.globalAlpha = opacity;
        pen.beginPath();
        let drawn = false;
        data.forEach((y, j) => {
          if (!Number.isFinite(y)) {
            drawn = false;
            return;
          }
          if (drawn) pen.lineTo(across(steps[j]), up(y));
          else pen.moveTo(across(steps[j]), up(y));
          drawn = true;
        });
        pen.stroke();
      }
      pen.globalAlpha = 1;
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(across(time), 0);
      pen.lineTo(across(time), HEIGHT);
      pen.stroke();
      const text = parts.numberWithin(least, most);
      name.textContent = `${title}, ${text(least)} to ${text(most)}`;
      value.textContent = text(now);
      canvas.setAttribute("aria-label", `${title} over time, now ${text(now)}`);
    };
    return { element, draw };
  };

  /** Attention of each agent (rows) to each agent (columns). */
  parts.makeHeat = (choose) => {
    const canvas = parts.el("canvas", "sp-heat", { role: "img" });
    const note = parts.el("div", "sp-small");
    const element = parts.el("div", "sp-charted", {}, canvas, note);
    let [count, side, left] = [0, 0, 0];
    canvas.addEventListener("click", (event) => {
      const row = Math.floor((event.clientY - canvas.getBoundingClientRect().top - 18) / side);
      if (row >= 0 && row < count) choose(row);
    });
    const draw = (weights, names, agent, colours) => {
      count = names.length;
      const width = canvas.clientWidth || 240;
      left = Math.min(90, width * 0.34);
      const named = (width - left - 2) / count >= 10;
      if (!named) left = 2; // rows too low for names leave their room to the columns, which all have to fit
      side = Math.min(26, (width - left - 2) / count);
      const cell = side < 4 ? side : side - 1;
      const height = 20 + side * count;
      const pen = parts.fit(canvas, width, height);
      const size = Math.min(12, side * 0.7);
      for (let i = 0; i < count; i += 1) {
        const y = 18 + i * side;
        const ink = i === agent ? colours.accent : colours.ink;
        const name = names[i].length > 13 ? `${names[i].slice(0, 12)}…` : names[i];
        if (named) {
          parts.write(pen, name, left - 4, y + side / 2, size, ink, "right", i === agent);
          parts.write(pen, String(i), left + (i + 0.5) * side, 9, size, colours.faint);
        }
        for (let k = 0; k < count; k += 1) {
          pen.fillStyle = colours.line;
          pen.globalAlpha = 0.5;
          pen.fillRect(left + k * side, y, cell, cell);
          pen.fillStyle = colours.accent;
          pen.globalAlpha = Math.max(0, Math.min(1, weights[i * count + k])) || 0;
          pen.fillRect(left + k * side, y, cell, cell);
        }
        pen.globalAlpha = 1;
      }
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 2;
      pen.strokeRect(left, 18 + agent * side, count * side - 1, Math.max(cell, 1));
      const own = Array.from(weights.subarray(agent * count, (agent + 1) * count));
      const most = own.indexOf(Math.max(...own));
      note.textContent = most < 0 ? "" : `largest for ${names[most]} (${Math.round(100 * own[most])} %)`;
      canvas.setAttribute("aria-label", `Attention of ${names[agent]}: ${note.textContent}`);
    };
    return { element, draw };
  };
})();
