"""The particle worlds by themselves: known scores, time limits, padding, options, pictures."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.mpe.world import State
from shoal.environments.registry import names
from shoal.game import own_actions
from shoal.types import Environment, EnvSpec, Scene, Step
from support.contract import broken_rules
from support.environments import device_env
from support.novel_oracle import fresh, gather

SCENARIOS = tuple(name for name in names() if name.startswith("mpe/"))
EPISODES = 4000
OPENAI = {"convention": "openai"}
# Mean scores of (random, no-op). Those under ``openai`` are of 4000 episodes of an independent NumPy implementation of
# the papers' worlds. mpe2 pushes apart one step later, so its spread is 1.3 below the published -77.9 and -71.3 of
# older releases; the figures here are of 100,000 of our episodes (the parity tests tie them to mpe2).
SCORES: list[tuple[str, dict[str, Any], float, float | None]] = [
    ("mpe/simple_spread", OPENAI | {"landmark_range": 0.8}, -218.1, -204.4),
    ("mpe/simple_spread", OPENAI, -230.9, -217.5),
    ("mpe/simple_spread", {}, -79.4, -72.5),
    ("mpe/simple_speaker_listener", {}, -80.8, None),
    ("mpe/simple_speaker_listener", OPENAI, -80.8, None),
    ("mpe/simple_reference", OPENAI | {"landmark_range": 0.8}, -67.4, None),
]


class Batch(NamedTuple):
    """A scenario's environment and 256 of its timesteps: at reset, and after three random steps."""

    env: Environment
    start: Step
    state: State
    step: Step


@functools.cache
def batch(name: str) -> Batch:
    env = device_env(name)

    def run(key: jax.Array) -> tuple[Step, State, Step]:
        state, start = env.reset(key)

        def body(_: int, now: tuple[State, Step]) -> tuple[State, Step]:
            action = jax.random.randint(jax.random.fold_in(key, now[0].t), (env.spec.num_agents,), 0, dims)
            return env.step(key, now[0], action)

        return start, *jax.lax.fori_loop(0, 3, body, (state, start))

    dims = jnp.array(env.spec.action_dims)
    timesteps = jax.jit(lambda seed: jax.vmap(run)(jax.random.split(jax.random.key(seed), 256)))(0)
    return Batch(env, *jax.tree.map(np.asarray, timesteps))  # eager comparisons of JAX arrays compile one by one


def play(env: Environment, actions: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The scores of episodes under actions [T, E, N ...], and each step's ``last`` [T, E]."""

    def run(seed: int, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.key(seed)
        state, _ = jax.vmap(env.reset)(jax.random.split(key, actions.shape[1]))

        def body(state: State, action: jax.Array) -> tuple[State, tuple[jax.Array, jax.Array]]:
            state, step = jax.vmap(env.step, in_axes=(None, 0, 0))(key, state, action)
            return state, (step.reward, step.last)

        _, (reward, last) = jax.lax.scan(body, state, actions)
        returns = reward.sum(0)
        return returns.sum(-1) if env.spec.score == "sum" else returns.mean(-1), last

    scores, last = jax.jit(run)(seed, actions)
    return np.asarray(scores), np.asarray(last)


@pytest.mark.parametrize(("name", "options", "random", "noop"), SCORES)
def test_known_scores(name: str, options: dict[str, Any], random: float, noop: float | None) -> None:
    env = device_env(name, **options)
    size = (env.spec.horizon, EPISODES, env.spec.num_agents)
    chance = np.random.default_rng(1).integers(0, env.spec.action_dims, size, np.int32)
    for actions, known in ((chance, random), (np.zeros_like(chance), noop)):
        if known is not None:
            scores, _ = play(env, actions)
            error = np.sqrt(2.0) * scores.std() / np.sqrt(EPISODES)
            assert abs(scores.mean() - known) < 4.0 * error + 0.05


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_timestep_breaks_a_rule_of_check(name: str) -> None:
    """And all agents live, may do all they can, and go on."""
    env, start, _, step = batch(name)
    both = jax.tree.map(lambda *timesteps: np.stack(timesteps), start, step)
    assert broken_rules(env.spec, [jax.tree.map(lambda x, e=e: x[:, e], both) for e in range(256)]) == []
    assert (both.legal == own_actions(env.spec)).all() and both.alive.all() and (both.discount == 1.0).all()
    assert not step.last.any()


@pytest.mark.parametrize("name", SCENARIOS)
def test_novel_features_are_those_the_state_does_not_hold(name: str) -> None:
    env, _, _, step = batch(name)
    timesteps = (jax.tree.map(lambda x, k=k: x[k], step) for k in range(len(step.obs)))
    assert tuple(np.flatnonzero(fresh(gather(timesteps)).any(0))) == env.spec.novel


def test_the_speaker_has_three_words_of_five() -> None:
    env, start, _, _ = batch("mpe/simple_speaker_listener")
    assert env.spec.action_dims == (3, 5)
    assert start.legal[0].tolist() == [[True] * 3 + [False] * 2, [True] * 5]


def test_the_time_limit_is_no_termination() -> None:
    env = device_env("mpe/simple_spread", horizon=4)
    _, last = play(env, np.zeros((6, 2, 3), np.int32))
    assert last[:, 0].tolist() == [False, False, False, True, True, True]
    _, _, state, _ = batch("mpe/simple_spread")
    ending = jax.tree.map(lambda x: x[0], state)._replace(t=np.int32(3))
    _, step = jax.jit(env.step)(jax.random.key(0), ending, np.zeros(3, np.int32))
    assert step.last and (step.discount == 1.0).all()


@pytest.mark.parametrize("name", ["mpe/simple_spread", "mpe/simple_reference"])
def test_landmark_range(name: str) -> None:
    env = device_env(name, landmark_range=0.8)
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 500))
    assert 0.75 < jnp.abs(state.landmarks).max() < 0.8
    assert 0.95 < jnp.abs(state.pos).max() < 1.0


