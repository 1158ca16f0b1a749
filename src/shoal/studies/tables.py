"""The tables of a study's results page, as data: the runs of each entry, and what an entry shows."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.plots.charts import SHARES, capitalised, metric_title, metric_words
from shoal.plots.texts import enumerated, estimate_text, estimate_texts
from shoal.statistics.intervals import Estimate, interval, scaled
from shoal.studies.combinations import axes_of, axes_of_table, matches
from shoal.studies.keys import key, label
from shoal.studies.levels import NO_LEVELS, Level, Levels, Task, level_cell, level_name, task_of
from shoal.studies.limits import less_is_better, range_of
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import STALE_MARK
from shoal.studies.study_file import TRAINING, Scaling, StudyFile, Table
from shoal.studies.summaries import STATISTICS, Samples, Statistic, metric_name, unit_of

# The entries of tables and figures: the runs of each entry, and their samples, normalised if requested.


Place = tuple
"""Values of some axes, hashable."""


@dataclass(frozen=True)
class Entries:
    """The runs that a table or figure shows."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: tuple[str, ...]
    """Axes of the tasks in an entry."""
    grid: dict[Place, dict[Place, list[Cell]]]
    """By the values of the row axes and of the column axes; several runs are tasks."""
    heads: dict[Place, Cell]
    """A run of each column."""
    scaling: Scaling
    ranges: dict[str, tuple[float, float]]
    """The worst and best score of each run, by the cell's name."""
    less: frozenset[str]
    """The names of the cells in which lower values are better."""
    records: Mapping[str, Record]
    metric: str
    paired: bool
    """Whether differences are those between equal seeds, or between equal episodes of one seed."""
    levels: dict[Place, dict[Place, list[Cell]]]
    """As :attr:`grid`, rows of the levels (:mod:`shoal.studies.levels`), whose records are also in :attr:`records`."""
    every: Sequence[Cell]
    """All runs of the study."""
    stale_levels: frozenset[str]
    """The names of their cells with stale records."""
    studies_of_levels: tuple[str, ...]
    """The names of the studies that measured them."""

    @property
    def unit(self) -> float:
        """The factor by which shown values are multiplied; 1 for normalised values."""
        return unit_of(self.metric) if self.scaling == "raw" else 1.0

    @property
    def name(self) -> str:
        """The metric in a sentence, with its unit."""
        return metric_name(self.metric, self.unit)

    @property
    def directions(self) -> frozenset[bool]:
        """Whether lower values are better, in each of the tasks."""
        return frozenset(cell.name in self.less for cell in self.cells)

    @property
    def tasks(self) -> int:
        """The largest number of tasks in an entry."""
        return max(len(cells) for line in self.grid.values() for cells in line.values())

    @property
    def cells(self) -> list[Cell]:
        """All runs."""
        return [cell for line in self.grid.values() for cells in line.values() for cell in cells]

    def intervals(self, statistics: Sequence[Statistic], cells: Iterable[Cell]) -> str:
        """The kinds of intervals that these statistics of recorded runs have; empty if they have none."""
        seeds = sorted({self.records[cell.name].seeds for cell in cells if cell.name in self.records})
        kinds = [one.interval_of(self.metric, n, self.tasks) for n in seeds for one in statistics]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind))

    def complete(self, cells: Sequence[Cell]) -> bool:
        """Whether all runs of an entry are recorded."""
        return all(cell.name in self.records for cell in cells)

    def samples(self, cells: Sequence[Cell], statistic: Statistic, others: Sequence[Cell] = ()) -> list[Samples] | None:
        """The samples of an entry's tasks; None if a run has no value.

        Args:
            cells: the entry's runs, one for each task.
            statistic: what is computed from them.
            others: the runs of an entry that it is compared with.
        """
        each = [self.records[cell.name] for cell in cells]
        if len(cells) == 1:
            compared = [self.records[cell.name] for cell in others]
            one = statistic.where(cells[0].name in self.less)
            every = one.alone(self.metric, *each, *compared, paired=self.paired)[:1]
        else:
            here = [statistic.where(cell.name in self.less) for cell in cells]
            every = [one.samples(record, self.metric) for one, record in zip(here, each, strict=True)]
        found = []
        for cell, samples in zip(cells, every, strict=True):
            if samples is None:
                return None
            if cell.name in self.ranges and statistic.normalised:
                samples = statistic.normalised(samples, *self.ranges[cell.name])
            found.append(-samples if statistic.estimate is None and cell.name in self.less else samples)
        return found

    def estimate(self, cells: Sequence[Cell], statistic: Statistic) -> Estimate | None:
        """The statistic of a complete entry, in the unit shown; None if a value is unknown."""
        samples = self.samples(cells, statistic)
        if samples is None or statistic.estimate is None:
            return None
        return scaled(statistic.estimate(samples), self.unit)

    def difference(self, cells: Sequence[Cell], baseline: Sequence[Cell], statistic: Statistic) -> Estimate | None:
        """The difference of two complete entries, in the unit shown, or their comparison; None if a value is unknown or
        tasks differ."""
        paired = {values_of_axes(cell, self.over): cell for cell in baseline}
        tasks = [values_of_axes(cell, self.over) for cell in cells]
        if len(paired) != len(tasks) or not all(task in paired for task in tasks):
            return None
        other = [paired[task] for task in tasks]
        here, there = self.samples(cells, statistic, other), self.samples(other, statistic, cells)
        if here is None or there is None:
            return None
        if self.paired:
            seeds = [self.records[cell.name].run["settings"]["seed"] for cell in (*cells, *other)]
            equal = seeds[0] == seeds[1] and here[0].size == there[0].size > 1
            return scaled(interval(here[0] - there[0]), self.unit) if equal else None
        found = statistic.difference(here, there)
        return found if statistic.estimate is None else scaled(found, self.unit)


