// Scenes of discs, rings and squares: particle worlds and grids (shoal/environments/outlines.py).
// Also pictures, and the chart of actions that is drawn if there is neither.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const drawers = (parts.drawers = parts.drawers || {});
  const MARK = "#e69f00";
  // Okabe and Ito's palette, whose colours differ for people with common forms of colour blindness.
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

  const ground = (scene) => {
    const { pen, camera, episode, width, height, colours } = scene;
    const [left, bottom, right, top] = episode.fixed.cell ? episode.fixed.box : camera.shown;
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = colours.paper;
    pen.fillRect(camera.x(left), camera.y(top), (right - left) * camera.scale, (top - bottom) * camera.scale);
    let cell = episode.fixed.cell || 0.5;
    while (!episode.fixed.cell && right - left > 100 * cell) cell *= 2; // else lines cover a large scene
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.globalAlpha = episode.fixed.cell ? 0.9 : 0.5;
    pen.beginPath();
    for (let x = Math.ceil(left / cell) * cell; x <= right + 1e-6; x += cell) {
      pen.moveTo(camera.x(x), camera.y(bottom));
      pen.lineTo(camera.x(x), camera.y(top));
    }
    for (let y = Math.ceil(bottom / cell) * cell; y <= top + 1e-6; y += cell) {
      pen.moveTo(camera.x(left), camera.y(y));
      pen.lineTo(camera.x(right), camera.y(y));
    }
    pen.stroke();
    pen.globalAlpha = 1;
  };

  const shape = (scene, body, x, y, radius, marked) => {
    const { pen, colours } = scene;
    const hollow = body.shape === "ring" || body.shape === "frame";
    pen.beginPath();
    if (body.shape === "square" || body.shape === "frame") pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    else pen.arc(x, y, Math.max(radius, 1), 0, 2 * Math.PI);
    if (hollow) {
      pen.fillStyle = body.colour;
      pen.globalAlpha = 0.18;
      pen.fill();
      pen.globalAlpha = 1;
      pen.strokeStyle = body.colour;
      pen.lineWidth = Math.max(2, Math.min(4, radius * 0.4));
      pen.stroke();
      return;
    }
    pen.fillStyle = marked && body.agent === null ? MARK : body.colour;
    pen.fill();
    pen.strokeStyle = colours.ink;
    pen.globalAlpha = 0.45;
    pen.lineWidth = 1;
    pen.stroke();
    pen.globalAlpha = 1;
    if (marked && body.agent !== null) {
      pen.strokeStyle = MARK;
      pen.lineWidth = Math.max(2.5, radius * 0.25);
      parts.disc(pen, x, y, radius);
      pen.stroke();
    }
  };

  drawers.bodies = (scene) => {
    const { episode, pen, camera, view, j, x, y } = scene;
    ground(scene);
    const bodies = episode.fixed.bodies;
    const mark = episode.has("scene/mark") ? episode.row("scene/mark", j) : null;
    const turn = episode.has("scene/turn") ? episode.row("scene/turn", j) : null;
    const order = bodies.map((_, k) => k).sort((a, b) => (bodies[a].agent !== null) - (bodies[b].agent !== null));
    for (const k of order) {
      if (Number.isFinite(x[k]) && bodies[k].agent !== null) {
        const radius = Math.max(bodies[k].radius * camera.scale, 4);
        scene.spots.push({ agent: bodies[k].agent, x: camera.x(x[k]), y: camera.y(y[k]), reach: radius });
        if (view.trails) parts.trail(scene, k, bodies[k].colour);
      }
    }
    parts.attention(scene, scene.spots);
    for (const k of order) {
      if (!Number.isFinite(x[k])) continue;
      const body = bodies[k];
      const [px, py] = [camera.x(x[k]), camera.y(y[k])];
      const radius = Math.max(body.radius * camera.scale, body.agent === null ? 2 : 4);
      shape(scene, body, px, py, radius, mark && mark[k] > 0);
      if (turn && Number.isFinite(turn[k])) {
        const angle = (turn[k] * Math.PI) / 180;
        pen.strokeStyle = body.colour;
        pen.lineWidth = Math.max(3, radius * 0.4);
        pen.beginPath();
        pen.moveTo(px + 0.9 * radius * Math.cos(angle), py - 0.9 * radius * Math.sin(angle));
        pen.lineTo(px + 1.5 * radius * Math.cos(angle), py - 1.5 * radius * Math.sin(angle));
        pen.stroke();
      }
      const text = body.text || (body.agent === null ? "" : String(body.agent));
      if (text && radius >= 7) parts.write(pen, text, px, py + 0.5, Math.min(16, 1.1 * radius), "#ffffff", "center", true);
      if (body.agent === view.agent && body.agent !== null) parts.chosen(scene, px, py, radius);
    }
    for (const spot of scene.spots) {
      const said = episode.message(j, spot.agent);
      if (said && said !== "nothing") parts.speech(scene, said, spot.x, spot.y, spot.reach);
    }
  };

  drawers.pictures = (scene) => {
    const { episode, pen, width, height, j } = scene;
    const image = episode.images[episode.row("picture", j)[0]];
    const scale = Math.min(width / image.width, height / image.height);
    const [wide, high] = [image.width * scale, image.height * scale];
    pen.imageSmoothingEnabled = scale < 3;
    pen.drawImage(image, (width - wide) / 2, (height - high) / 2, wide, high);
  };

  const SECOND = 0.45; // opacity of the colours of the actions that follow the first eight
  const LIGHT = ["#e69f00", "#cc79a7", "#56b4e9", "#f0e442", "#999999"]; // with dark numbers

  const tint = (episode, j, agent) => {
    const action = episode.of("actions", j, agent);
    if (episode.run.space.kind === "discrete") {
      return [PALETTE[action[0] % PALETTE.length], action[0] < PALETTE.length ? 1 : SECOND, action[0]];
    }
    const { low, high } = episode.run.space;
    const own = Array.from(action).slice(0, episode.run.dims[agent]);
    const mean = own.reduce((sum, value) => sum + value, 0) / Math.max(own.length, 1);
    return [PALETTE[0], 0.15 + (0.85 * (mean - low)) / (high - low || 1)];
  };

  /** A row for each agent with the colours of its actions, and below the team's return. */
  drawers.none = (scene) => {
    const { episode, pen, width, height, j, part, view, colours } = scene;
    const n = episode.run.agents.length;
    const left = Math.min(130, width * 0.3);
    const line = Math.min(26, (height - 40) / n);
    const gap = Math.min(2, 0.15 * line); // rows of hundreds of agents are thinner than two gaps of 2 pixels
    const column = (width - left - 6) / episode.shown;
    for (let i = 0; i < n; i += 1) {
      const top = 4 + i * line;
      const name = episode.run.agents[i];
      const ink = i === view.agent ? colours.accent : colours.ink;
      const words = name.length > 16 ? `${name.slice(0, 15)}…` : name;
      const size = Math.min(13, line * 0.7);
      if (size >= 4) parts.write(pen, words, 4, top + line / 2, size, ink, "left", i === view.agent);
      else if (i === view.agent) parts.write(pen, words, 4, Math.max(top + line / 2, 7), 12, ink, "left", true);
      for (let t = 0; t < episode.shown; t += 1) {
        const [colour, opacity, number] = tint(episode, t, i);
        pen.fillStyle = colour;
        pen.globalAlpha = opacity;
        pen.fillRect(left + t * column, top + gap, Math.max(column - (column > 4 ? 1 : 0), 0.5), line - 2 * gap);
        pen.globalAlpha = 1;
        const digits = Math.min(11, line - 6);
        if (number === undefined || digits < 8 || column < 4 + 0.65 * digits * String(number).length) continue;
        const dark = LIGHT.includes(colour) ? "#111111" : "#ffffff";
        parts.write(pen, String(number), left + (t + 0.5) * column, top + line / 2, digits, opacity < 1 ? colours.ink : dark);
      }
      scene.spots.push({ agent: i, row: true, x: 0, y: top + line / 2, reach: line / 2 });
    }
    const at = left + Math.min(j + part, episode.shown) * column;
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(at, 0);
    pen.lineTo(at, 8 + n * line);
    pen.stroke();
    const { kind, n: choices } = episode.run.space;
    const apart = kind === "discrete" && choices <= 2 * PALETTE.length;
    parts.write(pen, `actions over time${apart ? ", one colour per action" : ""}`, left, 20 + n * line, 12, colours.faint, "left");
  };
})();