def spread_step(pos: list[list[float]], action: list[int], **options: Any) -> tuple[EnvSpec, State, Step]:
    """One step from rest at these places, with one landmark in the middle."""
    env = device_env("mpe/simple_spread", num_agents=len(pos), num_landmarks=1, **options)
    places, still = np.array(pos, np.float32), np.zeros((len(pos), 2), np.float32)
    comm, marks = np.zeros((len(pos), 0), np.float32), np.zeros((1, 2), np.float32)
    zeros = (np.zeros(0, np.int32), np.int32(0), np.float32(0.0))
    state = State(*(jnp.asarray(x) for x in (places, still, comm, marks, *zeros)))
    return env.spec, *jax.jit(env.step)(jax.random.key(0), state, np.array(action))


def test_goals_are_uniform_and_independent() -> None:
    goal = batch("mpe/simple_reference").state.goal
    pairs = np.bincount(goal[:, 0] * 3 + goal[:, 1], minlength=9)
    assert pairs.size == 9 and pairs.min() > 10 and pairs.max() < 50  # 28 expected, standard deviation 5


def test_spread_conventions() -> None:
    """Two agents in touch and one far; cover 0.1, so 3 · -0.1 - 2 hits - 3 with themselves, or 0.5 · (-0.1 - own)."""
    pos = [[0.1, 0.0], [0.3, 0.0], [0.9, 0.9]]
    spec, _, step = spread_step(pos, [0, 0, 0])
    np.testing.assert_allclose(step.reward, [-0.55, -0.55, -0.05], atol=1e-6)
    assert not spec.shared_reward and spec.score == "sum"
    spec, after, step = spread_step(pos, [0, 0, 0], convention="openai")
    cover = np.linalg.norm(np.asarray(after.pos), axis=1).min()
    hits = 2 * (np.linalg.norm(after.pos[0] - after.pos[1]) < 0.3)
    np.testing.assert_allclose(step.reward, [-3 * cover - hits - 3] * 3, atol=1e-6)
    assert spec.shared_reward and spec.score == "mean"
    assert device_env("mpe/simple_spread", local_ratio=0.0).spec.shared_reward


def test_openai_integrates_velocity_first() -> None:
    for convention, x in (("mpe2", 0.0), ("openai", 0.05)):
        _, after, _ = spread_step([[0.0, 0.0]], [2], convention=convention)
        np.testing.assert_allclose(after.pos[0], [x, 0.0], atol=1e-7)
        np.testing.assert_allclose(after.vel[0], [0.5, 0.0], atol=1e-7)


def test_coinciding_agents_do_not_break() -> None:
    _, after, step = spread_step([[0.2, 0.2]] * 3, [1, 2, 0])
    np.testing.assert_allclose(after.vel, [[-0.5, 0.0], [0.5, 0.0], [0.0, 0.0]], atol=1e-6)
    assert jnp.isfinite(step.obs).all() and jnp.isfinite(step.reward).all()


def test_reference_openai_reward() -> None:
    env = device_env("mpe/simple_reference", convention="openai")
    _, _, states, _ = batch("mpe/simple_reference")
    state = jax.tree.map(lambda x: x[0], states)
    after, step = jax.jit(env.step)(jax.random.key(0), state, np.array([3, 41]))
    pos, marks, goal = (np.asarray(x) for x in (after.pos, after.landmarks, after.goal))
    cost = ((pos[1] - marks[goal[0]]) ** 2).sum() + ((pos[0] - marks[goal[1]]) ** 2).sum()
    np.testing.assert_allclose(step.reward, [-cost, -cost], rtol=1e-5)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pictures(name: str) -> None:
    env, _, states, _ = batch(name)
    assert env.render is not None
    state = jax.tree.map(lambda x: x[0], states)
    scene = env.render(state)
    assert isinstance(scene, Scene)
    num = len(scene.labels)
    assert num == len(state.pos) + len(state.landmarks)
    assert scene.centres.shape == (num, 2) and scene.colours.shape == (num, 3)
    assert scene.radii.shape == scene.hollow.shape == (num,)
    assert all(isinstance(x, np.ndarray) for x in (scene.centres, scene.radii, scene.colours, scene.hollow))
    assert scene.hollow.sum() == len(state.landmarks) and not scene.hollow[0]
    assert scene.colours.min() >= 0.0 and scene.colours.max() <= 1.0
    assert np.abs(scene.centres).max() <= scene.extent
    assert bool(scene.caption) == bool(state.comm.size)


def test_the_caption_says_the_word() -> None:
    env, _, states, _ = batch("mpe/simple_speaker_listener")
    state = jax.tree.map(lambda x: x[0], states)
    assert env.render is not None
    for word, text in (([0.0, 1.0, 0.0], "speaker_0: B"), ([0.0, 0.0, 0.0], "speaker_0: nothing")):
        scene = env.render(state._replace(comm=jnp.array([word, [0.0] * 3])))
        assert isinstance(scene, Scene) and scene.caption == text
