"""Scores as functions of training steps: sample-efficiency curves, area under them, final and best scores."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Real

from shoal.errors import InputError
from shoal.statistics.aggregates import RESAMPLES, is_mean, reduction, resampled, shortfalls
from shoal.statistics.intervals import band, check_confidence, tail_beyond
from shoal.statistics.scores import Band

Curves = Sequence[Real[np.ndarray, "_ _"]] | Mapping[str, Real[np.ndarray, "_ _"]]
"""Scores [X, runs] at X evaluation steps for each task. All tasks have the same X, and may differ in their runs."""


def efficiency(
    curves: Curves,
    statistic: str = "iqm",
    *,
    target: float | int = 1.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> Band:
    """An aggregate over runs and tasks at each evaluation step, with pointwise intervals.

    The intervals are those of :func:`~shoal.statistics.estimate` from 2000 resamples, and for the mean of one task
    those of :func:`~shoal.statistics.intervals.band`. All steps use the same resamples of runs.

    Args:
        curves: finite scores [X, runs] for each task, usually normalised.
        statistic: "mean", "median", "iqm" or "optimality_gap".
        target: of the optimality gap.
        confidence: between 0 and 1.
        seed: of the resamples.

    Returns:
        The aggregate and its band at X steps; the band is NaN if a task has a single run.

    Raises:
        InputError: the curves are malformed, there is no such statistic, or ``confidence`` is not between 0 and 1.

    Source: Agarwal et al. 2021, appendix A.3.
    """
    check_confidence(confidence)
    reduce, parts = reduction(statistic), _curves(curves)
    if statistic == "optimality_gap":
        parts = shortfalls(parts, target)
    if min(part.shape[1] for part in parts) == 1:
        point = reduce(*parts)
        return Band(point, np.full(point.shape, np.nan), np.full(point.shape, np.nan))
    if len(parts) == 1 and is_mean(statistic, 1):
        return Band(*band(parts[0], confidence))
    every = resampled(parts, reduce, count=RESAMPLES, seed=seed)
    tails = [tail_beyond([part[i] for part in parts], confidence) for i in range(len(every))]
    limits = [np.quantile(row, (a, 1 - a)) for row, a in zip(every, tails, strict=True)]
    return Band(reduce(*parts), *np.transpose(limits))


def area(steps: Real[np.ndarray, " X"], values: Real[np.ndarray, "_ runs"]) -> Float[np.ndarray, " runs"]:
    """The area under each run's curve by the trapezoidal rule, divided by the length of the steps: its mean height.

    Its unit is that of the values, so that it can be normalised and aggregated as a score. Only runs of equal length
    can be compared.

    Args:
        steps: increasing. With a single step the area is the value there.
        values: finite scores [X, runs] at these steps.

    Raises:
        InputError: the steps do not increase, or values are not finite or do not fit the steps.
    """
    x, (part,) = np.asarray(steps, np.float64), _curves([values])
    if x.shape != part.shape[:1]:
        raise InputError(f"There are {x.size} steps, and values at {len(part)}.")
    if not np.isfinite(x).all() or (np.diff(x) <= 0).any():
        raise InputError("The steps of a curve are finite numbers in increasing order.")
    return part[0] if x.size == 1 else np.trapezoid(part, x, axis=0) / (x[-1] - x[0])


def final(values: Real[np.ndarray, "X runs"], last: int = 1) -> Float[np.ndarray, " runs"]:
    """Each run's score at the end: the mean of its ``last`` evaluations.

    Raises:
        InputError: values are not finite, or there are fewer than ``last`` evaluations.
    """
    (part,) = _curves([values])
    if not 1 <= last <= len(part):
        raise InputError(f"A final score is the mean of 1 to {len(part)} evaluations, not of {last}.")
    return part[-last:].mean(0)


def best(values: Real[np.ndarray, "X runs"]) -> Float[np.ndarray, " runs"]:
    """Each run's highest score over its evaluations.

    The highest of several noisy scores is too high: publish the score of the best policy on fresh episodes, and that of
    the last policy beside it.

    Raises:
        InputError: values are not finite.
    """
    return _curves([values])[0].max(0)


def _curves(curves: Curves) -> list[Float[np.ndarray, "X _"]]:
    """The curves of each task.

    Raises:
        InputError: there is no task, curves are not finite [X, runs], or their X differ.
    """
    named = dict(curves) if isinstance(curves, Mapping) else dict(enumerate(curves))
    if not named:
        raise InputError("A curve over steps needs the scores of at least one task.")
    parts = {name: np.asarray(part, np.float64) for name, part in named.items()}
    for name, part in parts.items():
        if part.ndim != 2 or part.size == 0:
            raise InputError(f"The curves of task {name!r} are an array [steps, runs], not of shape {part.shape}.")
        if not np.isfinite(part).all():
            raise InputError(f"The curves of task {name!r} hold NaN or infinity; leave out steps without a score.")
    if len(lengths := {len(part) for part in parts.values()}) > 1:
        raise InputError(
            f"All tasks are evaluated at the same number of steps, not at {min(lengths)} to {max(lengths)}."
        )
    return list(parts.values())
