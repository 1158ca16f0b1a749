"""Bootstrap confidence intervals of means over few seeds, within the range of the data."""

import itertools
import math
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt16, UInt32

from shoal.errors import InputError

EXACT = 8
"""For samples up to this size all distinct resamples (6,435 at 8) are enumerated with their probabilities."""
DRAWN = 10_000
"""Number of resamples drawn for larger samples, with a fixed seed, so that results are reproducible."""
MAX_VALUES = 1000
"""Resamples of a larger sample have this many values; their spread is scaled. Intervals of rare events, for example of
5 wins in 10,000 battles, are too narrow below."""
Estimate = tuple[float, float, float]
"""(mean, low, high)."""


def scaled(estimate: Estimate, unit: float) -> Estimate:
    """An estimate whose values are multiplied by ``unit``."""
    value, low, high = estimate
    return unit * value, unit * low, unit * high


ROUNDING = 1e-13
"""Of the largest value: below it a sum of means of both signs is a rounding error."""


def without_rounding(estimate: Estimate, samples: Sequence[Float[np.ndarray, " _"]]) -> Estimate:
    """A sum or difference of several samples with 0 for what is only a rounding error, so that equal ones are equal."""
    least = ROUNDING * max(float(np.abs(sample).max()) for sample in samples)
    value, low, high = (0.0 if abs(x) <= least < math.inf else x for x in estimate)
    return value, low, high


def interval(*samples: Float[np.ndarray, " _"], confidence: float = 0.95) -> Estimate:
    """The mean and its expanded percentile bootstrap interval.

    The interval holds the quantiles a and 1 − a of the mean over resamples of the values, with

        Φ⁻¹(a) = −c · t_{(1 + confidence) / 2, n − 1},    c = √(n / (n − 1))

    The plain percentile interval, a = (1 − confidence) / 2, is too narrow for few values. This one is as wide as
    Student's for nearly normal data, follows their skew, and lies within [min, max] of the values. With several samples
    it is the interval of the sum of their means, with c from their variances and Welch's degrees of freedom for n − 1.
    Of n > 1000 values a resample has only 1000, and the distance of its mean from theirs is multiplied by √(1000 / n).

    Coverage of a 95 % interval, 2000 simulated samples each (standard error 1 %):

        values                                3      4      5      6      8      10
        normal                               75 %   88 %   93 %   93 %   95 %   96 %
        exponential                          68 %   82 %   87 %   89 %   90 %   90 %
        beta(4, 0.7), close to its bound     72 %   83 %   88 %   90 %   90 %   92 %
        2 in 10 fail by far                  49 %   59 %   68 %   74 %   82 %   88 %

    With 2 to 4 values it is their range. If a minority of seeds fails, a small sample often contains no failure:
    publish the scores of the seeds beside the interval.

    Args:
        samples: finite values, usually one array with the score of each seed.
        confidence: between 0 and 1.

    Returns:
        (mean, low, high). With one value, low and high are NaN.

    Raises:
        InputError: a sample is empty, or ``confidence`` is not between 0 and 1.

    Source: Hesterberg 2015, What Teachers Should Know About the Bootstrap, The American Statistician 69(4); Bickel,
    Götze and van Zwet 1997, Resampling Fewer Than n Observations, Statistica Sinica 7(1), for many values.
    """
    check_confidence(confidence)
    parts = [np.asarray(sample, np.float64).ravel() for sample in samples]
    if not parts or any(part.size == 0 for part in parts):
        raise InputError("An interval needs the values of at least one seed.")
    found = _interval(parts, confidence)
    return found if len(parts) == 1 else without_rounding(found, parts)


def _interval(parts: list[np.ndarray], confidence: float) -> Estimate:
    middle = float(sum(part.mean() for part in parts))
    known = sum(float(part[0]) for part in parts if part.size == 1)
    parts = [part for part in parts if part.size > 1]
    if not parts or not np.isfinite(middle):
        return middle, float("nan"), float("nan")
    if not any(part.var() for part in parts):
        return middle, middle, middle
    tail = tail_beyond(parts, confidence)
    means, weight = _resampled(parts)
    order = np.argsort(means)
    means, weight = means[order] + known, weight[order]
    low = means[np.searchsorted(np.cumsum(weight), tail)]
    high = means[::-1][np.searchsorted(np.cumsum(weight[::-1]), tail)]
    return middle, float(low), float(high)


def band(
    values: Float[np.ndarray, "X seeds"], confidence: float = 0.95
) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, " X"], Float[np.ndarray, " X"]]:
    """(mean, low, high) at each of X points; see :func:`interval`.

    All points with the same number of seeds use the same resamples. NaN values are left out; a point without values is
    NaN, and one with a single value has a band of width 0.
    """
    check_confidence(confidence)
    rows = np.full((len(values), 3), np.nan)
    for row, point in zip(rows, values, strict=True):
        there = point[np.isfinite(point)]
        if there.size:
            row[:] = interval(there, confidence=confidence) if there.size > 1 else there[0]
    return rows[:, 0], rows[:, 1], rows[:, 2]


