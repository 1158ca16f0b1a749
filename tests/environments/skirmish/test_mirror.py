"""Battles of two armies of agents: what one side sees, does and earns is what the other would in its place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish.battle import State
from shoal.environments.skirmish.maps import MAPS, Group, Map, mirrored_axes, starts
from shoal.environments.skirmish.tasks import make
from shoal.environments.spec_rules import check_spec
from shoal.errors import InputError
from shoal.types import Step
from support.selection import quick
from support.skirmish_oracle import Rules, army
from support.skirmish_rollouts import rolled, table

ENVS, STEPS = 16, 24
AXES = {"3m": "x", "2s3z": "x", "MMM": "x", "1c3s5z": "x", "bane_vs_bane": "y", "2m_vs_2m": "xy"}
CROSSED = Map("2m_vs_2m", (Group("marine", 2, (12.0, 12.0)),), (Group("marine", 2, (20.0, 20.0)),), 60, "octagon", None)
"""The two sides of this map are images of each other by half a turn."""


def exchanged(state: State, axes: str) -> State:
    """The same battle with the sides exchanged, on the mirror image of the map."""
    units = state.x.shape[1] // 2
    swapped = jax.tree.map(lambda v: v if v.ndim < 2 or v is state.goal else jnp.roll(v, units, 1), state)
    turn = -swapped.turn if len(axes) == 1 else swapped.turn  # left and right change places
    return swapped._replace(turn=turn, **{axis: 32.0 - getattr(swapped, axis) for axis in axes})


def played(task: str | Map, axes: str) -> tuple[Any, Any]:
    """Random battles of units close to each other, and each of their steps with the sides exchanged.

    Every step starts from the same state: crowds that push each other amplify the rounding of mirrored positions.
    """
    env = make(task, both=True, delay_noise=False)
    batched, n = env.batched, env.spec.num_agents
    assert batched is not None and env.spec.sides == (0,) * (n // 2) + (1,) * (n // 2)

    def drawn(key: jax.Array, legal: jax.Array) -> jax.Array:
        """A random legal action; attacks are preferred."""
        preferred = jnp.where(jnp.arange(legal.shape[-1]) >= 6, 2.0, 0.0)
        return jax.random.categorical(key, jnp.where(legal, preferred, -jnp.inf))

    def noted(state: State, step: Step) -> dict[str, jax.Array]:
        parts = {name: getattr(step, name) for name in ("obs", "legal", "alive", "reward", "metrics", "last")}
        return parts | {name: getattr(state, name) for name in ("x", "y", "health", "shield", "energy", "target")}

    @jax.jit
    def run(key: jax.Array) -> Any:
        state, first = batched.reset(key, ENVS)
        key_x, key_y, key_hurt, key = jax.random.split(key, 4)
        x, y = (16.0 + jax.random.uniform(k, state.x.shape, minval=-3.5, maxval=3.5) for k in (key_x, key_y))
        left = jax.random.uniform(key_hurt, state.x.shape, minval=0.02, maxval=0.4)

        def body(now: Any, key: jax.Array) -> Any:
            state, legal = now
            action = drawn(key, legal)
            one, seen = batched.step(key, state, action)
            two, also = batched.step(key, exchanged(state, axes), jnp.roll(action, n // 2, 1))
            return (one, seen.legal), (noted(one, seen), noted(exchanged(two, axes), also))

        start = state._replace(x=x, y=y, health=left * state.health, shield=left * state.shield), first.legal
        return jax.lax.scan(body, start, jax.random.split(key, STEPS))[1]

    return jax.tree.map(np.asarray, run(jax.random.key(0)))


def assert_alike(found: np.ndarray, expected: np.ndarray, atol: float, part: str) -> None:
    """Equal but for one value in a thousand: mirrored positions are rounded otherwise, which may decide a tie."""
    differ = np.abs(found.astype(float) - expected.astype(float)) > atol
    assert differ.mean() <= 1e-3, f"{part}: {differ.sum()} of {differ.size} values differ"


@pytest.mark.parametrize("name", quick(list(AXES), "MMM", "2m_vs_2m"))
def test_exchanging_the_sides_exchanges_all_that_happens(name: str) -> None:
    one, two = played(CROSSED if name == "2m_vs_2m" else name, AXES[name])
    half = one["alive"].shape[-1] // 2
    for part in ("x", "y", "health", "shield", "energy", "target"):
        assert_alike(two[part], one[part], 2e-3, part)
    for part in ("obs", "legal", "alive", "reward"):
        assert_alike(np.roll(two[part], half, 2), one[part], 1e-3, part)
    assert_alike(two["metrics"][..., [1, 0, 3, 2]], one["metrics"], 0.0, "metrics")
    np.testing.assert_array_equal(two["last"], one["last"])
    assert (~one["alive"]).any(0).mean() > 0.2, "units have died"
    assert one["metrics"][..., 0].any() and one["metrics"][..., 1].any(), "both sides have won"


def test_steps_of_unequal_armies_are_those_of_the_oracle() -> None:
    """Rows are padded to the wider army's; a side earns its own reward less the other's."""
    rules = Rules(army("5 marine"), army("6 marine"), "band", 70, both=True, mirrored="x")
    env = make("5m_vs_6m", both=True, reward="difference")
    check_spec(env.spec)
    assert env.spec.agents == tuple(f"ally_{i}" for i in range(5)) + tuple(f"enemy_{i}" for i in range(6))
    assert env.spec.action_dims == (12,) * 5 + (11,) * 6 and env.spec.metrics[:2] == ("won", "lost")
    widths, steps = env.spec.obs_dims, 60
    played, paid = rolled(env, 24, steps), 0.0
    for e in range(4):
        for t in range(steps):
            before, after = table(played.before, t, e), table(played.after, t, e)
            outcome = jax.tree.map(lambda x, t=t, e=e: np.asarray(x)[t, e], played.outcome)
            earned = np.array([rules.reward(before, after, side) for side in (0, 1)])
            for side in (0, 1):
                rows = np.array(rules.army(side))
                obs, legal = (np.asarray(x)[rows] for x in (outcome.obs, outcome.legal))
                np.testing.assert_allclose(obs[:, : widths[rows[0]]], rules.obs(after, side), atol=2e-5)
                np.testing.assert_array_equal(legal[:, : rules.actions(side)], rules.legal(after, side))
                assert not obs[:, widths[rows[0]] :].any() and not legal[:, rules.actions(side) :].any()
                np.testing.assert_allclose(outcome.reward[rows], earned[side] - earned[1 - side], atol=1e-4)
            np.testing.assert_allclose(outcome.state, rules.state(after), atol=2e-5)
            assert outcome.metrics[:2].tolist() == [rules.won(after, side) for side in (0, 1)]
            paid = max(paid, abs(earned).max())
    assert paid > 0.1 and (played.outcome.alive[:, :4] == 0).any()


def test_a_difference_of_rewards_needs_two_armies_of_agents() -> None:
    with pytest.raises(InputError, match="needs both armies as agents"):
        make("3m", reward="difference")


@pytest.mark.parametrize("name", ["3m", "MMM", "bane_vs_bane"])
def test_both_armies_see_the_same_at_the_start(name: str) -> None:
    """So one policy can play either side."""
    step = jax.jit(make(name, both=True).reset)(jax.random.key(0))[1]
    half = len(step.alive) // 2
    np.testing.assert_allclose(step.obs[:half], step.obs[half:], atol=1e-6)
    np.testing.assert_array_equal(step.legal[:half], step.legal[half:])


def test_drawn_armies_that_start_as_images_see_the_same() -> None:
    batched = make("terran_4_vs_4", both=True).batched
    assert batched is not None
    obs = np.asarray(jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 64)[1].obs)
    alike = np.abs(obs[:, :4] - obs[:, 4:]).max((1, 2)) < 1e-5
    assert 0.3 < alike.mean() < 0.7, "the other armies start around the allies"


def test_axes_are_mirrored_where_that_exchanges_the_sides() -> None:
    expected = {"bane_vs_bane": (False, True)}
    expected |= dict.fromkeys(("2m_vs_1z", "6h_vs_8z", "2s_vs_1sc", "corridor", "so_many_baneling"), (False, False))
    expected |= {"2c_vs_64zg": (False, False)}
    for name, chosen in MAPS.items():
        assert mirrored_axes(chosen) == expected.get(name, (True, False)), name
    assert mirrored_axes(CROSSED) == (True, True)


def test_without_agents_among_them_the_enemies_start_as_before() -> None:
    state, _ = jax.jit(make("8m").reset)(jax.random.key(0))
    places = np.stack([state.x, state.y], 1)
    np.testing.assert_allclose(places, np.concatenate([starts(MAPS["8m"], side) for side in ("allies", "enemies")]))
    enemies = places[8:].astype(float)
    np.testing.assert_array_equal(enemies, enemies[np.lexsort((enemies[:, 1], enemies[:, 0]))])


def test_moves_are_named_by_where_they_lead_on_the_map() -> None:
    env = make(CROSSED, both=True)
    assert env.outline is not None
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    fixed, step = env.outline(state).fixed, jax.jit(env.step)
    ways = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
    for action in range(2, 6):
        after = step(jax.random.key(1), state, jnp.full(4, action))[0]
        for i, name in enumerate(row[action] for row in fixed["actions"]):
            moved = np.array([after.x[i] - state.x[i], after.y[i] - state.y[i]])
            assert moved @ ways[name] > 1.0, (action, i)
            assert fixed["features"][i][action - 2] == f"can go {name}"
    assert [row[4] for row in fixed["actions"]] == ["east", "east", "west", "west"]
    assert [row[6] for row in fixed["features"]] == ["enemy_0: east"] * 2 + ["ally_0: west"] * 2
