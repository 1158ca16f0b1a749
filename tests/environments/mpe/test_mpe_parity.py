"""Against mpe2 itself: from its states, under the same actions, one step gives its observations, rewards and ends.

Every recorded state of mpe2 is stepped once on our side, all of them in one batch. mpe2 computes in double precision,
and where two centres nearly coincide a contact's direction amplifies rounding a hundredfold. So the equations are
compared in double precision, tightly, and then what users run, single precision, as closely as rounding allows.
"""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.mpe.world import State
from support.environments import device_env

EPISODES, HORIZON = 200, 25
QUICK = 40
"""Episodes of each scenario where all of them would take too long."""
VERSIONS = {
    "simple": 3,
    "simple_adversary": 3,
    "simple_crypto": 3,
    "simple_push": 3,
    "simple_reference": 3,
    "simple_speaker_listener": 4,
    "simple_spread": 3,
    "simple_tag": 3,
    "simple_world_comm": 3,
}
# Other team sizes, as (mpe2's options, ours); fewer episodes, for the sizes are all that is new.
SIZES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("simple_spread", {"N": 2, "local_ratio": 0.0}, {"num_agents": 2, "local_ratio": 0.0}),
    ("simple_spread", {"N": 6, "local_ratio": 0.9}, {"num_agents": 6, "local_ratio": 0.9}),
    ("simple_reference", {"local_ratio": 0.2}, {"local_ratio": 0.2}),
    ("simple_adversary", {"N": 4}, {"num_good": 4}),
    *(
        ("simple_tag", size, size)
        for size in (
            {"num_good": 2, "num_adversaries": 4, "num_obstacles": 0},
            {"num_good": 3, "num_adversaries": 1, "num_obstacles": 3},
        )
    ),
    *(
        ("simple_world_comm", size, size)
        for size in (
            {"num_good": 1, "num_adversaries": 1, "num_obstacles": 0, "num_food": 1, "num_forests": 1},
            {"num_good": 3, "num_adversaries": 2, "num_obstacles": 2, "num_food": 3, "num_forests": 0},
        )
    ),
]


class Record(NamedTuple):
    """Every transition of some episodes, stacked: leaves are [K, ...]."""

    before: State
    action: np.ndarray
    after: State
    obs: np.ndarray
    """Zero-padded [K, N, O]."""
    reward: np.ndarray
    truncated: np.ndarray


def reference(scenario: str, **options: Any) -> Any:
    options.setdefault("max_cycles", HORIZON)
    if scenario in ("simple_reference", "simple_spread"):
        options.setdefault("local_ratio", 0.5)
    return importlib.import_module(f"mpe2.{scenario}_v{VERSIONS[scenario]}").parallel_env(**options)


def goals_of(scenario: str, world: Any) -> list[int]:
    where = lambda mark: next(i for i, known in enumerate(world.landmarks) if known is mark)  # noqa: E731
    if scenario in ("simple_adversary", "simple_push"):
        return [where(world.agents[0].goal_a)]
    if scenario == "simple_crypto":
        return [where(world.agents[0].goal_a), int(world.agents[2].key.argmax())]
    if scenario == "simple_reference":
        return [where(agent.goal_b) for agent in world.agents]
    if scenario == "simple_speaker_listener":
        return [where(world.agents[0].goal_b)]
    return []


def snapshot(scenario: str, world: Any, t: int) -> State:
    leaves: dict[str, Any] = {
        "pos": np.array([agent.state.p_pos for agent in world.agents]),
        "vel": np.array([agent.state.p_vel for agent in world.agents]),
        "comm": np.array([agent.state.c for agent in world.agents]),
        "landmarks": np.array([mark.state.p_pos for mark in world.landmarks]).reshape(-1, 2),
        "goal": np.array(goals_of(scenario, world), int),
        "t": np.array(t),
        "tally": np.zeros(()),
    }
    return State(**leaves)


def record(scenario: str, continuous: bool, episodes: int, spec: Any, options: dict[str, Any]) -> Record:
    """Play mpe2. Actions mostly repeat, so that agents reach their top speed, meet, and leave the arena."""
    env = reference(scenario, continuous_actions=continuous, **options)
    rng = np.random.default_rng(7)
    dims, rows = np.array(spec.action_dims), []
    for episode in range(episodes):
        env.reset(seed=episode)
        names, world = env.possible_agents, env.unwrapped.world
        assert list(names) == list(spec.agents)
        after = snapshot(scenario, world, 0)
        for t in range(HORIZON):
            if t == 0 or rng.random() < 0.3:
                size = (len(dims), spec.action.dim) if continuous else len(dims)
                # Beyond the bounds too: mpe2's wrapper clips (and logs each time, so it is done for it below).
                action = rng.uniform(-0.3, 1.3, size).astype(np.float32) if continuous else rng.integers(0, dims, size)
            before = after
            moves = [action[i, : dims[i]].clip(0, 1) if continuous else int(action[i]) for i in range(len(dims))]
            obs, reward, terminated, truncated, _ = env.step(dict(zip(names, moves, strict=True)))
            assert not any(terminated.values())
            assert tuple(obs[name].size for name in names) == spec.obs_dims
            padded = np.stack([np.pad(obs[name], (0, spec.obs_dim - obs[name].size)) for name in names])
            after = snapshot(scenario, world, t + 1)
            earned = np.array([reward[name] for name in names])
            rows.append(Record(before, action, after, padded, earned, np.array(all(truncated.values()))))
    env.close()
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def close(ours: Any, theirs: Any, what: str, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance, err_msg=what)


