"""Scores come in three forms, are normalised by known levels, and are refused in one sentence when malformed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.statistics import by_task, mean, normalise, observed_range

MATRIX = np.array([[1.0, 10.0], [3.0, 30.0], [2.0, 50.0]])


def test_three_forms_hold_the_same_scores() -> None:
    columns = [MATRIX[:, 0], MATRIX[:, 1]]
    for scores in (MATRIX, columns, dict(zip("ab", columns, strict=True)), MATRIX.astype(int)):
        assert [part.tolist() for part in by_task(scores)] == [[1, 3, 2], [10, 30, 50]]
        assert all(part.dtype == np.float64 for part in by_task(scores))


def test_an_array_of_another_library_is_runs_by_tasks(unchecked_annotations: None) -> None:
    del unchecked_annotations
    scores: Any = jnp.asarray(MATRIX)
    assert [part.tolist() for part in by_task(scores)] == [[1, 3, 2], [10, 30, 50]]
    assert normalise(scores, 0, 10).tolist() == (MATRIX / 10).tolist()


def test_worst_becomes_0_and_best_1_in_every_form() -> None:
    expected = [[0.0, 1.0, 0.5], [0.0, 0.5, 1.0]]
    worst, best = (1.0, 10.0), np.array([3.0, 50.0])
    matrix = normalise(MATRIX, worst, best)
    assert isinstance(matrix, np.ndarray) and matrix.T.tolist() == expected
    pair = normalise([MATRIX[:, 0], MATRIX[:, 1]], worst, best)
    assert isinstance(pair, list) and [part.tolist() for part in pair] == expected
    named = normalise({"a": MATRIX[:, 0], "b": MATRIX[:, 1]}, {"b": 10, "a": 1}, {"a": 3, "b": 50})
    assert {name: part.tolist() for name, part in named.items()} == {"a": expected[0], "b": expected[1]}
    assert normalise(MATRIX, 0, 100).tolist() == (MATRIX / 100).tolist()


def test_where_less_is_better_worst_exceeds_best() -> None:
    assert normalise([np.array([4.0, 1.0, 0.0])], 5.0, 1.0)[0].tolist() == [0.25, 1.0, 1.25]


def test_the_observed_range_is_over_all_algorithms() -> None:
    low, high = observed_range(
        {"a": MATRIX[:, 0], "b": MATRIX[:, 1]}, {"b": np.array([7.0]), "a": np.array([9.0, 2.0])}
    )
    assert low == {"a": 1.0, "b": 7.0} and high == {"a": 9.0, "b": 50.0}
    least, most = observed_range(MATRIX, MATRIX[:2])
    assert isinstance(least, np.ndarray) and isinstance(most, np.ndarray)
    assert least.tolist() == [1.0, 10.0] and most.tolist() == [3.0, 50.0]
    with pytest.raises(InputError, match="at least one algorithm"):
        observed_range()


def test_the_observed_range_of_named_scores_is_of_their_tasks_in_any_order() -> None:
    one = {"x": np.array([0.0, 1.0]), "y": np.array([0.0, 100.0])}
    two = {"y": np.array([50.0, 60.0]), "x": np.array([0.5, 0.6])}
    for levels in (observed_range(one, two), observed_range(np.array([[0.5, 50.0]]), one, two)):
        found = normalise(two, *levels)
        assert {name: part.tolist() for name, part in found.items()} == {"y": [0.5, 0.6], "x": [0.5, 0.6]}


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], "at least one task"),
        (np.zeros((0, 2)), r"task 0 are one number for each run, not an array of shape \(0,\)"),
        (np.zeros((2, 0)), "at least one task"),
        ({"maze": np.array([])}, "task 'maze' are one number"),
        ({"maze": np.array([1.0, np.nan])}, "task 'maze' hold NaN"),
        ([np.array([1.0]), np.array([np.inf])], "task 1 hold NaN or infinity"),
        ([np.array([1.0]), ["high", "low"]], r"task 1 are one number for each run, not \['high', 'low'\]"),
        ({"maze": {"seed 0": 1.0}}, "task 'maze' are one number for each run, not {'seed 0': 1.0}"),
        ("maze.csv", r"an array \[runs, tasks\], or an array \[runs\] for each task .*, not 'maze.csv'"),
        (None, "not None"),
    ],
)
def test_malformed_scores_are_one_sentence(scores: object, message: str, unchecked_annotations: None) -> None:
    del unchecked_annotations
    with pytest.raises(InputError, match=message):
        mean(scores)  # pyright: ignore[reportArgumentType]


def test_levels_that_do_not_fit_are_one_sentence() -> None:
    named = {"a": MATRIX[:, 0], "b": MATRIX[:, 1]}
    with pytest.raises(InputError, match=r"task 1 are 2\.0 and 2\.0, not two finite numbers"):
        normalise(MATRIX, (0, 2), (1, 2))
    with pytest.raises(InputError, match=r"task 'b' are 0\.0 and inf"):
        normalise(named, 0, {"a": 1.0, "b": float("inf")})
    with pytest.raises(InputError, match="worst score of task 'b' is missing"):
        normalise(named, {"a": 1.0}, 2.0)
    with pytest.raises(InputError, match="2 tasks, and 3 numbers for their best score"):
        normalise(MATRIX, 0, (1, 2, 3))
