"""Performance profiles: which share of the scores exceeds each threshold."""

import numpy as np
from jaxtyping import Float, Real

from shoal.errors import InputError, unknown
from shoal.statistics.aggregates import reduction, resampled
from shoal.statistics.intervals import check_confidence, tail_beyond
from shoal.statistics.scores import Band, Scores, by_task

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
    """Equally spaced thresholds from just below the lowest score of all algorithms to the highest.

    Raises:
        InputError: there is no algorithm or ``count`` is less than 2, or scores are malformed.
    """
    if not algorithms or count < 2:
        raise InputError("Thresholds need at least one algorithm and a count of at least 2.")
    every = np.concatenate([part for scores in algorithms for part in by_task(scores)])
    low, high = float(every.min()), float(every.max())
    margin = 0.01 * (high - low) or 0.5
    return np.linspace(low - margin, high + (margin if low == high else 0.0), count)


def _resampled_means(parts: list[np.ndarray], seed: int) -> Float[np.ndarray, "tasks resamples"]:
    """Means of resamples of each task, drawn independently."""
    seeds = np.random.default_rng(seed).integers(2**32, size=len(parts))
    mean = reduction("mean")
    return np.stack(
        [resampled([part], mean, count=RESAMPLES, seed=int(s)) for part, s in zip(parts, seeds, strict=True)]
    )
