"""Parameter sharing as an index vector: ``policy_of[i]`` is the index of agent i's parameters."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.net import Net
from shoal.types import EnvSpec, PyTree, Step

Sharing = Literal["shared", "role", "independent"]


def policy_of(spec: EnvSpec, sharing: Sharing | tuple[int, ...]) -> tuple[int, ...]:
    """The index vector of a sharing mode: (0, 0, 0) shared, (0, 0, 1) by role, (0, 1, 2) independent.

    Raises:
        InputError: a vector has the wrong length or leaves out a policy number, or there is no such mode.
    """
    n = spec.num_agents
    if isinstance(sharing, tuple):
        if len(sharing) != n or max(sharing) >= n or set(sharing) != set(range(max(sharing) + 1)):
            raise InputError(f"sharing {sharing} must give each of the {n} agents a policy number, without gaps.")
        return sharing
    if sharing == "shared":
        return (0,) * n
    if sharing == "role":
        return spec.roles
    if sharing == "independent":
        return tuple(range(n))
    raise InputError(f"sharing is 'shared', 'role', 'independent' or a tuple such as (0, 0, 1), not {sharing!r}.")


def copies(index: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The index vector with each agent ``count`` times in succession, each copy with parameters of its own."""
    return tuple(p * count + k for p in index for k in range(count))


class TeamNet(NamedTuple):
    """A net of all agents, whose rows may depend on each other."""

    init: Callable[[PRNGKeyArray], PyTree]
    """Key -> parameters, leaves with a leading axis of P policies."""
    initial_carry: Callable[[tuple[int, ...]], PyTree]
    apply: Callable[[PyTree, PyTree, Array, Step], tuple[PyTree, Array]]
    """(parameters, carry, features [T, *b, N, F], step) -> (carry after each timestep, output [T, *b, N, K])."""
    weights: Callable[[PyTree, PyTree, Array, Step], Array] | None = None
    """From the same: the weight of each agent (last axis) for each agent [T, *b, N, N], where agents read others."""


def per_agent(net: Net, index: tuple[int, ...]) -> Net:
    """Extend a one-agent net to N agents: inputs [T, *b, N, F], carries [*b, N, H], parameters [P, …].

    P = 1: agents are a batch axis of one large product. P = N in order: ``vmap`` over parameters. Otherwise
    each agent's parameters are gathered first.
    """
    num_policies, num_agents = max(index) + 1, len(index)

    def init(key: Array) -> PyTree:
        return jax.vmap(net.init)(jax.random.split(key, num_policies))

    def apply(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        if num_policies == 1:
            return net.apply(jax.tree.map(lambda p: p[0], params), carry, x, first)
        if index != tuple(range(num_agents)):
            params = jax.tree.map(lambda p: p[jnp.array(index)], params)
        return jax.vmap(net.apply, in_axes=(0, -2, -2, None), out_axes=-2)(params, carry, x, first)

    return Net(init, apply, lambda batch: net.initial_carry((*batch, num_agents)))


def in_turns(spec: EnvSpec, net: Net, index: tuple[int, ...]) -> Callable[..., tuple[PyTree, Array]]:
    """The function of :func:`per_agent` as (parameters, carry, x [T, *b, N, F], step) -> (carry, output), but where
    agents take turns only for the agent that has a choice; the others' output is 0.

    Their only legal action has probability 1 whatever the output is, and no gradient. Recurrent nets read the
    observations of all agents, and agents with parameters of their own are computed at once: there nothing is left out.
    """
    team, num_agents = per_agent(net, index), len(index)
    if not spec.turns or max(index) > 0 or jax.tree.leaves(jax.eval_shape(lambda: net.initial_carry((1,)))):
        return lambda params, carry, x, step: team.apply(params, carry, x, step.first)

    def apply(params: PyTree, carry: PyTree, x: Array, step: Step) -> tuple[PyTree, Array]:
        chooses = step.legal.sum(-1).argmax(-1)[..., None]
        carry, y = team.apply(params, carry, jnp.take_along_axis(x, chooses[..., None], axis=-2), step.first)
        return carry, jnp.where((chooses == jnp.arange(num_agents))[..., None], y, 0.0)

    return apply


def for_team(net: Net) -> Net:
    """A net that reads one input for the whole team, [T, *b, F]; parameters keep a leading axis P = 1."""
    return Net(
        lambda key: jax.tree.map(lambda p: p[None], net.init(key)),
        lambda params, carry, x, first: net.apply(jax.tree.map(lambda p: p[0], params), carry, x, first),
        net.initial_carry,
    )