def entries_of(
    study: StudyFile, table: Table, cells: Sequence[Cell], records: Mapping[str, Record], levels: Levels = NO_LEVELS
) -> Entries:
    """The entries of a table or figure.

    Args:
        study: the study.
        table: the table or figure.
        cells: all runs of the study.
        records: those that exist, by the cells' names.
        levels: the levels of the study's tasks; they are left out where scores are normalised by those observed.
    """
    known = axes_of([cell.values for cell in cells])
    shown = [cell for cell in cells if matches(cell.values, table.where)]
    rows, columns = axes_of_table(table, known)
    grid: dict[Place, dict[Place, list[Cell]]] = {}
    for cell in shown:
        grid.setdefault(values_of_axes(cell, rows), {}).setdefault(values_of_axes(cell, columns), []).append(cell)
    heads = {values_of_axes(cell, columns): cell for cell in shown}
    scaling = scaling_of(study, table, shown)
    less = frozenset(cell.name for cell in shown if less_is_better(study, table.metric, cell))
    ranges = _ranges(study, table, scaling, shown, (rows, columns), records, less)
    found = _levels(table, shown, rows, columns, levels if scaling != "observed" else NO_LEVELS)
    added = [(cell, level, like) for line in found.values() for each in line.values() for cell, level, like in each]
    return Entries(
        rows,
        columns,
        table.over,
        grid,
        heads,
        scaling,
        ranges | {cell.name: ranges[like.name] for cell, _, like in added if like.name in ranges},
        less,
        {**records, **{cell.name: level.record for cell, level, _ in added}},
        table.metric,
        table.paired,
        {row: {column: [cell for cell, *_ in each] for column, each in line.items()} for row, line in found.items()},
        cells,
        frozenset(cell.name for cell, level, _ in added if level.stale),
        tuple(dict.fromkeys(level.cell.study for _, level, _ in added)),
    )


_OF_CURVES = frozenset({"area", "drop"})
"""Statistics of curves of training."""
_Added = list[tuple[Cell, Level, Cell]]
"""The runs of a level in an entry, their levels, and runs of the same tasks in the table."""


