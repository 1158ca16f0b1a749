"""Random draws that do not depend on the number of devices."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from shoal.equations.distributions import Distribution
from shoal.equations.reduce import DEVICES


def row_keys(key: PRNGKeyArray, count: int) -> Key[Array, " count"]:
    """One key for each of ``count`` rows, made from its index among the rows of all devices."""
    number = jnp.arange(count)
    if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
        number += count * jax.lax.axis_index(DEVICES)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, number)


def noise(dist: Distribution, key: PRNGKeyArray, axis: int) -> Float[Array, "..."]:
    """The noise of one draw per row of ``dist``, whose environments are on ``axis``; for ``dist.sample_from``.

    Each environment has a key of its own; see :func:`row_keys`.
    """
    keys = row_keys(key, jax.tree.leaves(dist)[0].shape[axis])
    return jax.vmap(lambda one, key: one.noise(key), (axis, 0), axis)(dist, keys)
