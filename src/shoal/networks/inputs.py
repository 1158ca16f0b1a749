"""Inputs of actors and critics. Death mask: a dead agent's features are zero, its id stays (Yu et al. 2022)."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.errors import InputError, unknown
from shoal.networks import observations
from shoal.networks.layout import Layout, observed, of_all, vector
from shoal.types import Box, Discrete, EnvSpec, Step

CriticInput = Literal["local", "concat", "state", "agent", "pruned"]
DeadValue = Literal["team", "masked", "unmasked"]
"""Where V of a dead agent comes from: see :class:`shoal.algorithms.mappo.Config`."""


class Input(NamedTuple):
    """A function from a Step to features, with their layout."""

    layout: Layout
    features: Callable[[Step], Array]
    per_agent: bool
    """Whether the features are [*b, N, F] or, the same for the whole team, [*b, F]."""

    @property
    def width(self) -> int:
        """F."""
        return self.layout.width


def _seen(spec: EnvSpec, step: Step) -> Array:
    return observations.features(spec, step.obs)


def _alive(step: Step, x: Array) -> Array:
    return jnp.where(step.alive[..., None], x, 0.0)


def _with_id(x: Array) -> Array:
    n = x.shape[-2]
    return jnp.concatenate([x, jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (*x.shape[:-1], n))], axis=-1)


def _with_state(step: Step, x: Array | None) -> Array:
    n = step.obs.shape[-2]
    state = jnp.broadcast_to(step.state[..., None, :], (*step.state.shape[:-1], n, step.state.shape[-1]))
    return _with_id(_alive(step, state if x is None else jnp.concatenate([state, x], axis=-1)))


def actor_input(spec: EnvSpec, agent_id: bool) -> Input:
    """The agent's own observation, and with ``agent_id`` a one-hot id."""
    own = observed(spec)
    if agent_id:
        layout = own + vector(spec.num_agents, "id")
        return Input(layout, lambda step: _with_id(_alive(step, _seen(spec, step))), True)
    return Input(own, lambda step: _alive(step, _seen(spec, step)), True)


def critic_input(spec: EnvSpec, kind: CriticInput, agent_id: bool) -> Input:
    """The five critic inputs (Yu et al. 2022, §5.2).

    ``local``: own observation (IPPO). ``concat`` (CL): all observations. ``state`` (EP): the environment's state.
    ``agent`` (AS): state, own observation and id. ``pruned`` (FP): AS without observation features that the state
    contains (``spec.novel`` lists the others; where there are none, it is state and id).

    Raises:
        InputError: ``kind`` reads a state that the environment does not have, it is ``pruned`` and ``spec.novel`` is
            None, or there is no such input.
    """
    if kind not in get_args(CriticInput):
        raise unknown("critic input", kind, get_args(CriticInput))
    n, own = spec.num_agents, observed(spec)
    state, number = vector(spec.state_dim, "state"), vector(n, "id")
    if kind in ("state", "agent", "pruned") and spec.state_dim == 0:
        raise InputError(f"{spec.name} has no global state: critic_input {kind!r} needs one; use 'concat' or 'local'.")
    if kind == "local":
        return actor_input(spec, agent_id)
    if kind == "concat":
        layout = of_all(own, range(n))

        def all_observations(step: Step) -> Array:
            return _alive(step, _seen(spec, step)).reshape(*step.obs.shape[:-2], layout.width)

        return Input(layout, all_observations, False)
    if kind == "state":
        return Input(state, lambda step: step.state, False)
    if kind == "agent":
        return Input(state + own + number, lambda step: _with_state(step, _seen(spec, step)), True)
    if spec.novel is None:
        raise InputError(
            f"{spec.name} does not declare which observation features its state lacks (EnvSpec.novel), so critic_input "
            f"'pruned' cannot leave out the others: use 'agent', which reads the state and the whole observation."
        )
    if not spec.novel:
        return Input(state + number, lambda step: _with_state(step, None), True)
    novel = np.array(spec.novel)
    layout = state + vector(len(novel)) + number
    return Input(layout, lambda step: _with_state(step, _seen(spec, step)[..., novel]), True)


def encode(space: Discrete | Box, u: Array, step: Step) -> Float[Array, "*b N A"]:
    """Actions as features of size 1: one-hot, or a box's real dimensions in [-1, 1]; 0 for dead agents."""
    if isinstance(space, Box):
        half = (space.high - space.low) / 2
        x = jnp.where(step.legal, jnp.clip((u - space.low) / half - 1.0, -1.0, 1.0), 0.0)
    else:
        x = (u[..., None] == jnp.arange(space.width)).astype(jnp.float32)
    return jnp.where(step.alive[..., None], x, 0.0)
