"""Whether a study's primary metric can decide anything: the floor and the ceiling of its tasks."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.plots.charts import SHARES
from shoal.plots.texts import estimate_text
from shoal.statistics.intervals import Estimate, scaled
from shoal.studies.keys import key, label
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile
from shoal.studies.summaries import STATISTICS, unit_of
from shoal.studies.tables import range_of

MARGIN = 0.05
"""The margin of equality, as a share of the distance between floor and ceiling."""
_OF_LEVELS = ("mean", "area")
"""Statistics whose values have the range of a score; a fall of the curve has not."""


class Limits(NamedTuple):
    """What the primary metric is at worst and at best in a task; None where that is not known."""

    floor: float | None
    ceiling: float | None

    @property
    def sign(self) -> int:
        """1 where higher values are better, −1 where lower ones are."""
        return -1 if self.floor is not None and self.ceiling is not None and self.ceiling < self.floor else 1

    @property
    def margin(self) -> float:
        """The distance within which two values count as equal; 0 unless both limits are known."""
        return 0.0 if self.floor is None or self.ceiling is None else MARGIN * abs(self.ceiling - self.floor)


def limits_of(study: StudyFile, cell: Cell) -> Limits:
    """The limits of the primary metric in a run's task: those of ``[primary]``, else of ``[[scales]]`` or a share."""
    primary = study.primary
    if primary is None or primary.statistic not in _OF_LEVELS:
        return Limits(None, None)
    scores = range_of(study, cell.values)
    known: tuple[float | None, float | None] = (None, None)
    if primary.metric in SHARES:
        known = (1.0, 0.0) if primary.metric == "lost" else (0.0, 1.0)
    elif primary.metric == "score" and scores is not None:
        known = (scores.worst, scores.best)
    floor = known[0] if primary.floor is None else primary.floor
    return Limits(floor, known[1] if primary.ceiling is None else primary.ceiling)


def undecided(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> tuple[str, ...]:
    """A sentence for each task with two runs or more in which the primary metric cannot tell them apart.

    A task is an environment with its options. Its runs decide nothing if the interval of none of them leaves the floor
    by more than the margin, or if the means of all of them reach the ceiling up to the margin. Tasks with missing runs,
    and limits that are not known, are left out.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names.
    """
    tasks: dict[object, list[Cell]] = {}
    for cell in cells:
        task = (cell.environment, tuple(sorted((name, key(value)) for name, value in cell.env.items())))
        tasks.setdefault((task, limits_of(study, cell)), []).append(cell)
    said = []
    for each in tasks.values():
        found = {cell.name: _estimate(study, records.get(cell.name)) for cell in each}
        known = {name: estimate for name, estimate in found.items() if estimate is not None}
        if len(each) > 1 and len(known) == len(each):
            said.append(_sentence(study, each[0], limits_of(study, each[0]), list(known.values())))
    return tuple(sentence for sentence in said if sentence)


def _estimate(study: StudyFile, record: Record | None) -> Estimate | None:
    if study.primary is None or record is None:
        return None
    statistic = STATISTICS[study.primary.statistic]
    (samples,) = statistic.alone(study.primary.metric, record)
    return None if samples is None or statistic.estimate is None else statistic.estimate([samples])


def _sentence(study: StudyFile, cell: Cell, limits: Limits, found: Sequence[Estimate]) -> str:
    """Why the runs of a task decide nothing; empty if they can decide something."""
    assert study.primary is not None
    unit, sign, margin = unit_of(study.primary.metric), limits.sign, limits.margin
    options = "".join(f", {name} {label(value)}" for name, value in cell.env.items())
    where = f"Nothing is decided in {cell.environment}{options}:"
    best = max(found, key=lambda estimate: sign * estimate[0])
    # The mean alone where there is no interval.
    reach = max(min(sign * end for end in estimate if not math.isnan(end)) for estimate in found)
    if limits.floor is not None and reach <= sign * limits.floor + margin:
        by = f" by more than the margin of {_number(unit * margin)}" if margin else ""
        shown = estimate_text(scaled(best, unit))
        return f"{where} no run's interval leaves the floor of {_number(unit * limits.floor)}{by}; the best is {shown}."
    worst = min(sign * estimate[0] for estimate in found)
    if limits.ceiling is not None and worst >= sign * limits.ceiling - margin:
        up_to = f" up to the margin of {_number(unit * margin)}" if margin else ""
        return f"{where} every run reaches the ceiling of {_number(unit * limits.ceiling)}{up_to}."
    return ""


def _number(value: float) -> str:
    return f"{value:,.4g}".replace("-", "−")
