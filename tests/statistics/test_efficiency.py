"""Scores over training steps: aggregates at each step, area, final and best scores."""

import numpy as np
import pytest

from shoal.errors import InputError
from shoal.statistics import area, band, best, efficiency, estimate, final

RNG = np.random.default_rng(0)
CURVES = {"a": RNG.normal(size=(4, 5)).cumsum(0), "b": RNG.normal(size=(4, 5)).cumsum(0), "c": RNG.normal(size=(4, 5))}
UNEQUAL = [CURVES["a"], CURVES["b"][:, :3]]


@pytest.mark.parametrize("statistic", ["mean", "median", "iqm", "optimality_gap"])
@pytest.mark.parametrize("curves", [CURVES, UNEQUAL])
def test_every_step_has_the_estimate_of_its_scores(statistic: str, curves) -> None:
    found = efficiency(curves, statistic, target=0.5)
    parts = list(curves.values()) if isinstance(curves, dict) else curves
    for i in range(4):
        expected = estimate([part[i] for part in parts], statistic, target=0.5)
        assert found.point[i] == pytest.approx(expected[0], abs=1e-12)
        width = expected[2] - expected[1]
        assert (found.low[i], found.high[i]) == pytest.approx(expected[1:], abs=0.2 * width)


def test_the_mean_of_one_task_has_the_band_of_learning_curves() -> None:
    np.testing.assert_array_equal(efficiency([CURVES["a"]], "mean"), band(CURVES["a"]))


def test_it_is_reproducible_and_a_single_run_has_no_band() -> None:
    np.testing.assert_array_equal(efficiency(CURVES), efficiency(CURVES))
    assert (efficiency(CURVES, seed=1).low != efficiency(CURVES).low).any()
    alone = efficiency([CURVES["a"], CURVES["b"][:, :1]], "mean")
    np.testing.assert_allclose(alone.point, (CURVES["a"].mean(1) + CURVES["b"][:, 0]) / 2)
    assert np.isnan([alone.low, alone.high]).all()


def test_the_area_is_the_mean_height() -> None:
    steps, values = np.array([0, 10, 40]), np.array([[0.0, 3.0], [2.0, 3.0], [4.0, 3.0]])
    assert area(steps, values).tolist() == [(10 * 1.0 + 30 * 3.0) / 40, 3.0]
    assert area(np.array([7]), values[:1]).tolist() == [0.0, 3.0]
    np.testing.assert_allclose(area(1e6 * steps + 5, values), area(steps, values))


def test_final_and_best_scores_are_those_of_each_run() -> None:
    values = np.array([[0.0, 3.0], [2.0, 9.0], [1.0, 3.0]])
    assert final(values).tolist() == [1.0, 3.0] and final(values, 2).tolist() == [1.5, 6.0]
    assert best(values).tolist() == [2.0, 9.0]


def test_invalid_input_is_refused() -> None:
    with pytest.raises(InputError, match="at least one task"):
        efficiency([])
    with pytest.raises(InputError, match=r"task 'a' are an array \[steps, runs\], not of shape \(0, 2\)"):
        efficiency({"a": np.zeros((0, 2))})
    with pytest.raises(InputError, match="task 0 hold NaN"):
        best(np.array([[np.nan]]))
    with pytest.raises(InputError, match="same number of steps, not at 3 to 4"):
        efficiency([CURVES["a"], CURVES["b"][:3]])
    with pytest.raises(InputError, match="There are 2 steps, and values at 3"):
        area(np.array([0, 1]), np.zeros((3, 1)))
    with pytest.raises(InputError, match="increasing order"):
        area(np.array([0, 1, 1]), np.zeros((3, 1)))
    with pytest.raises(InputError, match="mean of 1 to 3 evaluations, not of 4"):
        final(np.zeros((3, 1)), 4)
