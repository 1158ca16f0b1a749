"""Blind-particle spread: what is seen, what is earned, and who is of which type."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.mpe.world import State
from shoal.environments.registry import validate
from shoal.errors import InputError
from support.environments import device_env

TASKS = {
    "1": (5, 5, 5),
    "2": (10, 10, 10),
    "3": (6, 6, 6, 6, 6),
    "4": (2, 2, 2, 15, 9),
    "h1": (5, 5, 5),
    "h2": (6, 6, 6, 6, 6),
    "h3": (50, 50, 50, 50),
}
# Which of [velocity, position, three offsets] each type of h1 sees in which place: the authors' shuffle by the type.
ORDERS = [
    [7, 8, 1, 5, 3, 4, 2, 0, 9, 6],
    [6, 8, 9, 7, 5, 3, 0, 4, 1, 2],
    [5, 9, 3, 4, 6, 7, 2, 8, 1, 0],
]
PUSHES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])


@pytest.mark.parametrize(("task", "sizes"), TASKS.items())
def test_the_published_tasks(task: str, sizes: tuple[int, ...]) -> None:
    spec = device_env(f"bps/{task}").spec
    assert spec.name == f"bps/{task}"
    assert spec.roles == tuple(kind for kind, size in enumerate(sizes) for _ in range(size))
    assert spec.obs_dims == (4 + 2 * len(sizes),) * sum(sizes)
    assert spec.horizon == 50 and spec.score == "sum" and not spec.shared_reward
    assert spec.state_dim == 4 * sum(sizes) + 2 * len(sizes)


@pytest.mark.parametrize("task", ["1", "h1"])
def test_a_step_is_that_of_a_plain_loop(task: str) -> None:
    env = device_env(f"bps/{task}")
    state, _ = jax.jit(env.reset)(jax.random.key(3))
    step, rng = jax.jit(env.step), np.random.default_rng(0)
    pos, vel, marks = (np.array(x, np.float64) for x in (state.pos, state.vel, state.landmarks))
    assert np.abs(pos).max() <= 1 < np.abs(marks).max() <= 3 and not vel.any()
    for t in range(1, 51):
        action = rng.integers(0, 5, 15)
        state, outcome = step(jax.random.key(0), state, jnp.array(action))
        obs, reward = [], []
        for i, kind in enumerate(env.spec.roles):
            vel[i] = 0.75 * vel[i] + 0.1 * 5 * PUSHES[action[i]]
            pos[i] = pos[i] + 0.1 * vel[i]  # with the new velocity: the authors' order
            seen = np.concatenate([vel[i], pos[i], *(mark - pos[i] for mark in marks)])
            obs.append(seen[ORDERS[kind]] if task == "h1" else seen)
            reward.append(-0.5 * np.hypot(*(pos[i] - marks[kind])))
        np.testing.assert_allclose(outcome.obs, obs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outcome.reward, reward, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outcome.state, np.concatenate([*pos, *vel, *marks]), rtol=1e-4, atol=1e-5)
        assert bool(outcome.last) == (t == 50) and np.all(outcome.discount == 1)


def test_nothing_but_the_reward_tells_an_agents_type() -> None:
    """Agents at one place see the same, whatever their type; each is paid by its own type's landmark."""
    env = device_env("bps/spread", type_distribution=(1, 3, 2))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    assert isinstance(state, State)
    state = state._replace(pos=jnp.broadcast_to(state.pos[0], state.pos.shape))
    _, outcome = jax.jit(env.step)(jax.random.key(0), state, jnp.full(6, 2))
    assert (np.asarray(outcome.obs) == np.asarray(outcome.obs)[0]).all()
    reward = np.asarray(outcome.reward)
    assert len(set(reward.tolist())) == 3 and (reward[1:4] == reward[1]).all() and reward[4] == reward[5]


def test_agents_do_not_feel_each_other() -> None:
    env = device_env("bps/1")
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    crowded = state._replace(pos=jnp.zeros_like(state.pos).at[7:].set(state.pos[7:]))
    action = jnp.arange(15) % 5
    (apart, _), (close, _) = (jax.jit(env.step)(jax.random.key(0), s, action) for s in (state, crowded))
    np.testing.assert_array_equal(apart.vel, close.vel)


def test_the_published_scale() -> None:
    """Random play, which 20,000 episodes of a NumPy loop of the definition put at −934.0 ± 1.2 for 15 agents."""
    env = device_env("bps/1")

    def episode(key: jax.Array) -> jax.Array:
        state, _ = env.reset(key)

        def turn(state: State, key: jax.Array) -> tuple[State, jax.Array]:
            state, outcome = env.step(key, state, jax.random.randint(key, (15,), 0, 5))
            return state, outcome.reward.sum()

        return jax.lax.scan(turn, state, jax.random.split(key, 50))[1].sum()

    returns = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 4000)))
    assert abs(returns.mean() + 934) < 4 * returns.std() / 4000**0.5


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, (5, 5, 5)),
        ({"num_agents": 8}, (3, 3, 2)),
        ({"num_agents": 2}, (1, 1)),
        ({"num_types": 4}, (4, 4, 4, 3)),
        ({"type_distribution": (1, 2), "num_agents": 3, "num_types": 2}, (1, 2)),
        ({"num_agents": 9, "num_types": 9, "continuous_actions": True, "scrambled": True, "horizon": 7}, (1,) * 9),
    ],
)
def test_options(options: dict[str, Any], sizes: tuple[int, ...]) -> None:
    env = device_env("bps/spread", **options)
    validate(env)
    assert env.spec.roles == tuple(kind for kind, size in enumerate(sizes) for _ in range(size))
    assert env.spec.horizon == options.get("horizon", 50)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_agents": 2, "num_types": 3}, "2 agents cannot be of 3 types"),
        ({"num_agents": 0}, "num_agents must be an integer of at least 1"),
        ({"type_distribution": ()}, "type_distribution must be numbers of agents"),
        ({"type_distribution": (3, 0)}, "each number in type_distribution must be an integer of at least 1"),
        ({"type_distribution": (3, 1), "num_agents": 5}, r"type_distribution \(3, 1\) has num_agents 4, not 5"),
        ({"type_distribution": (3, 1), "num_types": 1}, r"has num_types 2, not 1"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        device_env("bps/spread", **options)


def test_a_picture_shows_the_types() -> None:
    env = device_env("bps/spread", num_agents=4, num_types=2)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    assert env.render is not None
    scene: Any = env.render(jax.device_get(state))
    assert not isinstance(scene, np.ndarray) and scene.hollow.tolist() == [False] * 4 + [True] * 2
    colours = scene.colours
    assert (colours[0] == colours[1]).all() and (colours[0] == colours[4]).all() and (colours[2] == colours[5]).all()
    assert (colours[0] != colours[2]).any()
