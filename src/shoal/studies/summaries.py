"""Statistics of the runs of a table's entry, by the name that ``statistic`` has in the file.

A run is a task with one sample for each seed; an entry over several tasks is an aggregate of
:mod:`shoal.statistics`. Only in a mean over one task the samples of a single seed are its final episodes.
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from shoal import statistics
from shoal.plots.charts import SHARES
from shoal.statistics.intervals import Estimate, difference_of, interval, interval_text, share
from shoal.studies.record import Record
from shoal.studies.study_file import ALONE, TRAINING, Primary, StudyFile
from shoal.training.evaluation import known_mean

Samples = Float[np.ndarray, " _"]


def _between(samples: Samples, worst: float, best: float) -> Samples:
    return (samples - worst) / (best - worst)


class Statistic(NamedTuple):
    """A number with its interval, from the runs of an entry, or from those of two."""

    title: str
    """Title on the page, for example ``mean``."""
    samples: Callable[[Record, str], Samples | None]
    """(record, metric) -> a finite number for each seed; None if that of one is unknown."""
    estimate: Callable[[Sequence[Samples]], Estimate] | None
    """Samples of each task -> (value, low, high); None where the statistic only compares."""
    difference: Callable[[Sequence[Samples], Sequence[Samples]], Estimate]
    """(an entry's, the baseline's) -> (value, low, high) of the difference or comparison."""
    normalised: Callable[[Samples, float, float], Samples] | None = _between
    """(samples, worst, best) -> normalised samples; None where they stay as they are."""
    single: Callable[[Record, str], Samples | None] | None = None
    """In an entry of one task, the samples of a run with a single seed, NaN where unknown; None for ``samples``."""
    exact: bool = False
    """Whether its interval is exact for any number of seeds, also for one."""
    reverse: "Statistic | None" = None
    """What it is where lower values are better; None for the same."""

    def where(self, less: bool) -> "Statistic":
        """The statistic in a task in which lower values are better, or in another."""
        return (self.reverse or self) if less else self

    def title_where(self, less: Collection[bool]) -> str:
        """The title in tasks in which lower values are better, in others, or in both."""
        titles = dict.fromkeys(self.where(each).title for each in sorted(less))
        return " and, where less is better, ".join(titles) or self.title

    def alone(self, metric: str, *records: Record, paired: bool = False) -> list[Samples | None]:
        """The samples of runs that stand alone or are compared with each other, each in an entry of one task; if
        ``paired``, without the episodes that one of them does not know."""
        take = self.single if self.single and all(record.seeds == 1 for record in records) else self.samples
        every = [take(record, metric) for record in records]
        known = [each for each in every if each is not None]
        if paired and len(known) == len(every) and len({each.size for each in known}) == 1:
            there = np.isfinite(known).all(0)
            every = [each[there] for each in known]
        return [None if each is None else _finite(each) for each in every]

    def interval_of(self, metric: str, seeds: int, tasks: int) -> str:
        """The kind of interval in an entry's brackets, for example ``95% interval over 5 seeds``; empty if an entry has
        none."""
        over = f"over {seeds} seed{'s' if seeds > 1 else ''}" + (f" of {tasks} tasks" if tasks > 1 else "")
        if self.exact:
            return f"95% interval {over}"
        if seeds == 1:
            episodes = self.single is not None and tasks == 1 and not metric.startswith(TRAINING)
            return "95% interval over the episodes of 1 seed" if episodes else ""
        if tasks > 1:
            return f"95% stratified bootstrap interval {over}"
        return f"{'95% interval' if self.estimate is None else interval_text(seeds)} {over}"


def final_samples(record: Record, metric: str) -> Samples | None:
    """Each seed's mean over the final episodes, or over a metric's curve; None if one seed's is unknown."""
    if metric.startswith(TRAINING):
        return _each(known_mean(curve_of(record, metric)[1].T, axis=1))
    values = record.values(metric)
    return None if values is None else _each(known_mean(values, axis=1))


def final_episodes(record: Record, metric: str) -> Samples | None:
    """The final episodes of the first seed, NaN where unknown; of a metric's curve its mean."""
    values = None if metric.startswith(TRAINING) else record.values(metric)
    return final_samples(record, metric) if values is None else values[0]


def curve_of(record: Record, metric: str) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "X seeds"]]:
    """(steps, values) of a curve: of greedy evaluations where the record has them, otherwise of training.

    There are no points where the record has no such curve; a value that is unknown is NaN.
    """
    source = record.evaluations if metric in record.evaluations else record.curve
    values = source.get(metric.removeprefix(TRAINING), []) if metric != "step" else []
    steps = source["step"] if values else []
    return np.asarray(steps, np.float64), np.asarray(values, np.float64).reshape(len(steps), record.seeds)


def known_curve(record: Record, metric: str) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "X seeds"]]:
    """:func:`curve_of` without the points at which a seed's value is unknown."""
    steps, values = curve_of(record, metric)
    known = np.isfinite(values).all(1)
    return steps[known], values[known]


