"""Values of dead agents, the team's reward, and steps of target networks."""

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations import targets

NAN = jnp.nan
VALUE = jnp.array([[1.0, 4.0, NAN], [2.0, NAN, NAN], [NAN, NAN, NAN], [1.0, 2.0, 6.0]])
ALIVE = jnp.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ((0, 0, 0), [[1, 4, 2.5], [2, 2, 2], [0, 0, 0], [1, 2, 6]]),
        ((0, 1, 2), [[1, 4, 0], [2, 0, 0], [0, 0, 0], [1, 2, 6]]),
        ((0, 1, 0), [[1, 4, 1], [2, 0, 2], [0, 0, 0], [1, 2, 6]]),
    ],
)
def test_a_dead_agent_s_value_is_the_mean_of_those_who_earn_the_same(
    groups: tuple[int, ...], expected: list[list[float]]
) -> None:
    np.testing.assert_array_equal(targets.mask_dead_values(VALUE, ALIVE, groups), expected)


def test_means_over_a_team_are_of_the_living() -> None:
    np.testing.assert_array_equal(targets.team_mean(VALUE, ALIVE), [2.5, 2, 0, 3])
    np.testing.assert_array_equal(targets.of_a_living_team(jnp.array([1.0, 2, NAN, 3]), ALIVE), [1, 2, 0, 3])


def test_update_target_moves_towards_the_online_parameters() -> None:
    old, new = {"w": jnp.array([0.0, 8.0])}, {"w": jnp.array([4.0, 0.0])}
    for steps, copied in ((1, False), (2, False), (3, True), (4, False), (6, True)):
        got = targets.update_target(old, new, jnp.int32(steps), 3, None)["w"]
        np.testing.assert_array_equal(got, (new if copied else old)["w"])
    np.testing.assert_array_equal(targets.update_target(old, new, jnp.int32(1), 3, 0.25)["w"], [1, 6])