def _levels(
    table: Table, shown: Sequence[Cell], rows: Sequence[str], columns: Sequence[str], levels: Levels
) -> dict[Place, dict[Place, _Added]]:
    """Rows of levels, in which each entry has the tasks of all other entries of its column, and of its row's tasks.
    There are none for what only training has, where no axis of rows is free for a name, and of teams in the table.
    """
    free = [axis for axis in rows if not _of_task(axis)]
    if not free or table.metric.startswith(TRAINING) or _OF_CURVES.issuperset(table.statistics):
        return {}
    tasks: dict[tuple[Place, Place], dict[Place, dict[Task, Cell]]] = {}
    for cell in shown:
        where = tasks_of_row(rows, values_of_axes(cell, rows)), values_of_axes(cell, columns)
        tasks.setdefault(where, {}).setdefault(values_of_axes(cell, table.over), {}).setdefault(task_of(cell), cell)
    already = {level_name(cell) for cell in shown} | {label(cell.values[axis]) for cell in shown for axis in free}
    found: dict[Place, dict[Place, _Added]] = {}
    for title, known in levels.items():
        for (row, column), each in tasks.items():
            alike = [next(iter(one.items())) for one in each.values() if len(one) == 1]
            if title not in already and len(alike) == len(each) and all(task in known for task, _ in alike):
                made = [(level_cell(known[task], title, cell, free), known[task], cell) for task, cell in alike]
                found.setdefault((title, *row), {})[column] = made
    return found


def _of_task(axis: str) -> bool:
    return axis == "environment" or axis.startswith("env.") or axis == "env"


def tasks_of_row(rows: Sequence[str], row: Place) -> Place:
    """A row's values of the axes ``rows``, without those that do not belong to its task."""
    return tuple(value if _of_task(axis) else "" for axis, value in zip(rows, row, strict=True))


def values_of_axes(cell: Cell, axes: Sequence[str]) -> Place:
    """The values of these axes, hashable."""
    return tuple(key(cell.values[axis]) for axis in axes)


def scaling_of(study: StudyFile, table: Table, shown: Sequence[Cell]) -> Scaling:
    """How the scores of a table's runs are normalised."""
    if table.scale is not None:
        return table.scale
    if len({values_of_axes(cell, table.over) for cell in shown}) < 2:
        return "raw"
    known = table.metric == "score" and all(range_of(study, cell.values) for cell in shown)
    return "known" if known else "observed"


def _ranges(
    study: StudyFile,
    table: Table,
    scaling: Scaling,
    shown: Sequence[Cell],
    axes: tuple[Sequence[str], Sequence[str]],
    records: Mapping[str, Record],
    less: Collection[str],
) -> dict[str, tuple[float, float]]:
    """The worst and best score of each run by the cell's name; ``axes`` are those of rows and of columns. Observed ones
    are of a task in a column: algorithms are compared on the same task, also where they are columns. ``less`` names the
    cells in which lower values are better."""
    if scaling == "raw":
        return {}
    if scaling == "known":
        found = {cell.name: range_of(study, cell.values) for cell in shown}
        return {name: (one.worst, one.best) for name, one in found.items() if one}
    rows, columns = axes
    told = [*filter(_of_task, rows), *(axis for axis in columns if axis != "algorithm"), *table.over]
    tasks: dict[Place, list[Cell]] = {}
    for cell in shown:
        tasks.setdefault(values_of_axes(cell, told), []).append(cell)
    ranges = {}
    for cells in tasks.values():
        every = [STATISTICS["mean"].samples(records[cell.name], table.metric) for cell in cells if cell.name in records]
        together = np.concatenate([samples for samples in every if samples is not None] or [np.zeros(1)])
        low, high = float(together.min()), float(together.max())
        equal = float(high == low)  # scores that are all as good as the worst
        ranges |= {cell.name: (high, low - equal) if cell.name in less else (low, high + equal) for cell in cells}
    return ranges


# The tables.


