// Filters of the claims of docs/studies.md by algorithm, task and verdict. Without scripts the page shows all of them.
// window.ALGORITHMS has the algorithms' names; tasks and verdicts are recognised by their words.

const TASKS = {
  "spread": /\bspread\b/i,
  "speaker and listener": /speaker/i,
  "reference": /\breference\b/i,
  "blind particles (bps)": /\bbps\b/i,
  "competing particles": /\b(tag|adversary|push|crypto|prey|deception)\b/i,
  "stag hunt": /stag hunt|predator/i,
  "matrix and step games": /(?<!full )\bgames?\b|two states|optimum|N = 8|estimator|second moment/i,
  "skirmish (SMAC's maps)": /[Ss]kirmish|\b\d+[smz]|MMM2|corridor|[Bb]attle/, // "0.2M" is no map
  "MA-MuJoCo": /HalfCheetah|Walker|\bAnt\b|Hopper|Humanoid|MuJoCo/i,
  "Pursuit": /pursuit/i,
  "warehouses and foraging": /warehouse|RWARE|foraging|\bLBF\b/i,
};
const VERDICTS = {
  "holds": /\bholds\b/i,
  "does not hold": /does not hold/i,
  "not decided": /not decided/i,
};

function words(name) {
  return new RegExp(`(?<![\\w-])${name.replace(/[_-]/g, "[-_]?")}(?![\\w-])`, "i");
}

function claimRows() {
  const tables = [...document.querySelectorAll("table")].filter(
    (table) => [...table.querySelectorAll("th")].slice(0, 2).map((x) => x.textContent.trim()).join() === "claim,verdict");
  return tables.flatMap((table) => [...table.querySelectorAll("tbody tr")].map((row) => {
    const cells = [...row.cells].map((cell) => cell.textContent);
    return { row, section: table.closest("section"), about: cells.join(" "), verdict: cells[1] };
  }));
}

function choice(label, options, rows, part) {
  const select = document.createElement("select");
  select.add(new Option(`any ${label}`, ""));
  for (const [name, pattern] of Object.entries(options)) {
    const count = rows.filter((one) => pattern.test(one[part])).length;
    if (count) select.add(new Option(`${name} (${count})`, name));
  }
  select.setAttribute("aria-label", label);
  return { select, matches: (one) => !select.value || options[select.value].test(one[part]) };
}

function addFilters() {
  const rows = claimRows();
  if (!rows.length) return;
  const algorithms = Object.fromEntries(
    window.ALGORITHMS.map((name) => [name.toUpperCase().replaceAll("_", "-"), words(name)]));
  const choices = [
    choice("algorithm", algorithms, rows, "about"),
    choice("task", TASKS, rows, "about"),
    choice("verdict", VERDICTS, rows, "verdict"),
  ];
  const form = document.createElement("form");
  const shown = document.createElement("output");
  form.className = "claims-filter";
  form.append(...choices.map((one) => one.select), shown);
  const show = () => {
    for (const one of rows) one.row.hidden = !choices.every((filter) => filter.matches(one));
    for (const section of new Set(rows.map((one) => one.section))) {
      section.hidden = rows.every((one) => one.section !== section || one.row.hidden);
    }
    shown.textContent = `${rows.filter((one) => !one.row.hidden).length} of ${rows.length} claims`;
  };
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  rows[0].section.before(form);
  show();
}

document.addEventListener("DOMContentLoaded", addFilters);
