"""The data of a study's figures, which are pictures of the Markdown page and charts of the HTML report."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from shoal import statistics
from shoal.errors import InputError
from shoal.plots import charts
from shoal.plots.charts import PER_SEED, Panel, Points, Vertical, capitalised
from shoal.statistics.intervals import Estimate, scaled
from shoal.studies.combinations import axes_of
from shoal.studies.levels import NO_LEVELS, Levels
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import TRAINING, Figure, Kind, StudyFile
from shoal.studies.summaries import STATISTICS, Statistic, known_curve, start_of
from shoal.studies.tables import (
    MIXED_CURVES,
    Entries,
    Place,
    column_head,
    entries_of,
    evaluated,
    levels_text,
    scaling_text,
    tasks_of_row,
    tasks_text,
)

POINTS = 50
"""Points of a curve that aggregates tasks with different steps."""
_AXES: dict[Vertical, str] = {
    "linear": "",
    "log": " The vertical axis is logarithmic.",
    "symlog": " The vertical axis is linear between -1 and 1, and logarithmic beyond.",
}
_TITLES: dict[Kind, str] = {
    "curves": "Learning curves",
    "profiles": "Performance profiles",
    "estimates": "Scores",
    "improvement": "Probability of improvement",
}


@dataclass(frozen=True)
class Chart:
    """One figure of a study."""

    number: int
    """The number of the figure in the study's file, for messages."""
    name: str
    """The name of its file, without suffix."""
    title: str
    """The title of the figure, with the columns."""
    columns: str
    """The values of column axes that it shows, where a figure has several pictures; else empty."""
    note: str
    """What it shows."""
    panels: Sequence[Panel]


Lines = dict[str, list[Cell]]
"""The runs of each line, by the line's name."""


def charts_of(
    study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record], levels: Levels = NO_LEVELS
) -> list[Chart]:
    """The figures of a study, with ``levels`` as horizontal lines or dots.

    Lines whose runs are not all recorded are omitted, and so are figures without lines.

    Raises:
        InputError: a value cannot be drawn on the figure's vertical axis.
    """
    found = []
    for figure in study.figures:
        entries = entries_of(study, figure, cells, records, levels)
        for where, first in entries.heads.items():
            lines = _lines(entries, where, cells)
            if not lines:
                continue
            columns = column_head(first, entries.columns) if len(entries.heads) > 1 else ""
            words = [re.sub(r"[^A-Za-z0-9_.]+", "-", word) for word in (study.name, str(figure.number), columns)]
            stem, used = "-".join(word for each in words if (word := each.strip("-."))), {chart.name for chart in found}
            name = next(one for i in count(1) if (one := f"{stem}-{i}" if i > 1 else stem) not in used)
            try:
                chart = _chart(figure, entries, lines, name, columns, _levels(entries, where))
            except InputError as error:
                raise study.error(f"[[figures]] {figure.number}: {error}") from None
            if chart is not None:
                found.append(chart)
    return found


def _lines(entries: Entries, where: Place, cells: Sequence[Cell]) -> Lines:
    """The complete lines of a chart; a line's name leaves out axes in which no lines differ."""
    several = {axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1}
    axes = [axis for axis in entries.rows if axis in several] or list(entries.rows)
    found: Lines = {}
    for line in entries.grid.values():
        here = line.get(where)
        if here and entries.complete(here):
            found[column_head(here[0], axes).replace("env.", "")] = here
    return found


def _levels(entries: Entries, where: Place) -> Lines:
    """The levels of a chart: those with the tasks of all its lines; none if lines differ in their tasks."""
    tasks = {tasks_of_row(entries.rows, row) for row, line in entries.grid.items() if where in line}
    if len(tasks) > 1:
        return {}
    rows = {row: line[where] for row, line in entries.levels.items() if where in line}
    return {str(row[0]): cells for row, cells in rows.items()} if tasks == {row[1:] for row in rows} else {}


Found = tuple[str, Sequence[Panel], Collection[str]]
"""A note, panels, and the names of the levels in them."""


def _chart(figure: Figure, entries: Entries, lines: Lines, name: str, columns: str, levels: Lines) -> Chart | None:
    """One figure; None if there is nothing to draw."""
    made = {"curves": _curves, "profiles": _profiles, "estimates": _estimates, "improvement": _improvement}
    found = made[figure.kind](figure, entries, lines, levels)
    if found is None:
        return None
    note, panels, drawn = found
    title = ", ".join(part for part in (figure.title or _TITLES[figure.kind], columns) if part)
    shown = ("improvement",) if figure.kind == "improvement" else figure.statistics
    scaling = scaling_text(entries, [STATISTICS[one] for one in shown])
    said = levels_text(drawn, entries)
    tasks = tasks_text(entries, lines.values(), "lines") if figure.kind != "improvement" else ""
    note = " ".join(part for part in (note, scaling, tasks, said) if part)
    return Chart(figure.number, name, title, columns, note, panels)


