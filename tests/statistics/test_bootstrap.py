"""Stratified bootstrap: its quantiles by enumeration, its bounds, and how often it holds the true value."""

import itertools

import numpy as np
import pytest
from scipy import stats

from shoal.errors import InputError
from shoal.statistics import estimate, interval, iqm, median, optimality_gap

PARTS = [np.array([0.1, 0.9, 0.5]), np.array([0.2, 0.3, 0.8]), np.array([0.6, 0.7, 0.1])]


@pytest.mark.parametrize(("statistic", "point"), [("iqm", iqm), ("median", median)])
@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_ends_are_quantiles_over_resamples_within_each_task(statistic: str, point, confidence: float) -> None:
    resamples = [[np.array(r) for r in itertools.product(part, repeat=3)] for part in PARTS]
    cells = np.array(list(itertools.product(range(27), repeat=3)))
    drawn = [np.array(resamples[k])[cells[:, k]] for k in range(3)]
    if statistic == "iqm":
        values = np.sort(np.concatenate(drawn, 1), 1)[:, 2:7].mean(1)
    else:
        values = np.median([part.mean(1) for part in drawn], 0)
    spread = np.array([part.var(ddof=1) / 3 for part in PARTS])
    freedom = spread.sum() ** 2 / (spread**2 / 2).sum()
    tail = stats.norm.cdf(-np.sqrt(3 / 2) * stats.t.ppf((1 + confidence) / 2, freedom))
    middle, low, high = estimate(PARTS, statistic, confidence=confidence)
    assert middle == pytest.approx(point(PARTS))
    for end, beyond in ((low, values < low - 1e-9), (high, values > high + 1e-9)):
        assert beyond.mean() <= tail + 0.01
        assert beyond.mean() + (np.abs(values - end) <= 1e-9).mean() >= tail - 0.01


def test_a_mean_has_the_interval_of_means() -> None:
    assert estimate(PARTS[:1], "mean") == interval(PARTS[0])
    assert estimate(PARTS[:1], "median") == interval(PARTS[0])
    assert estimate(PARTS, "mean") == interval(*(part / 3 for part in PARTS))
    gap, low, high = estimate(PARTS, "optimality_gap", target=0.5)
    assert gap == pytest.approx(optimality_gap(PARTS, 0.5)) and 0 <= low < gap < high


@pytest.mark.parametrize("statistic", ["mean", "median", "iqm", "optimality_gap"])
def test_intervals_lie_within_the_possible_range(statistic: str) -> None:
    rng = np.random.default_rng(2)
    for runs in (2, 3, 10):
        won = [np.minimum(1.0, rng.uniform(0.7, 1.1, runs)) for _ in range(3)]
        point, low, high = estimate(won, statistic)
        least, most = (
            estimate([np.full(runs, f(part)) for part in won], statistic)[0]
            for f in ((np.max, np.min) if statistic == "optimality_gap" else (np.min, np.max))
        )
        assert least - 1e-12 <= low <= point <= high <= most + 1e-12
    assert estimate([np.ones(4), np.ones(3)], statistic)[1:] == (float(statistic != "optimality_gap"),) * 2


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = np.random.default_rng(1).normal(size=(8, 2))
    assert estimate(scores) == estimate(scores, seed=0) != estimate(scores, seed=1)
    assert estimate(PARTS, confidence=0.5)[1] > estimate(PARTS, confidence=0.9)[1]


def test_a_single_run_has_no_interval() -> None:
    for statistic in ("mean", "iqm"):
        point, low, high = estimate([np.array([0.5]), PARTS[0]], statistic)
        assert point == pytest.approx(0.5) and np.isnan([low, high]).all()


def test_the_interval_has_the_stated_coverage() -> None:
    # The plain percentile interval is too narrow for three runs.
    rng = np.random.default_rng(0)
    found = [estimate([rng.normal(0.0, 1.0, 3) for _ in range(3)], "iqm", resamples=2000) for _ in range(300)]
    assert 0.93 <= np.mean([low <= 0 <= high for _, low, high in found]) <= 0.99


def test_invalid_input_is_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1, not 95"):
        estimate(PARTS, confidence=95.0)
    with pytest.raises(InputError, match="at least one resample, not 0"):
        estimate(PARTS, resamples=0)
