"""Convolutions over images as products of matrices.

On a CPU their gradients are faster than those of XLA's convolutions where images are small, and many times faster where
``vmap`` over policies or seeds would make these convolutions in groups.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.networks.dense import product

NARROW = 12
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
    if stride == 1 and x.shape[2] < NARROW:
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
