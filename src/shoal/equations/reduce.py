"""Averages that are exact when the environment axis E is sharded over several devices.

Training runs one program per device, each on its own shard of E, under
``jax.shard_map(..., check_vma=False)`` over the mesh axis :data:`DEVICES`. A mean over all of E is then

    mean = Σ_shards Σ_i w_i x_i / Σ_shards Σ_i w_i

and each shard can compute its own term of the outer sum once the denominator is known. A loss is written with
:func:`share_of_mean`; each device differentiates its share, and :func:`total` sums the gradients to that of the exact
mean. Outside ``shard_map`` there is one shard, :func:`total` is the identity and a share is the mean.

``check_vma=False`` matters: with the check on, JAX already adds up the gradients of parameters that are equal on all
devices, and :func:`total` would add them a second time.
"""

from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

DEVICES = "devices"
"""Name of the mesh axis over which E is sharded."""

Axis = int | tuple[int, ...] | None
Tree = TypeVar("Tree")
Values = Float[Array, "*b"] | Int[Array, "*b"] | Bool[Array, "*b"]


def total(tree: Tree) -> Tree:
    """Sum of every leaf over the device shards; the identity outside ``shard_map``.

    Do not differentiate through it inside ``shard_map``: every device would count every other device's gradient.
    """
    if DEVICES in jax.sharding.get_abstract_mesh().manual_axes and jax.lax.axis_size(DEVICES) > 1:
        return jax.lax.psum(tree, DEVICES)
    return tree


def share_of_mean(x: Values, weight: Shaped[Array, "..."] | None = None, axis: Axis = None) -> Float[Array, "..."]:
    """This shard's share of the weighted mean over ``axis`` and over all shards; the shares add up to the mean.

        share = Σ_i w_i x_i / max(total(Σ_i w_i), tiny)

    Args:
        x: [...] numbers or booleans; the sum is taken in at least single precision.
        weight: anything that broadcasts to ``x``, Bool or Float and not negative, for example ``alive``; None is 1.
        axis: the axes to average over; None is all.

    An entry of weight 0 adds nothing to the value or to the gradient, also where it holds NaN or infinity. Weights that
    are all zero give 0. The denominator is a constant to differentiation.
    """
    return _share(x, weight, axis, keepdims=False)


def mean(x: Values, weight: Shaped[Array, "..."] | None = None, axis: Axis = None) -> Float[Array, "..."]:
    """Weighted mean over ``axis`` and over all shards, equal on every device. Not to be differentiated."""
    return total(_share(x, weight, axis, keepdims=False))


def mean_and_std(
    x: Values, weight: Shaped[Array, "..."] | None = None, axis: Axis = None
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Weighted mean and population standard deviation over ``axis`` and over all shards.

        mean = Σ w x / Σ w,    std = sqrt(Σ w (x − mean)² / Σ w)

    The mean is subtracted before squaring, so a large offset costs no precision. Not to be differentiated.
    """
    centre = total(_share(x, weight, axis, keepdims=True))
    variance = total(_share(jnp.square(x - centre), weight, axis, keepdims=False))
    return jnp.squeeze(centre, _axes(x, axis)), jnp.sqrt(variance)


def _axes(x: Array, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return axis if isinstance(axis, tuple) else (axis,)


def _share(x: Array, weight: Array | None, axis: Axis, *, keepdims: bool) -> Array:
    axes = _axes(x, axis)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    w = jnp.ones((), x.dtype) if weight is None else weight.astype(x.dtype)
    assert jnp.broadcast_shapes(x.shape, w.shape) == x.shape, f"weight {w.shape} does not broadcast to x {x.shape}"
    w = jnp.broadcast_to(w, x.shape)
    denominator = jax.lax.stop_gradient(total(w.sum(axes, keepdims=keepdims)))
    # Select before multiplying: 0 · NaN is NaN, in the value and in the gradient.
    numerator = (jnp.where(w != 0, x, 0) * w).sum(axes, keepdims=keepdims)
    return numerator / jnp.maximum(denominator, jnp.finfo(x.dtype).tiny)


def standardise(
    kind: Literal["batch", "agent", "none"], advantage: Float[Array, "T E N"], alive: Bool[Array, "T E N"]
) -> Float[Array, "T E N"]:
    """Advantages with mean 0 and standard deviation 1 over living agents: of the batch, or of each agent's own."""
    if kind == "none":
        return advantage
    mean, std = mean_and_std(advantage, alive, None if kind == "batch" else (0, 1))
    return (advantage - mean) / (std + 1e-5)


def explained_variance(residual: Array, target: Array, alive: Array) -> Float[Array, ""]:
    """1 − Var(residual) / Var(target) over living agents."""
    left, spread = mean_and_std(residual, alive)[1], mean_and_std(target, alive)[1]
    return 1 - (left / jnp.maximum(spread, 1e-6)) ** 2
