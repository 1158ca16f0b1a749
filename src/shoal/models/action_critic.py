"""Action-value critics that read the others' actions: Q(s, u^{-a}, o^a, a; u^a), and an agent's options."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.equations.baselines import gaussian_score_square, softmax_score_square
from shoal.equations.distributions import Categorical, DiagGaussian, Distribution, TanhGaussian
from shoal.equations.draws import noise
from shoal.errors import InputError
from shoal.networks.body import Body, build
from shoal.networks.inputs import (
    CriticInput,
    Input,
    Layout,
    actor_input,
    critic_input,
    encode_actions,
    layout_of_agents,
    vector_layout,
)
from shoal.networks.sharing import per_agent
from shoal.types import Box, EnvSpec, PyTree, Step


class Options(NamedTuple):
    """K options of an agent's action, the others' held fixed; see :mod:`shoal.equations.baselines`.

    For discrete actions they are all A actions, for continuous ones K draws from the agent's policy.
    """

    q: Float[Array, "T E N K"]
    p: Float[Array, "T E N K"]
    square: Float[Array, "T E N K"]
    """‖∇ log π‖² with respect to the actor's output."""


class ActionCritic(NamedTuple):
    """An action-value function for every agent, feed-forward, in the normaliser's units."""

    init: Callable[[PRNGKeyArray], PyTree]
    taken: Callable[[PyTree, Step, Array], Float[Array, "T E N"]]
    """(params, normalised step [T E ...], joint action u) -> Q(s, u)."""
    options: Callable[[PyTree, Step, Array, Distribution, PRNGKeyArray, int, Any], Options]
    """(params, normalised step, u, the agents' policies, key, draws K, ε) -> the agents' options."""
    group_of: tuple[int, ...]
    """Agents whose values share one scale have the same number."""
    num_nets: int
    """P of the parameters."""


def make_action_critic(
    spec: EnvSpec, body: Body, kind: CriticInput, index: tuple[int, ...], agent_id: bool
) -> ActionCritic:
    """A centralised Q where ``kind`` reads the team, and with ``local`` an independent Q^a(o^a, u^a).

    The centralised one also reads the agent's observation and number and the living others' actions. With discrete
    actions it outputs the values of all the agent's actions in one pass (Foerster et al. 2018, section 4), and its
    input does not depend on the agent's own action. With continuous actions the agent's own is an input. Agents with
    the same number in ``index`` share a net.

    Raises:
        InputError: ``kind`` reads a state that the environment does not have, or there is no such input.
    """
    central = kind != "local"
    n, space = spec.num_agents, spec.action
    source = critic_input(spec, kind, agent_id and max(index) + 1 < n)
    if not source.per_agent:
        source = _with_own(source, spec)
    box = space if isinstance(space, Box) else None
    layout = source.layout + (
        layout_of_agents(vector_layout(space.width, "action"), range(n)) if central else Layout(())
    )
    layout += vector_layout(space.width, "action") if box else Layout(())
    body = replace(body, recurrent=None)
    # Initial values are nearly equal for all actions, so that an untrained net has no preference.
    net = per_agent(build(body, layout, 1 if box else space.width, output_gain=0.01), index)

    def context(step: Step, u: Array) -> Array:
        """The input of Q without the agent's own action, [T, E, N, F]."""
        x = source.features(step)
        if not central:
            return x
        others = encode_actions(space, u, step)[..., None, :, :] * (1.0 - jnp.eye(n))[..., None]
        return jnp.concatenate([x, others.reshape(*x.shape[:-1], n * space.width)], -1)

    def of_own(params: PyTree, x: Array, step: Step, own: Array) -> Array:
        """Q of the agent's own continuous action."""
        return net.apply(params, (), jnp.concatenate([x, encode_actions(space, own, step)], -1), step.first)[1][..., 0]

    def taken(params: PyTree, step: Step, u: Array) -> Array:
        x = context(step, u)
        if box:
            return of_own(params, x, step, u)
        q = net.apply(params, (), x, step.first)[1]
        return jnp.where(u[..., None] == jnp.arange(space.width), q, 0.0).sum(-1)

    def options(
        params: PyTree, step: Step, u: Array, dist: Distribution, key: PRNGKeyArray, draws: int, epsilon: Any
    ) -> Options:
        x = context(step, u)
        if isinstance(dist, Categorical):
            pi = dist.probabilities()
            return Options(net.apply(params, (), x, step.first)[1], pi, softmax_score_square(pi, dist.legal, epsilon))
        assert isinstance(dist, DiagGaussian | TanhGaussian) and isinstance(space, Box)
        half = 1.0 if isinstance(dist, TanhGaussian) else (space.high - space.low) / 2
        log_std = dist.log_std - jnp.log(half)  # the actor's output is in units of half the box

        def draw(key: PRNGKeyArray) -> tuple[Array, Array]:
            z = noise(dist, key, 1)
            return of_own(params, x, step, dist.sample_from(z)), gaussian_score_square(z, log_std, dist.real)

        q, square = jax.lax.map(draw, jax.random.split(key, draws))
        return Options(*(jnp.moveaxis(y, 0, -1) for y in (q, jnp.full_like(q, 1 / draws), square)))

    return ActionCritic(net.init, taken, options, index, max(index) + 1)


def _with_own(source: Input, spec: EnvSpec) -> Input:
    """A team's input, followed by each agent's own observation and number."""
    own = actor_input(spec, agent_id=True)

    def features(step: Step) -> Array:
        x, mine = source.features(step)[..., None, :], own.features(step)
        return jnp.concatenate([jnp.broadcast_to(x, (*mine.shape[:-1], source.width)), mine], -1)

    return Input(source.layout + own.layout, features, True)


def needs_team(kind: CriticInput) -> None:
    """Refuse ``local`` for a centralised critic.

    Raises:
        InputError: it is ``local``.
    """
    if kind == "local":
        raise InputError(
            "A centralised critic reads the team: critic_input must be 'concat', 'state', 'agent' or 'pruned'."
        )
