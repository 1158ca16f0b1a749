"""Orthogonal kernels without LAPACK."""

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

ITERATIONS = 48
"""The smallest singular value grows 1.5 times per iteration: enough for condition numbers of 10⁶."""


def orthogonal(key: PRNGKeyArray, shape: Sequence[int], dtype: Any = jnp.float32) -> Float[Array, "..."]:
    """A uniformly random kernel [..., I, O] with orthonormal rows or columns, whichever are fewer.

    The polar factor U of a Gaussian matrix A = U P is uniform on the orthogonal matrices, as the Q of its QR
    factorisation is. Newton and Schulz's iteration X ← X (3 − XᵀX) / 2 computes it from X = A / ‖A‖ by products.
    JAX's own initialiser calls LAPACK's QR, and two batched calls at once (several policies or seeds) deadlock on a
    processor with two cores.

    Source: Saxe et al. 2014, Exact solutions to the nonlinear dynamics of learning; Higham 2008, Functions of
    Matrices, eq. 8.20.
    """
    rows, columns = prod(shape[:-1]), shape[-1]
    tall = jax.random.normal(key, (max(rows, columns), min(rows, columns)), jnp.float32)

    def turn(_: int | Array, x: Array) -> Array:
        gram = jnp.matmul(x.T, x, precision="highest")
        return 1.5 * x - 0.5 * jnp.matmul(x, gram, precision="highest")

    # E‖A‖₂ ≤ √rows + √columns: dividing by it starts all singular values below 1, most of them close to it.
    start = tall / (1.1 * (sqrt(tall.shape[0]) + sqrt(tall.shape[1])))
    factor = jax.lax.fori_loop(0, ITERATIONS, turn, start)
    return (factor if rows >= columns else factor.T).reshape(shape).astype(dtype)


def scaled(gain: float) -> jax.nn.initializers.Initializer:
    """An initialiser of orthogonal kernels times ``gain``."""
    return lambda key, shape, dtype=jnp.float32, out_sharding=None: gain * orthogonal(key, shape, dtype)
