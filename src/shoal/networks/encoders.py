"""What reads images and sets of entities among a network's features, before its fully connected layers.

Where a network reads several agents' features, all agents' images and entities go through the same layers, and what
comes out stands side by side. An entity is a row of an observation's part of shape [K, F], for example the units in
sight; it is absent where all its features are 0. Absent ones change nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.attention import attend, init_attention, init_linear, init_norm, layer_norm, linear
from shoal.networks.inputs import InputPart, Layout
from shoal.networks.layers import convolve, pooled, scaled_orthogonal
from shoal.types import PyTree


class Encoder(NamedTuple):
    """From features to others, as functions of rows."""

    width: int
    """E."""
    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Float[Array, "R F"]], Float[Array, "R E"]]


class Alike(NamedTuple):
    """Parts of a layout that go through the same layers: one for each agent that has it."""

    shape: tuple[int, ...]
    where: tuple[int, ...]
    """Indices of the parts."""


def alike(layout: Layout, rank: int) -> list[Alike]:
    """The observations' parts of ``rank`` axes, those of the same name and shape together."""
    found: dict[tuple, list[int]] = {}
    for index, part in enumerate(layout.parts):
        if part.kind == "observation" and len(part.shape) == rank and part.size:
            found.setdefault((part.name, part.shape, _place(layout, index)), []).append(index)
    return [Alike(shape, tuple(where)) for (_, shape, _), where in found.items()]


def _place(layout: Layout, index: int) -> int:
    """How many parts of the same agent, name and shape come before: those without names are told apart by order."""
    part = layout.parts[index]
    return sum(part == earlier for earlier in layout.parts[:index])


def stacked_parts(parts: list[Array], group: Alike) -> Float[Array, "R G ..."]:
    """The arrays of a group side by side."""
    return jnp.stack([parts[index] for index in group.where], axis=1)


def other_parts(layout: Layout, groups: list[Alike]) -> list[int]:
    """Indices of the parts that are in no group."""
    taken = {index for group in groups for index in group.where}
    return [index for index in range(len(layout.parts)) if index not in taken]


def flat_parts(parts: list[Array], which: list[int]) -> list[Array]:
    """Some parts as rows [R, size]."""
    return [parts[index].reshape(parts[index].shape[0], -1) for index in which]


def size_of_parts(layout: Layout, which: list[int]) -> int:
    """Number of features of some parts."""
    return sum(layout.parts[index].size for index in which)


def observes(layout: Layout) -> bool:
    """Whether a layout has parts of observations."""
    return any(part.kind == "observation" for part in layout.parts)


def shapes_in_words(layout: Layout) -> str:
    """The shapes of the observations' parts, for messages."""

    def named(part: InputPart) -> str:
        return f"{part.name} {part.shape}" if part.name else f"{part.shape}"

    own = dict.fromkeys(named(part) for part in layout.parts if part.kind == "observation")
    return ", ".join(own)


# Images: a plain stack of convolutions, or residual stages.


Size = tuple[int, int]
"""Height and width."""


