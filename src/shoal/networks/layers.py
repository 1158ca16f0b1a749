"""Layers: affine ones whose gradients are fast on a CPU, convolutions, orthogonal kernels, attention between agents."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.types import PyTree

NARROW_OUTPUT = 8
"""Largest number of outputs of a layer whose gradient is made of sums: a product would use a part of each register."""


@jax.custom_jvp
def product(x: Float[Array, "R F"], kernel: Float[Array, "F K"]) -> Float[Array, "R K"]:
    """x W, with xᵀ stored for the gradient of W.

    XLA fuses a transposition with the product that reads it, and the fused product xᵀ g runs at a fraction of the rate
    of a plain one on a CPU. The barrier keeps the two apart.
    """
    return x @ kernel


def product_of_kernel(x: Float[Array, "R F"], kernel: Float[Array, "F K"]) -> Float[Array, "R K"]:
    """x W as a function of W alone: its transpose, g ↦ xᵀ g, is a plain product with the stored xᵀ.

    Where K is small, as in the heads of actors and critics, it is one sum over rows for each output instead. Both are
    for CPUs; on an accelerator it is the product as XLA compiles it.
    """
    if jax.default_backend() != "cpu":
        return x @ kernel
    if kernel.shape[1] <= NARROW_OUTPUT:
        return jnp.stack([(x * kernel[:, k]).sum(-1) for k in range(kernel.shape[1])], axis=-1)
    return jax.lax.dot_general(jax.lax.optimization_barrier(x.T), kernel, (((0,), (0,)), ((), ())))


def _product_derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x, kernel), (d_x, d_kernel) = primals, tangents
    y = product(x, kernel)
    terms = []
    if not isinstance(d_x, jax.custom_derivatives.SymbolicZero):
        terms.append(d_x @ kernel)
    if not isinstance(d_kernel, jax.custom_derivatives.SymbolicZero):
        terms.append(product_of_kernel(x, d_kernel))
    return y, reduce(jnp.add, terms) if terms else jnp.zeros_like(y)


product.defjvp(_product_derivative, symbolic_zeros=True)


class Dense(nnx.Linear):
    """``nnx.Linear`` on rows, with :func:`product`."""

    def __call__(self, inputs: Float[Array, "R F"], out_sharding: None = None) -> Float[Array, "R K"]:
        """x W + b; ``out_sharding`` has no effect."""
        y = product(inputs, self.kernel[...])
        return y if self.bias is None else y + self.bias[...]


# Orthogonal kernels, without LAPACK.


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


def scaled_orthogonal(gain: float) -> jax.nn.initializers.Initializer:
    """An initialiser of orthogonal kernels times ``gain``."""
    return lambda key, shape, dtype=jnp.float32, out_sharding=None: gain * orthogonal(key, shape, dtype)


# Convolutions over images as products of matrices. On a CPU their gradients are faster than those of XLA's convolutions
# where images are small, and many times faster where ``vmap`` over policies or seeds would make these convolutions in
# groups.


NARROW_IMAGE = 12
"""Width in pixels below which convolutions with stride 1 are computed by whole rows: 1.1 to 3 times as fast with
gradients on a CPU, for images of 4 × 5 to 11 × 11 pixels and layers of 16 to 64 channels."""


def convolve(
    x: Float[Array, "R Y X C"], kernel: Float[Array, "K L C D"], stride: int = 1, same: bool = False
) -> Float[Array, "R Y2 X2 D"]:
    """y[i, j] = Σ_kl kernel[k, l] · x[stride · i + k, stride · j + l], a cross-correlation.

    Args:
        x: images, at least as large as the kernel.
        kernel: of K × L pixels; both are multiples of the stride.
        stride: of the output's pixels.
        same: pad with zeros to the height and width that a stride of 1 keeps; otherwise windows lie inside the image.
    """
    pads = [((size - 1) // 2, size // 2) if same else (0, 0) for size in kernel.shape[:2]]
    if stride == 1 and x.shape[2] < NARROW_IMAGE:
        return _over_rows(jnp.pad(x, ((0, 0), pads[0], (0, 0), (0, 0))), kernel, pads[1])
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    rows, (high, wide), (C, D) = x.shape[0], kernel.shape[:2], kernel.shape[2:]
    up, across = high // stride, wide // stride
    # Blocks of stride × stride pixels become one pixel with as many times the channels: few and long slices remain.
    y, z = (x.shape[1] - high) // stride + 1, (x.shape[2] - wide) // stride + 1
    blocks = x[:, : (y + up - 1) * stride, : (z + across - 1) * stride]
    blocks = blocks.reshape(rows, y + up - 1, stride, z + across - 1, stride, C)
    blocks = jnp.swapaxes(blocks, 2, 3).reshape(rows, y + up - 1, z + across - 1, stride * stride * C)
    windows = [blocks[:, k : k + y, m : m + z] for k in range(up) for m in range(across)]
    weights = kernel.reshape(up, stride, across, stride, C, D)
    weights = jnp.swapaxes(weights, 1, 2).reshape(-1, D)
    flat = jnp.concatenate(windows, axis=-1).reshape(-1, weights.shape[0])
    return product(flat, weights).reshape(rows, y, z, D)


def _over_rows(
    x: Float[Array, "R Y X C"], kernel: Float[Array, "K L C D"], pads: tuple[int, int]
) -> Float[Array, "R Y2 X2 D"]:
    """The same with stride 1: whole rows of pixels times a matrix with the kernel at each place of a row.

    The matrix also has zeros, but only K slices are copied, where windows of pixels would be K × L.
    """
    (R, Y, X, C), (K, L, _, D) = x.shape, kernel.shape
    y, z = Y - K + 1, X + sum(pads) - L + 1
    place = np.arange(X)[:, None] - np.arange(z) + pads[0]  # of an input's pixel in the window of an output's
    found = jnp.asarray(place[..., None] == np.arange(L), x.dtype)
    weights = jnp.einsum("xzl,klcd->kxczd", found, kernel).reshape(K * X * C, z * D)
    lines = x.reshape(R, Y, X * C)
    flat = jnp.concatenate([lines[:, k : k + y] for k in range(K)], axis=-1).reshape(R * y, -1)
    return product(flat, weights).reshape(R, y, z, D)


def pooled(x: Float[Array, "R Y X C"], size: int = 3, stride: int = 2) -> Float[Array, "R Y2 X2 C"]:
    """The maximum over windows of ``size`` × ``size`` pixels, padded to Y2 = ⌈Y / stride⌉ and X2 = ⌈X / stride⌉."""
    counts = [-(-length // stride) for length in x.shape[1:3]]
    total = [max((n - 1) * stride + size - length, 0) for n, length in zip(counts, x.shape[1:3], strict=True)]
    pads = [(extra // 2, extra - extra // 2) for extra in total]
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=-jnp.inf)
    ends = [(n - 1) * stride + 1 for n in counts]
    windows = [x[:, k : k + ends[0] : stride, m : m + ends[1] : stride] for k in range(size) for m in range(size)]
    return jnp.stack(windows).max(0)


MASKED = -1e9
"""Score of a masked key: its weight underflows to exactly 0. Where all keys are masked, all weigh the same."""


# Attention between the agents of a team, and the layers around it, as plain functions of their parameters. Features are
# rows [R, D], one per agent and timestep, so that every product is one of two matrices: on a CPU this is faster than
# products with more axes. Only attention itself uses the axis of agents.


def init_linear(key: PRNGKeyArray, body: Body, inputs: int, outputs: int, gain: float) -> PyTree:
    """An affine layer, with an orthogonal kernel of that gain or a LeCun normal one, as ``body`` sets."""
    kernel = scaled_orthogonal(gain) if body.orthogonal else jax.nn.initializers.lecun_normal()
    return {"kernel": kernel(key, (inputs, outputs), jnp.float32), "bias": jnp.zeros(outputs)}


def apply_linear(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R K"]:
    """x W + b."""
    return product(x, params["kernel"]) + params["bias"]


def init_norm(width: int) -> PyTree:
    """Scale 1, bias 0."""
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def layer_norm(params: PyTree, x: Float[Array, "*b D"]) -> Float[Array, "*b D"]:
    """Zero mean and unit variance over the features of each row, then scale and bias (Ba et al. 2016, eq. 4)."""
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    return x * params["scale"] + params["bias"]


def init_scale(width: int) -> PyTree:
    """Scale 1."""
    return {"scale": jnp.ones(width)}


def rms_norm(params: PyTree, x: Float[Array, "R D"]) -> Float[Array, "R D"]:
    """Mean square 1 over the features of each row, then scale (Zhang and Sennrich 2019, eq. 4)."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * params["scale"]


