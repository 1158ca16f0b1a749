// Filters of the claims of docs/studies.md by algorithm, task and verdict, and a small plot of the intervals of each.
// Without scripts the page shows all claims, and their numbers as text.
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
const PUBLISHED = 4; // a column about other tasks

function words(name) {
  return new RegExp(`(?<![\\w-])${name.replace(/[_-]/g, "[-_]?")}(?![\\w-])`, "i");
}

function claimRows() {
  const tables = [...document.querySelectorAll("table")].filter(
    (table) => [...table.querySelectorAll("th")].slice(0, 2).map((x) => x.textContent.trim()).join() === "claim,verdict");
  return tables.flatMap((table) => [...table.querySelectorAll("tbody tr")].map((row) => {
    const cells = [...row.cells].map((cell) => cell.textContent);
    const about = cells.filter((_, i) => i !== PUBLISHED).join(" ");
    return { row, section: table.closest("section"), about, verdict: cells[1] };
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

const NUMBER = "[−+-]?[\\d,]*\\.?\\d+";
const ESTIMATE = new RegExp(`(${NUMBER})(?: (?:million|%|points?))?\\s*[[(](${NUMBER})(?:,| to) (${NUMBER})[\\])]`, "g");

// The numbers with intervals in a text: "−5.0 (−7.8 to −2.7)" and "+3.9 [2.5, 5.7]" as [value, low, high].
function estimates(text) {
  const number = (x) => Number(x.replace("−", "-").replaceAll(",", ""));
  return [...text.matchAll(ESTIMATE)].map((one) => one.slice(1, 4).map(number))
    .filter(([value, low, high]) => low <= value && value <= high);
}

function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// The parts of a number that have a scale of their own, and whether they are differences: all that follow "A less B:" are.
function parts(text) {
  const difference = /\b(less|change)\b/, every = difference.test(text.split(":")[0]);
  return text.split(";").map((part) => ({ part, found: estimates(part), difference: every || difference.test(part) }));
}

// A line for each interval with a dot at its value. Of differences also 0, and the margin of equality around it.
function plot(found, text, difference) {
  const line = 12, width = 150, ends = found.flat();
  const margin = difference ? Number(/margin (\d+(?:\.\d+)?)/.exec(text)?.[1] ?? 0) : 0;
  if (difference) ends.push(-margin, margin);
  const low = Math.min(...ends), span = Math.max(...ends) - low || 1;
  const at = (x) => 5 + (width - 10) * (x - low) / span, height = line * found.length;
  const svg = shape("svg", { class: "claim-plot", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (margin) svg.append(shape("rect", { class: "margin", x: at(-margin), width: at(margin) - at(-margin), y: 0, height }));
  if (difference) svg.append(shape("line", { class: "zero", x1: at(0), x2: at(0), y1: 0, y2: height }));
  found.forEach(([value, from, to], i) => {
    const y = line * (i + 0.5);
    svg.append(shape("line", { class: "interval", x1: at(from), x2: at(to), y1: y, y2: y }));
    svg.append(shape("circle", { cx: at(value), cy: y, r: 3 }));
  });
  return svg;
}

function addPlots() {
  for (const { row } of claimRows()) {
    const cell = row.cells[2];
    for (const { part, found, difference } of parts(cell?.textContent ?? "")) {
      if (found.length) cell.append(plot(found, part, difference));
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  addFilters();
  addPlots();
});