def _curves(figure: Figure, entries: Entries, lines: Lines, levels: Lines) -> Found | None:
    statistic = figure.statistics[0]
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for name, cells in lines.items():
        each = [known_curve(entries.records[cell.name], figure.metric) for cell in cells]
        if any(len(steps) == 0 for steps, _ in each):
            continue
        for i, cell in enumerate(cells):
            if cell.name in entries.ranges:
                worst, best = entries.ranges[cell.name]
                each[i] = each[i][0], (each[i][1] - worst) / (best - worst)
        found[name] = [(steps, entries.unit * values) for steps, values in each]
    if not found:
        return None
    same = all(np.array_equal(steps, each[0][0]) for each in found.values() for steps, _ in each)
    curves: dict[str, Points] = {}
    seeds: dict[str, np.ndarray] = {}
    for name, each in found.items():
        x, values = (each[0][0], [one for _, one in each]) if same else _over_shares(each)
        curves[name] = x, statistics.efficiency(values, statistic)
        if len(values) == 1:
            seeds[name] = values[0]
    what = entries.name.removesuffix(", mean over all updates")
    label = "Normalised score" if entries.scaling != "raw" else capitalised(what)
    banded = [lines[name] for name in found if all(entries.records[cell.name].seeds > 1 for cell in lines[name])]
    brackets = entries.intervals([STATISTICS[statistic]], [cell for cells in banded for cell in cells])
    sources = {True: " Greedy evaluations during training.", False: " Episodes of training, which explores."}
    of_evaluations = evaluated(entries, [cell for name in found for cell in lines[name]])
    source = f" {MIXED_CURVES}" if len(of_evaluations) > 1 else sources[of_evaluations.pop()]
    if figure.metric.startswith(TRAINING):
        source = ""
    note = f"{capitalised(STATISTICS[statistic].title)} of the {what}" + (f"; bands: {brackets}." if brackets else ".")
    note = note + source + _AXES[figure.vertical]
    axis = PER_SEED if same else None
    every = {name: entries.estimate(cells, STATISTICS[statistic]) for name, cells in levels.items()}
    marks = {name: found[0] for name, found in every.items() if found and (figure.vertical != "log" or found[0] > 0)}
    panel = charts.efficiency(curves, label, steps=axis, vertical=figure.vertical, seeds=seeds, marks=marks)
    return note, [panel], marks


def _over_shares(each: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Curves of several tasks at common shares of their steps, in per cent, from where all have begun."""
    start = max(start_of(x) for x, _ in each)
    shares = np.linspace(start, 1.0, POINTS) if start < 1 else np.ones(1)
    moved = [np.stack([np.interp(shares * x[-1], x, run) for run in values.T], 1) for x, values in each]
    return 100.0 * shares, moved


def _samples(entries: Entries, lines: Lines, statistic: Statistic) -> dict[str, list[np.ndarray]]:
    every = {name: entries.samples(cells, statistic) for name, cells in lines.items()}
    return {name: samples for name, samples in every.items() if samples is not None}


def _profiles(figure: Figure, entries: Entries, lines: Lines, levels: Lines) -> Found | None:
    del levels  # they have one seed
    every = _samples(entries, lines, STATISTICS["iqm"])  # one for each seed, also of a run with one seed
    if not every:
        return None
    thresholds = statistics.spanning(*every.values())
    shown = entries.unit * thresholds
    profiles = {name: (shown, statistics.profile(samples, thresholds)) for name, samples in every.items()}
    note = "Share of the seeds whose score exceeds τ, mean over tasks"
    known = any(np.isfinite(band.low).all() for _, band in profiles.values())
    note += "; bands: 95% stratified bootstrap intervals." if known else "."
    raw = entries.scaling == "raw"
    label = f"{capitalised(entries.name)} τ" if raw else "Normalised score τ"
    return note, [charts.profiles(profiles, label)], ()


def _estimates(figure: Figure, entries: Entries, lines: Lines, levels: Lines) -> Found | None:
    panels: dict[str, dict[str, Estimate]] = {}
    drawn: list[Statistic] = []
    shown = [STATISTICS[name] for name in figure.statistics]
    levels = {
        name: cells
        for name, cells in levels.items()
        if name not in lines and all(entries.estimate(cells, one) for one in shown if one.estimate is not None)
    }
    for statistic in shown:
        if statistic.estimate is None:
            continue
        every = _samples(entries, lines | levels, statistic)
        found = {line: scaled(statistic.estimate(samples), entries.unit) for line, samples in every.items()}
        if found:
            panels[statistic.title_where(entries.directions)] = found
            drawn.append(statistic)
    common = frozenset.intersection(*map(frozenset, panels.values())) if panels else frozenset()
    if not common:
        return None
    panels = {title: {name: one for name, one in panel.items() if name in common} for title, panel in panels.items()}
    text = entries.name
    label = capitalised(text) if entries.scaling == "raw" else "Normalised score"
    names = next(iter(panels.values()))
    brackets = entries.intervals(drawn, [cell for name in names if name in lines for cell in lines[name]])
    note = f"Of the {text}" + (f"; bars: {brackets}." if brackets else ".")
    return note, charts.estimates(panels, label), [name for name in levels if name in names]


def _improvement(figure: Figure, entries: Entries, lines: Lines, levels: Lines) -> Found | None:
    del levels  # they have one seed
    every = list(lines.items())
    pairs: dict[tuple[str, str], Estimate] = {}
    for i, (one, here) in enumerate(every):
        for other, there in every[i + 1 :]:  # lines with different tasks are not compared
            if (found := entries.difference(here, there, STATISTICS["improvement"])) is not None:
                pairs[one, other] = found
    if not pairs:
        return None
    better = "better" if entries.less else "higher"
    note = f"The probability that a seed of the first scores {better} than one of the second"
    note += "; bars: 95% intervals." if any(np.isfinite(found[1]) for found in pairs.values()) else "."
    return note, [charts.improvement(pairs)], ()
