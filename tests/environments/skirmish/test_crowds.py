"""Crowds of ``skirmish/…``: units that stand are not moved, those behind a front flow round it, and nobody overlaps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import motion
from shoal.environments.skirmish.battle import State
from shoal.environments.skirmish.maps import MAPS, Group, Map
from shoal.environments.skirmish.tasks import battle_on, make

ZEALOT, ZERGLING = 0.5, 0.375
"""Radii of the two, from which weapons reach; both have bodies of 0.375."""
REACH, CONTACT = 0.1 + ZEALOT + ZERGLING, 0.75
Play = Callable[..., State]


def player(chosen: Map, steps: int, count: int) -> Play:
    """Plays on with immortal allies that all take one action, from a start whose allies may stand elsewhere."""
    env = make(chosen)
    batched, allies = env.batched, env.spec.num_agents
    assert batched is not None

    @jax.jit
    def play(action: jax.Array, x: jax.Array, y: jax.Array) -> State:
        def body(state: State, key: jax.Array) -> tuple[State, State]:
            state = batched.step(key, state, jnp.full((count, allies), action))[0]
            state = state._replace(health=state.health.at[:, :allies].set(1e6))
            return state, state

        state = batched.reset(jax.random.key(0), count)[0]
        state = state._replace(x=jnp.where(jnp.isnan(x), state.x, x), y=jnp.where(jnp.isnan(y), state.y, y))
        return jax.lax.scan(body, state, jax.random.split(jax.random.key(1), steps))[1]

    def played(action: int = 1, at: tuple[float, float] | None = None) -> State:
        x, y = np.full((2, len(chosen.ally_units) + len(chosen.enemy_units)), np.nan, np.float32)
        if at is not None:
            x[0], y[0] = at
        return jax.tree.map(np.asarray, play(jnp.int32(action), jnp.asarray(x), jnp.asarray(y)))

    return played


def attackers(state: State, allies: int) -> np.ndarray:
    """bool [T, E, enemies]: the zerglings whose weapon reaches a zealot."""
    x, y = np.asarray(state.x), np.asarray(state.y)
    square = (x[..., allies:, None] - x[..., None, :allies]) ** 2 + (y[..., allies:, None] - y[..., None, :allies]) ** 2
    return np.asarray((square <= (REACH + 1e-3) ** 2).any(axis=-1))


def overlaps(state: State) -> np.ndarray:
    """[T, E, U, U]: overlaps of all pairs as parts of the distance at which they touch."""
    x, y = np.asarray(state.x), np.asarray(state.y)
    apart = np.hypot(x[..., None] - x[..., None, :], y[..., None] - y[..., None, :])
    return np.maximum(1.0 - apart / CONTACT - np.eye(apart.shape[-1]), 0.0)


@pytest.fixture(scope="module")
def against_one() -> Play:
    one, many = (Group("zealot", 1, (12.0, 16.0)),), (Group("zergling", 24, (24.0, 16.0)),)
    return player(Map("one", one, many, 999, goal=(12.0, 16.0)), 60, 4)


def test_zerglings_surround_an_idle_zealot_without_moving_it(against_one: Play) -> None:
    state = against_one()
    reached = attackers(state, 1)
    began = int(reached.any((1, 2)).argmax())
    assert began < 10
    assert (reached[began + 6 :].sum(-1) >= 6).all()
    assert np.hypot(state.x[..., 0] - 12.0, state.y[..., 0] - 16.0).max() < 0.1
    # Those that wait behind the front walk about. The largest of 300 overlaps varies from step to step.
    largest = overlaps(state)[began + 6 :].max((2, 3))
    assert largest.mean() < 0.1 and largest.max() < 0.25
    fights = reached[began + 6 :]
    among = overlaps(state)[began + 6 :, :, 1:, 1:] * (fights[..., None] & fights[..., None, :])
    assert among.max() < 0.1


def test_zerglings_come_to_rest_around_their_goal(against_one: Play) -> None:
    state = against_one(at=(3.0, 9.0))
    x, y = state.x[..., 1:], state.y[..., 1:]
    assert np.hypot(x[-1] - 12.0, y[-1] - 16.0).max() < 3.0
    moved = np.hypot(x[-1] - x[-9], y[-1] - y[-9])
    assert (moved < 0.2).mean() > 0.9, "but for a few at the border"
    assert overlaps(state)[-8:].max() < 0.1


def test_zerglings_of_the_corridor_surround_the_zealots() -> None:
    chosen = MAPS["corridor"]
    state = player(chosen, 40, 4)()
    reached = attackers(state, 6)
    assert (reached[-12:].sum(-1) >= 11).all()
    assert np.hypot(state.x[-1, :, :6] - state.x[0, :, :6], state.y[-1, :, :6] - state.y[0, :, :6]).max() < 0.1
    off_x = state.x[-1, :, 6:] - state.x[-1, :, :6].mean(-1)[:, None]
    off_y = state.y[-1, :, 6:] - state.y[-1, :, :6].mean(-1)[:, None]
    for quadrant in ((off_x > 0) & (off_y > 0), (off_x > 0) & (off_y < 0), (off_x < 0) & (off_y > 0)):
        assert (reached[-1] & quadrant).any(-1).all()
    assert (reached[-1] & (off_x < 0) & (off_y < 0)).any(-1).all()


def state_of(x: list[float], y: list[float]) -> tuple[Any, Any, State]:
    """The battle of 3 against 3 marines with units at some places."""
    battle = battle_on(MAPS["3m"])
    batched = make("3m").batched
    assert batched is not None
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 1)
    state = jax.tree.map(lambda v: jnp.moveaxis(v, 0, -1), state)
    state = state._replace(x=jnp.array(x)[:, None], y=jnp.array(y)[:, None])
    return battle, battle.stats(state.kind), state


def test_a_column_passes_units_that_stand_and_moves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ally and an enemy stand in the way of two; the pairs are taken one unit at a time, or all at once."""
    battle, stats, begun = state_of([4.0, 4.8, 8.0, 9.0, 30.0, 31.0], [16.0, 16.0, 16.1, 15.6, 9.0, 9.0])
    walks = jnp.array([20.0, 20.0, 0.0, 0.0, 0.0, 0.0])[:, None]
    course = motion.Course(jnp.full((6, 1), 20.0), jnp.full((6, 1), 16.0), walks, jnp.zeros((6, 1), bool))
    found = []
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        step = jax.jit(lambda state: motion.moved(battle, stats, state, course))
        state, least = begun, np.inf
        for _ in range(64):
            state = step(state)
            x, y = np.asarray(state.x)[:4, 0], np.asarray(state.y)[:4, 0]
            apart = np.hypot(x[:, None] - x, y[:, None] - y) + 9.0 * np.eye(4)
            least = min(least, float(apart.min()))
        np.testing.assert_array_equal(state.x[2:], begun.x[2:])
        np.testing.assert_array_equal(state.y[2:], begun.y[2:])
        # At 0.1406 a tick they would be at 13 and 13.8 without detours.
        assert (np.asarray(state.x)[:2] > 12.3).all() and least > 0.97 * CONTACT
        found.append(state)
    np.testing.assert_allclose(found[0].x, found[1].x, atol=1e-4)


