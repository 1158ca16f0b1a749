"""What the comparisons of studies decide: the differences from their baselines in the primary metric, by the rules of
``docs/protocol.md``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from shoal.plots.charts import SHARES, metric_words
from shoal.statistics.intervals import Estimate
from shoal.studies.combinations import axes_of, matches
from shoal.studies.keys import key, label
from shoal.studies.limits import Limits, limits_of, undecided_runs
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import stale_records
from shoal.studies.study_file import TRAINING, StudyFile, Table
from shoal.studies.summaries import STATISTICS, primary_of, unit_of
from shoal.studies.tables import PLAIN, Entries, baseline_of, entries_of

Verdict = Literal[
    "better",
    "worse",
    "higher",
    "lower",
    "equal",
    "undecided",
    "at the floor",
    "at the ceiling",
    "one seed",
    "no interval",
    "unknown",
    "missing",
]
"""*Higher* and *lower* are differences of metrics of which no direction is known to be better. At the floor and at the
ceiling, where all runs of a task are, nothing is decided (:mod:`shoal.studies.limits`). One seed: the interval is over
the episodes of single seeds, and does not tell how far other seeds are. Unknown: all is recorded, but a value is not
known, or the runs cannot be compared. Missing: a run is not recorded."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_AGGREGATES = ("iqm", "mean", "median")
"""Statistics over several tasks that stand for the mean of the primary metric, the first that a table has."""


class Comparison(NamedTuple):
    """A row of a table less the row of its baseline, in one column."""

    what: str
    """For example ``happo less mappo``."""
    where: str
    """The task, or the number of tasks."""
    cells: tuple[Cell, ...]
    """The runs of both, the row's first."""
    found: Estimate | None
    """The difference with its interval, in the unit shown; None where runs are missing or values unknown."""
    metric: str
    """What is compared, for example ``score``."""
    span: float
    """The largest absolute end of an interval in the same environment and column of the table."""
    margin: float
    """The distance within which both count as equal, in the unit shown."""
    verdict: Verdict
    stale: bool
    """Whether one of the records is stale (:mod:`shoal.studies.state`)."""


def verdict_of(found: Estimate | None, margin: float, sign: int, directed: bool = True) -> Verdict:
    """What a difference decides.

    Args:
        found: the difference with its interval; None if it is unknown.
        margin: the distance within which both are equal.
        sign: 1 where higher values are better, −1 where lower ones are.
        directed: whether that is known.
    """
    if found is None:
        return "unknown"
    low, high = sorted((sign if directed else 1) * end for end in found[1:])
    if math.isnan(low) or math.isnan(high):
        return "no interval"
    if margin and -margin <= low and high <= margin:
        return "equal"
    if low > 0:
        return "better" if directed else "higher"
    if high < 0:
        return "worse" if directed else "lower"
    return "undecided"


