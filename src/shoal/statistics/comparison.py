"""Comparison of two algorithms on the same tasks, and Elo ratings from the results of games on two sides."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.statistics.aggregates import ends, reduction, resampled, shortfalls
from shoal.statistics.intervals import DRAWN, Estimate, check_confidence, interval, tail_beyond, without_rounding
from shoal.statistics.scores import Scores, in_pairs


class Comparison(NamedTuple):
    """Two algorithms X and Y on M tasks."""

    difference: Estimate
    """Of the means, X − Y, averaged over tasks, and its interval."""
    improvement: Estimate
    """The probability that a run of X exceeds one of Y, averaged over tasks, and its interval."""
    runs: tuple[tuple[int, ...], tuple[int, ...]]
    """The number of runs of X and of Y in each task."""


def compare(x: Scores, y: Scores, *, confidence: float = 0.95, seed: int = 0) -> Comparison:
    """Compare two algorithms, whose runs are independent of each other.

    The interval of the difference is :func:`~shoal.statistics.intervals.interval` of the sum over tasks and algorithms,
    with Welch's degrees of freedom, so the variances need not be equal. Where tasks have different units, normalise the
    scores first. For one task, give the scores of that task alone.

    Args:
        x: scores of X, [runs, tasks] or an array [runs] for each task.
        y: scores of Y on the same tasks.
        confidence: between 0 and 1.
        seed: of the resamples of the probability.

    Returns:
        Both estimates and the numbers of runs. With a single run somewhere, the ends of the intervals are NaN.

    Raises:
        InputError: the scores are malformed (see :func:`~shoal.statistics.by_task`), the tasks are not the same, or
            ``confidence`` is not between 0 and 1.
    """
    check_confidence(confidence)
    xs, ys = in_pairs(x, y)
    parts = [part / len(xs) for part in xs] + [-part / len(ys) for part in ys]
    runs = tuple(part.size for part in xs), tuple(part.size for part in ys)
    difference = interval(*parts, confidence=confidence)
    if min(*runs[0], *runs[1]) == 1:
        difference = difference[0], float("nan"), float("nan")
    return Comparison(difference, improvement(x, y, confidence=confidence, seed=seed), runs)


def difference(
    x: Scores,
    y: Scores,
    statistic: str = "iqm",
    *,
    target: float | int = 1.0,
    confidence: float = 0.95,
    resamples: int = DRAWN,
    seed: int = 0,
) -> Estimate:
    """The difference of an aggregate of two algorithms, X − Y, and its interval.

    The interval holds quantiles of the stratified bootstrap, as :func:`~shoal.statistics.estimate`; runs of X and of Y
    are resampled independently, and a is that of the difference of the means.

    Args:
        x: scores of X, [runs, tasks] or an array [runs] for each task.
        y: scores of Y on the same tasks.
        statistic: "mean", "median", "iqm" or "optimality_gap".
        target: of the optimality gap.
        confidence: between 0 and 1.
        resamples: their number.
        seed: of the resamples; the same seed gives the same interval.

    Returns:
        (difference, low, high). If a task has a single run of an algorithm, low and high are NaN.

    Raises:
        InputError: as :func:`compare`, or there is no such statistic.
    """
    check_confidence(confidence)
    reduce, (xs, ys) = reduction(statistic), in_pairs(x, y)
    if statistic == "optimality_gap":
        xs, ys = shortfalls(xs, target), shortfalls(ys, target)

    def of(*parts: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
        return reduce(*parts[: len(xs)], axis=axis) - reduce(*parts[len(xs) :], axis=axis)

    middle, low, high = float(of(*xs, *ys)), float("nan"), float("nan")
    if min(part.size for part in (*xs, *ys)) > 1:
        tail = tail_beyond([*xs, *(-part for part in ys)], confidence)
        low, high = map(float, ends(resampled([*xs, *ys], of, count=resamples, seed=seed), tail))
    return without_rounding((middle, low, high), [*xs, *ys])


def probability_of_improvement(x: Scores, y: Scores) -> float:
    """P(X > Y) + P(X = Y) / 2 for a run of each algorithm, the mean over tasks.

    For each task it is Mann and Whitney's U divided by the number of pairs of runs.

    Raises:
        InputError: the scores are malformed (see :func:`~shoal.statistics.by_task`), or the tasks are not the same.

    Source: Agarwal et al. 2021, section 4.3.
    """
    xs, ys = in_pairs(x, y)
    return float(_probability(*xs, *ys))


def improvement(x: Scores, y: Scores, *, confidence: float = 0.95, resamples: int = DRAWN, seed: int = 0) -> Estimate:
    """The probability of improvement and its interval, within [0, 1].

    The interval holds quantiles of the stratified bootstrap, as :func:`~shoal.statistics.estimate`. The variances in a
    and c are those of the placements: for a run, the share of the other algorithm's runs that it exceeds. Where nearly
    every run of X exceeds every run of Y, or the reverse, or where nearly all runs are equal, resamples have little or
    no spread, and the interval would be too narrow for few runs. The squared distance of each end from the probability
    is therefore a sum over tasks, of the larger of two: the task's share of the bootstrap's, in proportion to the
    variances of the placements, and that of the task's own limit from its probability q. The limits p solve

        (q − p)² = z² V(p),    V(p) = p (1 − p) [1 + (k − 1) ((1 − p) / (2 − p) + p / (1 + p))] / (n m)

    for n and m runs, k = (n + m) / 2. With 3, 5 and 10 runs each the lower one is 0.50, 0.64 and 0.80 for 95 % and
    q = 1, and 0.15, 0.21 and 0.27 for q = ½.

    Coverage of a 95 % interval for normal scores whose means differ by 0, 1 or 2.5 standard deviations (P = 0.5, 0.76,
    0.96), 500 simulated comparisons each (``benchmarks/coverage.py``):

        tasks              1                   3                   10
        runs      3     5    10       3     5    10       3     5    10
        0        88 %  95 %  97 %    98 %  98 %  95 %    99 %  98 %  95 %
        1        99 % 100 %  99 %    99 %  99 %  96 %    99 %  99 %  98 %
        2.5     100 % 100 % 100 %   100 % 100 %  99 %   100 % 100 %  99 %

    Args:
        x: scores of X, [runs, tasks] or an array [runs] for each task.
        y: scores of Y on the same tasks.
        confidence: between 0 and 1.
        resamples: their number.
        seed: of the resamples; the same seed gives the same interval.

    Returns:
        (probability, low, high). If a task has a single run of an algorithm, low and high are NaN.

    Raises:
        InputError: as :func:`compare`.

    Source: Newcombe 2006, Confidence intervals for an effect size measure based on the Mann-Whitney statistic, Part 2,
    Statistics in Medicine 25(4), method 5, for the limit; Zou and Donner 2008, Construction of confidence limits about
    effect measures, Statistics in Medicine 27(10), for the sum of squares.
    """
    check_confidence(confidence)
    xs, ys = in_pairs(x, y)
    middle = float(_probability(*xs, *ys))
    if min(part.size for part in (*xs, *ys)) == 1:
        return middle, float("nan"), float("nan")
    exceeding = [_exceeds(a, b) for a, b in zip(xs, ys, strict=True)]
    placements = [(each.mean(1), each.mean(0)) for each in exceeding]
    tail = tail_beyond([part for pair in placements for part in pair], confidence)
    low, high = ends(resampled([*xs, *ys], _probability, count=resamples, seed=seed), tail)
    variances = np.array([sum(part.var(ddof=1) / part.size for part in pair) for pair in placements])
    shares = variances / (variances.sum() or 1.0)
    found = [(float(each.mean()), *each.shape) for each in exceeding]
    below = [q - _lower_limit(q, n, m, confidence) for q, n, m in found]
    above = [1 - q - _lower_limit(1 - q, n, m, confidence) for q, n, m in found]

    def distance(bootstrap: float, own: list[float]) -> float:
        squares = np.maximum(shares * max(0.0, bootstrap) ** 2, (np.array(own) / len(xs)) ** 2)
        return float(squares.sum() ** 0.5)

    return middle, max(0.0, middle - distance(middle - low, below)), min(1.0, middle + distance(high - middle, above))


def _probability(*parts: np.ndarray, axis: int = -1) -> np.ndarray | np.floating:
    """Of the scores of X and then of Y, [*b, runs] for each task; the result is [*b]."""
    from scipy.stats import rankdata  # slow to import

    shares, tasks = [], len(parts) // 2
    for x, y in zip(parts[:tasks], parts[tasks:], strict=True):
        n, m = x.shape[axis], y.shape[axis]
        ranks = rankdata(np.concatenate([x, y], axis), axis=axis)
        U = np.take(ranks, np.arange(n), axis).sum(axis) - n * (n + 1) / 2
        shares.append(U / (n * m))
    return np.mean(shares, axis=0)


def _exceeds(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " m"]) -> Float[np.ndarray, "n m"]:
    """1 where a run of X exceeds one of Y, ½ where they are equal."""
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def _lower_limit(q: float, n: int, m: int, confidence: float) -> float:
    """The lower limit of P(X > Y) where it is ``q`` in n runs of X and m of Y; see :func:`improvement`."""
    from scipy.optimize import brentq
    from scipy.special import ndtri

    if q == 0:
        return 0.0
    z2, k = float(ndtri((1 + confidence) / 2)) ** 2, (n + m) / 2

    def excess(p: float) -> float:
        variance = p * (1 + (k - 1) * ((1 - p) / (2 - p) + p / (1 + p)))
        if q == 1:  # both sides divided by 1 − p, which leaves one root
            return n * m * (1 - p) - z2 * variance
        return n * m * (q - p) ** 2 - z2 * (1 - p) * variance

    return float(brentq(excess, 0.0, q))  # pyright: ignore[reportArgumentType]


SCALE = 400.0 / np.log(10.0)
"""Elo points for each unit of log odds: 400 points are odds of ten to one."""
DRAWS = 1.0
"""Virtual draws of each pair, which keep the rating of a player that wins or loses every game finite."""


def elo(score: Float[np.ndarray, "R R"], games: Float[np.ndarray, "R R"]) -> tuple[Float[np.ndarray, " R"], float]:
    """Ratings of R players by maximum likelihood, and the advantage of side 1 in Elo points; the first player has 0.

    The expected score of player a on side 1 against b on side 2 is 1 / (1 + 10^(−(r_a − r_b + h) / 400)) with the
    advantage h of side 1 (Bradley and Terry 1952; Elo 1978; the advantage as in Agresti 1990, section 10.6).

    Args:
        score: mean result of the row on side 1 against the column on side 2: 1 won, ½ drawn, 0 lost.
        games: number of games of each entry; 0 leaves an entry out. The diagonal tells about the advantage only.
    """
    from scipy.optimize import minimize  # slow to import

    count = len(score)
    points = np.where(games > 0, score, 0.5) * games + DRAWS / 2
    total = games + DRAWS

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        ratings = np.concatenate([[0.0], x[:-1]])
        odds = ratings[:, None] - ratings[None] + x[-1]
        expected = 1.0 / (1.0 + np.exp(-odds))
        value = (total * np.logaddexp(0.0, odds) - points * odds).sum()
        gradient = total * expected - points
        by_player = gradient.sum(1) - gradient.sum(0)
        return float(value), np.concatenate([by_player[1:], [gradient.sum()]])

    found = minimize(loss, np.zeros(count), jac=True, method="BFGS").x
    return np.concatenate([[0.0], found[:-1]]) * SCALE, float(found[-1] * SCALE)
