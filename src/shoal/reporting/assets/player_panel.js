// The selected agent: its actions, observation, values, rewards, messages and attention.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const MANY = 16;

  const meter = (kind) => {
    const fill = parts.el("span", `sp-fill ${kind}`);
    return { element: parts.el("span", "sp-meter", {}, fill), fill };
  };

  const place = (fill, from, to) => {
    const [low, high] = [Math.max(0, Math.min(from, to, 1)), Math.min(1, Math.max(from, to, 0))];
    fill.style.left = `${(100 * low).toFixed(1)}%`;
    fill.style.width = `${(100 * Math.max(high - low, 0)).toFixed(1)}%`;
  };

  /** Discrete actions as bars: illegal actions are marked, the agent's action is highlighted. */
  const choices = (episode, j, agent) => {
    const names = episode.actionNames(agent);
    const legal = episode.has("legal") ? episode.of("legal", j, agent) : null;
    const taken = episode.of("actions", j, agent)[0];
    // The probabilities of ε-greedy actions follow from the utilities, which say more.
    const told = ["utilities", "probabilities"].filter((name) => episode.has(name));
    const name = told.find((each) => episode.of(each, j, agent).some(Number.isFinite)) || "";
    const numbers = name ? Array.from(episode.of(name, j, agent)) : names.map(() => NaN);
    const known = numbers.filter(Number.isFinite);
    const [low, high] = name === "utilities" ? [Math.min(...known), Math.max(...known)] : [0, 1];
    let rows = names.map((label, k) => {
      const value = numbers[k];
      const share = name === "utilities" ? 0.08 + (0.92 * (value - low)) / (high - low || 1) : value;
      return { label, value, share, legal: !legal || legal[k] > 0, taken: k === taken };
    });
    const all = rows.length;
    if (all > MANY) {
      const ranked = rows.filter((row) => row.legal).sort((a, b) => (b.share || 0) - (a.share || 0));
      const kept = new Set(ranked.slice(0, MANY - 1));
      rows = rows.filter((row) => kept.has(row) || row.taken);
    }
    return { name, rows, hidden: all - rows.length };
  };

  const drawChoices = (target, episode, j, agent) => {
    const { name, rows, hidden } = choices(episode, j, agent);
    target.list.textContent = "";
    for (const row of rows) {
      const bar = meter("");
      if (Number.isFinite(row.share)) place(bar.fill, 0, row.share);
      else place(bar.fill, 0, 0);
      const number = name === "probabilities" ? `${(100 * row.value).toFixed(1)} %` : name ? parts.number(row.value) : "";
      const text = row.legal ? number : "illegal";
      const state = `sp-row${row.taken ? " sp-taken" : ""}${row.legal ? "" : " sp-illegal"}`;
      const label = parts.el("span", "sp-name", { title: row.label }, row.taken ? `▸ ${row.label}` : row.label);
      const value = parts.el("span", "sp-value", {}, text);
      target.list.append(parts.el("li", state, row.taken ? { "aria-current": "true" } : {}, label, bar.element, value));
    }
    const kinds = { probabilities: "probability of each action", utilities: "utility of each action" };
    const more = hidden ? `; ${hidden} less likely or illegal actions are not listed` : "";
    target.note.textContent = (kinds[name] || "the policy records no probabilities or utilities") + more;
  };

  const drawContinuous = (target, episode, j, agent) => {
    const { low, high } = episode.run.space;
    const names = episode.actionNames(agent);
    const action = episode.of("actions", j, agent);
    const told = episode.has("mean");
    const [mean, std] = told ? [episode.of("mean", j, agent), episode.of("std", j, agent)] : [null, null];
    target.list.textContent = "";
    names.forEach((label, k) => {
      const bar = meter("sp-spread");
      const mark = parts.el("span", "sp-mark");
      const at = (value) => (value - low) / (high - low || 1);
      if (told && Number.isFinite(mean[k])) place(bar.fill, at(mean[k] - std[k]), at(mean[k] + std[k]));
      else place(bar.fill, 0, 0);
      mark.style.left = `${(100 * Math.max(0, Math.min(1, at(action[k])))).toFixed(1)}%`;
      bar.element.append(mark);
      const value = parts.el("span", "sp-value", {}, parts.number(action[k]));
      const name = parts.el("span", "sp-name", { title: label }, label);
      target.list.append(parts.el("li", "sp-row sp-real", {}, name, bar.element, value));
    });
    target.note.textContent = told ? `mark: the action; bar: mean ± standard deviation; scale from ${low} to ${high}` : `the action; scale from ${low} to ${high}`;
  };

  const makeObservation = () => {
    const list = parts.el("ol", "sp-list sp-obs");
    let [known, rows, sizes] = ["", [], []];
    const build = (episode, agent, key) => {
      known = key;
      list.textContent = "";
      const names = episode.featureNames(agent);
      sizes = new Float64Array(names.length);
      for (let j = 0; j < episode.shown; j += 1) {
        const values = episode.of("obs", j, agent);
        for (let k = 0; k < names.length; k += 1) sizes[k] = Math.max(sizes[k], Math.abs(values[k]) || 0);
      }
      rows = names.map((label, k) => {
        const bar = meter("");
        const value = parts.el("span", "sp-value");
        const row = parts.el("li", "sp-row", {}, parts.el("span", "sp-name", { title: label }, label), bar.element, value);
        list.append(row);
        return { row, bar, value, k };
      });
    };
    const draw = (episode, j, agent, key) => {
      if (key !== known) build(episode, agent, key);
      const values = episode.of("obs", j, agent);
      const top = Math.max(...sizes, 1e-9);
      for (const { row, bar, value, k } of rows) {
        // One scale if all features have similar sizes, otherwise one per feature.
        const scale = top < 20 ? Math.max(1, top) : sizes[k] || 1;
        place(bar.fill, 0.5, 0.5 + (0.5 * values[k]) / scale);
        value.textContent = parts.number(values[k]);
        row.classList.toggle("sp-zero", values[k] === 0);
      }
    };
    return { list, draw };
  };

  parts.makePanel = (choose, seek) => {
    const select = parts.el("select", "", { "aria-label": "Agent" });
    select.addEventListener("change", () => choose(Number(select.value)));
    const state = parts.el("span", "sp-small");
    const said = parts.el("ul", "sp-list sp-said");
    const section = (title, ...children) => parts.el("section", "sp-section", {}, parts.el("h4", "", {}, title), ...children);
    const actions = { list: parts.el("ol", "sp-list"), note: parts.el("p", "sp-small") };
    const observation = makeObservation();
    const value = parts.makeChart("value", seek);
    const reward = parts.makeChart("reward of the agent", seek);
    const returned = parts.makeChart("team's return so far", seek);
    const heat = parts.makeHeat(choose);
    const sections = {
      actions: section("Action", actions.list, actions.note),
      said: section("Messages", said),
      over: section("Over time", value.element, reward.element, returned.element),
      attention: section("Attention", heat.element),
      obs: section("Observation", observation.list),
    };
    const head = parts.el("div", "sp-head", {}, parts.el("label", "", {}, "Agent ", select), state);
    const columns = parts.el("div", "sp-sections", {}, ...Object.values(sections));
    const element = parts.el("div", "sp-panel", {}, head, columns);
    let listed = "";

    const draw = (episode, time, agent, colours, key) => {
      const { j: now } = episode.place(Math.min(time, episode.length));
      const j = Math.min(now, episode.shown - 1);
      const { run } = episode;
      if (listed !== run.agents.join("\n")) {
        listed = run.agents.join("\n");
        select.textContent = "";
        run.agents.forEach((name, i) => select.append(parts.el("option", "", { value: String(i) }, name)));
      }
      select.value = String(agent);
      const alive = !episode.has("alive") || episode.row("alive", j)[agent] > 0;
      const unit = episode.kind === "units" && episode.fixed.units.find((each) => each.agent === agent);
      const words = [unit ? unit.type : "", alive ? "" : "dead", now > j ? "the episode is over; showing its last step" : ""];
      state.textContent = words.filter(Boolean).join(" · ");
      (run.space.kind === "discrete" ? drawChoices : drawContinuous)(actions, episode, j, agent);
      sections.said.hidden = !episode.has("message");
      if (episode.has("message")) {
        said.textContent = "";
        run.agents.forEach((name, i) => {
          const text = episode.message(now, i);
          if (text) said.append(parts.el("li", i === agent ? "sp-taken" : "", {}, `${name}: ${text}`));
        });
      }
      const line = (data, colour, width = 2, opacity = 1) => ({ data, colour, width, opacity });
      const at = Math.min(time, episode.length);
      const column = (name, i) => Array.from({ length: episode.shown }, (_, t) => episode.row(name, t)[i]);
      value.element.hidden = !episode.has("value");
      if (episode.has("value")) {
        const others = run.agents.length <= 12 ? run.agents.map((_, i) => line(column("value", i), colours.faint, 1, 0.5)) : [];
        const own = column("value", agent);
        value.draw([...others, line(own, colours.accent)], episode.steps, at, episode.length, colours, own[j]);
      }
      const earned = column("rewards", agent);
      reward.draw([line(earned, colours.accent)], episode.steps.slice(1), at, episode.length, colours, now > 0 ? earned[now - 1] : NaN);
      returned.draw([line(Array.from(episode.team), colours.accent)], episode.steps, at, episode.length, colours, episode.team[now]);
      sections.attention.hidden = !episode.has("attention");
      if (episode.has("attention")) heat.draw(episode.row("attention", j), run.agents, agent, colours);
      const seen = episode.has("obs") && agent < episode.agentsOf("obs");
      sections.obs.hidden = !seen;
      if (seen) observation.draw(episode, j, agent, `${key} ${agent}`);
    };
    return { element, draw };
  };
})();