MISSING, _UNKNOWN = "missing", "–"
PLAIN = ("algorithm", "environment", "variant")
"""Axes whose values are shown without the name of the axis."""
Entry = Callable[[list[Cell] | None, Statistic], tuple[Estimate | str, str]]
"""(runs, statistic) -> (the estimate, or a word in its place; the mark of stale values)."""
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
    levels: Levels = NO_LEVELS,
) -> Section:
    """A table with its title, and a second one that compares with its baseline if it has one; values from the runs that
    ``stale`` names are marked. Levels are the last rows of the first table."""
    entries = entries_of(study, table, cells, records, levels)
    stale = frozenset(stale) | entries.stale_levels
    known = [STATISTICS[name] for name in table.statistics]
    name = capitalised(metric_words(table.metric).replace("_", " "))
    title = table.title or f"{name} by {' and '.join([*entries.rows, *entries.columns])}"
    parts: list[str | Rows] = []
    if alone := [one for one in known if one.estimate is not None]:
        lines = entries.grid | entries.levels
        names = (str(row[0]) for row in entries.levels)
        old = any(cell.name in stale for cell in entries.cells)
        said = levels_text(names, entries, old, alone)
        note = " ".join(part for part in (_note(entries, alone), said) if part)
        parts += [_drawn(entries, alone, lines, _value(entries, stale)), note]
    if not table.baseline:
        return Section(title, tuple(parts))
    baseline = baseline_of(entries, table)
    others = {row: line for row, line in entries.grid.items() if not matches(_first(line).values, table.baseline)}
    if not others:
        return Section(title, tuple(parts))
    said = " and ".join(f"{axis} {label(wanted)}" for axis, wanted in table.baseline.items())
    what = "Probability of improvement over" if known[0].estimate is None else "Difference from"
    compared = _drawn(entries, known, others, _compared(entries, baseline, stale))
    one = all(records[cell.name].seeds == 1 for cell in entries.cells if cell.name in records)
    pairs = f", by pairs of equal {'episodes' if one else 'seeds'}" if table.paired else ""
    parts += [f"{what} {said}{pairs}:", compared]
    return Section(title, tuple(parts if alone else [*parts, _note(entries, known)]))


def scaling_text(entries: Entries, statistics: Sequence[Statistic]) -> str:
    """A sentence on the normalisation of scores; empty if those of these statistics are raw."""
    if not any(one.normalised for one in statistics):
        return ""
    if entries.scaling == "known":
        return "Scores are normalised by the worst and best ones below."
    if entries.scaling == "observed":
        which = "worst and best" if entries.less else "lowest and highest"
        return f"Scores are normalised by the {which} score of a seed on each task in this table."
    return ""


def column_head(cell: Cell, columns: Sequence[str]) -> str:
    """The values of a run's column axes."""
    words = [label(cell.values[axis]) if axis in PLAIN else f"{axis} {label(cell.values[axis])}" for axis in columns]
    return ", ".join(words)


def mean_text(record: Record | None, metric: str) -> str:
    """The mean of one run with its interval."""
    if record is None:
        return MISSING
    mean = STATISTICS["mean"]
    (samples,) = mean.alone(metric, record)
    assert mean.estimate is not None
    return _UNKNOWN if samples is None else estimate_text(scaled(mean.estimate([samples]), unit_of(metric)))


def _first(line: Mapping[Place, list[Cell]]) -> Cell:
    return next(iter(line.values()))[0]


def _value(entries: Entries, stale: Collection[str]) -> Entry:
    def entry(cells: list[Cell] | None, statistic: Statistic) -> tuple[Estimate | str, str]:
        if cells is None:
            return "", ""
        if not entries.complete(cells):
            return MISSING, ""
        return entries.estimate(cells, statistic) or _UNKNOWN, _mark(cells, stale)

    return entry


def _compared(entries: Entries, baseline: Callable[[Cell], list[Cell] | None], stale: Collection[str]) -> Entry:
    def entry(cells: list[Cell] | None, statistic: Statistic) -> tuple[Estimate | str, str]:
        other = baseline(cells[0]) if cells else None
        if not cells or not other:
            return "", ""
        if not entries.complete([*cells, *other]):
            return MISSING, ""
        return entries.difference(cells, other, statistic) or _UNKNOWN, _mark([*cells, *other], stale)

    return entry


def baseline_of(entries: Entries, table: Table) -> Callable[[Cell], list[Cell] | None]:
    """The baseline of a run: the row with the values of ``baseline`` and otherwise the run's, in its column."""

    def of(cell: Cell) -> list[Cell] | None:
        wanted = {axis: cell.values[axis] for axis in entries.rows} | table.baseline
        lines = (line for line in entries.grid.values() if matches(_first(line).values, wanted))
        return next(lines, {}).get(values_of_axes(cell, entries.columns))

    return of