def agree(
    scenario: str,
    continuous: bool,
    episodes: int,
    theirs: dict[str, Any],
    ours: dict[str, Any],
    precisions: tuple[bool, ...] = (True, False),
) -> Record:
    """``precisions``: whether double, for each comparison."""
    env = device_env(f"mpe/{scenario}", continuous_actions=continuous, **ours)
    seen = record(scenario, continuous, episodes, env.spec, theirs)
    for double in precisions:
        tolerance = 1e-9 if double else 1e-4
        with jax.enable_x64(double):
            before, action = jax.tree.map(jnp.asarray, (seen.before, seen.action))
            after, outcome = jax.jit(jax.vmap(env.step, in_axes=(None, 0, 0)))(jax.random.key(0), before, action)
            assert (
                after.pos.dtype == outcome.obs.dtype == outcome.reward.dtype == (np.float64 if double else np.float32)
            )
        close(after.pos, seen.after.pos, "position", tolerance)
        close(after.vel, seen.after.vel, "velocity", tolerance)
        if any(width not in (1, 5) for width in env.spec.action_dims):
            close(after.comm, seen.after.comm, "message", tolerance)
        close(outcome.obs, seen.obs, "observation", max(tolerance, 1e-6))  # mpe2 rounds what it shows
        close(outcome.reward, seen.reward, "reward", tolerance)
        np.testing.assert_array_equal(np.asarray(outcome.last), seen.truncated)
        assert np.asarray(outcome.discount).min() == 1.0
    return seen


@pytest.mark.parametrize(
    ("continuous", "episodes"),
    [
        pytest.param(False, QUICK, id="discrete"),
        pytest.param(False, EPISODES, marks=pytest.mark.slow, id="discrete, many episodes"),
        pytest.param(True, EPISODES, marks=pytest.mark.slow, id="continuous"),
    ],
)
@pytest.mark.parametrize("scenario", VERSIONS)
def test_one_step_agrees(scenario: str, continuous: bool, episodes: int) -> None:
    if scenario == "simple_world_comm" and episodes == EPISODES:
        episodes //= 2  # 300 steps/s
    seen = agree(scenario, continuous, episodes, {}, {})
    assert seen.truncated.sum() == episodes
    if scenario in ("simple_tag", "simple_world_comm") and episodes > QUICK:  # the rare events did happen
        speed = np.linalg.norm(seen.after.vel, axis=-1)
        assert (np.isclose(speed[:, 0], 1.0)).any() and (np.isclose(speed[:, -1], 1.3)).any()
        assert (seen.reward[:, 0] > 1.0).sum() > 10
        assert (np.abs(seen.after.pos[:, -1]) > 1.0).sum() > 100


@pytest.mark.parametrize(("scenario", "theirs", "ours"), SIZES)
def test_other_sizes_agree(scenario: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    agree(scenario, False, 10, theirs, ours, precisions=(True,))


@pytest.mark.parametrize("scenario", VERSIONS)
def test_first_observation_agrees(scenario: str) -> None:
    """Our reset states, put into mpe2's world, are observed alike."""
    env, other = device_env(f"mpe/{scenario}"), reference(scenario)
    states, steps = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(3), 20))
    other.reset(seed=0)
    world = other.unwrapped.world
    compared = 0
    for k in range(20):
        state, step = jax.tree.map(lambda x, k=k: np.asarray(x[k]), (states, steps))
        for agent, pos in zip(world.agents, state.pos, strict=True):
            agent.state.p_pos = pos.astype(float)
        for mark, pos in zip(world.landmarks, state.landmarks, strict=True):
            mark.state.p_pos = pos.astype(float)
        if list(state.goal) != goals_of(scenario, world):
            continue  # a goal is drawn by mpe2 with colours that hang on it: compare where both drew the same
        compared += 1
        for i, name in enumerate(other.possible_agents):
            seen = other.unwrapped.observe(name)
            close(step.obs[i, : seen.size], seen, name)
            assert not step.obs[i, seen.size :].any()
        assert step.first and not step.last and not step.reward.any()
    assert compared > 0
    other.close()
