"""MAPPO's advantage with a baseline from an action-value critic, in place of GAE's (Kuba et al. 2021, section 4.3):

    X̂ = Q̂(s, u) − b(s, u^{-a})    (paper; ``baseline_from="q"``)        or    R − b(s, u^{-a})    (code; ``"return"``)

This is MAPPO with ``baseline="counterfactual"`` or ``"optimal"``. A Q is fitted beside V to V's targets R, which do not
depend on it. Options, deviations and results: docs/algorithms/mapg.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import dead_values, mappo
from shoal.algorithms.mapg import baseline_of
from shoal.equations.surrogate import clipped_value_loss
from shoal.errors import InputError
from shoal.learning.config import EpochsConfig, check_options
from shoal.models.action_critic import make_action_critic
from shoal.models.actor_critic import ActorCritic, make_actor_critic, make_nets
from shoal.models.on_policy import Batch, scale_of_agents
from shoal.networks.inputs import normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


def make(make_mappo: Callable[..., Algorithm], spec: EnvSpec, config: mappo.Config, scale: Scale) -> Algorithm:
    """MAPPO with a Q whose nets agents share as they share V's; ``make_mappo`` is :func:`shoal.algorithms.mappo.make`.

    Raises:
        InputError: values are on PopArt's scale, which would rescale V and not Q, or what MAPPO refuses.
    """
    c = config
    check_options(c)
    dead_values.check_dead_value(c)
    if c.value_norm == "popart":
        raise InputError(f"baseline {c.baseline!r} learns a Q that popart does not rescale: use value_norm 'running'.")
    nets = make_nets(spec, c, policy_of(spec, c.sharing))
    index = nets.actor.policy_of if nets.critic.num_nets > 1 else (0,) * spec.num_agents
    q = make_action_critic(spec, replace(c.critic_body, recurrent=None), c.critic_input, index, c.agent_id)
    values = scale_of_agents(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> PyTree:
        key_v, key_q = jax.random.split(key)
        params = nets.critic.init(key_v)
        if "q" in params:
            raise InputError(
                f"The critic's network has a parameter named 'q', which is that of baseline {c.baseline!r}: rename it."
            )
        return {**params, "q": q.init(key_q)}

    def v(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        return nets.critic.values({name: x for name, x in params.items() if name != "q"}, carry, step)

    def critic_loss(c: EpochsConfig, nets: ActorCritic, critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        """V's loss, and Q's on the same targets."""
        loss_v, metrics = mappo.value_loss(c, nets, critic, batch)
        value = q.taken(critic["q"], batch.step, batch.action)
        loss_q = jnp.sum(batch.weight * clipped_value_loss(value, value, batch.target, None, c.huber))
        return loss_v + loss_q, metrics | {"q_loss": loss_q}

    def baseline(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> Float[Array, "T E N"]:
        """b, in the critic's units."""
        step = normalised(learner.policy.inputs, traj.step)
        _, pi = nets.actor.distribution(learner.policy.actor, traj.carry.actor, step)
        return baseline_of(c.baseline, q.options(learner.critic["q"], step, traj.action, pi, key, c.draws, 0.0))

    def credit(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> Float[Array, "T E N"]:
        """X̂, in the rewards' units."""
        taken = q.taken(learner.critic["q"], normalised(learner.policy.inputs, traj.step), traj.action)
        x = taken - baseline(learner, traj, key)
        unit = values.denormalise(learner.statistics.value, jnp.ones_like(x))
        zero = values.denormalise(learner.statistics.value, jnp.zeros_like(x))
        return x * (unit - zero)

    nets_with_q = make_actor_critic(nets.actor, nets.critic._replace(init=init, values=v))
    # Both are given, so that an algorithm that replaces either of them is refused instead of losing it.
    of_q = c.baseline_from == "q"
    algorithm = make_mappo(
        spec, c, scale, critic_loss=critic_loss, credit=credit if of_q else None, baseline=None if of_q else baseline,
        nets=nets_with_q,
    )  # fmt: skip
    return algorithm._replace(learns_from=learns_from(c))


def learns_from(c: mappo.Config) -> Literal["own", "others"]:
    """``Algorithm.learns_from``: a centralised Q reads the others' actions."""
    return "own" if c.critic_input == "local" else "others"


def make_policy(make_mappos: Callable[..., Algorithm], spec: EnvSpec, config: mappo.Config) -> Algorithm:
    """MAPPO's policies, for acting only."""
    return make_mappos(spec, config)._replace(learns_from=learns_from(config))
