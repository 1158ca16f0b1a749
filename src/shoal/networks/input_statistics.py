"""Running statistics of observations and states, and the normalisation by them."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from shoal.equations import normalise
from shoal.types import EnvSpec, Step


class Inputs(NamedTuple):
    """Running statistics of raw features; an empty tuple where they are not normalised."""

    obs: normalise.Running | tuple[()] = ()
    state: normalise.Running | tuple[()] = ()


def normalised(inputs: Inputs, step: Step) -> Step:
    """The step with observation and state brought to zero mean and unit variance, clipped to ±10."""

    def scale(stats: normalise.Running | tuple[()], x: Array) -> Array:
        return jnp.clip(normalise.normalise(stats, x), -10.0, 10.0) if stats else x

    return step._replace(obs=scale(inputs.obs, step.obs), state=scale(inputs.state, step.state))


def init_inputs(spec: EnvSpec, normalise_inputs: bool) -> Inputs:
    """Statistics that have seen nothing, or none at all."""
    return Inputs(normalise.init((spec.obs_dim,)), normalise.init((spec.state_dim,))) if normalise_inputs else Inputs()


def update_inputs(spec: EnvSpec, inputs: Inputs, step: Step) -> Inputs:
    """Count a batch of steps [T E ...] in; dead agents' observations and padding do not count."""
    real = jnp.arange(spec.obs_dim) < jnp.array(spec.obs_dims)[:, None]

    def count(stats: normalise.Running | tuple[()], x: Array, weight: Array | None) -> normalise.Running | tuple[()]:
        return normalise.update(stats, x, weight, beta=None) if isinstance(stats, normalise.Running) else ()

    return Inputs(count(inputs.obs, step.obs, step.alive[..., None] & real), count(inputs.state, step.state, None))
