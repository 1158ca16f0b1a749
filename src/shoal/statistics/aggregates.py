"""Aggregates of scores over runs and tasks. Every task has the same weight, also with a different number of runs.

Source: Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS), sections 2
and 4.3. With the same number of runs in all tasks, the values are those of the authors' library rliable.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.errors import InputError, unknown
from shoal.statistics.scores import Scores, by_task

STATISTICS = ("mean", "median", "iqm", "optimality_gap")
"""Their names."""


def mean(scores: Scores) -> float:
    """The mean over tasks of each task's mean over runs.

    Raises:
        InputError: the scores are malformed; see :func:`~shoal.statistics.by_task`.
    """
    return float(_mean(*by_task(scores)))


def median(scores: Scores) -> float:
    """The median over tasks of each task's mean over runs.

    Raises:
        InputError: the scores are malformed; see :func:`~shoal.statistics.by_task`.
    """
    return float(_median(*by_task(scores)))


def iqm(scores: Scores) -> float:
    """The interquartile mean: the mean of the middle half of the scores of all runs and tasks.

    ⌊N / 4⌋ of N scores are left out at each end. If tasks have different numbers of runs, a score's weight is
    1 / runs of its task, and the scores left out at each end are those whose summed weight is at most a quarter.

    Raises:
        InputError: the scores are malformed; see :func:`~shoal.statistics.by_task`.
    """
    return float(_iqm(*by_task(scores)))


def optimality_gap(scores: Scores, target: float | int = 1.0) -> float:
    """The mean over tasks and runs of max(target − score, 0): what is missing to the target, the less the better.

    Args:
        scores: usually normalised (:func:`~shoal.statistics.normalise`), so that the target is 1.
        target: the score beyond which an improvement does not count.

    Raises:
        InputError: the scores are malformed (see :func:`~shoal.statistics.by_task`), or ``target`` is not finite.
    """
    return float(_mean(*shortfalls(by_task(scores), target)))


def shortfalls(parts: list[np.ndarray], target: float | int) -> list[np.ndarray]:
    """max(target − score, 0) of every score."""
    if not np.isfinite(target):
        raise InputError(f"The target of an optimality gap is a finite score, not {target}.")
    return [np.maximum(target - part, 0.0) for part in parts]


def is_mean(statistic: str, tasks: int) -> bool:
    """Whether the statistic is a mean of the tasks' means; the median of one or two tasks is."""
    return statistic in ("mean", "optimality_gap") or (statistic == "median" and tasks <= 2)


def reduction(statistic: str) -> Callable[..., Any]:
    """The statistic as a function of one array [*b, runs] for each task to [*b], as ``scipy.stats.bootstrap`` calls it.

    That of the optimality gap takes :func:`shortfalls`.

    Raises:
        InputError: there is no statistic of that name.
    """
    if statistic not in STATISTICS:
        raise unknown("statistic", statistic, STATISTICS)
    return {"median": _median, "iqm": _iqm}.get(statistic, _mean)


def _mean(*parts: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
    return np.mean([part.mean(axis) for part in parts], axis=0)


def _median(*parts: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
    return np.median([part.mean(axis) for part in parts], axis=0)


def _iqm(*parts: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
    if len({part.shape[axis] for part in parts}) == 1:
        from scipy.stats import trim_mean  # slow to import

        return trim_mean(np.concatenate(parts, axis), 0.25, axis=axis)
    values = np.concatenate([np.moveaxis(part, axis, -1) for part in parts], -1)
    weight = np.concatenate([np.full(part.shape[axis], 1 / (len(parts) * part.shape[axis])) for part in parts])
    order = np.argsort(values, -1)
    values, weight = np.take_along_axis(values, order, -1), weight[order]
    below, above = np.cumsum(weight, -1), np.cumsum(weight[..., ::-1], -1)[..., ::-1]
    kept = weight * (np.minimum(below, above) > 0.25 + 1e-9)  # sums of 1 / runs are rounded
    return (values * kept).sum(-1) / kept.sum(-1)
