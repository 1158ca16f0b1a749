"""Two algorithms: differences, Mann and Whitney's statistic, and intervals where runs are few or do not overlap."""

import itertools

import numpy as np
import pytest
from scipy import stats

from shoal.errors import InputError
from shoal.statistics import compare, difference, improvement, interval, probability_of_improvement

X = (np.arange(20).reshape(5, 4) * 7 % 11) / 11
Y = (np.arange(24).reshape(6, 4) * 5 % 13) / 13


def test_the_probability_is_that_of_rliable() -> None:
    # rliable 1.2.0: metrics.probability_of_improvement(X, Y)
    assert probability_of_improvement(X, Y) == pytest.approx(0.47916666666666663, abs=1e-12)


@pytest.mark.parametrize("rounding", [None, 0])
def test_the_probability_counts_pairs_and_ties_half(rounding: int | None) -> None:
    rng = np.random.default_rng(1)
    xs, ys = [rng.normal(size=n) for n in (3, 5, 4)], [rng.normal(size=n) + 0.3 for n in (6, 2, 4)]
    if rounding is not None:
        xs, ys = [x.round(rounding) for x in xs], [y.round(rounding) for y in ys]
    shares = []
    for x, y in zip(xs, ys, strict=True):
        points = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in x.tolist() for b in y.tolist())
        assert points == pytest.approx(stats.mannwhitneyu(x, y).statistic)
        shares.append(points / (x.size * y.size))
    assert probability_of_improvement(xs, ys) == pytest.approx(sum(shares) / 3, abs=1e-12)
    assert probability_of_improvement(ys, xs) == pytest.approx(1 - sum(shares) / 3, abs=1e-12)
    assert probability_of_improvement(X, X) == 0.5


def test_a_comparison_holds_both_estimates_and_the_runs() -> None:
    found = compare(X, Y)
    parts = [x / 4 for x in X.T] + [-y / 4 for y in Y.T]
    assert found.difference == interval(*parts)
    assert found.difference[0] == pytest.approx(X.mean() - Y.mean())
    assert found.improvement == improvement(X, Y)
    assert found.runs == ((5,) * 4, (6,) * 4)
    back = compare(Y, X)
    assert back.difference[0] == pytest.approx(-found.difference[0])
    low, high = stats.ttest_ind(X[:, 0], Y[:, 0], equal_var=False).confidence_interval()
    assert compare(X[:, :1], Y[:, :1]).difference[1:] == pytest.approx((low, high), abs=0.12)


@pytest.mark.parametrize("statistic", ["iqm", "median", "mean", "optimality_gap"])
def test_equal_scores_have_no_difference_by_rounding(statistic: str) -> None:
    """The mean of three numbers 0.1 is not that of five."""
    few, many = ([np.full(runs, value) for value in (0.1, 0.7, 0.3)] for runs in (3, 5))
    assert np.mean(few[0]) != np.mean(many[0])
    for x, y in ((few[:1], many[:1]), (few[1:2], many[1:2]), (many, many)):
        assert compare(x, y).difference == difference(x, y, statistic) == (0.0, 0.0, 0.0)
    assert compare(few, many).difference == (0.0, 0.0, 0.0)
    small = 1e-9 * np.array([1.0, 2.0])
    assert difference([small], [np.zeros(2)], statistic)[0] != 0.0, "small scores are kept"


def test_tasks_are_paired_by_name() -> None:
    x = {"a": np.array([1.0, 2.0]), "b": np.array([5.0, 6.0])}
    y = {"b": np.array([0.0, 1.0]), "a": np.array([3.0, 4.0])}
    assert probability_of_improvement(x, y) == 0.5
    assert compare(x, y).difference[0] == pytest.approx(1.5)
    with pytest.raises(InputError, match="only one has scores of 'c'"):
        compare(x, {**y, "c": np.array([1.0])})
    with pytest.raises(InputError, match="they have 4 and 3 tasks"):
        compare(X, Y[:, :3])
    with pytest.raises(InputError, match="between 0 and 1, not 2"):
        compare(X, Y, confidence=2.0)


@pytest.mark.parametrize("confidence", [0.5, 0.7])
def test_ends_are_quantiles_over_resamples_of_both(confidence: float) -> None:
    # Two tasks of the same scores: resamples of each are drawn independently.
    x, y = [0.1, 0.2, 0.8, 1.5], [0.2, 0.3, 1.2]
    pairs = [[1.0 if a > b else 0.5 if a == b else 0.0 for b in y] for a in x]
    above, below = np.mean(pairs, 1), np.mean(pairs, 0)
    spread = np.array([above.var(ddof=1) / 4, below.var(ddof=1) / 3] * 2)
    freedom = spread.sum() ** 2 / (spread**2 / np.array([3, 2, 3, 2])).sum()
    wider = np.sqrt(spread.sum() / (spread * np.array([3 / 4, 2 / 3, 3 / 4, 2 / 3])).sum())
    tail = stats.norm.cdf(-wider * stats.t.ppf((1 + confidence) / 2, freedom))
    every = [
        np.mean([[pairs[i][j] for j in ys] for i in xs])
        for xs in itertools.product(range(4), repeat=4)
        for ys in itertools.product(range(3), repeat=3)
    ]
    shares, counts = np.unique(np.round(every, 12), return_counts=True)
    both, weight = (shares[:, None] + shares) / 2, np.outer(counts, counts) / len(every) ** 2
    point, low, high = improvement([np.array(x)] * 2, [np.array(y)] * 2, confidence=confidence)
    assert point == pytest.approx(np.mean(pairs))
    for end, beyond in ((low, both < low - 1e-9), (high, both > high + 1e-9)):
        assert weight[beyond].sum() <= tail + 0.01
        assert weight[beyond].sum() + weight[np.abs(both - end) <= 1e-9].sum() >= tail - 0.01


