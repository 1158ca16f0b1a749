"""Running statistics of observations and states, and normalisation with them."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from shoal.equations import normalise
from shoal.types import EnvSpec, Step


class Inputs(NamedTuple):
    """Running statistics of raw features; None where they are not normalised."""

    obs: normalise.Running | None = None
    state: normalise.Running | None = None


def normalised(inputs: Inputs, step: Step) -> Step:
    """The step with observation and state brought to zero mean and unit variance, clipped to ±10.

    The variance is at least 1e-6 and a millionth of the mean square. A feature that has always had one value is 0;
    another value that appears later is clipped to ±10 at first, and scaled as the statistics take it up.
    """

    def scale(stats: normalise.Running | None, x: Array) -> Array:
        return x if stats is None else jnp.clip(normalise.normalise(stats, x, normalise.INPUTS), -10.0, 10.0)

    return step._replace(obs=scale(inputs.obs, step.obs), state=scale(inputs.state, step.state))


def init_inputs(spec: EnvSpec, normalise_inputs: bool) -> Inputs:
    """Empty statistics, or None in both fields; rows of bytes have none, since networks scale them."""
    if not normalise_inputs:
        return Inputs()
    return Inputs(None if spec.packed else normalise.init((spec.obs_dim,)), normalise.init((spec.state_dim,)))


def update_inputs(spec: EnvSpec, inputs: Inputs, step: Step, freeze: tuple[str, ...] = ()) -> Inputs:
    """The statistics with a batch of steps [T E ...] added, but for dead agents' observations and padding.

    They stay as they are if ``freeze`` names them (``inputs``).
    """
    if "inputs" in freeze:
        return inputs
    real = jnp.arange(spec.obs_dim) < jnp.array(spec.obs_dims)[:, None]

    def count(stats: normalise.Running | None, x: Array, weight: Array | None) -> normalise.Running | None:
        return None if stats is None else normalise.update(stats, x, weight, beta=None)

    return Inputs(count(inputs.obs, step.obs, step.alive[..., None] & real), count(inputs.state, step.state, None))
