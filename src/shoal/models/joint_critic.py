"""Critics of joint actions, one or several per agent, and weights of the rows that each net is trained on."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.equations.reduce import total
from shoal.equations.targets import RewardNorm, mask_dead_values, unscaled
from shoal.errors import InputError, unknown
from shoal.models.deterministic import Actors, Carry
from shoal.networks.body import Body, build
from shoal.networks.inputs import Layout, critic_input, encode_actions, layout_of_agents, normalised, vector_layout
from shoal.networks.sharing import copies, per_agent
from shoal.types import EnvSpec, Learner, PyTree, Step

CRITIC_INPUTS = ("concat", "state", "local")


class Critics(NamedTuple):
    """C critics Q^i(x, a_1 … a_N) of every agent."""

    init: Callable[[PRNGKeyArray], PyTree]
    values: Callable[[PyTree, Step, Float[Array, "T E N N A"]], Float[Array, "T E N C"]]
    """(parameters, normalised step, encoded joint action that each agent's critic reads) -> Q."""


def make_critics(
    spec: EnvSpec,
    body: Body,
    index: tuple[int, ...],
    agent_id: bool,
    *,
    kind: str,
    local_roles: tuple[int, ...] = (),
    count: int = 1,
) -> Critics:
    """Feed-forward critics.

    Args:
        spec: the environment.
        body: layers; a GRU is left out.
        index: which agents share critics.
        agent_id: whether critics that several agents share read the agent's number.
        kind: ``concat``, ``state`` or ``local``.
        local_roles: roles whose critics read their own agent's observation and action only.
        count: C.

    Raises:
        InputError: there is no such input or role, or the environment has no global state to read.
    """
    n, width = spec.num_agents, spec.action.width
    if kind not in CRITIC_INPUTS:  # the others contain one agent's observation beside the state
        raise unknown("critic input", kind, CRITIC_INPUTS)
    source = critic_input(spec, kind, agent_id=False)
    if local_roles and kind != "concat":
        raise InputError(f"local_roles needs critic_input concat, not {kind}.")
    missing = [role for role in local_roles if role not in spec.roles]
    if missing:
        raise InputError(f"local_roles has {missing[0]}; the roles of {spec.name} are 0 to {max(spec.roles)}.")
    alone = [kind == "local" or role in local_roles for role in spec.roles]
    visible = jnp.array([[i == j or not alone[i] for j in range(n)] for i in range(n)], jnp.float32)  # [critic, agent]
    ids = agent_id and max(index) + 1 < n
    own = source.per_agent  # a local input is one observation, read with one action
    acts = vector_layout(width, "action")
    layout = source.layout + (acts if own else layout_of_agents(acts, range(n)))
    layout += vector_layout(n, "id") if ids else Layout(())
    net = per_agent(build(replace(body, recurrent=None), layout, 1), copies(index, count))

    def values(params: PyTree, step: Step, joint: Array) -> Array:
        lead = joint.shape[:-3]
        if own:
            x, u = source.features(step), jnp.diagonal(joint, axis1=-3, axis2=-2).swapaxes(-1, -2)
        else:
            x = jnp.broadcast_to(source.features(step)[..., None, :], (*lead, n, source.width))
            if kind == "concat" and any(alone):
                x = (x.reshape(*lead, n, n, spec.feature_dim) * visible[..., None]).reshape(x.shape)
            u = (joint * visible[..., None]).reshape(*lead, n, n * width)
        parts = [x, u] + ([jnp.broadcast_to(jnp.eye(n), (*lead, n, n))] if ids else [])
        x = jnp.repeat(jnp.concatenate(parts, -1), count, axis=-2)
        q = net.apply(params, (), x, step.first)[1][..., 0]
        return q.reshape(*lead, n, count)

    return Critics(net.init, values)


def taken(spec: EnvSpec, action: Array, step: Step) -> Float[Array, "*b N N A"]:
    """The joint action that was taken, as every agent's critic reads it."""
    u = encode_actions(spec.action, action, step)
    return jnp.broadcast_to(u[..., None, :, :], (*u.shape[:-2], spec.num_agents, *u.shape[-2:]))


def make_inspect(
    spec: EnvSpec, actors: Actors, critics: Critics, reward_norm: RewardNorm
) -> Callable[..., dict[str, Array]]:
    """An ``Algorithm.inspect``: the actors', and the first critic's value of the actions if the learner has critics."""

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        found = actors.inspect(learner, carry, step, extras)
        if learner.critic and learner.statistics and reward_norm != "standardise":
            seen, u = jax.tree.map(lambda x: x[None], (normalised(learner.policy.inputs, step), action))
            value = critics.values(learner.critic, seen, taken(spec, u, seen))[0, ..., 0]
            value = mask_dead_values(value, step.alive, spec.shared_reward)
            found["value"] = unscaled(learner.statistics.reward, value)
        return found

    return inspect


def per_net(mask: Array, net_of: Int[Array, "*#b N"], nets: int) -> Float[Array, "*b N"]:
    """Weights of rows that add up to 1 over the rows in ``mask`` of each net, on all devices.

    The gradient of each net is then that of the mean over its own rows, whatever the number of other rows.
    """
    mine = mask[..., None] & (net_of[..., None] == jnp.arange(nets))
    count = total(mine.sum(tuple(range(mine.ndim - 1))).astype(jnp.float32))
    return (mine / jnp.maximum(count, 1.0)).sum(-1)