@pytest.mark.parametrize(("runs", "limit"), [(3, 0.501), (5, 0.643), (10, 0.800)])
def test_runs_that_do_not_overlap_still_have_an_interval(runs: int, limit: float) -> None:
    high, low = 1 + np.arange(runs) / 100, np.arange(runs) / 100
    found = improvement([high], [low])
    assert found == (1.0, pytest.approx(limit, abs=5e-4), 1.0)
    p, z, k = np.linspace(0, 1, 100_001)[:-1], stats.norm.ppf(0.975), runs
    variance = p * (1 - p) * (1 + (k - 1) * ((1 - p) / (2 - p) + p / (1 + p))) / runs**2
    assert found[1] == pytest.approx(p[np.argmax(z**2 * variance >= (1 - p) ** 2)], abs=2e-5)
    assert improvement([low], [high]) == (0.0, 0.0, pytest.approx(1 - limit, abs=5e-4))
    four = improvement([high] * 4, [low] * 4)
    assert four[1] == pytest.approx(1 - (1 - found[1]) / 2)  # squares of a quarter of the distance, four times


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_equal_runs_still_have_an_interval(runs: int) -> None:
    same, p, z = np.ones(runs), np.linspace(0, 0.5, 100_001), stats.norm.ppf(0.975)
    found = improvement([same], [same])
    variance = p * (1 - p) * (1 + (runs - 1) * ((1 - p) / (2 - p) + p / (1 + p))) / runs**2
    limit = p[np.argmax(z**2 * variance >= (0.5 - p) ** 2)]
    assert found == (0.5, pytest.approx(limit, abs=2e-5), pytest.approx(1 - limit, abs=2e-5))
    high, low = 1 + np.arange(runs) / 100, np.arange(runs) / 100
    both = improvement([same, high], [same, low])
    assert both[0] == 0.75
    squares = (0.5 - limit) ** 2 + (1 - improvement([high], [low])[1]) ** 2
    assert both[1] == pytest.approx(0.75 - squares**0.5 / 2, abs=2e-5)
    assert both[2] == pytest.approx(0.75 + (0.5 - limit) / 2, abs=2e-5)


def test_runs_that_nearly_do_not_overlap_have_no_narrower_interval() -> None:
    x, y = np.arange(1.0, 6), np.array([0, 0.1, 0.2, 0.3, 0.9])
    apart = improvement([x], [y])
    for other, share in ((1.0, 0.98), (1.5, 0.96)):
        near = np.where(y == 0.9, other, y)
        found, back = improvement([x], [near]), improvement([near], [x])
        assert found[0] == pytest.approx(share) and 0.5 < found[1] < apart[1]
        assert back[0] == pytest.approx(1 - share) and 0.5 > back[2] > 1 - apart[1]
    same, other = np.ones(5), np.array([1.0, 1, 1, 1, 2])  # nearly all are equal
    assert improvement([same], [other])[2] > 0.5


def test_the_interval_stays_within_0_and_1_and_is_reproducible() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        x, y = rng.normal(size=(3, 2)) + 1.5, rng.normal(size=(4, 2))
        point, low, high = improvement(x, y, resamples=500)
        assert 0 <= low <= point <= high <= 1
        assert (point, low, high) == improvement(x, y, resamples=500)
    assert improvement(X, Y, seed=0) != improvement(X, Y, seed=1)


def test_only_the_order_of_scores_matters() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(9, 2))
    assert improvement(np.exp(9 * x), np.exp(9 * y)) == improvement(x, y)


def test_a_single_run_has_no_interval() -> None:
    found = compare([np.array([1.0]), X[:, 0]], [np.array([0.0, 2.0]), Y[:, 0]])
    assert np.isfinite([found.difference[0], found.improvement[0]]).all()
    assert np.isnan([*found.difference[1:], *found.improvement[1:]]).all()


@pytest.mark.parametrize(("tasks", "shift"), [(1, 2.5), (3, 1.0), (3, 0.0)])
def test_the_interval_has_the_stated_coverage(tasks: int, shift: float) -> None:
    true = stats.norm.cdf(shift / 2**0.5)
    rng = np.random.default_rng(4)
    held, wide = [], []
    for _ in range(100):
        x, y = rng.normal(shift, 1.0, (3, tasks)), rng.normal(size=(3, tasks))
        _, low, high = improvement(x, y, resamples=200)
        held.append(low <= true <= high)
        wide.append(high - low)
    assert np.mean(held) >= 0.93 and np.mean(wide) < 0.8
