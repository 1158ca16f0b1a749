"""Configurations that between them turn every knob of MAPPO, shared so that each is compiled once."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.algorithms import mappo
from shoal.equations.normalise import Running
from shoal.networks.body import Body
from shoal.types import Box, EnvSpec, Learner, Trajectory
from support.trajectories import E, T, leaving, make_spec, make_trajectory, program

# A large ε of Adam keeps its steps proportional to the gradient, so that a small error of the gradient stays small.
BASE = mappo.Config(network=Body((6,), orthogonal=False), adam_eps=0.5, learning_rate=1.0, epochs=2, minibatches=1)

CENTRAL = replace(
    BASE,
    gamma=0.9,
    lam=0.8,
    clip=0.15,
    dual_clip=1.5,
    value_clip=0.05,
    huber=0.6,
    kl_coef=0.5,
    entropy_coef=0.05,
    value_norm_beta=0.9,
    lr_final=0.25,
    critic_learning_rate=0.6,
    max_grad_norm=None,
    normalise_advantage="batch",
)
BY_ROLE = replace(
    BASE,
    critic_input="local",
    sharing="role",
    value_norm="popart",
    normalise_advantage="agent",
    value_norm_beta=0.7,
    value_clip=None,
    huber=None,
    entropy_final=0.2,
    max_grad_norm=0.1,
    value_coef=0.5,
    lam=1.0,
)
ALONE = replace(
    BASE,
    critic_input="agent",
    sharing="independent",
    value_norm="none",
    normalise_advantage="none",
    target_entropy=0.7,
    entropy_coef=0.1,
    kl_target=0.02,
    kl_coef=0.3,
    epochs=1,
    lam=0.0,
    huber=1.0,
)
GAUSSIAN = replace(BASE, critic_input="pruned", sharing=(1, 0, 1), agent_id=False, value_clip=0.02, log_std=-0.2)
SQUASHED = replace(
    BASE,
    critic_input="state",
    squash=True,
    normalise_inputs=True,
    entropy_coef=0.0,
    value_norm="popart",
    value_norm_beta=0.7,
    value_clip=0.02,
)
RECURRENT = replace(
    BASE,
    network=Body((4,), recurrent=4, orthogonal=False),
    chunk_length=T,
    critic_input="local",
    sharing="role",
    value_clip=0.02,
    gamma=0.8,
)
MASKED = replace(BASE, critic_input="agent", dead_value="masked", value_clip=0.02, value_norm_beta=0.9)
UNMASKED = replace(BASE, critic_input="pruned", dead_value="unmasked", agent_id=False, value_clip=0.02, huber=0.6)
BOX = make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)

# Each with the bounds of the losses that its data must reach, or the case would prove nothing about them.
CASES: dict[str, tuple[EnvSpec, mappo.Config, tuple[str, ...]]] = {
    "central": (make_spec(), CENTRAL, ("upper", "lower", "dual", "clipped", "linear")),
    "by role": (make_spec(), BY_ROLE, ("upper", "lower", "norm")),
    "alone": (make_spec(), ALONE, ("upper", "lower", "linear")),
    "gaussian": (replace(BOX, shared_reward=False), GAUSSIAN, ("upper", "lower", "clipped")),
    "squashed": (BOX, SQUASHED, ("upper", "lower", "clipped")),
    "recurrent": (make_spec(), RECURRENT, ("upper", "lower", "clipped")),
    "death mask": (make_spec(), MASKED, ("upper", "lower", "clipped")),
    "no death mask": (make_spec(shared_reward=False), UNMASKED, ("upper", "lower", "clipped", "linear")),
    "recomputed": (make_spec(), replace(CENTRAL, recompute_advantages=True, epochs=3), ("upper",)),
}


def seasoned(learner: Learner) -> Learner:
    """A learner in mid-run: statistics that have seen something, and some updates behind it."""

    def stats(like: Any) -> Any:
        if not like:
            return like
        ramp = jnp.arange(like.mean.size).reshape(like.mean.shape) / like.mean.size
        return Running(ramp - 0.3, ramp**2 + 1.5, jnp.full(like.mean.shape, 0.4))

    policy = learner.policy._replace(inputs=type(learner.policy.inputs)(*map(stats, learner.policy.inputs)))
    statistics = learner.statistics._replace(value=stats(learner.statistics.value))
    return learner._replace(policy=policy, statistics=statistics, updates=jnp.int32(4))


def data(name: str, seed: int = 0) -> Trajectory:
    """A trajectory for a case, with recurrent states that are not zero."""
    spec, config, _ = CASES[name]
    rng = np.random.default_rng(seed)
    zeros = program(spec, config).algorithm.initial_carry(E)
    carry = jax.tree.map(lambda x: jnp.array(rng.normal(size=x.shape) / 2, jnp.float32), zeros)
    traj = make_trajectory(spec, seed, carry)
    return traj if spec.shared_reward else leaving(traj, seed)
