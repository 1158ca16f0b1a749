"""Performance profiles: shares by counting, bands by resampling within each task."""

import numpy as np
import pytest

from shoal.errors import InputError
from shoal.statistics import estimate, profile, spanning

SCORES = np.random.default_rng(0).normal(size=(6, 4))
UNEQUAL = [np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5, 1.0, 3.0])]


def test_shares_are_counted() -> None:
    levels = np.array([-1.0, 0.0, 0.3, 1.0])
    runs, means = profile(SCORES, levels).point, profile(SCORES, levels, "means").point
    for i, level in enumerate(levels):
        assert runs[i] == pytest.approx(sum(score > level for score in SCORES.ravel().tolist()) / 24)
        assert means[i] == pytest.approx(sum(np.mean(column) > level for column in SCORES.T) / 4)
    # A score that equals τ does not exceed it; every task has the same weight.
    levels = np.array([-1.0, 1.0, 1.4, 3.0])
    np.testing.assert_allclose(profile(UNEQUAL, levels).point, [1, (1 / 3 + 2 / 4) / 2, (1 / 3 + 2 / 4) / 2, 0])
    np.testing.assert_allclose(profile(UNEQUAL, levels, "means").point, [1, 0.5, 0.5, 0])


@pytest.mark.parametrize("kind", ["runs", "means"])
def test_a_band_lies_around_its_profile_and_within_0_and_1(kind: str) -> None:
    levels = spanning(SCORES, count=31)
    band = profile(SCORES, levels, kind)
    assert (band.low >= 0).all() and (band.high <= 1).all()
    assert (band.low <= band.point + 1e-12).all() and (band.point <= band.high + 1e-12).all()
    assert (band.high - band.low).max() > 0.3
    again = profile(SCORES, levels, kind)
    narrow = profile(SCORES, levels, kind, confidence=0.5)
    np.testing.assert_array_equal(band, again)
    assert (narrow.high - narrow.low).sum() < 0.7 * (band.high - band.low).sum()


def test_the_band_of_runs_is_the_interval_of_a_share() -> None:
    band = profile(SCORES, np.array([0.0, 0.4]))
    for i, level in enumerate((0.0, 0.4)):
        _, low, high = estimate((level < SCORES).astype(float), "mean")
        assert (band.low[i], band.high[i]) == pytest.approx((low, high), abs=0.05)


def test_the_band_of_means_counts_tasks_in_resamples() -> None:
    certain = [np.array([0.9, 1.1, 1.0]), np.array([0.0, 0.1, 0.05]), np.array([0.3, 0.7, 0.52])]
    band = profile(certain, np.array([-1.0, 0.5, 2.0]), "means")
    np.testing.assert_allclose(band.point, [1, 2 / 3, 0])
    np.testing.assert_allclose(band.low, [1, 1 / 3, 0])
    np.testing.assert_allclose(band.high, [1, 2 / 3, 0])


def test_a_single_run_has_no_band() -> None:
    band = profile([np.array([1.0]), np.array([1.0, 2.0])], np.array([0.0, 1.5]))
    np.testing.assert_allclose(band.point, [1, 0.25])
    assert np.isnan([band.low, band.high]).all()


def test_thresholds_span_all_algorithms() -> None:
    levels = spanning(UNEQUAL, SCORES + 5, count=11)
    assert len(levels) == 11 and levels[0] < 0 and levels[-1] == (SCORES + 5).max()
    assert profile(UNEQUAL, levels).point[0] == 1
    for equal in (np.ones(3), np.array([0.3, 0.1 + 0.2]), np.full(2, -1e16), np.zeros(2)):
        assert profile([equal], spanning([equal])).point[[0, -1]].tolist() == [1, 0]


def test_invalid_input_is_refused() -> None:
    for levels in ([1.0, 0.0], [0.0, 0.0], [np.nan], []):
        with pytest.raises(InputError, match="finite numbers in increasing order"):
            profile(SCORES, np.array(levels))
    with pytest.raises(InputError, match="no kind of profile 'mean'; did you mean 'means'"):
        profile(SCORES, np.array([0.0]), "mean")
    with pytest.raises(InputError, match="at least one algorithm and a count of at least 2"):
        spanning(SCORES, count=1)
