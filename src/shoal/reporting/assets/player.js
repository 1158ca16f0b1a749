// Replays in the page: ShoalPlayer.mount(container, document). No dependencies, no network.
//
// The document's form is described in shoal/reporting/replays.py. The container gets data-ready, data-step,
// data-episode, data-agent, data-playing, data-run and data-beside. Keys: space, arrows, Home, End, [ ] and N.
"use strict";
(() => {
  const sp = (window.ShoalPlayer = window.ShoalPlayer || {});
  const parts = (sp.parts = sp.parts || {});
  const STEPS_PER_SECOND = 6;
  const mounted = [];

  const largest = (numbers) => numbers.reduce((most, n) => Math.max(most, n), 0);

  /** The union of the views of two episodes of the same environment, so that their scales are equal; otherwise null. */
  const commonBox = (episodes) => {
    const boxes = episodes.map(parts.boxOf);
    const [one, other] = episodes;
    if (!other || !boxes[0] || !boxes[1] || one.run.environment !== other.run.environment) return null;
    const [a, b] = boxes;
    return [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[2], b[2]), Math.max(a[3], b[3])];
  };

  sp.mount = (container, doc) => {
    const { el } = parts;
    container.classList.add("sp-root");
    container.textContent = "";
    if (!doc || doc.format !== 1 || !Array.isArray(doc.runs) || doc.runs.length === 0) {
      container.append(el("p", "sp-notes", {}, ((doc && doc.notes) || ["This page has no replays."]).join(" ")));
      return null;
    }
    const count = largest(doc.runs.flatMap((run) => run.seeds.map((seed) => seed.episodes.length)));
    const now = {
      time: 0, length: 1, playing: false, speed: 1, trails: true, episode: 0, agent: 0, place: 0, ready: false,
      views: [{ run: 0, seed: 0 }, { run: doc.runs.length > 1 ? 1 : -1, seed: 0 }],
    };
    let open = []; // the episodes that are shown
    let colours = parts.colours(container);
    let [wanted, opening, shown, box] = [0, 0, "", null];

    const agents = () => (open[now.place] || open[0]).run.agents.length;
    const changed = () => {
      if (!wanted) wanted = requestAnimationFrame(frame);
    };
    const seek = (time) => {
      now.time = Math.max(0, Math.min(now.length, time));
      if (time >= now.length) now.playing = false;
      changed();
    };
    const act = {
      toggle: () => {
        now.playing = !now.playing && now.ready;
        if (now.playing && now.time >= now.length) now.time = 0;
        before = 0;
        changed();
      },
      step: (by) => {
        now.playing = false;
        seek((by > 0 ? Math.floor(now.time) : Math.ceil(now.time)) + by);
      },
      seek: (time) => {
        now.playing = now.playing && Number.isFinite(time);
        seek(time);
      },
      speed: (speed) => {
        now.speed = speed;
        changed();
      },
      trails: (trails) => {
        now.trails = trails;
        changed();
      },
      agent: (agent, place = now.place) => {
        now.place = open[place] ? place : 0;
        now.agent = ((agent % agents()) + agents()) % agents();
        changed();
      },
    };

    const figures = now.views.map((view, place) => {
      const canvas = el("canvas", "sp-canvas", { tabindex: "0", role: "img" });
      const choice = parts.makeChoice(doc, place === 1, (change) => {
        Object.assign(view, change);
        load();
      });
      const result = el("span", "sp-result");
      const caption = el("p", "sp-caption");
      const head = el("figcaption", "sp-title", {}, choice.element, result);
      const stage = parts.makeStage(canvas, (agent) => act.agent(agent, place));
      const figure = el("figure", "sp-stage", {}, head, canvas, caption);
      return { figure, canvas, choice, result, caption, stage };
    });
    figures[1].figure.hidden = doc.runs.length < 2;
    const episodes = parts.makeEpisodes(count, (episode) => {
      now.episode = episode;
      load();
    });
    const controls = parts.makeControls(act);
    const panel = parts.makePanel((agent) => act.agent(agent), act.seek);
    const message = el("p", "sp-notes", { role: "status" });
    const help = el("p", "sp-small", {}, "Keys: Space: play or pause; ← →: step; Home, End: first, last step; [ ]: speed; N: next agent. Click an agent to select it.");
    const stages = el("div", "sp-stages", {}, ...figures.map((each) => each.figure));
    const left = el("div", "sp-left", {}, episodes.element, stages, controls.element, help);
    container.append(el("div", "sp-grid", {}, left, panel.element), message);
    message.textContent = (doc.notes || []).join(" ");

    const said = (episode) => {
      const { j } = episode.place(now.time);
      const end = [episode.raw.result, `score ${parts.number(episode.raw.score)}`, `${episode.length} steps`];
      const words = j < episode.shown ? [`return ${parts.number(episode.team[j])}`] : end;
      return [...words, parts.armies(episode, j)].filter(Boolean).join(" · ");
    };

    const drawFigure = (figure, episode, place) => {
      figure.figure.classList.toggle("sp-empty", !episode);
      figure.canvas.hidden = !episode;
      figure.choice.draw(now.views[place]);
      figure.caption.textContent = episode ? episode.caption(episode.place(now.time).j) : "";
      figure.caption.hidden = !figure.caption.textContent;
      figure.result.textContent = episode ? said(episode) : "";
      if (!episode) return;
      const agent = now.place === place || episode.run.agents.length > now.agent ? now.agent : -1;
      figure.stage.draw(episode, Math.min(now.time, episode.length), { agent, trails: now.trails, colours, box });
      const name = episode.run.label;
      figure.canvas.setAttribute("aria-label", `${name}, step ${Math.floor(now.time)} of ${episode.length}. ${figure.result.textContent}`);
    };

    let before = 0;
    function frame(stamp) {
      wanted = 0;
      if (now.playing) {
        if (before) now.time += (Math.min(stamp - before, 100) / 1000) * STEPS_PER_SECOND * now.speed;
        before = stamp;
        if (now.time >= now.length) seek(Infinity);
        else changed();
      }
      if (!now.ready) return;
      figures.forEach((figure, place) => drawFigure(figure, open[place], place));
      controls.draw(now, open.some((episode) => episode && parts.boxOf(episode)));
      episodes.draw(now.episode);
      const views = now.views.map((view) => `${view.run}/${view.seed}`).join(" ");
      const key = `${views} ${now.episode} ${now.place}`;
      const exact = `${key} ${now.agent} ${Math.floor(now.time)} ${container.clientWidth} ${Object.values(colours)}`;
      if (exact !== shown) {
        shown = exact;
        panel.draw(open[now.place] || open[0], Math.floor(now.time), now.agent, colours, key);
      }
      Object.assign(container.dataset, {
        ready: "true", step: String(Math.floor(now.time)), episode: String(now.episode), agent: String(now.agent),
        playing: String(now.playing), run: String(now.views[0].run), beside: String(now.views[1].run),
      });
    }

    async function load() {
      opening += 1;
      const turn = opening;
      try {
        const found = await Promise.all(
          now.views.map(({ run, seed }) => (run < 0 ? null : parts.openEpisode(doc, run, seed, now.episode))),
        );
        if (turn !== opening) return; // another episode was selected in the meantime
        open = found;
        now.length = largest(open.filter(Boolean).map((episode) => episode.length));
        box = commonBox(open.filter(Boolean));
        now.ready = true;
        Object.assign(now, { time: Math.min(now.time, now.length), place: open[now.place] ? now.place : 0 });
        now.agent = Math.min(now.agent, agents() - 1);
        shown = "";
        changed();
      } catch (error) {
        message.textContent = error.message;
        container.dataset.ready = "failed";
      }
    }

    container.addEventListener("keydown", (event) => {
      const at = event.target.tagName;
      if (event.ctrlKey || event.metaKey || event.altKey || at === "SELECT" || !now.ready) return;
      if (event.key === " " && (at === "BUTTON" || event.target.type === "checkbox")) return;
      const speeds = parts.SPEEDS;
      const faster = (by) => act.speed(speeds[Math.max(0, Math.min(speeds.length - 1, speeds.indexOf(now.speed) + by))]);
      const keys = {
        " ": act.toggle, ArrowLeft: () => act.step(-1), ArrowRight: () => act.step(1), Home: () => act.seek(0),
        End: () => act.seek(Infinity), "[": () => faster(-1), "]": () => faster(1),
        n: () => act.agent(now.agent + 1), N: () => act.agent(now.agent + 1),
      };
      if (keys[event.key]) {
        event.preventDefault();
        keys[event.key]();
      }
    });
    const repaint = () => {
      colours = parts.colours(container);
      changed();
    };
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    new MutationObserver(repaint).observe(document.documentElement, { attributes: true });
    new ResizeObserver(changed).observe(container);
    load();

    const player = {
      state: () => ({ ...now, step: Math.floor(now.time), views: now.views.map((view) => ({ ...view })) }),
      seek: act.seek, toggle: act.toggle, chooseAgent: act.agent,
    };
    mounted.push(player);
    return player;
  };

  /** The state of the player that was mounted last; null without one. */
  sp.state = () => (mounted.length ? mounted[mounted.length - 1].state() : null);
})();
