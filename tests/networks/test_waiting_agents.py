"""Where agents take turns, the nets of those that wait are not computed, and nothing else changes."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.environments.options import apply_common_options
from shoal.environments.spec_rules import check_spec
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.options.flags import override, spec_to_json
from shoal.rollouts.fused import make_rollout
from shoal.spec import Box, equal_agents
from shoal.trust.run_file import spec_of
from shoal.types import Algorithm, Environment, Scale, Step, Trajectory
from support.environments import device_env

N, ACTIONS, ENVS, LENGTH = 3, 4, 4, 12
SPEC = equal_agents(
    "game", "player", N, obs=5, state=6, actions=ACTIONS, horizon=7, shared_reward=True, score="mean", turns=True
)
SCALE = Scale(ENVS, LENGTH, 10)


def game(turns: bool) -> Environment:
    """Players choose one after another; the team earns the product of what the last two chose."""

    def seen(state: Any, reward: Any, first: bool) -> Step:
        t, before, noise = state
        waits = np.arange(ACTIONS) == ACTIONS - 1
        legal = jnp.where((jnp.arange(N) == t % N)[:, None], ~waits, waits)
        obs = jnp.concatenate([noise[:, :4], jnp.full((N, 1), before, jnp.float32)], axis=1)
        return Step(
            obs=obs,
            state=jnp.append(noise[0], before.astype(jnp.float32)),
            legal=legal,
            alive=jnp.ones(N, bool),
            reward=jnp.full(N, reward, jnp.float32),
            discount=jnp.full(N, 1.0 - (t >= 7)),
            first=jnp.asarray(first),
            last=t >= 7,
        )

    def reset(key: Any) -> tuple[Any, Step]:
        state = (jnp.int32(0), jnp.int32(0), jax.random.normal(key, (N, 5)))
        return state, seen(state, 0.0, True)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        t, before, _ = state
        now = action[t % N]
        after = (t + 1, now, jax.random.normal(key, (N, 5)))
        return after, seen(after, before * now, False)

    return Environment(replace(SPEC, turns=turns), reset, step)


def algorithm(name: str, turns: bool, **options: Any) -> Algorithm:
    module = algorithms.get(name)
    config = override(module.Config(), {"hidden": (16,), **options})
    return module.make(replace(SPEC, turns=turns), config, SCALE)


def rollout(made: Algorithm, turns: bool) -> tuple[Any, Trajectory]:
    key = jax.random.key(0)
    env = make_rollout(game(turns), ENVS, LENGTH)

    def run(key: Any) -> tuple[Any, Trajectory]:
        learner = made.init(key)
        state = env.init(key, made.initial_carry(ENVS))
        return learner, env.collect(made.act, learner, state, key)[1]

    return jax.jit(run)(key)


def close(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6), one, other)


@pytest.mark.parametrize(
    "options",
    [{"critic_input": "local", "entropy_coef": 0.1}, pytest.param({"critic_input": "state"}, marks=pytest.mark.slow)],
)
def test_a_rollout_and_an_update_are_the_same(options: dict[str, Any]) -> None:
    found = []
    for turns in (True, False):
        made = algorithm("mappo", turns, epochs=1, minibatches=1, learning_rate=1e-3, **options)
        learner, traj = rollout(made, turns)
        learner, metrics = jax.jit(made.update)(learner, traj, jax.random.key(1))
        found.append((traj, (learner.policy, learner.critic), metrics))
    (traj, params, metrics), (plain, all_params, all_metrics) = found
    np.testing.assert_array_equal(traj.action, plain.action)
    waits = traj.step.legal.sum(-1) == 1
    assert waits.sum() == waits.size * (N - 1) / N and len(np.unique(traj.action[~waits])) == ACTIONS - 1
    assert (traj.extras["log_prob"][waits] == 0).all()
    close(traj.extras, plain.extras)
    close(params, all_params)
    of_decisions = {name: N * all_metrics[name] for name in ("entropy", "kl")}  # of all agents, N times as many
    close(metrics, all_metrics | of_decisions)
    assert metrics["entropy"] > 0.1


@pytest.mark.parametrize("name", ["iql", "vdn"])
def test_agents_with_utilities_act_the_same(name: str) -> None:
    runs = [rollout(algorithm(name, turns), turns) for turns in (True, False)]
    close(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1].action, runs[1][1].action)


def numbers(name: str, turns: bool, **options: Any) -> float:
    """Operations of an action of all agents."""
    made = algorithm(name, turns, hidden=(256, 256), **options)
    key = jax.random.key(0)
    learner = jax.eval_shape(made.init, key)
    step = jax.eval_shape(jax.vmap(game(turns).reset), jax.random.split(key, 64))[1]
    carry = jax.eval_shape(lambda: made.initial_carry(64))
    lowered = jax.jit(lambda p, h, s: made.act(p, h, s, key, False)).lower(learner, carry, step)
    cost: Any = lowered.cost_analysis()
    return cost["flops"]


@pytest.mark.parametrize("name", ["mappo", "iql"])
def test_the_nets_of_those_that_wait_are_not_computed(name: str) -> None:
    assert numbers(name, True) < 0.4 * numbers(name, False)


def test_recurrent_and_separate_policies_are_computed_as_before() -> None:
    assert numbers("iql", True, recurrent=256) > 0.9 * numbers("iql", False, recurrent=256)
    assert numbers("iql", True, sharing="independent") > 0.9 * numbers("iql", False, sharing="independent")


def test_hanabi_says_that_players_take_turns_unless_masks_are_hidden() -> None:
    env = device_env("hanabi/mini-2p")
    assert env.spec.turns and apply_common_options(env, {"score": "sum"}).spec.turns
    assert not wrap(env, Wrapping(action_mask=False)).spec.turns
    assert not device_env("matrix/climbing").spec.turns


def test_files_without_the_field_are_read_and_those_with_it_too() -> None:
    for turns in (True, False):
        spec = replace(SPEC, turns=turns)
        entries = spec_to_json(spec)
        assert ("turns" in entries) == turns and spec_of(entries) == spec


def test_turns_need_discrete_actions() -> None:
    spec = replace(SPEC, action=Box(2), action_dims=(2,) * N)
    with pytest.raises(InputError, match=r"spec\.turns must be False"):
        check_spec(spec)
