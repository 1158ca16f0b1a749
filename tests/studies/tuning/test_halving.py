"""Successive halving against counts made by hand, and the draws of random search."""

import pytest

from shoal.studies.tuning.file import Range, Rung, affordable, cost, ranked, rungs
from shoal.studies.tuning.proposals import drawn


def test_a_third_continues_for_three_times_as_long() -> None:
    assert rungs(27, 900, 3, 3) == (Rung(100, 27), Rung(300, 9), Rung(900, 3))
    assert rungs(10, 1000, 2, 2) == (Rung(500, 10), Rung(1000, 5))
    assert rungs(5, 70, 1, 3) == (Rung(70, 5),)


def test_trials_continue_and_do_not_start_again() -> None:
    # 27 trials train 100 steps, 9 of them 200 more, and 3 of those 600 more.
    assert cost(rungs(27, 900, 3, 3)) == 27 * 100 + 9 * 200 + 3 * 600 == 6300


@pytest.mark.parametrize(("budget", "trials"), [(6300, 27), (6299, 26), (0, 0), (99, 0), (100, 1)])
def test_a_budget_gives_the_most_trials_that_it_pays(budget: float, trials: int) -> None:
    assert affordable(budget, 900, 3, 3) == trials


def test_trials_are_ranked_by_the_mean_over_seeds() -> None:
    assert ranked({3: [[1.0, 4.0]], 5: [[3.0, 3.0]], 8: [[9.0, -9.0]]}) == [5, 3, 8]


def test_a_trial_that_diverged_is_the_worst_and_equal_ones_stay_in_their_order() -> None:
    assert ranked({0: [None], 1: [[-1e9]], 2: [[5.0]], 3: [[5.0]], 4: [None]}) == [2, 3, 1, 0, 4]
    assert ranked({0: [[7.0], None], 1: [[1.0], [1.0]]}) == [1, 0]
    assert ranked({2: [None], 1: [None]}) == [1, 2] and ranked({}) == []


def test_environments_count_alike_whatever_their_scale() -> None:
    # Trial 0 is best by far in the first environment and last in the second, trials 1 and 2 are good in both.
    scores = {0: [[1000.0], [0.1]], 1: [[3.0], [0.3]], 2: [[2.0], [0.4]], 3: [[1.0], [0.2]]}
    assert set(ranked(scores)[:2]) == {1, 2}


def test_trials_of_equal_average_ranks_are_ordered_by_how_far_they_are_from_the_others() -> None:
    # Ranks (1, 4), (4, 1), (2, 3) and (3, 2). Of the sums of scaled scores, 1 + 0, 0 + 1, 0.1 + 0.2 and 0.05 + 0.9, the
    # third is the lowest.
    scores = {0: [[100.0], [0.0]], 1: [[0.0], [10.0]], 2: [[10.0], [2.0]], 3: [[5.0], [9.0]]}
    assert ranked(scores) == [0, 1, 3, 2]
    assert ranked({7: [[2.0], [5.0]], 9: [[1.0], [5.0]]}) == [7, 9]  # equal in the second environment


def test_no_values_are_drawn_twice_while_there_are_others() -> None:
    """Two methods, or a search in several rounds, draw the same values for a number."""
    ranges = {"lam": Range(values=(0.8, 0.9, 1.0)), "hidden": Range(values=((4,), (6, 6)))}
    first = {"lam": 0.9, "hidden": (6, 6)}
    found = [first, *drawn(ranges, 5, 0, [first])]
    assert sorted(found, key=str) == sorted(
        ({"lam": x, "hidden": y} for x in (0.8, 0.9, 1.0) for y in ((4,), (6, 6))), key=str
    )
    assert found[1:4] == drawn(ranges, 3, 0, [first]) and found[4:] == drawn(ranges, 2, 0, found[:4])
    assert drawn(ranges, 5, 1, [first]) != found[1:]
    assert len(drawn(ranges, 2, 0, found)) == 2, "none are left"
    many = {"lam": Range(values=tuple(range(27))), "epochs": Range(values=(1, 2, 3, 4, 5, 6, 7, 8))}
    assert len({tuple(one.values()) for one in drawn(many, 216, 0)}) == 216, "the last ones are drawn from what is left"
