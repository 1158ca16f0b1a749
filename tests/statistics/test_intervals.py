"""Intervals of a mean over few seeds: against a bootstrap by hand, their bounds, and how often they hold the mean."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shoal.errors import InputError
from shoal.statistics.intervals import band, difference_of, interval, interval_text, share, tail_beyond


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
def test_the_interval_holds_quantiles_of_all_resampled_means(confidence: float) -> None:
    values = np.array([-11.6, -11.9, -19.8, -11.4, -12.0])
    n = len(values)
    every = np.sort([np.mean(resample) for resample in itertools.product(values, repeat=n)])
    tail = stats.norm.cdf(-np.sqrt(n / (n - 1)) * stats.t.ppf((1 + confidence) / 2, n - 1))
    mean, low, high = interval(values, confidence=confidence)
    assert mean == pytest.approx(values.mean())
    for end, beyond in ((low, (every < low - 1e-9).mean()), (high, (every > high + 1e-9).mean())):
        assert beyond <= tail < (np.abs(every - end) < 1e-9).mean() + beyond


def test_many_values_have_the_normal_interval() -> None:
    rng = np.random.default_rng(1)
    for n in (60, 1000, 5000):  # of 5000 values resamples have fewer
        values = rng.exponential(size=n)
        mean, low, high = interval(values)
        assert mean == pytest.approx(values.mean())
        half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
        np.testing.assert_allclose((high - low) / 2, half, rtol=0.05)
        assert (high + low) / 2 - mean > (0.01 * half if n == 60 else -half)  # to the side of the long tail


@pytest.mark.parametrize("values", [np.repeat([0.0, 1.0], [1000, 500]), np.arange(1025.0), np.arange(5000.0)])
def test_the_interval_of_many_values_is_about_their_mean_in_any_order(values: np.ndarray) -> None:
    half = 1.96 * values.std() / len(values) ** 0.5
    for each in (values, np.random.default_rng(0).permutation(values)):
        mean, low, high = interval(each)
        assert abs((low + high) / 2 - mean) < 0.1 * half
        assert (high - low) / 2 == pytest.approx(half, rel=0.05)
    both = interval(values, values[:900])
    np.testing.assert_allclose(both[0], values.mean() + values[:900].mean())
    assert abs(sum(both[1:]) / 2 - both[0]) < 0.1 * half


def test_intervals_lie_within_the_observed_range() -> None:
    caught = np.array([37.2, 0.0, 0.0, 37.7, 37.3, 36.9])  # of 40; Student's interval ends at 45.0
    _, low, high = interval(caught)
    assert 0 < low < 10 and 37 < high <= 37.7
    assert interval(np.array([1.0, 1.0, 1.0, 0.9]))[1:] == (0.9, 1.0)
    won = np.ones(400)
    won[0] = 0.0
    assert 0.98 < interval(won)[1] < interval(won)[2] == 1.0
    many = np.ones(1200)
    many[0] = 0.0
    assert 0.996 < interval(many)[1] < interval(many)[2] <= 1.0


def test_few_values_have_their_range_and_are_told_so() -> None:
    for n in (2, 3, 4):
        values = np.arange(float(n))
        assert interval(values)[1:] == (0.0, n - 1.0) and interval_text(n) == "range"
    assert interval_text(5) == "95% interval" and interval_text(4, 0.5) == "50% interval"
    three, four = np.arange(3.0), np.arange(4.0)
    assert (
        interval(three, -three)[1:] == (-2.0, 2.0) and -3.0 < interval(four, -four)[1] < interval(four, -four)[2] < 3.0
    )
    mean, low, high = interval(np.array([4.0]))
    assert mean == 4.0 and np.isnan([low, high]).all() and interval_text(1) == "95% interval"
    assert interval(np.full(3, 2.5)) == (2.5, 2.5, 2.5)


def coverage(draw: Callable[[int], np.ndarray], mean: float, n: int, tries: int = 500) -> float:
    ends = [interval(draw(n))[1:] for _ in range(tries)]
    return float(np.mean([low <= mean <= high for low, high in ends]))


def test_the_coverage_is_what_the_docstring_says() -> None:
    rng = np.random.default_rng(0)
    said = {4: (0.88, 0.82), 6: (0.93, 0.89)}
    for n, (normal, skewed) in said.items():
        assert coverage(lambda n: rng.normal(size=n), 0.0, n) == pytest.approx(normal, abs=0.03)
        assert coverage(lambda n: rng.exponential(size=n), 1.0, n) == pytest.approx(skewed, abs=0.04)


def test_the_sum_of_two_means_has_one_interval() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=200), 3 + 2 * rng.normal(size=300)
    mean, low, high = interval(one, two)
    assert mean == pytest.approx(one.mean() + two.mean())
    half = 1.96 * np.sqrt(one.var() / 200 + two.var() / 300)
    np.testing.assert_allclose((high - low) / 2, half, rtol=0.05)
    np.testing.assert_allclose(interval(one, np.array([5.0])), np.array(interval(one)) + 5)
    held = 0
    for _ in range(500):
        _, low, high = interval(rng.normal(size=5), 3 * rng.normal(size=6))
        held += low <= 0 <= high
    assert held / 500 == pytest.approx(0.94, abs=0.03)


def test_the_tail_is_that_of_welch() -> None:
    one, two = np.array([1.0, 4.0, 2.0]), np.array([0.0, 9.0, 3.0, 3.0, 5.0, 1.0])
    welch: Any = stats.ttest_ind(one, two, equal_var=False)
    plug_in = one.var() / 3 + two.var() / 6
    wider = np.sqrt((one.var(ddof=1) / 3 + two.var(ddof=1) / 6) / plug_in)
    expected = stats.norm.cdf(-wider * stats.t.ppf(0.95, welch.df))
    assert tail_beyond([one, two], 0.9) == pytest.approx(expected)
    assert tail_beyond([np.ones(3)], 0.9) == pytest.approx(0.05)


def test_a_band_leaves_missing_seeds_out() -> None:
    values = np.array([[1.0, 3.0, np.nan], [np.nan] * 3, [np.nan, 5.0, np.nan], [1.0, 2.0, 6.0]])
    mean, low, high = band(values)
    np.testing.assert_array_equal(mean, [2, np.nan, 5, 3])
    np.testing.assert_array_equal(low, [1, np.nan, 5, 1])
    np.testing.assert_array_equal(high, [3, np.nan, 5, 6])


def test_invalid_input_is_refused() -> None:
    with pytest.raises(InputError, match="at least one seed"):
        interval(np.array([]))
    with pytest.raises(InputError, match="between 0 and 1, not 95"):
        interval(np.array([1.0]), confidence=95.0)


@pytest.mark.parametrize("values", [1, 5, 20])
def test_a_share_has_its_exact_interval(values: int) -> None:
    """Beyond each end as many successes or more, or as few or fewer, have half of what the interval leaves out."""
    for reached in range(values + 1):
        found, low, high = share(reached, values, 0.9)
        assert found == reached / values and low <= found <= high
        assert (low == 0.0) == (reached == 0) and (high == 1.0) == (reached == values)
        if reached:
            assert stats.binom.sf(reached - 1, values, low) == pytest.approx(0.05)
        if reached < values:
            assert stats.binom.cdf(reached, values, high) == pytest.approx(0.05)
    with pytest.raises(InputError, match="at least one seed"):
        share(0, 0)


def test_a_difference_of_shares_is_that_of_newcombe() -> None:
    """Newcombe 1998, table II, example (a), 56 of 70 and 48 of 80, from the exact intervals of both."""
    one, other = share(56, 70), share(48, 80)
    value, low, high = difference_of(one, other)
    assert value == pytest.approx(0.2)
    assert low == pytest.approx(0.2 - ((one[0] - one[1]) ** 2 + (other[2] - other[0]) ** 2) ** 0.5)
    assert high == pytest.approx(0.2 + ((one[2] - one[0]) ** 2 + (other[0] - other[1]) ** 2) ** 0.5)
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=0.02)  # there, from Wilson's intervals
    assert difference_of(share(5, 5), share(0, 5)) == (1.0, pytest.approx(1 - 0.5218 * 2**0.5, abs=1e-4), 1.0)
