"""One update of COMA and MAPG against NumPy loops: targets, fit, baseline, gradient, Adam and all."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import coma, mapg
from shoal.models import action_critic
from shoal.models.actor_critic import make_actor
from shoal.networks.body import Body
from shoal.networks.inputs import normalised
from shoal.networks.sharing import policy_of
from support import naive_pg
from support.algorithm_cases import seasoned
from support.trajectories import NUM_UPDATES, E, T, make_spec, make_trajectory, program

KEY = jax.random.key(3)
# A large ε of Adam keeps its steps proportional to the gradient, so that a small error of the gradient stays small.
SMALL: dict[str, Any] = {
    "network": Body((6,), orthogonal=False),
    "adam_eps": 0.5,
    "learning_rate": 1.0,
    "minibatches": 1,
    "gamma": 0.9,
    "max_grad_norm": None,
}
CLIPPED: dict[str, Any] = SMALL | {"max_grad_norm": 0.1}
SPEC = make_spec()
COMA = coma.Config(**SMALL, lam=0.6, entropy_coef=0.05, value_norm="running", value_norm_beta=0.9, target_interval=1)
CASES = {
    "coma": COMA,
    "coma recurrent": replace(
        COMA,
        network=Body((4,), recurrent=4, orthogonal=False),
        chunk_length=T,
        sharing="role",
        critic_input="state",
        scale_advantage=True,
        target_interval=3,
    ),
    "optimal": mapg.Config(
        **SMALL,
        sharing="independent",
        critic_input="agent",
        normalise_inputs=True,
        epsilon=0.3,
        epsilon_final=0.3,
        target_rate=0.3,
        critic_learning_rate=0.5,
        huber=0.5,
    ),
    "value": mapg.Config(**SMALL, critic="independent", baseline="value", sharing="role", value_norm="running"),
    "none": mapg.Config(**CLIPPED, critic_input="pruned", baseline="none", lam=1.0),
}
every_case = pytest.mark.parametrize("name", CASES)


def data(name, seed=0):
    rng = np.random.default_rng(seed)
    zeros = program(SPEC, CASES[name]).algorithm.initial_carry(E)
    carry = jax.tree.map(lambda x: jnp.array(rng.normal(size=x.shape) / 2, jnp.float32), zeros)
    return make_trajectory(SPEC, seed, carry)


def start(name):
    """In mid-run; the target network is not the critic."""
    learner = seasoned(program(SPEC, CASES[name]).learner)
    target = jax.tree.map(lambda x: 0.5 * x + 0.1, learner.critic)
    return learner._replace(statistics=learner.statistics._replace(target=target))


def next_joint_action(name, learner, traj):
    """As the update draws it: only where the rollout or the episode ends, which has a test of its own."""
    c = CASES[name]
    actor = make_actor(SPEC, c.network, policy_of(SPEC, c.sharing), c.agent_id, c.output_gain, c.log_std, c.squash)
    policy = learner.policy
    after, _ = actor.distribution(policy.actor, traj.carry.actor, normalised(policy.inputs, traj.step))
    ahead = jax.tree.map(lambda x: x[None], normalised(policy.inputs, traj.outcome))
    _, dist = actor.distribution(policy.actor, after, ahead, policy.epsilon)
    return action_critic.next_action(dist, traj, jax.random.split(KEY, 3)[0])


@every_case
def test_an_update_is_what_numpy_makes_of_the_papers(name):
    config, learner, traj = CASES[name], start(name), data(name)
    expected = naive_pg.update(SPEC, config, NUM_UPDATES, learner, traj, next_joint_action(name, learner, traj))
    got, metrics = program(SPEC, config).update(learner, traj, KEY)
    for tree, like in ((got.critic, expected.critic), (got.policy.actor, expected.actor)):
        for (path, x), y in zip(jax.tree.leaves_with_path(tree), jax.tree.leaves(like), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=2e-5, err_msg=jax.tree_util.keystr(path))
    assert set(expected.metrics) | {"epsilon"} >= set(metrics) >= set(expected.metrics)
    for key, value in expected.metrics.items():
        np.testing.assert_allclose(metrics[key], value, rtol=1e-3, err_msg=key)
