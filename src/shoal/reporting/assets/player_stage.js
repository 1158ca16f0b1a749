// The canvas of one episode: size, camera, interpolation and what all kinds of scenes share.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const TRAIL = 14;
  const HIGHEST = 560;

  parts.drawers = parts.drawers || {};

  /** The page's colours as they are now. */
  parts.colours = (element) => {
    const style = getComputedStyle(element);
    const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
    return {
      ink: read("--sp-ink", "#222222"),
      faint: read("--sp-faint", "#6b6b6b"),
      paper: read("--sp-paper", "#ffffff"),
      panel: read("--sp-panel", "#f5f5f2"),
      line: read("--sp-line", "#d5d5d0"),
      accent: read("--sp-accent", "#0072b2"),
    };
  };

  /** Give a canvas the pixels of its place in the page; returns its context in CSS pixels. */
  parts.fit = (canvas, width, height) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(wide / width, 0, 0, high / height, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
  };

  const busy = new WeakMap();

  /** The part of a battle's map in which units are at any time, with a margin. */
  const busyBox = (episode) => {
    if (!busy.has(episode)) {
      const [left, bottom, right, top] = episode.fixed.ground.box;
      const span = (name, low, high) => {
        const { data } = episode.arrays.get(`scene/${name}`);
        const [least, most] = [data.reduce((a, b) => Math.min(a, b)), data.reduce((a, b) => Math.max(a, b))];
        const more = Math.max(2.5, (11 - (most - least)) / 2);
        return [Math.max(low, least - more), Math.min(high, most + more)];
      };
      const [x, y] = [span("x", left, right), span("y", bottom, top)];
      busy.set(episode, [x[0], y[0], x[1], y[1]]);
    }
    return busy.get(episode);
  };

  /** [left, bottom, right, top] of what is shown; null for scenes without positions. */
  parts.boxOf = (episode) => {
    if (episode.kind === "units") return busyBox(episode);
    if (episode.kind === "bodies") return episode.fixed.box;
    return null;
  };

  const camera = (box, width, height) => {
    const [left, bottom, right, top] = box;
    const scale = Math.min(width / (right - left), height / (top - bottom));
    const [dx, dy] = [(width - scale * (right - left)) / 2, (height - scale * (top - bottom)) / 2];
    const shown = [left - dx / scale, bottom - dy / scale, right + dx / scale, top + dy / scale]; // the whole canvas
    return { scale, shown, x: (x) => dx + (x - left) * scale, y: (y) => dy + (top - y) * scale };
  };

  /** Interpolated positions between two steps; a jump of more than a third of the scene is not interpolated. */
  const positions = (episode, j, part, far) => {
    const [x0, y0] = [episode.row("scene/x", j), episode.row("scene/y", j)];
    if (part === 0) return { x: x0, y: y0 };
    const [x1, y1] = [episode.row("scene/x", j + 1), episode.row("scene/y", j + 1)];
    const [x, y] = [new Float64Array(x0.length), new Float64Array(x0.length)];
    for (let k = 0; k < x0.length; k += 1) {
      const leaps = !(Math.hypot(x1[k] - x0[k], y1[k] - y0[k]) < far);
      x[k] = leaps ? x0[k] : x0[k] + part * (x1[k] - x0[k]);
      y[k] = leaps ? y0[k] : y0[k] + part * (y1[k] - y0[k]);
    }
    return { x, y };
  };

  parts.makeStage = (canvas, chooseAgent) => {
    let spots = []; // of agents, in CSS pixels
    canvas.addEventListener("click", (event) => {
      const frame = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
      let [best, least] = [-1, Infinity];
      for (const spot of spots) {
        const apart = spot.row ? (Math.abs(y - spot.y) <= spot.reach ? 0 : Infinity) : Math.hypot(x - spot.x, y - spot.y);
        if (apart < least && apart <= Math.max(spot.reach, 22)) [best, least] = [spot.agent, apart];
      }
      if (best >= 0) chooseAgent(best);
    });

    const draw = (episode, time, view) => {
      const width = canvas.clientWidth || canvas.parentElement.clientWidth || 300;
      const box = view.box || parts.boxOf(episode);
      const image = episode.images[0];
      let aspect = 0.5;
      if (box) aspect = (box[3] - box[1]) / (box[2] - box[0]);
      else if (image) aspect = image.height / image.width;
      else aspect = Math.min(0.7, (60 + 26 * episode.run.agents.length) / width);
      const most = Math.min(HIGHEST, Math.max(240, window.innerHeight * 0.72));
      const height = Math.round(Math.min(width * aspect, most));
      const pen = parts.fit(canvas, width, height);
      const { j, part } = episode.place(time);
      const scene = { episode, pen, width, height, j, part, view, spots: [], colours: view.colours };
      if (box) {
        scene.camera = camera(box, width, height);
        Object.assign(scene, positions(episode, j, part, (box[2] - box[0]) / 3));
      }
      (parts.drawers[episode.kind] || parts.drawers.none)(scene);
      spots = scene.spots;
    };
    return { draw };
  };

  /** The last positions of thing k as a fading line. */
  parts.trail = (scene, k, colour) => {
    const { episode, pen, camera: eye, j } = scene;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    let from = null;
    for (let back = Math.min(TRAIL, j); back >= 0; back -= 1) {
      const [x, y] = [episode.row("scene/x", j - back)[k], episode.row("scene/y", j - back)[k]];
      const to = Number.isFinite(x) ? [eye.x(x), eye.y(y)] : null;
      if (from && to) {
        pen.globalAlpha = 0.55 * (1 - back / (TRAIL + 1));
        pen.beginPath();
        pen.moveTo(...from);
        pen.lineTo(...to);
        pen.stroke();
      }
      from = to;
    }
    if (from && Number.isFinite(scene.x[k])) {
      pen.globalAlpha = 0.55;
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(eye.x(scene.x[k]), eye.y(scene.y[k]));
      pen.stroke();
    }
    pen.globalAlpha = 1;
  };

  parts.disc = (pen, x, y, radius) => {
    pen.beginPath();
    pen.arc(x, y, Math.max(radius, 0.5), 0, 2 * Math.PI);
  };

  /** The ring around the selected agent. */
  parts.chosen = (scene, x, y, radius) => {
    const { pen, colours } = scene;
    for (const [colour, width] of [[colours.paper, 5], [colours.accent, 2.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      parts.disc(pen, x, y, radius + 5);
      pen.stroke();
    }
  };

  parts.write = (pen, text, x, y, size, colour, align = "center", bold = false) => {
    pen.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillStyle = colour;
    pen.fillText(text, x, y);
  };

  /** An agent's message, in a bubble above it. */
  parts.speech = (scene, text, x, y, radius) => {
    const { pen, colours, width } = scene;
    const words = text.length > 24 ? `${text.slice(0, 23)}…` : text;
    pen.font = "600 13px system-ui, sans-serif";
    const wide = pen.measureText(words).width + 14;
    const left = Math.max(2, Math.min(x + radius * 0.5, width - wide - 2));
    const top = Math.max(2, y - radius - 28);
    pen.beginPath();
    pen.roundRect(left, top, wide, 22, 8);
    pen.moveTo(left + 10, top + 22);
    pen.lineTo(x + radius * 0.4, y - radius * 0.9);
    pen.lineTo(left + 20, top + 22);
    pen.fillStyle = colours.paper;
    pen.fill();
    pen.strokeStyle = colours.faint;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(left, top, wide, 22, 8);
    pen.stroke();
    parts.write(pen, words, left + wide / 2, top + 11.5, 13, colours.ink, "center", true);
  };

  /** Lines from the selected agent to the agents that it attends to; the width is the attention. */
  parts.attention = (scene, spots) => {
    const { episode, pen, view, j, colours } = scene;
    if (!episode.has("attention")) return;
    const from = spots.find((spot) => spot.agent === view.agent);
    if (!from) return;
    const weights = episode.of("attention", j, view.agent);
    for (const to of spots) {
      const weight = weights[to.agent];
      if (to === from || !(weight > 0.01)) continue;
      pen.globalAlpha = 0.25 + 0.6 * weight;
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 1 + 9 * weight;
      pen.lineCap = "round";
      pen.beginPath();
      pen.moveTo(from.x, from.y);
      pen.lineTo(to.x, to.y);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.lineCap = "butt";
  };
})();
