// The page: theme, tables that can be sorted, printing; then charts and player are started.
"use strict";
(() => {
  const root = document.documentElement, KEY = "shoal-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;

  function kept() {
    try {
      const value = localStorage.getItem(KEY);
      return value === "dark" || value === "light" ? value : null;
    } catch {
      return null; // a browser may deny storage to local files
    }
  }

  function keep(value) {
    try {
      localStorage.setItem(KEY, value);
    } catch {
      chosen = value;
    }
  }

  const theme = () => chosen ?? (system.matches ? "dark" : "light");

  function paint(value) {
    root.dataset.theme = value;
    document.dispatchEvent(new CustomEvent("shoal:theme", { detail: value }));
  }

  function startTheme() {
    const button = document.getElementById("theme");
    const show = () => {
      const dark = theme() === "dark";
      button.setAttribute("aria-pressed", String(dark));
      paint(dark ? "dark" : "light");
    };
    chosen = kept();
    button.hidden = false;
    button.addEventListener("click", () => {
      chosen = theme() === "dark" ? "light" : "dark";
      keep(chosen);
      show();
    });
    system.addEventListener("change", show);
    addEventListener("beforeprint", () => paint("light"));
    addEventListener("afterprint", show);
    show();
  }

  // "−23.5 [−24, −23]", "1,234", "12 %", "–", and durations: "41.2 s", "2 min 13 s", "3 h 05 min"
  function value(cell) {
    const text = cell.textContent.trim().replace(/−/g, "-").replace(/,/g, "");
    const time = /^(?:(\d+) h)? ?(?:(\d+) min)? ?(?:([\d.]+) s)?$/.exec(text);
    if (text && time) return 3600 * Number(time[1] ?? 0) + 60 * Number(time[2] ?? 0) + Number(time[3] ?? 0);
    const found = /^[-+]?\d*\.?\d+(e[-+]?\d+)?/.exec(text);
    return found ? Number(found[0]) : null;
  }

  function compare(column, sign) {
    return (one, other) => {
      const [a, b] = [one.cells[column], other.cells[column]], [x, y] = [value(a), value(b)];
      if (x !== null && y !== null) return sign * (x - y);
      if (x !== null || y !== null) return x === null ? 1 : -1;
      return sign * a.textContent.localeCompare(b.textContent);
    };
  }

  function startSorting(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    if (body.rows.length < 3) return;
    heads.forEach((head, column) => {
      if (head.children.length || !head.textContent.trim()) return; // the scale of bars
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...[...body.rows].sort(compare(column, down ? -1 : 1)));
      });
    });
  }

  // Tables of which columns are outside the screen say so.
  function startScrolling() {
    const watch = new ResizeObserver((entries) => {
      for (const { target } of entries) target.toggleAttribute("data-cut", target.scrollWidth > target.clientWidth + 1);
    });
    for (const place of document.querySelectorAll(".scroll")) watch.observe(place);
  }

  function startPlayer() {
    const place = document.getElementById("player"), data = document.getElementById("replay-data");
    if (place && data && window.ShoalPlayer) window.ShoalPlayer.mount(place, JSON.parse(data.textContent));
    else if (place) place.hidden = true;
  }

  startTheme();
  document.querySelectorAll("main table").forEach(startSorting);
  document.querySelectorAll("main table").forEach(window.ShoalFilters.start);
  startScrolling();
  window.ShoalCharts.start();
  startPlayer();
})();
