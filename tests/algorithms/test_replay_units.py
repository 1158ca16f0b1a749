"""Normalised inputs and rewards off-policy: learning from them is learning from what was normalised by hand."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.algorithms import NAMES, iql, maddpg, qmix
from shoal.equations import normalise
from shoal.learning.replay import ReplayConfig, TargetStatistics, count_rollout
from shoal.models.actor_critic import Policy
from shoal.networks.body import Body
from shoal.networks.inputs import Inputs
from shoal.types import Learner, Scale, Step, Trajectory
from support.trajectories import E, T, assert_trees_close, distance, make_spec, make_trajectory, program

SPEC = make_spec()
PLAIN: dict[str, Any] = {
    "qmix": qmix.Config(mixing_width=3, hyper_width=4), "iql": iql.Config(), "maddpg": maddpg.Config(),
}  # fmt: skip
PLAIN = {
    name: replace(config, network=Body((4,), "relu", orthogonal=False), adam_eps=0.5, learning_rate=0.5)
    for name, config in PLAIN.items()
}


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the first axis; the variance is at least 1e-6."""
    return np.nanmean(x, 0), np.sqrt(np.maximum(np.nanvar(x, 0), 1e-6))


def by_hand(name: str, kind: str, traj: Trajectory) -> Trajectory:
    alive = np.asarray(traj.step.alive)
    padded = np.arange(SPEC.obs_dim) >= np.array(SPEC.obs_dims)[:, None]
    obs = np.where(padded, np.nan, np.asarray(traj.step.obs, np.float64))
    kinds = [moments(obs[..., who, :][alive[..., who]]) for who in ([0, 1], [2])]  # by role
    of_obs = tuple(np.nan_to_num(np.stack([kinds[role][i] for role in SPEC.roles]), nan=1.0) for i in (0, 1))
    of_state = moments(np.asarray(traj.step.state, np.float64).reshape(-1, SPEC.state_dim))
    reward = np.asarray(traj.outcome.reward, np.float64)
    if name == "qmix":  # one reward for the team
        mean, std = moments(reward.mean(-1)[alive.any(-1)])
    elif name == "iql":
        mean, std = moments(reward[alive])
    else:
        mean, std = (np.array(x) for x in zip(*(moments(reward[..., i][alive[..., i]]) for i in range(3)), strict=True))
    mean = mean if kind == "standardise" else 0.0

    def normalised(step: Step) -> Step:
        obs, state = ((np.asarray(x) - m) / s for x, (m, s) in ((step.obs, of_obs), (step.state, of_state)))
        return step._replace(obs=jnp.float32(obs), state=jnp.float32(state))

    outcome = normalised(traj.outcome)._replace(reward=jnp.float32((reward - mean) / std))
    return traj._replace(step=normalised(traj.step), outcome=outcome)


@pytest.mark.parametrize(("name", "kind"), [("qmix", "standardise"), ("iql", "scale"), ("maddpg", "scale")])
def test_an_update_learns_from_normalised_inputs_and_rewards(name: str, kind: Any) -> None:
    plain, own = (
        program(SPEC, c) for c in (PLAIN[name], replace(PLAIN[name], normalise_inputs=True, reward_norm=kind))
    )
    traj = make_trajectory(SPEC)
    step, outcome = (x._replace(obs=3 * x.obs + 2, state=x.state - 4) for x in (traj.step, traj.outcome))
    traj = traj._replace(step=step, outcome=outcome._replace(reward=5 * outcome.reward + 3))
    got, expected, otherwise = (
        (learner.policy.actor, learner.critic)
        for learner, _ in (
            own.update(own.learner, traj, jax.random.key(1)),
            plain.update(plain.learner, by_hand(name, kind, traj), jax.random.key(1)),
            plain.update(plain.learner, traj, jax.random.key(1)),
        )
    )
    assert_trees_close(got, expected, 1e-3, 1e-4)
    assert distance(otherwise, expected) > 0.02

    assert own.algorithm.observe is not None
    observed, learned = own.algorithm.observe(own.learner, traj), own.update(own.learner, traj, jax.random.key(1))[0]
    assert_trees_close(
        (observed.policy.inputs, observed.statistics.reward), (learned.policy.inputs, learned.statistics.reward)
    )
    assert observed.statistics.steps == 0 and observed.policy.actor is own.learner.policy.actor


def test_agents_that_share_rewards_share_their_scale() -> None:
    """Of rewards that came after the death of agent 0, too; an agent with rewards of its own has a scale of its own."""
    traj = make_trajectory(SPEC, dead=0.0)
    alive = traj.step.alive.at[2:, :, 0].set(False)
    reward = jnp.where(jnp.arange(T)[:, None, None] < 2, 1.0, 10.0) * jnp.ones((T, E, 3))
    traj = traj._replace(step=traj.step._replace(alive=alive), outcome=traj.outcome._replace(reward=reward))
    statistics = TargetStatistics((), jnp.int32(0), normalise.init((3,)))
    learner = Learner(Policy((), Inputs()), (), (), statistics, jnp.int32(0))
    for change, weights in (({"shared_reward": True}, [T, T, T]), ({"sides": (0, 0, 1)}, [T, T, T]), ({}, [2, T, T])):
        stats = count_rollout(replace(SPEC, **change), maddpg.Config(), team=False)(learner, traj).statistics.reward
        np.testing.assert_array_equal(stats.weight, np.array(weights) * E)
        first = np.asarray(reward)[: weights[0]]
        np.testing.assert_allclose(stats.square - stats.mean**2, [first.var(), *[reward.var()] * 2], atol=1e-4)


def test_every_algorithm_with_a_buffer_observes_what_fills_it() -> None:
    spec = make_spec(shared_reward=True)
    modules = [module for name in NAMES if issubclass((module := algorithms.get(name)).Config, ReplayConfig)]
    assert len(modules) >= 13
    for module in modules:
        assert module.make(spec, module.Config(), Scale(E, T, 10)).observe is not None, module.__name__
