"""Stag hunt: each rule on a field set up by hand, ends, the picture, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.grid.field import GONE
from shoal.environments.grid.stag_hunt import State
from shoal.errors import InputError
from shoal.types import Environment, Step
from shoal.video.picture import draw_frame
from support.environments import device_env

RIGHT, DOWN, LEFT, UP, STAY, CATCH = range(6)
KEY = jax.random.key(0)
TIMES = 512
"""Always as many draws of a step, so that each game is compiled once."""
TWO = {"num_agents": 4, "num_stags": 2, "grid": (10, 10)}
_compiled: dict[str, tuple[Environment, Any]] = {}


def game(**options: Any) -> tuple[Environment, Any]:
    """An environment and its step, compiled for a batch of keys."""
    name = repr(sorted(options.items()))
    if name not in _compiled:
        env = device_env("grid/stag_hunt", **options)
        _compiled[name] = env, jax.jit(jax.vmap(env.step, in_axes=(0, None, None)))
    return _compiled[name]


def play(places: list, animals: list, action: list[int], t: int = 0, **options: Any) -> tuple[State, Step]:
    """``TIMES`` draws of one step on a field of ten columns; who has gone is None."""
    cells = [
        jnp.array([GONE if place is None else place[0] * 12 + place[1] for place in who], jnp.int32)
        for who in (places, animals)
    ]
    _, step = game(**TWO | options)
    return step(jax.random.split(KEY, TIMES), State(cells[0], cells[1], jnp.int32(t)), jnp.array(action, jnp.int32))


def test_the_published_task() -> None:
    env = device_env("grid/stag_hunt")
    spec = env.spec
    assert (spec.num_agents, spec.horizon, spec.action.width) == (8, 200, 6)
    assert spec.obs_dims == (5 * 5 * 2,) * 8 and spec.state_dim == 10 * 10 * 2
    assert spec.roles == (0,) * 8 and spec.shared_reward and spec.score == "mean"
    state, _ = jax.jit(env.reset)(KEY)
    assert state.prey.shape == (8,)


def test_two_who_catch_earn_ten_and_leave() -> None:
    state, step = play([(3, 3), (3, 5), (2, 4), (9, 0)], [(3, 4), (8, 8)], [CATCH, CATCH, STAY, STAY])
    assert step.reward[0].tolist() == [10.0] * 4
    assert step.alive[0].tolist() == [False, False, True, True]
    assert state.prey[0, 0] == GONE != state.prey[0, 1]
    assert (step.discount == 1).all() and not step.last[0]
    # What they do now changes nothing, and others may walk where they stood.
    _, later = play([None, None, (2, 4), (9, 0)], [None, (8, 8)], [CATCH, UP, DOWN, RIGHT])
    assert not later.reward.any() and later.alive[0].tolist() == [False, False, True, True]
    grid = later.state[0].reshape(10, 10, 2)
    assert grid[3, 4, 0] == grid[9, 1, 0] == 1.0 and grid[..., 0].sum() == 2 and grid[..., 1].sum() == 1


def test_three_who_catch_one_stag_all_leave() -> None:
    _, step = play([(3, 3), (3, 5), (2, 4), (9, 0)], [(3, 4), (8, 8)], [CATCH, CATCH, CATCH, STAY])
    assert step.reward[0, 0] == 10.0 and step.alive[0].tolist() == [False, False, False, True]


def test_catching_alone_costs_the_penalty_per_stag() -> None:
    lone = [(3, 3), (0, 0), (0, 2), (9, 0)]
    for penalty, beside, earned in ((-2.0, (3, 2), -4.0), (-2.0, (6, 6), -2.0), (0.0, (3, 2), 0.0)):
        state, step = play(lone, [(3, 4), beside], [CATCH, STAY, STAY, STAY], penalty=penalty)
        assert step.reward[0].tolist() == [earned] * 4 and step.alive.all()
        assert (state.prey != GONE).all() and state.prey[0, 0] != 3 * 12 + 4, "it flees"
    _, step = play(lone, [(6, 6), (8, 8)], [CATCH] * 4, penalty=-2.0)
    assert not step.reward.any(), "where there is no prey, nothing fails"


def test_one_agent_between_two_captures_counts_once() -> None:
    """The middle one of three is frozen by whichever stag comes first, so the other's hunter fails."""
    _, step = play([(3, 3), (3, 5), (3, 7), (9, 0)], [(3, 4), (3, 6)], [CATCH, CATCH, CATCH, STAY], penalty=-2.0)
    assert (step.reward == 8.0).all()
    assert not step.alive[:, 1].any() and (step.alive[:, 0] ^ step.alive[:, 2]).all()
    assert 0 < step.alive[:, 0].sum() < TIMES


def test_a_hare_is_caught_alone() -> None:
    one_of_each = {"num_stags": 1, "num_hares": 1, "penalty": -2.0}
    places, animals = [(3, 3), (0, 0), (0, 2), (9, 0)], [(7, 7), (3, 4)]
    state, step = play(places, animals, [CATCH, STAY, STAY, STAY], **one_of_each)
    assert (step.reward == 1.0).all() and state.prey[0, 1] == GONE
    assert step.alive[0].tolist() == [False, True, True, True]
    assert step.state.shape == (TIMES, 300), "hares have a plane of their own"


