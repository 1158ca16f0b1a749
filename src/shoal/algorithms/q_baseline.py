"""MAPPO's advantage from an action-value critic and a baseline: X̂ = Q̂ − b in place of GAE (Kuba et al. 2021, sec. 4.3).

This is MAPPO with ``baseline="counterfactual"`` or ``"optimal"``. A Q is fitted beside V to V's targets, which do not
depend on it. Options and results: docs/algorithms/mapg.md.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms import mappo
from shoal.algorithms.mapg import advantage_over
from shoal.equations.reduce import standardise
from shoal.equations.surrogate import clipped_value_loss
from shoal.equations.value_scale import make_value_scale
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import EpochsConfig
from shoal.models.action_critic import make_action_critic
from shoal.models.actor_critic import ActorCritic, make_actor_critic
from shoal.models.on_policy import Batch
from shoal.networks.inputs import normalised
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


def make(
    spec: EnvSpec, config: mappo.Config, scale: Scale, nets: ActorCritic, actor_loss: Callable = mappo.policy_loss
) -> Algorithm:
    """MAPPO with a Q whose nets agents share as they share V's.

    Raises:
        InputError: values are on PopArt's scale, which would rescale V and not Q, or what MAPPO refuses.
    """
    c = config
    if c.value_norm == "popart":
        raise InputError(f"baseline {c.baseline!r} learns a Q that popart does not rescale: use value_norm 'running'.")
    index = nets.actor.policy_of if nets.critic.num_nets > 1 else (0,) * spec.num_agents
    q = make_action_critic(spec, replace(c.critic_body, recurrent=None), c.critic_input, index, c.agent_id)
    values = make_value_scale(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> PyTree:
        key_v, key_q = jax.random.split(key)
        return {**nets.critic.init(key_v), "q": q.init(key_q)}

    def v(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        return nets.critic.values({name: x for name, x in params.items() if name != "q"}, carry, step)

    def critic_loss(c: EpochsConfig, nets: ActorCritic, critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        """V's loss, and Q's on the same targets."""
        loss_v, metrics = mappo.value_loss(c, nets, critic, batch)
        value = q.taken(critic["q"], batch.step, batch.action)
        loss_q = jnp.sum(batch.weight * clipped_value_loss(value, value, batch.target, None, c.huber))
        return loss_v + loss_q, metrics | {"q_loss": loss_q}

    def credit(key: PRNGKeyArray, learner: Learner, traj: Trajectory, batch: Batch) -> Batch:
        """The batch with X̂ as its advantage, standardised."""
        params, step = learner.critic["q"], normalised(learner.policy.inputs, traj.step)
        _, pi = nets.actor.distribution(learner.policy.actor, traj.carry.actor, step)
        options = q.options(params, step, traj.action, pi, key, c.draws, 0.0)
        x = advantage_over(c.baseline, q.taken(params, step, traj.action), options)
        unit = values.denormalise(learner.statistics.value, jnp.ones_like(x))
        zero = values.denormalise(learner.statistics.value, jnp.zeros_like(x))
        x = standardise(c.normalise_advantage, x * (unit - zero), traj.step.alive)
        return batch._replace(advantage=sgd.items(x, c.chunk or 1))

    critic = nets.critic._replace(init=init, values=v)
    nets_with_q = make_actor_critic(nets.actor, critic)
    algorithm = mappo.make_ppo(spec, c, scale, nets_with_q, critic_loss, actor_loss)

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        key, key_draws = jax.random.split(key)
        return algorithm.update(learner, traj, key, partial(credit, key_draws))  # type: ignore[call-arg]

    return algorithm._replace(update=update, learns_from="own" if c.critic_input == "local" else "others")