def kernel_of_convolution(size: Size) -> tuple[int, int, bool]:
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
    others = other_parts(layout, groups)
    init_tower, tower, width_of = (
        (init_impala, impala, impala_width) if residual else (init_plain, plain_convolutions, plain_width)
    )
    width = sum(width_of(body, group.shape) * len(group.where) for group in groups) + size_of_parts(layout, others)

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(groups))
        return [init_tower(k, body, group.shape) for k, group in zip(keys, groups, strict=True)]

    def seen(params: PyTree, group: Alike, parts: list[Array]) -> Array:
        x = stacked_parts(parts, group)
        return tower(params, x.reshape(-1, *group.shape)).reshape(x.shape[0], -1)

    def apply(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R E"]:
        parts = layout.split(x)
        features = [seen(p, group, parts) for p, group in zip(params, groups, strict=True)]
        return jnp.concatenate([*features, *flat_parts(parts, others)], axis=-1)

    return Encoder(width, init, apply)


def init_convolution(key: PRNGKeyArray, body: Body, size: int, channels: int, outputs: int) -> PyTree:
    """A kernel of ``size`` × ``size`` pixels, orthogonal or LeCun normal as ``body`` sets, and a bias."""
    kernel = scaled_orthogonal(2**0.5) if body.orthogonal else jax.nn.initializers.lecun_normal()
    shape = (size, size, channels, outputs)
    return {"kernel": kernel(key, shape, jnp.float32), "bias": jnp.zeros(outputs)}


def _convolution(params: PyTree, x: Array, stride: int = 1, same: bool = True) -> Array:
    return convolve(x, params["kernel"], stride, same) + params["bias"]


# Layers of 16, 32 and 32 channels


def _image_sizes(body: Body, shape: tuple[int, ...]) -> list[Size]:
    """Height and width before each convolution and after the last."""
    sizes = [(shape[0], shape[1])]
    for _ in body.channels:
        kernel, stride, same = kernel_of_convolution(sizes[-1])
        rows, cols = sizes[-1]
        sizes.append(sizes[-1] if same else ((rows - kernel) // stride + 1, (cols - kernel) // stride + 1))
    return sizes


def plain_width(body: Body, shape: tuple[int, ...]) -> int:
    """Number of features of an image after the convolutions."""
    rows, cols = _image_sizes(body, shape)[-1]
    return rows * cols * body.channels[-1]


def init_plain(key: PRNGKeyArray, body: Body, shape: tuple[int, ...]) -> PyTree:
    """Convolutions one after the other."""
    keys, inputs = jax.random.split(key, len(body.channels)), (shape[2], *body.channels)
    sizes = _image_sizes(body, shape)
    return [
        init_convolution(keys[i], body, kernel_of_convolution(sizes[i])[0], inputs[i], outputs)
        for i, outputs in enumerate(body.channels)
    ]


def plain_convolutions(params: PyTree, x: Float[Array, "R Y X C"]) -> Float[Array, "R Y2 X2 D"]:
    """The output of :func:`init_plain`'s layers, each followed by ReLU."""
    for layer in params:
        _, stride, same = kernel_of_convolution((x.shape[1], x.shape[2]))
        x = jax.nn.relu(_convolution(layer, x, stride, same))
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
        x = pooled(_convolution(first, x))
        for inner, outer in zip(blocks[::2], blocks[1::2], strict=True):
            x = x + _convolution(outer, jax.nn.relu(_convolution(inner, jax.nn.relu(x))))
    return jax.nn.relu(x)


# Entities: attention among them, in any order and number.


def make_entities(body: Body, layout: Layout) -> Encoder:
    """For each agent: its vectors' embedding after attention, and the mean over present entities; then all vectors.

    Every kind of entity has an embedding of its own. The embedding of the agent's own vectors is one more element among
    which attention takes place. The width D is that of the first hidden layer.

    Raises:
        InputError: heads do not divide the width.
    """
    groups = alike(layout, 2)
    others = other_parts(layout, groups)
    agents = len(groups[0].where)
    vectors = [group for group in alike(layout, 1) if len(group.where) == agents]
    own = sum(group.shape[0] for group in vectors)
    D, heads = body.hidden[0] if body.hidden else 64, body.entity_heads
    if D % heads:
        raise InputError(f"{heads} entity_heads do not divide the width of {D}, that of the first hidden layer.")
    width = agents * (2 if own else 1) * D + size_of_parts(layout, others)

    def init(key: PRNGKeyArray) -> PyTree:
        key_self, key_embed, key_blocks = jax.random.split(key, 3)
        keys = jax.random.split(key_embed, len(groups))
        return {
            "self": [init_linear(key_self, body, own, D, body.gain)] if own else [],
            "embed": [init_linear(k, body, g.shape[1], D, body.gain) for k, g in zip(keys, groups, strict=True)],
            "blocks": [_init_entity_block(k, body, D) for k in jax.random.split(key_blocks, body.entity_blocks)],
        }

    def elements(params: PyTree, parts: list[Array]) -> tuple[Float[Array, "B J D"], Bool[Array, "B J"]]:
        """Embeddings of each agent's elements, B = R · agents, and which are present."""
        found, present = [], []
        act = ACTIVATIONS[body.activation]
        for p in params["self"]:
            x = jnp.concatenate([stacked_parts(parts, group) for group in vectors], axis=-1).reshape(-1, own)
            found.append(act(linear(p, x))[:, None])
            present.append(jnp.ones((x.shape[0], 1), bool))
        for p, group in zip(params["embed"], groups, strict=True):
            x = stacked_parts(parts, group).reshape(-1, *group.shape)
            found.append(act(linear(p, x.reshape(-1, group.shape[1]))).reshape(-1, group.shape[0], D))
            present.append((x != 0).any(-1))
        return jnp.concatenate(found, axis=1), jnp.concatenate(present, axis=1)

    def apply(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R E"]:
        parts = layout.split(x)
        tokens, present = elements(params, parts)
        for block in params["blocks"]:
            tokens = _entity_block(block, body, tokens, present)
        start = 1 if own else 0
        weight = present[:, start:, None].astype(tokens.dtype)
        mean = (tokens[:, start:] * weight).sum(1) / jnp.maximum(weight.sum(1), 1.0)
        pooled = jnp.concatenate([tokens[:, 0], mean], axis=-1) if own else mean
        return jnp.concatenate([pooled.reshape(x.shape[0], -1), *flat_parts(parts, others)], axis=-1)

    return Encoder(width, init, apply)


def _init_entity_block(key: PRNGKeyArray, body: Body, width: int) -> PyTree:
    attention, first, second = jax.random.split(key, 3)
    return {
        "attention": init_attention(attention, body, width, 1.0),
        "attention_norm": init_norm(width),
        "first": init_linear(first, body, width, width, body.gain),
        "second": init_linear(second, body, width, width, 1.0),
        "mlp_norm": init_norm(width),
    }


def _entity_block(params: PyTree, body: Body, x: Float[Array, "B J D"], present: Array) -> Float[Array, "B J D"]:
    """Attention to the present elements and an MLP, each added to its input and normalised."""
    p, shape = params["attention"], x.shape
    x = x.reshape(-1, shape[-1])  # products of two matrices
    query, memory = (linear(p[name], x).reshape(*shape[:2], -1) for name in ("query", "memory"))
    near = attend(query, memory, present[:, None, :], body.entity_heads).reshape(x.shape)
    x = layer_norm(params["attention_norm"], x + linear(p["output"], near))
    change = linear(params["second"], ACTIVATIONS[body.activation](linear(params["first"], x)))
    return layer_norm(params["mlp_norm"], x + change).reshape(shape)