def test_agents_move_one_after_another() -> None:
    animals = [(9, 9), (9, 7)]
    state, _ = play([(0, 0), (0, 2), (5, 5), (5, 6)], animals, [RIGHT, LEFT, RIGHT, RIGHT])
    first, second = np.asarray(state.agents[:, 0]) == 1, np.asarray(state.agents[:, 1]) == 1
    assert (first ^ second).all() and 0.4 < first.mean() < 0.6, "one of two reaches a free cell, either with chance 1/2"
    follower, leader = state.agents[:, 2] - 5 * 12, state.agents[:, 3] - 5 * 12
    assert (leader == 7).all() and set(follower.tolist()) == {5, 6} and 0.4 < float((follower == 6).mean()) < 0.6
    state, _ = play([(0, 0), (0, 1), (9, 8), (5, 6)], animals, [RIGHT, LEFT, RIGHT, STAY])
    assert (state.agents[:, 0] == 0).all() and (state.agents[:, 1] == 1).all(), "nobody swaps places"
    assert (state.agents[:, 2] == 9 * 12 + 8).all(), "a stag that has not fled yet is in the way"


def test_prey_moves_to_each_free_cell_equally_often() -> None:
    state, _ = play([(0, 1), (5, 5), (5, 7), (4, 6)], [(0, 0), (5, 6)], [STAY] * 4)
    assert (state.prey == jnp.array([12, 6 * 12 + 6])).all(), "only down is free, for both"
    state, _ = play([(0, 9), (5, 5), (9, 9), (9, 0)], [(7, 7), (5, 6)], [STAY] * 4)
    for animal, exits in ((0, [6 * 12 + 7, 7 * 12 + 6, 7 * 12 + 8, 8 * 12 + 7]), (1, [54 - 12 + 12, 67, 78])):
        cells, counts = np.unique(np.asarray(state.prey[:, animal]), return_counts=True)
        assert cells.tolist() == exits
        np.testing.assert_allclose(counts / TIMES, 1 / len(exits), atol=0.08)
    state, _ = play([(0, 1), (1, 0), (9, 8), (8, 9)], [(0, 0), (9, 9)], [STAY] * 4)
    assert state.prey[0].tolist() == [0, 9 * 12 + 9], "walled in, it stays"


def test_episodes_end_by_capture_or_at_the_time_limit() -> None:
    two, rest = [(3, 3), (3, 5), None, None], [CATCH, CATCH, STAY, STAY]
    for places, animals in ((two, [(3, 4), (8, 8)]), ([*two[:2], (0, 0), (0, 1)], [(3, 4), None])):
        for t in (0, 199):
            _, step = play(places, animals, rest, t=t)
            assert step.last[0] and not step.discount.any() and (step.reward == 10.0).all()
    _, step = play([(0, 0), (0, 1), (0, 2), None], [(3, 4), (8, 8)], [STAY] * 4, t=199)
    assert step.last[0] and (step.discount == 1.0).all()


def test_picture() -> None:
    env, _ = game(num_agents=2, num_stags=1, num_hares=1, grid=(2, 3))
    assert env.render
    scene: Any = env.render(State(jnp.array([0, GONE]), jnp.array([5 + 2, GONE]), jnp.int32(3)))
    assert scene.labels == ("",) * 4 + ("0", "1", "", "") and not scene.hollow.any()
    assert scene.square.tolist() == [False] * 6 + [True] * 2, "prey are squares"
    nowhere = [np.nan, np.nan]
    np.testing.assert_allclose(scene.centres[4:], [[-0.25, 0.25], nowhere, [0.75, -0.25], nowhere])
    np.testing.assert_allclose(scene.centres[[0, 3]], [[-0.5, -0.5], [1.0, 0.5]])  # corners of the field
    assert scene.extent == 1.0 and scene.caption == "1 of 2 animals captured, 1 of 2 agents on the field"
    nobody = env.render(State(jnp.array([GONE, GONE]), jnp.array([2, GONE]), jnp.int32(3)))
    assert draw_frame(nobody, 120, [scene]).size == (120, 120), "agents may all have left"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_agents": 1}, "num_agents must be an integer of at least 2"),
        ({"num_stags": 0}, "needs at least one animal"),
        ({"num_hares": -1}, "num_hares must be an integer of at least 0"),
        ({"penalty": 1.0}, "penalty must be a number from -1e\\+06 to 0"),
        ({"grid": 3}, "8 agents and 8 animals do not fit on a field of 3 x 3 cells"),
        ({"grid": (5, 0)}, "each side of grid must be an integer of at least 1, not 0"),
        ({"grid": (3, 5)}, "8 agents and 8 animals do not fit on a field of 3 x 5 cells"),
        ({"grid": (10, 999)}, "each side of grid must be at most 256, not 999"),
        ({"view": -1}, "view must be an integer of at least 0"),
        ({"view": 999}, "view must be at most 256"),
        ({"horizon": 0}, "horizon must be an integer of at least 1"),
    ],
)
def test_invalid_input_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        device_env("grid/stag_hunt", **options)
