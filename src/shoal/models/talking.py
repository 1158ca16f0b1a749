"""Policies of teams whose agents exchange messages before they act (CommNet, TarMAC)."""

from collections.abc import Callable
from typing import Any

from shoal.errors import InputError
from shoal.learning.config import ValueConfig, check_options
from shoal.models import actor_critic
from shoal.models.actor_critic import Actor, make_actor, make_actor_critic, make_critic
from shoal.networks.body import Body
from shoal.networks.inputs import Layout
from shoal.networks.messages import Exchange, talking
from shoal.networks.sharing import TeamNet, policy_of
from shoal.types import Algorithm, EnvSpec, Scale

MakeExchange = Callable[[Body, int, tuple[int, ...]], Exchange]
"""(layers, width of h, each agent's policy) -> a round of messages."""
FACTS: dict[str, Any] = {"acts_on": "team", "learns_from": "others"}
"""Fields of :class:`shoal.types.Algorithm`: an action depends on all observations, and messages on others' losses."""


def make_talking_actor(spec: EnvSpec, c: Any, exchange: MakeExchange) -> Actor:
    """Actors with ``rounds`` of messages, or ``silent`` ones.

    Raises:
        InputError: as :func:`shoal.networks.messages.talking`.
    """
    index = policy_of(spec, c.sharing)

    def team(layout: Layout, outputs: int, log_std: float | None) -> TeamNet:
        return talking(spec, c.network, layout, index, exchange, c.rounds, c.silent, outputs, c.output_gain, log_std)

    return make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash, team)


def make(
    make_mappo: Callable[..., Algorithm], exchange: MakeExchange, spec: EnvSpec, c: Any, scale: Scale
) -> Algorithm:
    """MAPPO of a team that talks.

    Args:
        make_mappo: :func:`shoal.algorithms.mappo.make`.
        exchange: see :data:`MakeExchange`.
        spec: the environment's description.
        c: MAPPO's hyper-parameters, with ``rounds`` and ``silent``.
        scale: sizes of the run.

    Raises:
        InputError: ``baseline`` or ``dead_value`` is not MAPPO's default.
    """
    check_options(c)
    if (c.baseline, c.dead_value) != ("value", "team"):
        raise InputError(
            "Agents that exchange messages learn from MAPPO's advantage: leave out baseline and dead_value."
        )
    index = policy_of(spec, c.sharing)
    actor = make_talking_actor(spec, c, exchange)
    nets = make_actor_critic(actor, make_critic(spec, c.critic_body, c.critic_input, index, c.agent_id))
    return make_mappo(spec, c, scale, nets=nets)._replace(**FACTS)


def make_policy(exchange: MakeExchange, spec: EnvSpec, c: ValueConfig) -> Algorithm:
    """The team, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return actor_critic.make_policy(spec, c, actor=make_talking_actor(spec, c, exchange), **FACTS)
