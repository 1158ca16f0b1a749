// Filters of tables whose rows say in data-… what they are about: a value of each choice, or a list separated by "|".
"use strict";
window.ShoalFilters = (() => {
  function choice(rows, name, show) {
    const counts = new Map();
    for (const row of rows) {
      for (const value of row.dataset[name].split("|")) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const select = document.createElement("select"), label = document.createElement("label");
    select.add(new Option("any", ""));
    const values = [...counts.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    for (const value of values) select.add(new Option(`${value} (${counts.get(value)})`, value));
    select.addEventListener("change", show);
    label.append(`${name} `, select);
    return { matches: (row) => !select.value || row.dataset[name].split("|").includes(select.value), element: label };
  }

  function words(show) {
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "words";
    input.setAttribute("aria-label", "words");
    input.addEventListener("input", show);
    const wanted = () => input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
    return { matches: (row) => wanted().every((x) => text(row).includes(x)), element: input };
  }

  function start(table) {
    const rows = [...table.tBodies[0].rows], names = Object.keys(rows[0]?.dataset ?? {});
    if (!names.length) return;
    const form = document.createElement("form"), shown = document.createElement("output");
    const show = () => {
      for (const row of rows) row.hidden = !parts.every((part) => part.matches(row));
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    };
    const parts = [...names.map((name) => choice(rows, name, show)), words(show)];
    form.className = "filters";
    form.append(...parts.map((part) => part.element), shown);
    form.addEventListener("submit", (event) => event.preventDefault());
    table.closest(".scroll").before(form);
    show();
  }

  return { start };
})();