def comparisons_of(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> list[Comparison]:
    """The comparisons of a study's primary metric with the baselines of its tables, each once.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are missing.
    """
    primary, stale, nothing = primary_of(study), stale_records(cells, records), undecided_runs(study, cells, records)
    found: dict[tuple[str, ...], Comparison] = {}
    for table in study.tables:
        statistic = _statistic(table, primary.statistic)
        if table.baseline and table.metric == primary.metric and statistic is not None:
            for one in _of_table(study, table, statistic, entries_of(study, table, cells, records), stale, nothing):
                place = tuple(cell.name for cell in one.cells)
                if place not in found or found[place].found is None:
                    found[place] = one
    return list(found.values())


def _statistic(table: Table, primary: str) -> str | None:
    known = _AGGREGATES if table.over and primary == "mean" else (primary,)
    return next((name for name in known if name in table.statistics), None)


def _of_table(
    study: StudyFile,
    table: Table,
    statistic: str,
    entries: Entries,
    stale: Mapping[str, str],
    nothing: Mapping[str, str],
) -> Iterable[Comparison]:
    baseline, made = baseline_of(entries, table), []
    for line in entries.grid.values():
        for column, cells in line.items():
            other = baseline(cells[0])
            if not other or matches(cells[0].values, table.baseline):
                continue
            complete = entries.complete([*cells, *other])
            found = entries.difference(cells, other, STATISTICS[statistic]) if complete else None
            made.append(((column, cells[0].environment), cells, other, complete, found))
    spans: dict[Any, float] = {}
    for place, *_, found in made:
        spans[place] = max([spans.get(place, 0.0), *(abs(x) for x in found or () if not math.isnan(x))])
    metric, records = _metric(table, statistic, entries), entries.records
    for place, cells, other, complete, found in made:
        both = (*cells, *other)
        limits = _limits(study, table, statistic, entries, both)
        lower = statistic == "drop" or (entries.scaling == "raw" and both[0].name in entries.less)
        known = statistic == "drop" or table.metric.removeprefix(TRAINING) in ("score", *SHARES)
        directed = known or limits_of(study, cells[0]).margin > 0
        verdict = verdict_of(found, limits.margin, -1 if lower else 1, directed) if complete else "missing"
        if verdict not in ("missing", "unknown", "no interval") and all(records[one.name].seeds == 1 for one in both):
            verdict = "one seed"
        reached = {nothing.get(cell.name) for cell in both}
        if len(cells) == 1 and found is not None and (what := next(iter(reached))) and reached == {what}:
            verdict = "at the floor" if what == "floor" else "at the ceiling"
        yield Comparison(
            _what(entries, cells[0], other[0]),
            _where(entries, cells, other),
            both,
            found,
            metric,
            spans[place],
            limits.margin,
            verdict,
            any(cell.name in stale for cell in both),
        )


def _metric(table: Table, statistic: str, entries: Entries) -> str:
    """The metric with what is said of it, for example ``score, normalised``."""
    title = "" if statistic == "mean" else STATISTICS[statistic].title_where(entries.directions)
    words = [metric_words(table.metric), title]
    words += ["normalised" if entries.scaling != "raw" else "in per cent" if entries.unit == 100.0 else ""]
    return ", ".join(word for word in words if word)


def _limits(study: StudyFile, table: Table, statistic: str, entries: Entries, cells: Sequence[Cell]) -> Limits:
    """The limits of an entry in the unit shown: 0 and 1 of scores that are normalised by known ones."""
    if entries.scaling == "known" and statistic != "drop":
        return Limits(0.0, 1.0)
    each = {limits_of(study, cell) for cell in cells}
    if entries.scaling != "raw" or len(each) > 1:
        return Limits(None, None)
    unit = unit_of(table.metric)
    floor, ceiling = (None if one is None else unit * one for one in each.pop())
    return Limits(floor, ceiling)


def _said(cell: Cell, axes: Iterable[str]) -> str:
    """The values of some axes, with the names of those that are not known by their values."""
    each = ((axis, label(cell.values[axis])) for axis in axes)
    return ", ".join(word if axis in PLAIN else f"{axis.removeprefix('env.')} {word}" for axis, word in each)


def _what(entries: Entries, row: Cell, other: Cell) -> str:
    """The row less its baseline; in brackets what both have in common, with their algorithm."""
    differing = [axis for axis in entries.rows if label(row.values[axis]) != label(other.values[axis])]
    common = [axis for axis in entries.rows if axis not in differing and axis not in ("environment", "algorithm")]
    algorithm = row.algorithm if row.algorithm == other.algorithm else ""
    shared = ", ".join(part for part in (algorithm, _said(row, common)) if part)
    return f"{_said(row, differing)} less {_said(other, differing)}" + (f" ({shared})" if shared else "")


def _where(entries: Entries, cells: Sequence[Cell], other: Sequence[Cell]) -> str:
    """The task, or the number of tasks, with the values of all other axes that the rows do not say."""
    several = axes_of([cell.values for cell in entries.every])
    left = [axis for axis, known in several.items() if len(known) > 1 and axis not in (*entries.rows, *entries.over)]
    beside = [axis for axis in left if axis not in ("environment", "algorithm") and not axis.startswith("env")]
    said = [_said(cells[0], beside)] if beside else []
    if entries.over:
        return ", ".join([f"{len(cells)} tasks", *said])
    task, there = cells[0], other[0].env
    options = [f"{name} {label(x)}" for name, x in task.env.items() if name in there and key(there[name]) == key(x)]
    return ", ".join([task.environment, *options, *said])
