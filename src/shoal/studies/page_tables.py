"""The tables of a study's results page, as data."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.plots.texts import estimate_text
from shoal.statistics.intervals import Estimate, scaled
from shoal.studies.aggregation import Entries, Place, entries_of, place
from shoal.studies.combinations import matches
from shoal.studies.entries import label
from shoal.studies.plan import Cell
from shoal.studies.presented import Table
from shoal.studies.record import Record
from shoal.studies.stale import MARK
from shoal.studies.study_file import StudyFile
from shoal.studies.summaries import STATISTICS, Statistic, interval_of, unit_of

MISSING = "missing"
_PLAIN = ("algorithm", "environment", "variant")
"""Axes whose values are shown without the name of the axis."""
Entry = Callable[[list[Cell] | None, Statistic], str]
Rows = list[dict[str, Any]]
"""A table: one mapping for each line, from column to value."""


class Section(NamedTuple):
    """A part of the page."""

    title: str
    blocks: tuple[str | Rows, ...]
    """Paragraphs and tables."""


def tables_of(
    study: StudyFile,
    table: Table,
    cells: Sequence[Cell],
    records: Mapping[str, Record],
    stale: Collection[str] = frozenset(),
) -> Section:
    """A table with its title, and a second one that compares with its baseline if it has one; values from the runs that
    ``stale`` names are marked."""
    entries = entries_of(study, table, cells, records)
    known = [STATISTICS[name] for name in table.statistics]
    title = (
        table.title
        or f"{table.metric.replace('_', ' ').capitalize()} by {' and '.join([*entries.rows, *entries.columns])}"
    )
    parts: list[str | Rows] = []
    if alone := [one for one in known if one.estimate is not None]:
        parts += [_drawn(entries, alone, entries.grid, _value(entries, stale)), _note(entries, alone)]
    if not table.baseline:
        return Section(title, tuple(parts))
    baseline = _baseline(entries, table)
    others = {row: line for row, line in entries.grid.items() if not matches(_first(line).values, table.baseline)}
    if not others:
        return Section(title, tuple(parts))
    said = " and ".join(f"{axis} {label(wanted)}" for axis, wanted in table.baseline.items())
    what = "Probability of improvement over" if known[0].estimate is None else "Difference from"
    compared = _drawn(entries, known, others, _compared(entries, baseline, stale))
    parts += [f"{what} {said}:", compared]
    return Section(title, tuple(parts if alone else [*parts, _note(entries, known)]))


def scaling_text(entries: Entries) -> str:
    """A sentence on the normalisation of scores; empty if they are raw."""
    if entries.scaling == "known":
        return "Scores are normalised by the worst and best ones below."
    if entries.scaling == "observed":
        return "Scores are normalised by the lowest and highest score of a seed on each task in this table."
    return ""


def head(cell: Cell, columns: Sequence[str]) -> str:
    """The values of a run's column axes."""
    words = [label(cell.values[axis]) if axis in _PLAIN else f"{axis} {label(cell.values[axis])}" for axis in columns]
    return ", ".join(words)


def value_text(record: Record | None, metric: str) -> str:
    """The mean of one run with its interval."""
    if record is None:
        return MISSING
    mean = STATISTICS["mean"]
    samples = mean.samples(record, metric)
    assert mean.estimate is not None
    return _text(None if samples is None else scaled(mean.estimate([samples]), unit_of(metric)))


def _first(line: Mapping[Place, list[Cell]]) -> Cell:
    return next(iter(line.values()))[0]


def _value(entries: Entries, stale: Collection[str]) -> Entry:
    def entry(cells: list[Cell] | None, statistic: Statistic) -> str:
        if cells is None:
            return ""
        if not entries.complete(cells):
            return MISSING
        return _text(entries.estimate(cells, statistic)) + _mark(cells, stale)

    return entry


def _compared(entries: Entries, baseline: Callable[[Cell], list[Cell] | None], stale: Collection[str]) -> Entry:
    def entry(cells: list[Cell] | None, statistic: Statistic) -> str:
        other = baseline(cells[0]) if cells else None
        if not cells or not other:
            return ""
        if not entries.complete([*cells, *other]):
            return MISSING
        return _text(entries.difference(cells, other, statistic)) + _mark([*cells, *other], stale)

    return entry


def _baseline(entries: Entries, table: Table) -> Callable[[Cell], list[Cell] | None]:
    """The baseline of a run: the row with the values of ``baseline`` and otherwise the run's, in its column."""

    def of(cell: Cell) -> list[Cell] | None:
        wanted = {axis: cell.values[axis] for axis in entries.rows} | table.baseline
        lines = (line for line in entries.grid.values() if matches(_first(line).values, wanted))
        return next(lines, {}).get(place(cell, entries.columns))

    return of


def _drawn(
    entries: Entries, statistics: Sequence[Statistic], lines: Mapping[Place, Mapping[Place, list[Cell]]], entry: Entry
) -> Rows:
    found = []
    for line in lines.values():
        values = _first(line).values
        row: dict[str, Any] = {axis: label(values[axis]) for axis in entries.rows}
        for where, cell in entries.heads.items():
            for statistic in statistics:
                words = [head(cell, entries.columns), *([statistic.title] if len(statistics) > 1 else [])]
                name = ", ".join(word for word in words if word) or entries.metric
                row[name] = entry(line.get(where), statistic)
        found.append(row)
    return found


def _note(entries: Entries, statistics: Sequence[Statistic]) -> str:
    brackets = " or ".join(dict.fromkeys(interval_of(n, entries.tasks) for n in entries.seeds))
    names = [one.title for one in statistics]
    titles = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    text = f"{titles[:1].upper()}{titles[1:]} of the {entries.name}"
    return " ".join(part for part in (text + (f" [{brackets}]." if brackets else "."), scaling_text(entries)) if part)


def _mark(cells: Sequence[Cell], stale: Collection[str]) -> str:
    return f" {MARK}" if any(cell.name in stale for cell in cells) else ""


def _text(estimate: Estimate | None) -> str:
    return "–" if estimate is None else estimate_text(estimate)