def init_layers(
    key: PRNGKeyArray, body: Body, widths: Sequence[int], norm: Callable[[int], PyTree] = init_norm
) -> PyTree:
    """Fully connected layers of the given widths, each followed by the body's activation and, if it has any, norm."""
    keys = jax.random.split(key, max(len(widths) - 1, 1))
    layers = [init_linear(k, body, i, o, body.gain) for k, (i, o) in zip(keys, pairwise(widths), strict=False)]
    return {"layers": layers, "norms": [norm(width) for width in widths[1:]] if body.layer_norm else []}


def layers(
    params: PyTree, body: Body, x: Float[Array, "R F"], norm: Callable[[PyTree, Array], Array] = layer_norm
) -> Float[Array, "R D"]:
    """The output of the layers of :func:`init_layers`."""
    for i, layer in enumerate(params["layers"]):
        x = ACTIVATIONS[body.activation](apply_linear(layer, x))
        if params["norms"]:
            x = norm(params["norms"][i], x)
    return x


def init_attention(key: PRNGKeyArray, body: Body, width: int, gain: float) -> PyTree:
    """Projections of queries, of keys and values (``memory``), and of the result (``output``)."""
    query, keys, values, output = (init_linear(k, body, width, width, gain) for k in jax.random.split(key, 4))
    memory = jax.tree.map(lambda k, v: jnp.concatenate([k, v], -1), keys, values)
    return {"query": query, "memory": memory, "output": output}


