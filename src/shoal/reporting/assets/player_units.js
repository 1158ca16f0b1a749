// Battles: terrain, units with bars, shots, beams and explosions (shoal/environments/skirmish/drawing.py).
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const drawers = (parts.drawers = parts.drawers || {});
  // Okabe and Ito's palette, whose colours differ for people with common forms of colour blindness.
  const SIDES = ["#0072b2", "#d55e00"];
  const RIMS = ["#004a75", "#8a3d00"];
  const [HEALTH, SHIELD, ENERGY, BURST, HEAL] = ["#009e73", "#56b4e9", "#9457b4", "#e69f00", "#009e73"];

  const ground = (scene) => {
    const { pen, camera, episode, width, height, colours } = scene;
    const { floor, cliff, high } = episode.fixed.ground;
    pen.fillStyle = colours.line;
    pen.fillRect(0, 0, width, height);
    const cells = (runs, colour, opacity) => {
      pen.fillStyle = colour;
      pen.globalAlpha = opacity;
      for (const [y, x, count] of runs) {
        // On whole pixels, so that there are no seams between cells.
        const [left, right] = [Math.round(camera.x(x)), Math.round(camera.x(x + count))];
        const [top, bottom] = [Math.round(camera.y(y + 1)), Math.round(camera.y(y))];
        pen.fillRect(left, top, right - left, bottom - top);
      }
      pen.globalAlpha = 1;
    };
    cells(floor, colours.paper, 1);
    cells(high, BURST, 0.07);
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.45;
    pen.beginPath();
    for (let at = 0; at <= 32; at += 2) {
      pen.moveTo(camera.x(at), 0);
      pen.lineTo(camera.x(at), height);
      pen.moveTo(0, camera.y(at));
      pen.lineTo(width, camera.y(at));
    }
    pen.stroke();
    pen.globalAlpha = 1;
    cells(cliff, colours.paper, 0.55);
    cells(cliff, BURST, 0.22);
  };

  const between = (scene, name) => {
    const { episode, j, part } = scene;
    const now = episode.row(`scene/${name}`, j);
    if (part === 0) return now;
    const next = episode.row(`scene/${name}`, j + 1);
    return now.map((value, k) => value + part * (next[k] - value));
  };

  const bars = (scene, unit, k, x, y, radius, levels) => {
    const { pen, colours } = scene;
    const whole = unit.health + unit.shield;
    const rows = [[[levels.health[k] / whole, HEALTH], [levels.shield[k] / whole, SHIELD]]];
    if (unit.energy > 0) rows.push([[levels.energy[k] / unit.energy, ENERGY]]);
    const wide = Math.max(2 * radius * 0.95, 12);
    const high = Math.max(3, Math.min(5, radius * 0.3));
    let top = y - radius - high - 3;
    for (const row of rows) {
      pen.fillStyle = colours.paper;
      pen.globalAlpha = 0.85;
      pen.fillRect(x - wide / 2 - 1, top - 1, wide + 2, high + 2);
      pen.globalAlpha = 1;
      pen.fillStyle = "#5c5c5c";
      pen.fillRect(x - wide / 2, top, wide, high);
      let left = x - wide / 2;
      for (const [share, colour] of row) {
        pen.fillStyle = colour;
        const length = Math.max(0, Math.min(1, share)) * wide;
        pen.fillRect(left, top, length, high);
        left += length;
      }
      top -= high + 2;
    }
  };

  const beam = (scene, unit, from, to) => {
    const { pen, camera } = scene;
    const angle = Math.atan2(to.y - from.y, to.x - from.x);
    const [across, along] = unit.beam.map((length) => length * camera.scale);
    pen.save();
    pen.translate(to.x, to.y);
    pen.rotate(angle);
    pen.fillStyle = SIDES[unit.side];
    pen.globalAlpha = 0.4;
    pen.fillRect(-along / 2, -across / 2, along, across);
    pen.globalAlpha = 1;
    pen.strokeStyle = SIDES[unit.side];
    pen.lineWidth = 1.5;
    pen.strokeRect(-along / 2, -across / 2, along, across);
    pen.restore();
  };

  const shot = (scene, unit, from, to) => {
    const { pen, part } = scene;
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length];
    const start = Math.min(from.radius * 0.9, length);
    const stop = Math.max(length - 0.75 * to.radius, start);
    const at = (along) => [from.x + along * ux, from.y + along * uy];
    const colour = unit.attack === "heal" ? HEAL : SIDES[unit.side];
    for (const [ink, width] of [["rgba(255, 255, 255, 0.75)", 4], [colour, 2]]) {
      pen.strokeStyle = ink;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(...at(start));
      pen.lineTo(...at(stop));
      pen.stroke();
    }
    // During playback the dot moves to the target.
    const [x, y] = at(part === 0 ? stop : start + (stop - start) * Math.min(1, 1.4 * part));
    pen.fillStyle = colour;
    parts.disc(pen, x, y, 3.5);
    pen.fill();
  };

  const burst = (scene, unit, x, y, age) => {
    const { pen, camera } = scene;
    pen.fillStyle = BURST;
    pen.strokeStyle = SIDES[unit.side];
    pen.lineWidth = 2;
    const glow = 0.65 / age;
    parts.disc(pen, x, y, unit.blast * camera.scale);
    pen.globalAlpha = glow * 0.5;
    pen.fill();
    pen.globalAlpha = glow;
    pen.stroke();
    pen.globalAlpha = 1;
  };

  const cross = (scene, unit, x, y, radius) => {
    const { pen } = scene;
    pen.strokeStyle = SIDES[unit.side];
    pen.globalAlpha = 0.4;
    pen.lineWidth = 2.5;
    const arm = 0.5 * radius;
    pen.beginPath();
    pen.moveTo(x - arm, y - arm);
    pen.lineTo(x + arm, y + arm);
    pen.moveTo(x - arm, y + arm);
    pen.lineTo(x + arm, y - arm);
    pen.stroke();
    pen.globalAlpha = 1;
  };

  const body = (scene, unit, x, y, radius) => {
    const { pen } = scene;
    if (unit.flies) {
      pen.fillStyle = "#000000";
      pen.globalAlpha = 0.18;
      parts.disc(pen, x + radius * 0.25, y + radius * 0.4, radius);
      pen.fill();
    }
    pen.globalAlpha = unit.flies ? 0.88 : 1;
    pen.fillStyle = SIDES[unit.side];
    parts.disc(pen, x, y, radius);
    pen.fill();
    pen.strokeStyle = RIMS[unit.side];
    pen.lineWidth = Math.max(1, radius * 0.1);
    pen.stroke();
    pen.globalAlpha = 1;
    const letter = unit.letter;
    if (letter && radius >= 5) parts.write(pen, letter, x, y + 0.5, 1.25 * radius, "#ffffff", "center", true);
  };

  drawers.units = (scene) => {
    const { episode, pen, camera, view, j, part, x, y } = scene;
    ground(scene);
    const { units } = episode.fixed;
    const health = episode.row("scene/health", j);
    const levels = { health: between(scene, "health"), shield: between(scene, "shield"), energy: between(scene, "energy") };
    const spots = units.map((unit, k) => ({
      agent: unit.agent === null ? -1 : unit.agent,
      x: camera.x(x[k]),
      y: camera.y(y[k]),
      radius: Math.max(unit.radius * camera.scale, 4),
      reach: Math.max(unit.radius * camera.scale, 8),
    }));
    scene.spots = spots.filter((spot) => spot.agent >= 0);
    units.forEach((unit, k) => {
      if (!(health[k] > 0)) cross(scene, unit, spots[k].x, spots[k].y, spots[k].radius);
    });
    const bursts = episode.row("scene/burst", part > 0.5 ? j + 1 : j);
    units.forEach((unit, k) => {
      if (bursts[k] > 0) burst(scene, unit, spots[k].x, spots[k].y, bursts[k]);
    });
    // The attacks of the step being played; when paused, those of the step before.
    const aims = episode.row("scene/shot", part > 0 ? j + 1 : j);
    units.forEach((unit, k) => {
      if (aims[k] >= 0 && unit.attack === "beam") beam(scene, unit, spots[k], spots[aims[k]]);
    });
    const living = units.map((_, k) => k).filter((k) => health[k] > 0);
    living.sort((a, b) => units[a].flies - units[b].flies || units[a].climbs - units[b].climbs || y[b] - y[a]);
    if (view.trails) for (const k of living) parts.trail(scene, k, SIDES[units[k].side]);
    parts.attention(scene, scene.spots.filter((spot) => health[spots.indexOf(spot)] > 0));
    for (const k of living) {
      body(scene, units[k], spots[k].x, spots[k].y, spots[k].radius);
      bars(scene, units[k], k, spots[k].x, spots[k].y, spots[k].radius, levels);
    }
    units.forEach((unit, k) => {
      if (aims[k] >= 0) shot(scene, unit, spots[k], spots[aims[k]]);
    });
    const own = spots.find((spot) => spot.agent === view.agent);
    if (own && view.agent >= 0) parts.chosen(scene, own.x, own.y, own.radius);
    pen.globalAlpha = 1;
  };

  /** The numbers of living units of both sides, as text; empty for scenes without units. */
  parts.armies = (episode, j) => {
    if (episode.kind !== "units") return "";
    const health = episode.row("scene/health", j);
    const { units } = episode.fixed;
    const counts = [0, 1].map((side) => {
      const all = units.map((unit, k) => [unit, k]).filter(([unit]) => unit.side === side);
      return `${all.filter(([, k]) => health[k] > 0).length} of ${all.length}`;
    });
    return `allies ${counts[0]} · enemies ${counts[1]}`;
  };
})();