def test_units_that_overlap_are_parted_by_who_walks() -> None:
    """Half each of two that walk or of two allies that stand; all of one that walks; nothing of enemies that stand."""
    battle, stats, state = state_of([5.0, 5.7, 20.0, 5.0, 5.7, 20.7], [12.0, 12.0, 12.0, 20.0, 20.0, 12.0])
    alive = jnp.ones((6, 1), bool)
    for walking, expected in (
        ([0, 0, 0, 0, 0, 0], [-0.025, 0.025, 0.0, -0.025, 0.025, 0.0]),
        ([1, 0, 1, 0, 0, 0], [-0.05, 0.0, -0.05, -0.025, 0.025, 0.0]),
        ([1, 1, 1, 0, 1, 1], [-0.025, 0.025, -0.025, 0.0, 0.05, 0.025]),
    ):
        walks = jnp.array(walking, bool)[:, None]
        push_x, push_y = motion._pushes(battle, stats, state.x, state.y, alive, walks)
        np.testing.assert_allclose(push_x[:, 0], expected, rtol=0.02)  # two terms of a series
        np.testing.assert_allclose(push_y, 0.0, atol=1e-6)
    state = state._replace(x=jnp.full((6, 1), 9.0) + jnp.arange(6)[:, None] * 0.01)
    push_x, push_y = motion._pushes(battle, stats, state.x, state.y, alive, alive)
    assert np.hypot(push_x, push_y).max() <= motion.MOST_PUSH + 1e-6
