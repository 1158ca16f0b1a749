"""What the comparisons of studies decide: the differences from their baselines in the primary metric, by the rules of
``docs/protocol.md``."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from shoal.plots.charts import SHARES
from shoal.statistics.intervals import Estimate
from shoal.studies.combinations import matches
from shoal.studies.keys import label
from shoal.studies.limits import Limits, limits_of, undecided_runs
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import stale_records
from shoal.studies.study_file import StudyFile, Table
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
    "no interval",
    "missing",
]
"""*Higher* and *lower* are differences of metrics of which no direction is known to be better. At the floor and at the
ceiling, where all runs of a task are, nothing is decided (:mod:`shoal.studies.limits`)."""
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
    span: float
    """The largest absolute end of an interval in the same column of the table."""
    margin: float
    """The distance within which both count as equal, in the unit shown."""
    verdict: Verdict
    stale: bool
    """Whether one of the records is stale (:mod:`shoal.studies.state`)."""
    normalised: bool
    """Whether it is a difference of normalised scores."""


def verdict_of(found: Estimate | None, margin: float, sign: int, directed: bool = True) -> Verdict:
    """What a difference decides.

    Args:
        found: the difference with its interval; None if a run is missing.
        margin: the distance within which both are equal.
        sign: 1 where higher values are better, −1 where lower ones are.
        directed: whether that is known.
    """
    if found is None:
        return "missing"
    low, high = sorted(sign * end for end in found[1:])
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
                found.setdefault(tuple(cell.name for cell in one.cells), one)
    return list(found.values())


def _statistic(table: Table, primary: str) -> str | None:
    known = (primary, *_AGGREGATES) if table.over and primary == "mean" else (primary,)
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
            both = (*cells, *other)
            found = entries.difference(cells, other, STATISTICS[statistic]) if entries.complete(both) else None
            made.append((column, cells, both, found))
    spans: dict[tuple, float] = {}
    for column, _, _, found in made:
        ends = [abs(x) for x in found or () if not math.isnan(x)]
        spans[column] = max([spans.get(column, 0.0), *ends])
    for column, cells, both, found in made:
        limits = _limits(study, table, entries, cells)
        sign = -1 if statistic == "drop" or both[0].name in entries.less else limits.sign
        reached = {nothing.get(cell.name) for cell in both}
        directed = statistic == "drop" or table.metric in ("score", *SHARES) or limits.margin > 0
        verdict = verdict_of(found, limits.margin, sign, directed)
        if len(cells) == 1 and found is not None and (what := next(iter(reached))) and reached == {what}:
            verdict = "at the floor" if what == "floor" else "at the ceiling"
        yield Comparison(
            _what(table, entries, cells[0], both[-1]),
            _where(entries, cells),
            both,
            found,
            spans[column],
            limits.margin,
            verdict,
            any(cell.name in stale for cell in both),
            entries.scaling != "raw",
        )


def _limits(study: StudyFile, table: Table, entries: Entries, cells: Sequence[Cell]) -> Limits:
    """The limits of an entry in the unit shown: 0 and 1 of normalised scores."""
    if entries.scaling != "raw":
        return Limits(0.0, 1.0)
    known, unit = limits_of(study, cells[0]), unit_of(table.metric)
    floor, ceiling = (None if one is None else unit * one for one in known)
    return Limits(floor, ceiling)


def _what(table: Table, entries: Entries, row: Cell, other: Cell) -> str:
    """The row less its baseline; in brackets what both have in common."""

    def said(cell: Cell, axes: Iterable[str]) -> str:
        each = ((axis, label(cell.values[axis])) for axis in axes)
        return ", ".join(word if axis in PLAIN else f"{axis.removeprefix('env.')} {word}" for axis, word in each)

    differing = [axis for axis in entries.rows if label(row.values[axis]) != label(other.values[axis])]
    common = [axis for axis in entries.rows if axis not in differing and axis != "environment"]
    shared = said(row, common)
    return f"{said(row, differing)} less {said(other, differing)}" + (f" ({shared})" if shared else "")


def _where(entries: Entries, cells: Sequence[Cell]) -> str:
    if entries.over:
        return f"{len(cells)} tasks"
    cell = cells[0]
    options = [f"{name} {label(value)}" for name, value in cell.env.items()]
    other = [axis for axis in entries.columns if axis not in PLAIN and not axis.startswith("env.")]
    return ", ".join([cell.environment, *options, *(f"{axis} {label(cell.values[axis])}" for axis in other)])
