// Reads the numbers of an episode: the form is described in shoal/reporting/replays.py.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});

  const inflate = async (text) => {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("This browser cannot decompress replays; use a newer one.");
    }
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  const unpack = (bytes, entry) => {
    const shape = entry.shape;
    const size = shape.reduce((product, n) => product * n, 1);
    const row = shape.slice(1).reduce((product, n) => product * n, 1);
    const columns = shape[shape.length - 1] || 1;
    const at = entry.at;
    const data = new Float64Array(size);
    const floats = entry.floats || [];
    const codeBytes = entry.type === "bits" ? Math.ceil(size / 8) : entry.type === "u8" ? size : 2 * size;
    const needed = codeBytes + 4 * floats.length * (size / columns);
    if (!["bits", "u8", "u16"].includes(entry.type) || at + needed > bytes.length) {
      throw new Error("The data of this replay are damaged.");
    }
    if (entry.type === "bits") {
      for (let i = 0; i < size; i += 1) data[i] = (bytes[at + (i >> 3)] >> (7 - (i & 7))) & 1;
      return { shape, row, data };
    }
    const wide = entry.type === "u16";
    const most = wide ? 65535 : 255;
    const codes = wide ? new Uint16Array(size) : new Uint8Array(size); // sums wrap around, as in the encoder
    const many = Array.isArray(entry.first);
    for (let i = 0; i < size; i += 1) {
      const change = wide ? (bytes[at + i] << 8) | bytes[at + size + i] : bytes[at + i];
      codes[i] = change + (i >= row ? codes[i - row] : 0);
      const first = many ? entry.first[i % columns] : entry.first;
      const unit = many ? entry.unit[i % columns] : entry.unit;
      data[i] = entry.gaps && codes[i] === most ? NaN : (first + codes[i]) * unit;
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset + at + codeBytes);
    floats.forEach((column, k) => {
      for (let i = 0; i < size / columns; i += 1) {
        data[i * columns + column] = view.getFloat32(4 * (k * (size / columns) + i), true);
      }
    });
    return { shape, row, data };
  };

  const known = new WeakMap();

  /** The arrays of an episode by name: {shape, row (entries of one step), data}. */
  parts.decode = (episode) => {
    if (!known.has(episode)) {
      const work = inflate(episode.packed.data).then((bytes) => {
        const arrays = new Map();
        for (const [name, entry] of Object.entries(episode.packed.index)) arrays.set(name, unpack(bytes, entry));
        return arrays;
      });
      known.set(episode, work);
    }
    return known.get(episode);
  };

  const loadImage = (address) =>
    new Promise((resolve, reject) => {
      if (typeof address !== "string" || !address.startsWith("data:image/")) {
        reject(new Error("A picture of this replay is not an image."));
        return;
      }
      const image = new Image();
      image.onload = () => resolve(image);
      image.onerror = () => reject(new Error("A picture of this replay cannot be decoded."));
      image.src = address;
    });

  /** One episode of the document, with its numbers. Row j of a decision is at the j-th step shown. */
  parts.openEpisode = async (doc, runIndex, seedIndex, episodeIndex) => {
    const run = doc.runs[runIndex];
    const seed = run.seeds[Math.min(seedIndex, run.seeds.length - 1)];
    const raw = seed.episodes[Math.min(episodeIndex, seed.episodes.length - 1)];
    const arrays = await parts.decode(raw);
    const images = await Promise.all((raw.pictures || []).map(loadImage));
    const shown = arrays.get("rewards").shape[0];
    const steps = raw.steps || Array.from({ length: raw.length + 1 }, (_, t) => t);
    const n = run.agents.length;
    const rewards = arrays.get("rewards");
    const team = new Float64Array(shown + 1);
    const own = Array.from({ length: n }, () => new Float64Array(shown + 1));
    for (let j = 0; j < shown; j += 1) {
      let sum = 0;
      for (let i = 0; i < n; i += 1) {
        const earned = rewards.data[j * n + i];
        sum += run.scored.includes(i) ? earned : 0;
        own[i][j + 1] = own[i][j] + earned;
      }
      team[j + 1] = team[j] + (run.score === "mean" ? sum / run.scored.length : sum);
    }
    const fixed = raw.fixed === null || raw.fixed === undefined ? {} : doc.fixed[raw.fixed];
    const named = (table, agent) => {
      const row = fixed[table] && fixed[table].rows[agent];
      return row ? row.map((k) => fixed[table].names[k]) : null;
    };
    const row = (name, j) => {
      const found = arrays.get(name);
      const at = Math.max(0, Math.min(j, found.shape[0] - 1));
      return found.data.subarray(at * found.row, (at + 1) * found.row);
    };
    return {
      raw, run, seed, fixed, arrays, images, steps, shown, team, own,
      kind: raw.kind,
      length: raw.length,
      has: (name) => arrays.has(name),
      row,
      /** The numbers of one agent at the j-th step shown. */
      of: (name, j, agent) => {
        const whole = row(name, j);
        const width = whole.length / arrays.get(name).shape[1];
        return whole.subarray(agent * width, (agent + 1) * width);
      },
      agentsOf: (name) => arrays.get(name).shape[1],
      actionNames: (agent) => named("actions", agent) || Array.from({ length: run.dims[agent] }, (_, k) => String(k)),
      featureNames: (agent) =>
        named("features", agent) || Array.from({ length: run.obs_dims[agent] }, (_, k) => String(k)),
      message: (j, agent) => {
        if (!arrays.has("message")) return "";
        return raw.messages[row("message", j)[agent]] || "";
      },
      caption: (j) => (arrays.has("caption") ? raw.captions[row("caption", j)[0]] || "" : ""),
      /** The step shown at a time, and the fraction of the way to the next one. */
      place: (time) => {
        if (time >= raw.length) return { j: shown, part: 0 };
        let low = 0;
        let high = shown;
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (steps[middle] <= time) low = middle;
          else high = middle - 1;
        }
        const gap = low < shown ? steps[low + 1] - steps[low] : 1;
        return { j: low, part: low < shown ? (time - steps[low]) / gap : 0 };
      },
    };
  };
})();
