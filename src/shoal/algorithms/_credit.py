"""MAPPO's advantage from an action-value critic and a baseline: X̂ = Q̂ − b in place of GAE (Kuba et al. 2021)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import _batches, _ppo
from shoal.algorithms._action_values import make_action_critic
from shoal.algorithms._actor_critic import ActorCritic, make_actor_critic, normalised
from shoal.algorithms._values import make_value_scale
from shoal.algorithms.mapg import excess
from shoal.equations.surrogate import clipped_value_loss
from shoal.errors import InputError
from shoal.types import EnvSpec, Learner, PyTree, Step, Trajectory


class Credit(NamedTuple):
    """A Q beside V, and the advantage that it gives."""

    nets: ActorCritic
    """The actors and critics, whose critic parameters hold Q's under the name ``q`` beside V's own."""
    loss: Callable[[PyTree, _ppo.Batch], Float[Array, ""]]
    """(critic parameters, time-major part of a batch) -> the weighted sum of Q's loss on V's targets."""
    replace: Callable[[Learner, Trajectory, _ppo.Batch, PRNGKeyArray], _ppo.Batch]
    """The batch with X̂, standardised as the advantage would be."""


def make_credit(spec: EnvSpec, c: Any, nets: ActorCritic) -> Credit:
    """Q for MAPPO as ``c`` configures it; it shares its nets among agents as V does.

    Raises:
        InputError: values are on PopArt's scale, which would rescale V and not Q.
    """
    if c.value_norm == "popart":
        raise InputError(f"baseline {c.baseline!r} learns a Q that popart does not rescale: use value_norm 'running'.")
    index = nets.actor.policy_of if nets.critic.num_nets > 1 else (0,) * spec.num_agents
    q = make_action_critic(spec, replace(c.network, recurrent=None), c.critic_input, index, c.agent_id)
    values = make_value_scale(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> PyTree:
        key_v, key_q = jax.random.split(key)
        return {**nets.critic.init(key_v), "q": q.init(key_q)}

    def v(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        own = {name: x for name, x in params.items() if name != "q"}
        return nets.critic.values(own, carry, step)

    def loss(params: PyTree, part: _ppo.Batch) -> Array:
        value = q.taken(params["q"], part.step, part.action)
        return jnp.sum(part.weight * clipped_value_loss(value, value, part.target, None, c.huber))

    def with_excess(learner: Learner, traj: Trajectory, batch: _ppo.Batch, key: PRNGKeyArray) -> _ppo.Batch:
        params, step = learner.critic["q"], normalised(learner.policy.inputs, traj.step)
        _, dist = nets.actor.distribution(learner.policy, traj.carry.actor, traj.step)
        options = q.options(params, step, traj.action, dist, key, c.draws, 0.0)
        x = excess(c.baseline, q.taken(params, step, traj.action), options)
        unit = values.denormalise(learner.statistics.value, jnp.ones_like(x))
        zero = values.denormalise(learner.statistics.value, jnp.zeros_like(x))
        x = _ppo.standardised(c, x * (unit - zero), traj.step.alive)
        return batch._replace(advantage=_batches.items(x, c.chunk or 1))

    critic = nets.critic._replace(init=init, values=v)
    return Credit(make_actor_critic(nets.actor, critic), loss, with_excess)
