"""Aggregates of scores over runs and tasks, and performance profiles.

Every task has the same weight, also with a different number of runs. A profile is the share of the scores that exceeds
each threshold.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from shoal.errors import InputError, unknown
from shoal.statistics.intervals import DRAWN, Estimate, check_confidence, interval, tail_beyond
from shoal.statistics.scores import Band, Scores, by_task

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
    1 / runs of its task, and a quarter of the weights is left out at each end; a score at such a border counts in part.

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
    below = np.cumsum(weight, -1)
    kept = np.maximum(np.minimum(below, 0.75) - np.maximum(below - weight, 0.25), 0.0)
    return (values * kept).sum(-1) / kept.sum(-1)


# Intervals of aggregates by a bootstrap that resamples the runs within each task.


BATCH = 1000
"""Resamples held in memory at a time."""


def estimate(
    scores: Scores,
    statistic: str = "iqm",
    *,
    target: float | int = 1.0,
    confidence: float = 0.95,
    resamples: int = DRAWN,
    seed: int = 0,
) -> Estimate:
    """An aggregate over runs and tasks and its interval by the stratified bootstrap.

    The runs of each task are resampled, the tasks are not: the interval is about other seeds on the same tasks. It
    holds the quantiles a and 1 − a of the aggregate over resamples, with a of
    :func:`~shoal.statistics.intervals.tail_beyond` for the mean over tasks. The plain percentile interval,
    a = (1 − confidence) / 2, is too narrow for few runs. No end lies beyond what resamples of the data can give. The
    interval of a mean (or optimality gap) is :func:`~shoal.statistics.intervals.interval`.

    Coverage of a 95 % interval, 500 simulated studies each (standard error 1 to 2 %; ``benchmarks/coverage.py``):

        tasks                           1                  3                  10
        runs                   3     5    10      3     5    10      3     5    10
        iqm, normal           75 %  94 %  97 %   94 %  95 %  96 %   96 %  95 %  93 %
        iqm, exponential      74 %  93 %  96 %   93 %  96 %  95 %   97 %  94 %  97 %
        iqm, 2 in 10 fail     73 %  94 %  99 %   92 %  96 %  95 %   95 %  96 %  95 %
        median, normal        76 %  93 %  94 %   89 %  96 %  97 %   96 %  96 %  95 %
        median, exponential   68 %  87 %  91 %   90 %  98 %  95 %   87 %  85 %  84 %
        median, 2 in 10 fail  51 %  71 %  90 %   57 %  80 %  96 %   65 %  92 %  97 %
        mean, normal          71 %  93 %  94 %   93 %  95 %  97 %   97 %  95 %  95 %
        mean, exponential     71 %  87 %  90 %   90 %  90 %  94 %   94 %  93 %  95 %
        mean, 2 in 10 fail    49 %  67 %  87 %   87 %  96 %  95 %   95 %  95 %  95 %

    The interval of three runs of one task is at most their range. The median is the mean of one or two tasks, which are
    chosen by noisy scores, and is biased where these lie far apart: prefer the IQM.

    Args:
        scores: [runs, tasks], or an array [runs] for each task.
        statistic: "mean", "median", "iqm" or "optimality_gap"; see :mod:`shoal.statistics.aggregates`.
        target: of the optimality gap.
        confidence: between 0 and 1.
        resamples: number of resamples for median and IQM.
        seed: of these resamples; the same seed gives the same interval.

    Returns:
        (aggregate, low, high). If a task has a single run, its spread is unknown, and low and high are NaN.

    Raises:
        InputError: the scores are malformed (see :func:`~shoal.statistics.by_task`), there is no such statistic, or
            ``confidence`` is not between 0 and 1.

    Source: Agarwal et al. 2021, section 4.1, for the strata; Hesterberg 2015 for the quantiles.
    """
    check_confidence(confidence)
    reduce, parts = reduction(statistic), by_task(scores)
    if statistic == "optimality_gap":
        parts = shortfalls(parts, target)
    middle = float(reduce(*parts))
    if min(part.size for part in parts) == 1:
        return middle, float("nan"), float("nan")
    if is_mean(statistic, len(parts)):
        return interval(*(part / len(parts) for part in parts), confidence=confidence)
    low, high = ends(resampled(parts, reduce, count=resamples, seed=seed), tail_beyond(parts, confidence))
    return middle, float(low), float(high)


def resampled(
    parts: Sequence[Float[np.ndarray, "*X _"]],
    reduce: Callable[..., Any],
    *,
    count: int = DRAWN,
    seed: int = 0,
) -> Float[np.ndarray, "*X resamples"]:
    """``reduce`` of resamples of the runs within each part. All X use the same runs.

    Args:
        parts: [*X, runs] for each task, or for each task and algorithm, with at least two runs.
        reduce: a function of arrays [*b, runs], one for each part, and ``axis``, to [*b].
        count: number of resamples.
        seed: of the resamples.

    Raises:
        InputError: ``count`` is less than 1.
    """
    if count < 1:
        raise InputError(f"A bootstrap needs at least one resample, not {count}.")
    from scipy.stats import bootstrap  # slow to import

    found = bootstrap(
        tuple(parts), reduce, axis=-1, vectorized=True, n_resamples=count, batch=BATCH, method="percentile", rng=seed
    )
    return found.bootstrap_distribution


def ends(resamples: Float[np.ndarray, "*X resamples"], tail: float) -> Float[np.ndarray, "2 *X"]:
    """The quantiles ``tail`` and 1 − ``tail``."""
    return np.quantile(resamples, [tail, 1 - tail], axis=-1)


KINDS = ("runs", "means")
RESAMPLES = 2000
"""For each band."""


def profile(
    scores: Scores,
    thresholds: Real[np.ndarray, " X"],
    kind: str = "runs",
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Band:
    """The share of scores that exceed each threshold τ, with pointwise intervals of the stratified bootstrap.

    "runs" (score distribution): the share of a task's runs with score > τ, mean over tasks. "means" (average-score
    distribution): the share of tasks whose mean score is > τ. The first has less uncertainty and also shows the spread
    between runs. The quantiles are those of :func:`~shoal.statistics.estimate`. Where all runs lie on the same side of
    τ, resamples have no spread and the band has no width.

    Args:
        scores: usually normalised; [runs, tasks], or an array [runs] for each task.
        thresholds: τ, finite and increasing; see :func:`spanning`.
        kind: "runs" or "means".
        confidence: between 0 and 1.
        seed: of the resamples.

    Returns:
        The shares, between 0 and 1, and their band, NaN if a task has a single run.

    Raises:
        InputError: the scores are malformed (see :func:`~shoal.statistics.by_task`), ``thresholds`` are not finite and
            increasing, there is no such kind, or ``confidence`` is not between 0 and 1.

    Source: Agarwal et al. 2021, section 4.2; Dolan and Moré 2002, Benchmarking optimization software with performance
    profiles, Mathematical Programming 91.
    """
    check_confidence(confidence)
    parts, levels = by_task(scores), np.asarray(thresholds, np.float64)
    if levels.ndim != 1 or levels.size == 0 or not np.isfinite(levels).all() or (np.diff(levels) <= 0).any():
        raise InputError("The thresholds of a profile are finite numbers in increasing order.")
    if kind not in KINDS:
        raise unknown("kind of profile", kind, KINDS)
    if kind == "runs":
        exceeding = [(part > levels[:, None]).astype(np.float64) for part in parts]
        point = np.mean([part.mean(1) for part in exceeding], 0)
    else:
        exceeding = parts
        point = np.mean([part.mean() > levels for part in parts], 0)
    if min(part.size for part in parts) == 1:
        return Band(point, np.full(levels.shape, np.nan), np.full(levels.shape, np.nan))
    if kind == "runs":
        every = resampled(exceeding, reduction("mean"), count=RESAMPLES, seed=seed)
        tails = [tail_beyond([part[i] for part in exceeding], confidence) for i in range(levels.size)]
    else:
        means = _resampled_means(parts, seed)
        every = np.stack([np.mean(means > level, 0) for level in levels])
        tails = [tail_beyond(parts, confidence)] * levels.size
    return Band(point, *np.transpose([np.quantile(row, (a, 1 - a)) for row, a in zip(every, tails, strict=True)]))


def spanning(*algorithms: Scores, count: int = 201) -> Float[np.ndarray, " count"]:
    """Equally spaced thresholds from just below the lowest score of all algorithms to the highest; beyond it where
    scores differ by rounding only.

    Raises:
        InputError: there is no algorithm or ``count`` is less than 2, or scores are malformed.
    """
    if not algorithms or count < 2:
        raise InputError("Thresholds need at least one algorithm and a count of at least 2.")
    every = np.concatenate([part for scores in algorithms for part in by_task(scores)])
    low, high = float(every.min()), float(every.max())
    rounding = 1e-9 * max(abs(low), abs(high))
    if high - low <= rounding:
        margin = max(0.5, rounding)
        return np.linspace(low - margin, high + margin, count)
    return np.linspace(low - 0.01 * (high - low), high, count)


def _resampled_means(parts: list[np.ndarray], seed: int) -> Float[np.ndarray, "tasks resamples"]:
    """Means of resamples of each task, drawn independently."""
    seeds = np.random.default_rng(seed).integers(2**32, size=len(parts))
    mean = reduction("mean")
    return np.stack(
        [resampled([part], mean, count=RESAMPLES, seed=int(s)) for part, s in zip(parts, seeds, strict=True)]
    )
