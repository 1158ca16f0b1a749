"""Aggregates equal plain Python, and rliable's values on fixed scores."""

import math
import statistics

import numpy as np
import pytest

from shoal.errors import InputError
from shoal.statistics import estimate, iqm, mean, median, optimality_gap

FIXED = (np.arange(20).reshape(5, 4) * 7 % 11) / 11
RNG = np.random.default_rng(5)
ARRAYS = [FIXED, *(RNG.normal(size=(runs, tasks)) for runs, tasks in ((1, 1), (3, 1), (4, 2), (7, 5), (3, 57)))]


def test_they_are_those_of_rliable() -> None:
    # rliable 1.2.0: metrics.aggregate_mean, aggregate_median, aggregate_iqm, aggregate_optimality_gap of FIXED
    assert mean(FIXED) == pytest.approx(0.44545454545454544, abs=1e-12)
    assert median(FIXED) == pytest.approx(0.4636363636363636, abs=1e-12)
    assert iqm(FIXED) == pytest.approx(0.43636363636363634, abs=1e-12)
    assert optimality_gap(FIXED) == pytest.approx(0.5545454545454545, abs=1e-12)
    assert optimality_gap(FIXED, 0.5) == pytest.approx(0.15681818181818186, abs=1e-12)


@pytest.mark.parametrize("scores", ARRAYS, ids=lambda scores: str(scores.shape))
def test_they_are_those_of_plain_python(scores: np.ndarray) -> None:
    columns = scores.T.tolist()
    means = [math.fsum(column) / len(column) for column in columns]
    every = sorted(score for column in columns for score in column)
    cut = len(every) // 4
    assert mean(scores) == pytest.approx(math.fsum(means) / len(means), abs=1e-12)
    assert median(scores) == pytest.approx(statistics.median(means), abs=1e-12)
    assert iqm(scores) == pytest.approx(statistics.fmean(every[cut : len(every) - cut]), abs=1e-12)
    for target in (1.0, -0.2):
        gap = statistics.fmean(target - min(score, target) for score in every)
        assert optimality_gap(scores, target) == pytest.approx(gap, abs=1e-12)


def test_every_task_has_the_same_weight() -> None:
    one, two = [4.0, 8.0], [0.0, 1.0, 2.0, 9.0, 3.0, 3.0]
    scores = [np.array(one), np.array(two)]
    assert mean(scores) == median(scores) == 4.5
    assert optimality_gap(scores, 5.0) == pytest.approx((0.5 + (5 + 4 + 3 + 0 + 2 + 2) / 6) / 2)
    # Of 12 equal parts, 3 for each score of `one` and 1 for each of `two`, 3 are left out at each end: 0, 1 and 2
    # below, 9 and two parts of 8 above.
    assert iqm(scores) == pytest.approx((3 * 4 + 8 + 3 + 3) / 6)
    # Four runs of half the weight are two runs.
    assert iqm([np.array([0.0, 1, 2, 3]), np.array([0.0, 1, 2, 3])]) == 1.5
    assert iqm([np.array([0.0, 0, 1, 1, 2, 2, 3, 3]), np.array([0.0, 1, 2, 3])]) == pytest.approx(1.5)


def test_equal_scores_have_no_order() -> None:
    tasks = [np.zeros(5), np.array([0.0, 2, 1, 2]), np.array([1.0, 1, 2])]
    assert iqm(tasks) == pytest.approx(iqm(tasks[::-1]), abs=1e-12)
    assert iqm(tasks) == pytest.approx((1 / 6 * 0 + (1 / 12 + 2 / 9) * 1 + 1 / 36 * 2) / 0.5)


def test_invalid_input_is_refused() -> None:
    with pytest.raises(InputError, match="target of an optimality gap is a finite score, not inf"):
        optimality_gap(FIXED, math.inf)
    with pytest.raises(InputError, match=r"no statistic 'iqn'; did you mean 'iqm'\?"):
        estimate(FIXED, "iqn")