def attend(
    query: Float[Array, "B I D"], memory: Float[Array, "B J D2"], mask: Bool[Array, "#B #I J"], heads: int
) -> Float[Array, "B I D"]:
    """softmax(Q Kᵀ / √d) V over the keys that each query attends to, for each head of width d = D / heads.

    Args:
        query: [B, I, D].
        memory: [B, J, 2 D], keys and values side by side.
        mask: [B, I, J], whether query i attends to key j. Other keys have no effect if they are finite.
        heads: number of heads.

    Source: Vaswani et al. 2017, Attention Is All You Need, eq. 1.
    """
    B, count, width = query.shape[0], query.shape[1], query.shape[2] // heads
    keys, values = jnp.split(memory, 2, axis=-1)
    shares = attention_weights(query, keys, mask, heads).reshape(B * heads, count, -1)
    mixed = jnp.einsum("bij,bjd->bid", shares, _split(values, heads)).reshape(B, heads, count, width)
    return jnp.swapaxes(mixed, 1, 2).reshape(query.shape)


def attention_weights(
    query: Float[Array, "B I D"], keys: Float[Array, "B J D"], mask: Bool[Array, "#B #I J"], heads: int
) -> Float[Array, "B heads I J"]:
    """softmax(Q Kᵀ / √d) of :func:`attend`, for each head."""
    B, count, width = query.shape[0], query.shape[1], query.shape[2] // heads
    scores = jnp.einsum("bid,bjd->bij", _split(query, heads), _split(keys, heads)) * width**-0.5
    mask = jnp.broadcast_to(mask[:, None], (B, heads, count, mask.shape[-1])).reshape(scores.shape)
    return jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1).reshape(B, heads, count, -1)


def _split(x: Float[Array, "B N D"], heads: int) -> Float[Array, "B2 N D2"]:
    """[B, N, D] -> [B · heads, N, d]: with a separate axis of heads, products are six times slower on a CPU."""
    return jnp.swapaxes(x.reshape(*x.shape[:-1], heads, -1), 1, 2).reshape(-1, x.shape[1], x.shape[2] // heads)
