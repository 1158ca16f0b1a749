"""MAA2C is MAPPO with one epoch: the step it takes is along the actor-critic gradient itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import ia2c, maa2c
from shoal.models.actor_critic import make_nets
from shoal.networks.body import Body
from support.trajectories import (
    acted,
    assert_trees_close,
    compiled,
    critic_advantage,
    distance,
    make_spec,
    make_trajectory,
    program,
)

SPEC = make_spec()
FLAGS: dict[str, Any] = {
    "network": Body((6,), orthogonal=False),
    "adam_eps": 0.5,
    "learning_rate": 1.0,
    "entropy_coef": 0.05,
    "max_grad_norm": None,
    "normalise_advantage": "none",
}


@pytest.mark.parametrize("module", [maa2c, ia2c], ids=["maa2c", "ia2c"])
def test_the_step_is_along_the_papers_gradient(module: Any) -> None:
    """∇ E[Â log π + σ S] over the living, with Â as the family computes it; Adam's first step is g / (|g| + ε)."""
    config = module.Config(**FLAGS)
    prog = program(SPEC, config)
    traj = acted(prog, prog.learner, make_trajectory(SPEC))
    nets = make_nets(SPEC, config, (0,) * SPEC.num_agents)
    advantage = critic_advantage(SPEC, config, nets, prog.learner, traj)
    alive, policy = traj.step.alive, prog.learner.policy

    def objective(theta: Any) -> jax.Array:
        _, dist = nets.actor.distribution(theta, (), traj.step)
        gain = advantage * dist.log_prob(traj.action) + config.entropy_coef * dist.entropy()
        return jnp.where(alive, gain, 0.0).sum() / alive.sum()

    gradient = compiled(jax.grad(objective))(policy.actor)
    want = jax.tree.map(lambda x, g: x + g / (jnp.abs(g) + config.adam_eps), policy.actor, gradient)
    got, metrics = prog.update(prog.learner, traj, jax.random.key(1))
    assert_trees_close(got.policy.actor, want, 1e-4, 1e-5)
    assert distance(want, policy.actor) > 0.05
    np.testing.assert_allclose(metrics["clip_fraction"], 0)