def _drawn(
    entries: Entries, statistics: Sequence[Statistic], lines: Mapping[Place, Mapping[Place, list[Cell]]], entry: Entry
) -> Rows:
    found: Rows = []
    alike: dict[Place, list[tuple[dict[str, Any], str, Estimate, str]]] = {}
    for line in lines.values():
        first = _first(line)
        row: dict[str, Any] = {axis: label(first.values[axis]) for axis in entries.rows}
        for where, cell in entries.heads.items():
            for statistic in statistics:
                title = statistic.title_where(entries.directions)
                words = [column_head(cell, entries.columns), *([title] if len(statistics) > 1 else [])]
                metric = metric_title(entries.metric) if entries.metric in SHARES else entries.metric
                name = ", ".join(word for word in words if word) or metric
                shown, mark = entry(line.get(where), statistic)
                if isinstance(shown, str):
                    row[name] = shown + mark
                else:
                    row[name] = ""
                    alike.setdefault(_scale(entries, first, cell, statistic), []).append((row, name, shown, mark))
        found.append(row)
    for each in alike.values():  # a reader compares them, so they have the same decimals
        texts = estimate_texts([shown for *_, shown, _ in each], typical=True)
        for (row, name, _, mark), text in zip(each, texts, strict=True):
            row[name] = text + mark
    return found


def _scale(entries: Entries, row: Cell, column: Cell, statistic: Statistic) -> Place:
    """Equal for entries whose values have one scale: those of a column's environment, or of the family of a row's; all
    entries where values are shares, probabilities or normalised scores."""
    if entries.unit != 1.0 or entries.scaling != "raw" or statistic.estimate is None:
        return (statistic.title,)
    if "environment" in entries.columns:
        return statistic.title, column.environment
    return statistic.title, row.environment.partition("/")[0] if "environment" in entries.rows else ""


def _note(entries: Entries, statistics: Sequence[Statistic]) -> str:
    brackets = entries.intervals(statistics, entries.cells)
    names = [one.title_where(entries.directions) for one in statistics]
    text = f"{capitalised(enumerated(names))} of the {entries.name}"
    scaling = scaling_text(entries, statistics)
    lines = entries.grid.values()
    tasks = (tasks_text(entries, [line[column] for line in lines if column in line]) for column in entries.heads)
    curves = source_text(entries, entries.cells, statistics)
    parts = (text + (f" [{brackets}]." if brackets else "."), scaling, next(filter(None, tasks), ""), curves)
    return " ".join(part for part in parts if part)


def levels_text(
    names: Iterable[str], entries: Entries, stale: bool = False, statistics: Sequence[Statistic] = ()
) -> str:
    """Sentences on the levels of these names, which a table or figure shows; empty without any.

    Args:
        names: the levels.
        entries: those of the table or figure.
        stale: whether it shows values of stale records.
        statistics: those of which it shows intervals.
    """
    if not (known := list(dict.fromkeys(names))):
        return ""
    many = "studies" if len(entries.studies_of_levels) > 1 else "study"
    studies = enumerated(entries.studies_of_levels)
    cells = [cell for line in entries.levels.values() for each in line.values() for cell in each]
    found = entries.intervals(statistics, cells)
    said = f"{capitalised(enumerated(known))}{f' [{found}]' if found else ''}: from the {many} {studies}"
    other = f"; values marked {STALE_MARK} may be of an earlier version of the environment than they are"
    return f"{said}{other if stale else ''}."


def tasks_text(entries: Entries, each: Iterable[Sequence[Cell]], what: str = "rows") -> str:
    """A sentence if the entries that are compared, ``each`` the runs of one, aggregate different tasks; else empty."""
    if len({frozenset(values_of_axes(cell, entries.over) for cell in cells) for cells in each}) > 1:
        return f"Not all {what} have the same tasks, so their values cannot be compared with each other."
    return ""


def source_text(entries: Entries, cells: Sequence[Cell], statistics: Sequence[Statistic]) -> str:
    """A sentence if some of the runs have curves of evaluations, and others of training; else empty."""
    if not any(STATISTICS[name] in statistics for name in ("area", "drop")):
        return ""
    return MIXED_CURVES if len(evaluated(entries, cells)) > 1 else ""


MIXED_CURVES = "Curves of some runs are of evaluations, those of others of training, so they cannot be compared."


def evaluated(entries: Entries, cells: Iterable[Cell]) -> set[bool]:
    """Whether the recorded runs' curves of the metric are of evaluations; both where some are."""
    known = [entries.records[cell.name] for cell in cells if cell.name in entries.records]
    return {entries.metric in record.evaluations for record in known}


def _mark(cells: Sequence[Cell], stale: Collection[str]) -> str:
    return f" {STALE_MARK}" if any(cell.name in stale for cell in cells) else ""
