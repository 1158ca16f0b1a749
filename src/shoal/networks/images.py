"""Convolutional networks for images: a plain stack of layers, or residual stages."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.networks.architecture import Body
from shoal.networks.convolution import convolve, pooled
from shoal.networks.encoders import Alike, Encoder, alike, flat, rest, size_of, together
from shoal.networks.layout import Layout
from shoal.networks.orthogonal import scaled
from shoal.types import PyTree

Size = tuple[int, int]
"""Height and width."""


def windows(size: Size) -> tuple[int, int, bool]:
    """Kernel, stride and padding of a convolution of ``cnn``, by the height and width of what it reads.

    From 32 pixels on, 8 × 8 with stride 4, and from 12 on, 4 × 4 with stride 2, as in Mnih et al. 2015; below, 3 × 3,
    padded where a side has at most 4 pixels, so that nothing disappears.
    """
    least = min(size)
    if least >= 32:
        return 8, 4, False
    if least >= 12:
        return 4, 2, False
    return 3, 1, least <= 4


def make_images(body: Body, layout: Layout, residual: bool) -> Encoder:
    """Convolutions over each image, with ReLU, then the features that are no images; ``residual`` as impala's.

    The images of one name and shape go through the same layers, also those of several agents.
    """
    groups = alike(layout, 3)
    others = rest(layout, groups)
    init_tower, tower, width_of = (init_impala, impala, impala_width) if residual else (init_plain, plain, plain_width)
    width = sum(width_of(body, group.shape) * len(group.where) for group in groups) + size_of(layout, others)

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(groups))
        return [init_tower(k, body, group.shape) for k, group in zip(keys, groups, strict=True)]

    def seen(params: PyTree, group: Alike, parts: list[Array]) -> Array:
        x = together(parts, group)
        return tower(params, x.reshape(-1, *group.shape)).reshape(x.shape[0], -1)

    def apply(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R E"]:
        parts = layout.split(x)
        features = [seen(p, group, parts) for p, group in zip(params, groups, strict=True)]
        return jnp.concatenate([*features, *flat(parts, others)], axis=-1)

    return Encoder(width, init, apply)


def init_convolution(key: PRNGKeyArray, body: Body, size: int, channels: int, outputs: int) -> PyTree:
    """A kernel of ``size`` × ``size`` pixels, orthogonal or LeCun normal as ``body`` sets, and a bias."""
    kernel = scaled(2**0.5) if body.orthogonal else jax.nn.initializers.lecun_normal()
    shape = (size, size, channels, outputs)
    return {"kernel": kernel(key, shape, jnp.float32), "bias": jnp.zeros(outputs)}


def _affine(params: PyTree, x: Array, stride: int = 1, same: bool = True) -> Array:
    return convolve(x, params["kernel"], stride, same) + params["bias"]


# Layers of 16, 32 and 32 channels


def _sizes(body: Body, shape: tuple[int, ...]) -> list[Size]:
    """Height and width before each convolution and after the last."""
    sizes = [(shape[0], shape[1])]
    for _ in body.channels:
        kernel, stride, same = windows(sizes[-1])
        rows, cols = sizes[-1]
        sizes.append(sizes[-1] if same else ((rows - kernel) // stride + 1, (cols - kernel) // stride + 1))
    return sizes


def plain_width(body: Body, shape: tuple[int, ...]) -> int:
    """Number of features of an image after the convolutions."""
    rows, cols = _sizes(body, shape)[-1]
    return rows * cols * body.channels[-1]


def init_plain(key: PRNGKeyArray, body: Body, shape: tuple[int, ...]) -> PyTree:
    """Convolutions one after the other."""
    keys, inputs = jax.random.split(key, len(body.channels)), (shape[2], *body.channels)
    sizes = _sizes(body, shape)
    return [
        init_convolution(keys[i], body, windows(sizes[i])[0], inputs[i], outputs)
        for i, outputs in enumerate(body.channels)
    ]


def plain(params: PyTree, x: Float[Array, "R Y X C"]) -> Float[Array, "R Y2 X2 D"]:
    """The output of :func:`init_plain`'s layers, each followed by ReLU."""
    for layer in params:
        _, stride, same = windows((x.shape[1], x.shape[2]))
        x = jax.nn.relu(_affine(layer, x, stride, same))
    return x


# Impala's stages (Espeholt et al. 2018, figure 3)


def impala_width(body: Body, shape: tuple[int, ...]) -> int:
    """Number of features of an image after the stages."""
    rows, cols = shape[:2]
    for _ in body.channels:
        rows, cols = -(-rows // 2), -(-cols // 2)
    return rows * cols * body.channels[-1]


def init_impala(key: PRNGKeyArray, body: Body, shape: tuple[int, ...]) -> PyTree:
    """Of each stage a convolution and the four of its two residual blocks."""
    keys, inputs = jax.random.split(key, (len(body.channels), 5)), (shape[2], *body.channels)

    def stage(i: int, outputs: int) -> PyTree:
        first = init_convolution(keys[i, 0], body, 3, inputs[i], outputs)
        return [first, *(init_convolution(k, body, 3, outputs, outputs) for k in keys[i, 1:])]

    return [stage(i, outputs) for i, outputs in enumerate(body.channels)]


def impala(params: PyTree, x: Float[Array, "R Y X C"]) -> Float[Array, "R Y2 X2 D"]:
    """Of each stage: convolution, maximum over 3 × 3 pixels with stride 2, and twice x + conv(relu(conv(relu(x))))."""
    for first, *blocks in params:
        x = pooled(_affine(first, x))
        for inner, outer in zip(blocks[::2], blocks[1::2], strict=True):
            x = x + _affine(outer, jax.nn.relu(_affine(inner, jax.nn.relu(x))))
    return jax.nn.relu(x)
