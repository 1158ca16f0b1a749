// Buttons and choices of the player, as elements of the page with labels; texts are never read as HTML.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  parts.SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

  parts.el = (tag, classes = "", attributes = {}, ...children) => {
    const element = document.createElement(tag);
    if (classes) element.className = classes;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  const button = (label, sign, keys, press) => {
    const element = parts.el("button", "sp-button", { type: "button", "aria-label": label, title: `${label} (${keys})` }, sign);
    element.addEventListener("click", press);
    return element;
  };

  /** Buttons, slider, speed, and trails if things are ``moving``. ``act`` has toggle, step, seek, speed and trails. */
  parts.makeControls = (act) => {
    const play = button("Play", "▶", "space", act.toggle);
    play.classList.add("sp-play");
    const slider = parts.el("input", "sp-slider", { type: "range", min: "0", max: "1", step: "1", "aria-label": "Step" });
    slider.addEventListener("input", () => act.seek(Number(slider.value)));
    const clock = parts.el("output", "sp-clock");
    const speed = parts.el("select", "sp-speed", { "aria-label": "Speed", title: "Speed ([ and ])" });
    for (const each of parts.SPEEDS) speed.append(parts.el("option", "", { value: String(each) }, `${each}×`));
    speed.addEventListener("change", () => act.speed(Number(speed.value)));
    const trails = parts.el("input", "", { type: "checkbox" });
    const choice = parts.el("label", "sp-check", {}, trails, " trails");
    trails.addEventListener("change", () => act.trails(trails.checked));
    const buttons = parts.el(
      "div", "sp-buttons", { role: "group", "aria-label": "Playback" },
      button("First step", "|‹", "Home", () => act.seek(0)),
      button("One step back", "‹", "left arrow", () => act.step(-1)),
      play,
      button("One step forward", "›", "right arrow", () => act.step(1)),
      button("Last step", "›|", "End", () => act.seek(Infinity)),
    );
    const element = parts.el("div", "sp-controls", {}, buttons, slider, clock, speed, choice);
    const draw = (now, moving) => {
      play.textContent = now.playing ? "❚❚" : "▶";
      play.setAttribute("aria-label", now.playing ? "Pause" : "Play");
      play.title = `${now.playing ? "Pause" : "Play"} (space)`;
      slider.max = String(now.length);
      slider.value = String(Math.floor(now.time));
      slider.setAttribute("aria-valuetext", `step ${Math.floor(now.time)} of ${now.length}`);
      clock.textContent = `step ${Math.floor(now.time)} of ${now.length}`;
      speed.value = String(now.speed);
      trails.checked = now.trails;
      choice.hidden = !moving;
    };
    return { element, draw };
  };

  const seedName = (seed) => (seed.about ? `seed ${seed.seed}: ${seed.about}` : `seed ${seed.seed}`);

  /** The menus above one canvas: run and seed. With ``none``, "no second policy" can be selected. */
  parts.makeChoice = (doc, none, change) => {
    const run = parts.el("select", "sp-run", { "aria-label": none ? "Second policy" : "Policy" });
    if (none) run.append(parts.el("option", "", { value: "-1" }, "no second policy"));
    doc.runs.forEach((each, i) => run.append(parts.el("option", "", { value: String(i) }, each.label)));
    const seed = parts.el("select", "sp-seed", { "aria-label": none ? "Seed of the second policy" : "Seed" });
    run.addEventListener("change", () => change({ run: Number(run.value), seed: 0 }));
    seed.addEventListener("change", () => change({ seed: Number(seed.value) }));
    const element = parts.el("span", "sp-choice", {}, run, " ", seed);
    let listed = -2;
    const draw = (chosen) => {
      run.value = String(chosen.run);
      run.hidden = doc.runs.length < 2 && !none;
      if (chosen.run !== listed) {
        listed = chosen.run;
        seed.textContent = "";
        const seeds = chosen.run < 0 ? [] : doc.runs[chosen.run].seeds;
        seeds.forEach((each, i) => seed.append(parts.el("option", "", { value: String(i) }, seedName(each))));
      }
      seed.hidden = chosen.run < 0 || doc.runs[chosen.run].seeds.length < 2;
      seed.value = String(chosen.seed);
      element.hidden = run.hidden && seed.hidden;
    };
    return { element, draw };
  };

  /** The menu of episodes. */
  parts.makeEpisodes = (count, change) => {
    const select = parts.el("select", "", { "aria-label": "Episode" });
    for (let i = 0; i < count; i += 1) select.append(parts.el("option", "", { value: String(i) }, `episode ${i + 1} of ${count}`));
    select.addEventListener("change", () => change(Number(select.value)));
    select.hidden = count < 2;
    return { element: select, draw: (episode) => (select.value = String(episode)) };
  };
})();