def share(reached: int, values: int, confidence: float = 0.95) -> Estimate:
    """The share of values that have a property, and its exact interval, which is never empty.

        low = quantile (1 − confidence) / 2 of Beta(k, n − k + 1)
        high = quantile (1 + confidence) / 2 of Beta(k + 1, n − k)

    Args:
        reached: k, how many have it.
        values: n, how many there are.
        confidence: between 0 and 1.

    Raises:
        InputError: there are no values, or ``confidence`` is not between 0 and 1.

    Source: Clopper and Pearson 1934, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial.
    """
    from scipy.special import betaincinv  # JAX itself needs SciPy

    check_confidence(confidence)
    if values < 1:
        raise InputError("An interval needs the values of at least one seed.")
    k, n, tail = reached, values, (1 - confidence) / 2
    low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
    return k / n, low, float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0


def difference_of(one: Estimate, other: Estimate) -> Estimate:
    """``one`` − ``other`` of two independent estimates, and its interval from theirs, whose distances are summed in
    squares.

        low = d − √((p − l)² + (u′ − p′)²),    high = d + √((u − p)² + (p′ − l′)²),    d = p − p′

    for estimates p with the intervals [l, u].

    Source: Newcombe 1998, Interval estimation for the difference between independent proportions, Statistics in
    Medicine 17(8), method 10.
    """
    (here, low, high), (there, least, most) = one, other
    value = here - there
    return value, value - math.hypot(here - low, most - there), value + math.hypot(high - here, there - least)


def interval_text(values: int, confidence: float = 0.95) -> str:
    """The name of the interval of ``values`` values: "range" if it extends from the lowest to the highest."""
    reaches = values > 1 and _tail(values - 1.0, (values / (values - 1)) ** 0.5, confidence) < float(values) ** -values
    return "range" if reaches else f"{confidence:.0%} interval"


def check_confidence(confidence: float) -> None:
    """Check a confidence level.

    Raises:
        InputError: it does not lie between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence is a probability between 0 and 1, not {confidence}.")


def tail_beyond(samples: Sequence[Float[np.ndarray, " _"]], confidence: float) -> float:
    """a of :func:`interval`, the fraction of resamples beyond each end, for the sum of the means of several samples.

    c² is the sum of the means' unbiased variances over that of the plug-in variances, and the degrees of freedom are
    Welch's. Samples without any spread have a = (1 − confidence) / 2.

    Args:
        samples: arrays of at least two values each.
        confidence: between 0 and 1.
    """
    size = np.array([sample.size for sample in samples])
    spread = np.array([sample.var(ddof=1) for sample in samples]) / size
    if not spread.any():
        return (1 - confidence) / 2
    spread /= spread.max()  # squares do not underflow
    freedom = spread.sum() ** 2 / (spread**2 / (size - 1)).sum()
    wider = (spread.sum() / (spread * (size - 1) / size).sum()) ** 0.5
    return _tail(float(freedom), float(wider), confidence)


def _tail(freedom: float, wider: float, confidence: float) -> float:
    """a, the fraction of resamples beyond each end."""
    from scipy.special import ndtr, stdtrit  # JAX itself needs SciPy

    return float(ndtr(-wider * stdtrit(freedom, (1 + confidence) / 2)))


def _resampled(parts: list[np.ndarray]) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Sums of the samples' means over resamples, and the probability of each."""
    if len(parts) == 1 and parts[0].size <= EXACT:
        counts, weight = _multisets(parts[0].size)
        return counts @ parts[0] / parts[0].size, weight
    means = sum(_means(part, k) for k, part in enumerate(parts))
    return np.asarray(means), np.full(DRAWN, 1 / DRAWN)


def _means(values: Float[np.ndarray, " n"], sample: int) -> Float[np.ndarray, " R"]:
    """The mean of each resample, for more than :data:`MAX_VALUES` values with the spread of means of all."""
    means = values[_drawn(values.size, sample)].mean(1)
    if values.size <= MAX_VALUES:
        return means
    return values.mean() + (means - values.mean()) * (MAX_VALUES / values.size) ** 0.5


@lru_cache(maxsize=2)
def _drawn(n: int, sample: int) -> UInt16[np.ndarray, "R m"] | UInt32[np.ndarray, "R m"]:
    """Indices into n values of each resample; ``sample`` is the seed."""
    kind = np.uint16 if n <= 2**16 else np.uint32
    return np.random.default_rng(sample).integers(n, size=(DRAWN, min(n, MAX_VALUES)), dtype=kind)


@cache
def _multisets(n: int) -> tuple[Int[np.ndarray, "R n"], Float[np.ndarray, " R"]]:
    """Counts of n values in every distinct resample, and the resamples' probabilities n! / (∏ k_i! nⁿ)."""
    from scipy.special import gammaln

    chosen = np.array(list(itertools.combinations_with_replacement(range(n), n)))
    counts = (chosen[:, :, None] == np.arange(n)).sum(1)
    return counts, np.exp(gammaln(n + 1) - gammaln(counts + 1).sum(1) - n * np.log(n))
