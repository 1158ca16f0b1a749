"""Affine layers whose gradients are fast on a CPU."""

from functools import reduce

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

NARROW = 8
"""Largest number of outputs of a layer whose gradient is made of sums: a product would use a part of each register."""


@jax.custom_jvp
def product(x: Float[Array, "R F"], kernel: Float[Array, "F K"]) -> Float[Array, "R K"]:
    """x W, with xᵀ stored for the gradient of W.

    XLA fuses a transposition with the product that reads it, and the fused product xᵀ g runs at a fraction of the rate
    of a plain one on a CPU. The barrier keeps the two apart.
    """
    return x @ kernel


def of_kernel(x: Float[Array, "R F"], kernel: Float[Array, "F K"]) -> Float[Array, "R K"]:
    """x W as a function of W alone: its transpose, g ↦ xᵀ g, is a plain product with the stored xᵀ.

    Where K is small, as in the heads of actors and critics, it is one sum over rows for each output instead.
    """
    if kernel.shape[1] <= NARROW:
        return jnp.stack([(x * kernel[:, k]).sum(-1) for k in range(kernel.shape[1])], axis=-1)
    return jax.lax.dot_general(jax.lax.optimization_barrier(x.T), kernel, (((0,), (0,)), ((), ())))


def _move(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x, kernel), (d_x, d_kernel) = primals, tangents
    y = product(x, kernel)
    terms = []
    if not isinstance(d_x, jax.custom_derivatives.SymbolicZero):
        terms.append(d_x @ kernel)
    if not isinstance(d_kernel, jax.custom_derivatives.SymbolicZero):
        terms.append(of_kernel(x, d_kernel))
    return y, reduce(jnp.add, terms) if terms else jnp.zeros_like(y)


product.defjvp(_move, symbolic_zeros=True)


class Dense(nnx.Linear):
    """``nnx.Linear`` on rows, with :func:`product`."""

    def __call__(self, inputs: Float[Array, "R F"], out_sharding: None = None) -> Float[Array, "R K"]:
        """x W + b; ``out_sharding`` has no effect."""
        y = product(inputs, self.kernel[...])
        return y if self.bias is None else y + self.bias[...]
