"""Differentiable samples of discrete actions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.equations.distributions import ILLEGAL

Scalar = float | int | Float[Array, ""]


def gumbel_softmax(
    logits: Float[Array, "*b A"],
    legal: Bool[Array, "*#b A"],
    noise: Float[Array, "*b A"],
    *,
    temperature: Scalar = 1.0,
    straight_through: bool = True,
) -> Float[Array, "*b A"]:
    """A sample of softmax(logits) over the legal actions, as a vector that is differentiable in the logits.

        y = softmax((z + g) / τ)                                                       (Jang et al. 2017, eq. 2)
        straight through:  one_hot(argmax (z + g)) in value, y in gradient                     (section 2.2)

    Args:
        logits: z.
        legal: illegal actions get exactly 0 in value and gradient.
        noise: g, standard Gumbel numbers.
        temperature: τ; towards 0 samples become one-hot and gradients noisy.
        straight_through: one-hot samples; otherwise the relaxed ones.
    """
    z = jnp.where(legal, logits + noise, ILLEGAL)
    soft = jax.nn.softmax(z / temperature, axis=-1)
    if not straight_through:
        return soft
    hard = jax.nn.one_hot(z.argmax(-1), z.shape[-1], dtype=soft.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))  # in this order exactly one-hot
