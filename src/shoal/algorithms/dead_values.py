"""MAPPO whose V of a dead agent is its critic's output: the death mask of Yu et al. 2022 (section 5.4), and none.

This is MAPPO with ``dead_value="masked"``, where the critic reads zeros and the agent's id for a dead agent, or
``"unmasked"``, where it reads the agent's unchanged input. V is then trained at dead agents too: their targets count in
the value scale, and all rows of a minibatch have the same weight in L(φ). Options and results:
docs/algorithms/mappo.md.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from shoal.algorithms import mappo
from shoal.equations.reduce import total
from shoal.errors import InputError
from shoal.learning.config import check_options
from shoal.models.actor_critic import ActorCritic, make_actor_critic, make_nets
from shoal.models.on_policy import Batch
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Metrics, PyTree, Scale


def check_dead_value(c: mappo.Config) -> None:
    """Refuse ``dead_value`` where it has no effect.

    Raises:
        InputError: naming what it is for.
    """
    if c.dead_value != "team" and (c.baseline != "value" or c.critic_input in ("concat", "state")):
        raise InputError(
            f"dead_value {c.dead_value!r} is for baseline 'value' and critics that read an input of each agent: "
            f"critic_input 'local', 'agent' or 'pruned'."
        )


def make(make_mappo: Callable[..., Algorithm], spec: EnvSpec, config: mappo.Config, scale: Scale) -> Algorithm:
    """MAPPO whose critic is trained at dead agents too; ``make_mappo`` is :func:`shoal.algorithms.mappo.make`.

    With several critics :func:`shoal.learning.sgd.gradient` divides each one's gradient by its share of living rows:
    that of a critic whose agents die more often than others' is then larger than that of its mean.

    Raises:
        InputError: the critic's input is the same for all agents, or what MAPPO refuses.
    """
    c = config
    check_options(c)
    check_dead_value(c)
    nets = make_nets(spec, c, policy_of(spec, c.sharing), death_mask=c.dead_value != "unmasked")
    nets = make_actor_critic(nets.actor, nets.critic._replace(trains_dead=True))
    rows = scale.rollout_length * scale.num_envs * spec.num_agents

    def critic_loss(c: mappo.Config, nets: ActorCritic, critic: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        """L(φ) over all rows of a minibatch, which count the same and whose weights add up to one."""
        weight = jnp.full_like(batch.weight, c.minibatches / total(jnp.float32(rows)))
        return mappo.value_loss(c, nets, critic, batch._replace(weight=weight))

    return make_mappo(spec, c, scale, critic_loss=critic_loss, nets=nets)
