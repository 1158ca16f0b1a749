"""Whether a study's primary metric can decide anything: the floor and the ceiling of its tasks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from shoal.plots.charts import SHARES
from shoal.plots.texts import estimate_text
from shoal.statistics.intervals import Estimate, scaled
from shoal.studies.combinations import matches
from shoal.studies.keys import label
from shoal.studies.levels import Task, task_of
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import TRAINING, ScoreRange, StudyFile
from shoal.studies.summaries import STATISTICS, metric_name, primary_of, unit_of

MARGIN = 0.05
"""The margin of equality, as a share of the distance between floor and ceiling."""
_OF_SCORES = ("mean", "area")
"""Statistics whose values have the range of a score; a fall of the curve has not."""


Reached = Literal["floor", "ceiling", ""]


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
    """The limits of the primary metric in a run's task; unknown where the statistic has another range."""
    primary = study.primary
    if primary is None or primary.statistic not in _OF_SCORES:
        return Limits(None, None)
    return _limits(study, primary.metric, cell)


def less_is_better(study: StudyFile, metric: str, cell: Cell) -> bool:
    """Whether lower values of a metric are known to be better in a run's task."""
    return _limits(study, metric, cell).sign < 0


def primary_text(study: StudyFile, cells: Iterable[Cell]) -> str:
    """The primary metric of a study with these runs in a sentence, for example ``mean of the score``."""
    primary = primary_of(study)
    title = STATISTICS[primary.statistic].title_where({less_is_better(study, primary.metric, cell) for cell in cells})
    return f"{title} of the {metric_name(primary.metric, unit_of(primary.metric))}"


def range_of(study: StudyFile, values: Mapping[str, Any]) -> ScoreRange | None:
    """The known worst and best score of a run."""
    return next((one for one in study.scales if matches(values, one.where)), None)


def _limits(study: StudyFile, metric: str, cell: Cell) -> Limits:
    """A metric at worst and at best: by ``[primary]`` if it is that metric, else by ``[[scales]]`` or as a share."""
    scores, primary = range_of(study, cell.values) if metric == "score" else None, study.primary
    floor, ceiling = (scores.worst, scores.best) if scores else (None, None)
    if metric.removeprefix(TRAINING) in SHARES:
        floor, ceiling = (1.0, 0.0) if metric.removeprefix(TRAINING) == "lost" else (0.0, 1.0)
    if primary and primary.metric == metric:
        floor = floor if primary.floor is None else primary.floor
        ceiling = ceiling if primary.ceiling is None else primary.ceiling
    return Limits(floor, ceiling)


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
    return tuple(
        _sentence(study, task, found)
        for task in _tasks(study, cells)
        if (found := _known(study, task, records)) and reached(limits_of(study, task[0]), found)
    )


def undecided_runs(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, Reached]:
    """The runs of the tasks of :func:`undecided` by the cells' names, and what it is that decides nothing there."""
    found: dict[str, Reached] = {}
    for task in _tasks(study, cells):
        what = reached(limits_of(study, task[0]), _known(study, task, records))
        found |= {cell.name: what for cell in task if what}
    return found


def _tasks(study: StudyFile, cells: Sequence[Cell]) -> list[list[Cell]]:
    tasks: dict[tuple[Task, Limits], list[Cell]] = {}
    for cell in cells:
        tasks.setdefault((task_of(cell), limits_of(study, cell)), []).append(cell)
    return list(tasks.values())


def _known(study: StudyFile, task: Sequence[Cell], records: Mapping[str, Record]) -> list[Estimate]:
    """The estimates of a task's runs; empty if one is missing, or there is only one run."""
    found = [_estimate(study, records.get(cell.name)) for cell in task]
    known = [estimate for estimate in found if estimate is not None]
    return known if len(known) == len(task) > 1 else []


def reached(limits: Limits, found: Sequence[Estimate]) -> Reached:
    """Whether these estimates are all at the floor, or all at the ceiling; empty if they can decide something."""
    if not found:
        return ""
    sign, margin = limits.sign, limits.margin
    # The mean alone where there is no interval.
    highest = max(min(sign * end for end in estimate if not math.isnan(end)) for estimate in found)
    if limits.floor is not None and highest <= sign * limits.floor + margin:
        return "floor"
    if limits.ceiling is not None and min(sign * one[0] for one in found) >= sign * limits.ceiling - margin:
        return "ceiling"
    return ""


def _estimate(study: StudyFile, record: Record | None) -> Estimate | None:
    if study.primary is None or record is None:
        return None
    statistic = STATISTICS[study.primary.statistic]
    (samples,) = statistic.alone(study.primary.metric, record)
    return None if samples is None or statistic.estimate is None else statistic.estimate([samples])


def _sentence(study: StudyFile, task: Sequence[Cell], found: Sequence[Estimate]) -> str:
    """Why the runs of a task decide nothing."""
    assert study.primary is not None
    cell, limits = task[0], limits_of(study, task[0])
    unit, margin = unit_of(study.primary.metric), limits.margin
    options = "".join(f", {name} {label(value)}" for name, value in cell.env.items())
    where = f"Nothing is decided in {cell.environment}{options}:"
    if reached(limits, found) == "floor":
        assert limits.floor is not None
        best = max(found, key=lambda estimate: limits.sign * estimate[0])
        by = f" by more than the margin of {_number(unit * margin)}" if margin else ""
        shown = estimate_text(scaled(best, unit))
        return f"{where} no run's interval leaves the floor of {_number(unit * limits.floor)}{by}; the best is {shown}."
    assert limits.ceiling is not None
    up_to = f" up to the margin of {_number(unit * margin)}" if margin else ""
    return f"{where} every run reaches the ceiling of {_number(unit * limits.ceiling)}{up_to}."


def _number(value: float) -> str:
    return f"{value:,.4g}".replace("-", "−")
