"""The metrics of particle worlds against loops over positions and messages, and the names of their observations."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.mpe.world import State
from shoal.environments.registry import names
from shoal.environments.wrappers import Wrapping, wrap
from shoal.types import Environment, Outline, Step
from support.environments import device_env

SCENARIOS = tuple(name for name in names() if name.startswith(("mpe/", "bps/")))
EPISODES, HORIZON, CROWDED = 200, 6, 0.3
Places = list[list[float]]


class Played(NamedTuple):
    """Episodes in NumPy: the states after each step [T, E, ...], and what each step gave."""

    env: Environment
    states: State
    steps: Step


def play(name: str, **options: Any) -> Played:
    """Random episodes that start within [-0.3, 0.3]², so that things meet."""
    env = device_env(name, horizon=HORIZON, **options)

    def run(key: jax.Array, actions: jax.Array) -> tuple[State, Step]:
        state, _ = env.reset(key)
        state = state._replace(pos=state.pos * CROWDED, landmarks=state.landmarks * CROWDED)

        def body(state: State, action: jax.Array) -> tuple[State, tuple[State, Step]]:
            state, step = env.step(key, state, action)
            return state, (state, step)

        return jax.lax.scan(body, state, actions)[1]

    rng, dims = np.random.default_rng(3), env.spec.action_dims
    size = (EPISODES, HORIZON, env.spec.num_agents)
    real = options.get("continuous_actions", False)
    actions = rng.random((*size, max(dims))) if real else rng.integers(0, dims, size, np.int32)
    keys = jax.random.split(jax.random.key(5), EPISODES)
    states, steps = jax.device_get(jax.jit(jax.vmap(run, out_axes=1))(keys, actions))
    return Played(env, states, steps)


def pairs_in_touch(pos: Places, first: range, second: range, radii: list[float]) -> int:
    found = 0
    for i in first:
        for j in second:
            found += i != j and math.dist(pos[i], pos[j]) < radii[i] + radii[j]
    return found


def nearest(pos: Places, mark: list[float]) -> float:
    return min(math.dist(one, mark) for one in pos)


def word_of(message: list[float]) -> int | None:
    """The largest entry; None of an empty message or of equal entries."""
    order = sorted(range(len(message)), key=lambda k: message[k])
    return None if message[order[-1]] == message[order[-2]] else order[-1]


def spread(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    n = len(pos[0])
    gaps = [nearest(pos[-1], mark) for mark in marks]
    touches = sum(pairs_in_touch(now, range(n), range(n), [0.15] * n) for now in pos)
    return {"occupied": sum(gap < 0.1 for gap in gaps), "distance": sum(gaps), "collisions": touches / 2}


def speaker_listener(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    gap = math.dist(pos[-1][1], marks[goal[0]])
    return {"reached": gap < 0.115, "distance": gap}


def reference(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    gaps = [math.dist(pos[-1][1], marks[goal[0]]), math.dist(pos[-1][0], marks[goal[1]])]
    return {"reached": sum(gap < 0.1 for gap in gaps) / 2, "distance": sum(gaps) / 2}


def adversary(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    near = [math.dist(one, marks[goal[0]]) < 0.16 for one in pos[-1]]
    return {"agent_reached": any(near[1:]), "adversary_reached": near[0]}


def push(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    near = [math.dist(one, marks[goal[0]]) < 0.1 for one in pos[-1]]
    return {"agent_reached": near[1], "adversary_reached": near[0]}


def crypto(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    return {"bob_right": word_of(comm[-1][1]) == goal[0], "eve_right": word_of(comm[-1][0]) == goal[0]}


def tag(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    radii = [0.075, 0.075, 0.075, 0.05]
    return {"catches": sum(pairs_in_touch(now, range(3), range(3, 4), radii) for now in pos)}


def world_comm(pos: list[Places], comm: list[Places], marks: Places, goal: list[int]) -> dict[str, float]:
    radii = [0.075] * 4 + [0.045] * 2
    return {"catches": sum(pairs_in_touch(now, range(4), range(4, 6), radii) for now in pos)}


CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("mpe/simple_spread", spread, {}),
    ("mpe/simple_spread", spread, {"num_agents": 4, "num_landmarks": 2, "convention": "openai"}),
    ("mpe/simple_speaker_listener", speaker_listener, {}),
    ("mpe/simple_reference", reference, {}),
    ("mpe/simple_adversary", adversary, {}),
    ("mpe/simple_push", push, {}),
    ("mpe/simple_crypto", crypto, {}),
    ("mpe/simple_crypto", crypto, {"continuous_actions": True}),
    ("mpe/simple_tag", tag, {}),
    ("mpe/simple_world_comm", world_comm, {}),
]


@pytest.mark.parametrize(("name", "oracle", "options"), CASES)
def test_metrics_are_those_of_loops(name: str, oracle: Any, options: dict[str, Any]) -> None:
    """At each step, since a wrapper may end an episode there."""
    env, states, steps = play(name, **options)
    assert not steps.last[:-1].any() and steps.last[-1].all()
    for t in range(HORIZON):
        pos, comm = states.pos[: t + 1], states.comm[: t + 1]
        rows = [
            oracle(pos[:, e].tolist(), comm[:, e].tolist(), states.landmarks[0, e].tolist(), states.goal[0, e].tolist())
            for e in range(EPISODES)
        ]
        assert tuple(rows[0]) == env.spec.metrics
        known = np.array([list(row.values()) for row in rows], float)
        np.testing.assert_allclose(steps.metrics[t], known, rtol=1e-5)
    assert (np.std(np.asarray(steps.metrics)[-1], 0) > 0).all()  # each metric is tried with different values


def test_counts_begin_anew_in_each_episode_and_end_at_a_wrappers_time_limit() -> None:
    """Three agents that stand on one another collide in each step, until contact forces part them."""
    env = wrap(device_env("mpe/simple_spread", horizon=6), Wrapping(time_limit=3))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    key, still = jax.random.key(0), jnp.zeros(3, jnp.int32)
    for _ in range(2):
        state, _ = reset(key)
        state = state._replace(inner=state.inner._replace(pos=jnp.zeros((3, 2))))
        for _ in range(3):
            state, outcome = step(key, state, still)
        assert outcome.last and outcome.metrics[2] == 9.0


def number(name: str, state: State, bodies: list[str], agents: list[str], i: int) -> Any:
    """The number of this name from the state; None if the name does not say which."""
    *words, last = name.split(" ")
    match words:
        case ["own", what]:
            return {"velocity": state.vel, "position": state.pos}[what][i]["xy".index(last)]
        case ["goal"] if last in ("dx", "dy"):
            axis = ["dx", "dy"].index(last)
            return state.landmarks[state.goal[0]][axis] - state.pos[i][axis]
        case [thing] if last in ("dx", "dy"):
            places = np.concatenate([state.pos, state.landmarks])
            axis = ["dx", "dy"].index(last)
            return places[bodies.index(thing)][axis] - state.pos[i][axis]
        case [mate, "velocity"]:
            return state.vel[agents.index(mate)]["xy".index(last)]
        case ["message"]:
            spoken = [j for j in range(len(agents)) if state.comm[j].any()]
            # Crypto's agents hear the last, Alice; a leader of predators hears itself.
            heard = ([j for j in spoken if j != i] or spoken)[-1]
            return state.comm[heard]["ABCDEFGHIJ".index(last)]
        case ["secret" | "key" as what]:
            return float(state.goal[["secret", "key"].index(what)] == "ABCD".index(last))
        case _:
            return None


@pytest.mark.parametrize("name", SCENARIOS)
def test_features_are_named(name: str) -> None:
    env = device_env(name)
    key, dims = jax.random.key(2), np.array(env.spec.action_dims)
    state, _ = jax.jit(env.reset)(key)
    action = np.minimum(dims - 1, 7 if "reference" in name else 2).astype(np.int32)
    state, step = jax.device_get(jax.jit(env.step)(key, state, action))
    assert env.outline is not None
    shown = env.outline(state)
    assert isinstance(shown, Outline)
    features, bodies = shown.fixed["features"], [one["label"] for one in shown.fixed["bodies"]]
    assert [len(row) for row in features] == list(env.spec.obs_dims)
    compared = 0
    for i, row in enumerate(features[:20]):
        assert len(set(row)) == len(row)
        for k, feature in enumerate(row):
            known = number(feature, state, bodies, list(env.spec.agents), i)
            hidden = name == "mpe/simple_world_comm" and step.obs[i, k] == 0.0
            if known is not None and not hidden:
                np.testing.assert_allclose(step.obs[i, k], known, atol=1e-6, err_msg=feature)
                compared += 1
    assert compared > 0


def test_colours_silence_and_forests_are_named() -> None:
    """What is not in the state under its own name."""
    rows = {name: _features(name) for name in ("mpe/simple_push", "mpe/simple_reference", "mpe/simple_spread")}
    assert rows["mpe/simple_push"][1][4:7] == ["goal red", "goal green", "goal blue"]
    assert rows["mpe/simple_push"][1][14:17] == ["landmark_1 red", "landmark_1 green", "landmark_1 blue"]
    assert rows["mpe/simple_reference"][0][8] == "goal of agent_1 red"
    assert rows["mpe/simple_spread"][1][-4:] == [f"agent_{i} message {word}" for i in (0, 2) for word in "AB"]
    assert _features("mpe/simple_speaker_listener")[0] == ["goal red", "goal green", "goal blue"]
    herd = _features("mpe/simple_world_comm")[4]
    assert herd[-4:-2] == ["own presence in forest_0", "own presence in forest_1"]


def _features(name: str) -> list[list[str]]:
    env = device_env(name)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    assert env.outline is not None
    return env.outline(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)).fixed["features"]
