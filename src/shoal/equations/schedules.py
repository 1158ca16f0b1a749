"""Coefficients that change during training."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Scalar = float | int | Float[Array, ""]

RANGE = 2.0**20
"""An adaptive coefficient stays within this factor of its start: outside it would change nothing for long after its
target is crossed, and 0 or infinity in single precision would never change again."""


def linear(start: Scalar, end: Scalar, done: Scalar) -> Float[Array, ""]:
    """Linear from ``start`` to ``end``, and constant from there on; ``done`` is the fraction of the way."""
    return start + (end - start) * jnp.minimum(done, 1.0)


def annealed(
    start: Scalar, end: Scalar, fraction: Scalar, updates: Int[Array, ""], num_updates: int
) -> Float[Array, ""]:
    """Linear from ``start`` to ``end`` over this fraction of ``num_updates`` updates, after ``updates`` of them."""
    return jnp.asarray(linear(start, end, updates / jnp.maximum(fraction * num_updates, 1.0)), jnp.float32)


def towards_entropy(
    log_coef: Float[Array, ""], entropy: Float[Array, ""], target: Scalar, rate: Scalar, start: Scalar
) -> Float[Array, ""]:
    """log σ + rate · (target − S), with the error clipped to ±1 nat: the entropy bonus σ grows where S is too low.

    It stays within :data:`RANGE` of ``start``, the initial σ.
    """
    moved, first, far = log_coef + rate * jnp.clip(target - entropy, -1.0, 1.0), jnp.log(start), jnp.log(RANGE)
    return jnp.clip(moved, first - far, first + far)


def towards_kl(coef: Float[Array, ""], kl: Float[Array, ""], target: Scalar, start: Scalar) -> Float[Array, ""]:
    """κ doubled where the KL after an update is above 1.5 · target, and halved where it is below target / 1.5.

    It stays within :data:`RANGE` of ``start``, the initial κ.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, section 4.
    """
    moved = coef * jnp.where(kl > 1.5 * target, 2.0, jnp.where(kl < target / 1.5, 0.5, 1.0))
    return jnp.clip(moved, start / RANGE, start * RANGE)