def start_of(steps: Float[np.ndarray, " _"]) -> float:
    """The first step of a curve as a share of the last one, 0 where both are 0."""
    return float(steps[0] / steps[-1]) if steps[-1] else 0.0


def _area(record: Record, metric: str) -> Samples | None:
    steps, values = known_curve(record, metric)
    return statistics.area(steps, values) if len(steps) > 1 else None


def _drop(record: Record, metric: str) -> Samples | None:
    """The largest difference by which a later point of the curve is below an earlier one."""
    _, values = known_curve(record, metric)
    return (np.maximum.accumulate(values) - values).max(0) if len(values) else None


def _rise(record: Record, metric: str) -> Samples | None:
    """The largest difference by which a later point of the curve is above an earlier one."""
    _, values = known_curve(record, metric)
    return (values - np.minimum.accumulate(values)).max(0) if len(values) else None


def _of_distance(falls: Samples, worst: float, best: float) -> Samples:
    return falls / abs(best - worst)


def _each(samples: Samples) -> Samples | None:
    """The samples of all seeds; None without that of one, since an entry says over how many seeds it is."""
    return samples if samples.size and np.isfinite(samples).all() else None


def _finite(samples: Samples) -> Samples | None:
    known = samples[np.isfinite(samples)]
    return known if known.size else None


def _mean(tasks: Sequence[Samples]) -> Estimate:
    return interval(tasks[0]) if len(tasks) == 1 else statistics.estimate(list(tasks), "mean")


def _mean_difference(tasks: Sequence[Samples], baseline: Sequence[Samples]) -> Estimate:
    if len(tasks) == 1:
        value, low, high = interval(tasks[0], -baseline[0])
        known = min(tasks[0].size, baseline[0].size) > 1  # how far a single seed is from others is not known
        return (value, low, high) if known else (value, math.nan, math.nan)
    return statistics.compare(list(tasks), list(baseline)).difference


def _aggregate(name: str, tasks: Sequence[Samples]) -> Estimate:
    return statistics.estimate(list(tasks), name)


def _aggregate_difference(name: str, tasks: Sequence[Samples], baseline: Sequence[Samples]) -> Estimate:
    return statistics.difference(list(tasks), list(baseline), name)


def _improvement(tasks: Sequence[Samples], baseline: Sequence[Samples]) -> Estimate:
    return statistics.improvement(list(tasks), list(baseline))


_SOLVED = 1.0 - 1e-3
"""Normalised score from which on a seed has reached the best one."""


def _solved(tasks: Sequence[Samples]) -> Estimate:
    reached = np.concatenate(list(tasks)) >= _SOLVED
    return share(int(reached.sum()), reached.size)


def _solved_difference(tasks: Sequence[Samples], baseline: Sequence[Samples]) -> Estimate:
    value, low, high = difference_of(_solved(tasks), _solved(baseline))
    known = min(each.size for each in (*tasks, *baseline)) > 1
    return (value, low, high) if known else (value, math.nan, math.nan)


def _of(title: str, name: str) -> Statistic:
    return Statistic(title, final_samples, partial(_aggregate, name), partial(_aggregate_difference, name))


_RISE = Statistic("largest rise of the learning curve", _rise, _mean, _mean_difference, _of_distance)
STATISTICS = {
    "mean": Statistic("mean", final_samples, _mean, _mean_difference, single=final_episodes),
    "median": _of("median over tasks", "median"),
    "iqm": _of("interquartile mean", "iqm"),
    "optimality_gap": _of("optimality gap", "optimality_gap"),
    "solved": Statistic(
        "share of seeds that reach the best value", final_samples, _solved, _solved_difference, exact=True
    ),
    "improvement": Statistic("probability of improvement", final_samples, None, _improvement, normalised=None),
    "area": Statistic("mean height of the learning curve", _area, _mean, _mean_difference),
    "drop": Statistic(
        "largest fall of the learning curve", _drop, _mean, _mean_difference, _of_distance, reverse=_RISE
    ),
}
"""Statistics by name."""


def primary_of(study: StudyFile) -> Primary:
    """The primary metric of a study; if its file names none, the first of its tables' that is a number of a run."""
    each = [(table.metric, name) for table in study.tables for name in table.statistics if name in ALONE]
    return study.primary or (Primary(*each[0]) if each else Primary("score"))


def unit_of(metric: str) -> float:
    """The factor by which a metric's shown values are multiplied: 100 for a share, which is shown in per cent."""
    return 100.0 if metric.removeprefix(TRAINING) in SHARES else 1.0


def metric_name(metric: str, unit: float) -> str:
    """A metric in a sentence; ``unit``: see :func:`unit_of`."""
    name, shown = metric.removeprefix(TRAINING), ", in per cent" if unit == 100.0 else ""
    known = {"length": "length of episodes"} | SHARES | {"score": "score"}
    if metric.startswith(TRAINING):
        return f"{SHARES.get(name, f'metric {name}')} of training{shown}, mean over all updates"
    return f"{known.get(name, f'metric {name}')}{shown}"
