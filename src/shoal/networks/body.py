"""The networks of actors and critics: fully connected layers, a recurrent layer where wanted, and a linear head.

What stands before them is chosen by ``Body.network`` and what there is to read: see :func:`build_body`. Encoders read
images and sets of entities among the features. Where a network reads several agents' features, all agents' images and
entities go through the same layers, and what comes out stands side by side. An entity is a row of an observation's part
of shape [K, F], for example the units in sight; it is absent where all its features are 0. Absent ones change nothing.
With ``universal`` no parameter depends on the number of agents, entities, or actions that target entities.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.architecture import ACTIVATIONS, Body, check_body, own_network
from shoal.networks.inputs import InputPart, Layout, vector_layout
from shoal.networks.layers import (
    Dense,
    apply_linear,
    attend,
    convolve,
    init_attention,
    init_linear,
    init_norm,
    layer_norm,
    pooled,
    scaled_orthogonal,
)
from shoal.networks.net import Net, Structure, functional, structure_of
from shoal.networks.recurrent import Gru, Lstm
from shoal.networks.user_networks import make_own
from shoal.types import PyTree

__all__ = ["ACTIVATIONS", "Body", "build_body"]


class Encoder(NamedTuple):
    """From features to others, as functions of rows."""

    width: int
    """E."""
    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Float[Array, "R F"]], Float[Array, "R G"]]
    """G is E, and of entities that actions target further K · D."""
    targets: tuple["Targets", ...] = ()
    """Sets of entities that actions target, in the order of these actions."""


class Targets(NamedTuple):
    """A set of entities that actions target."""

    action: int
    """That of the first entity."""
    entities: int
    """K."""
    width: int
    """D of each entity's embedding."""


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


def make_entities(body: Body, layout: Layout, universal: bool = False, actions: bool = False) -> Encoder:
    """For each agent: its vectors' embedding after attention, and the mean over present entities; then all vectors.

    Every kind of entity has an embedding of its own. The embedding of the agent's own vectors is one more element among
    which attention takes place. The width D is that of the first hidden layer.

    With ``universal`` what several agents give, with their vectors, is averaged, where the dead count as zeros; and the
    embeddings of the entities that ``actions`` target are appended, as in UPDeT (Hu et al. 2021), where the value of an
    action on an entity is computed from that entity's output of the transformer.

    Raises:
        InputError: heads do not divide the width, or ``universal`` would depend on the number of agents.
    """
    groups = alike(layout, 2)
    others = other_parts(layout, groups)
    agents = len(groups[0].where)
    vectors = [group for group in alike(layout, 1) if len(group.where) == agents]
    own = sum(group.shape[0] for group in vectors)
    D, heads = body.hidden[0] if body.hidden else 64, body.entity_heads
    if D % heads:
        raise InputError(f"{heads} entity_heads do not divide the width of {D}, that of the first hidden layer.")
    if universal:
        _check_universal(layout)
    width = (2 if own else 1) * D + own if universal else agents * (2 if own else 1) * D + size_of_parts(layout, others)
    targets, rows, row = [], [], 1 if own else 0
    for group in groups:
        action = layout.parts[group.where[0]].target
        if universal and actions and action is not None:
            targets.append(Targets(action, group.shape[0], D))
            rows.append(slice(row, row + group.shape[0]))
        row += group.shape[0]
    by_action = sorted(range(len(targets)), key=lambda i: targets[i].action)
    targets, rows = [targets[i] for i in by_action], [rows[i] for i in by_action]

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
            found.append(act(apply_linear(p, x))[:, None])
            present.append(jnp.ones((x.shape[0], 1), bool))
        for p, group in zip(params["embed"], groups, strict=True):
            x = stacked_parts(parts, group).reshape(-1, *group.shape)
            found.append(act(apply_linear(p, x.reshape(-1, group.shape[1]))).reshape(-1, group.shape[0], D))
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
        if not universal:
            return jnp.concatenate([pooled.reshape(x.shape[0], -1), *flat_parts(parts, others)], axis=-1)
        raw = [stacked_parts(parts, group).reshape(pooled.shape[0], -1) for group in vectors]
        seen = jnp.concatenate([pooled, *raw], axis=-1)
        if agents > 1:
            alive = jnp.concatenate([present[:, start:], *(part != 0 for part in raw)], axis=-1).any(-1, keepdims=True)
            seen = jnp.where(alive, seen, 0.0).reshape(x.shape[0], agents, width).mean(1)
        return jnp.concatenate([seen, *(tokens[:, found].reshape(x.shape[0], -1) for found in rows)], axis=-1)

    return Encoder(width, init, apply, tuple(targets))


def _check_universal(layout: Layout) -> None:
    """Refuse what depends on the number of agents, and what is neither a set of entities nor a vector."""
    why = {  # a critic of actions reads ids whatever agent_id is, and so do some critics of the state
        "action": "this critic reads actions: give critics another network, such as critic_network mlp",
        "state": "this critic reads the state, whose width depends on it: use critic_input concat or local",
        "id": "this input has a one-hot id of each: set agent_id to False (--no-agent-id)",
    }
    added = {
        "last_action": "the last action, whose width is the number of actions: set last_action to False "
        "(--no-last-action)",
        "agent_id": "a one-hot id of each agent: set agent_ids to False (--no-agent-ids)",
    }
    kinds = {part.kind for part in layout.parts}
    for kind, said in why.items():
        if kind in kinds:
            raise InputError(f"Network 'universal' has the same parameters for any number of agents, and {said}.")
    for part in layout.parts:
        if part.name in added:
            raise InputError(
                f"Network 'universal' has the same parameters for any number of agents and actions, and this input has "
                f"{added[part.name]}."
            )
        if len(part.shape) > 2:
            raise InputError(f"Network 'universal' reads vectors and sets of entities, not an array of {part.shape}.")


def target_outputs(
    output: Float[Array, "*b Q"], embeddings: Float[Array, "*b G"], targets: Sequence[Targets]
) -> Float[Array, "*b K"]:
    """The outputs of all actions: those of actions on entities are products of their embedding and a query.

    Args:
        output: those of the other actions, then a query [D] for each set.
        embeddings: of the sets' entities, side by side.
        targets: the sets, in the order of their actions.
    """
    others = output.shape[-1] - sum(target.width for target in targets)
    found, used, query, place = [], 0, others, 0
    for action, count, width in targets:
        before = action - sum(x.shape[-1] for x in found)
        size = count * width
        entities = embeddings[..., place : place + size].reshape(*output.shape[:-1], count, width)
        logits = (entities * output[..., None, query : query + width]).sum(-1)
        found += [output[..., used : used + before], logits]
        used, query, place = used + before, query + width, place + size
    return jnp.concatenate([*found, output[..., used:others]], axis=-1)


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
    query, memory = (apply_linear(p[name], x).reshape(*shape[:2], -1) for name in ("query", "memory"))
    near = attend(query, memory, present[:, None, :], body.entity_heads).reshape(x.shape)
    x = layer_norm(params["attention_norm"], x + apply_linear(p["output"], near))
    change = apply_linear(params["second"], ACTIVATIONS[body.activation](apply_linear(params["first"], x)))
    return layer_norm(params["mlp_norm"], x + change).reshape(shape)


class BodyModule(nnx.Module):
    """Layers, an optional recurrent layer and a head; ``log_std`` is appended to a Gaussian policy's mean."""

    def __init__(
        self, body: Body, inputs: int, outputs: int, output_gain: float, log_std: float | None, rngs: nnx.Rngs
    ) -> None:
        self.body = body

        def kernel(gain: float) -> nnx.Initializer:
            return scaled_orthogonal(gain) if body.orthogonal else nnx.initializers.lecun_normal()

        def norms(widths: Sequence[int]) -> list[nnx.LayerNorm]:
            return [nnx.LayerNorm(width, rngs=rngs) for width in widths]

        widths = (inputs, *body.hidden)
        self.input_norm = nnx.List(norms(widths[:1] if body.input_layer_norm else ()))
        self.layers = nnx.List([Dense(i, o, kernel_init=kernel(body.gain), rngs=rngs) for i, o in pairwise(widths)])
        self.norms = nnx.List(norms(body.hidden if body.layer_norm else ()))
        top = widths[-1]
        if body.recurrent:
            if body.cell == "lstm":
                self.lstm = Lstm(top, body.recurrent, kernel(1.0), rngs)
            else:
                self.gru = Gru(top, body.recurrent, kernel(1.0), rngs)
            top = body.recurrent
        self.gru_norm = nnx.List(norms((top,) if body.recurrent and body.layer_norm else ()))
        self.head = Dense(top, outputs, kernel_init=kernel(output_gain), rngs=rngs)
        if log_std is not None:
            self.log_std = nnx.Param(jnp.full(outputs, log_std, jnp.float32))
        self.gaussian = log_std is not None

    def __call__(self, carry: Array | tuple[()], x: Array, first: Array) -> tuple[Array | tuple[()], Array]:
        """See :class:`shoal.networks.net.Net`."""
        lead = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])  # products of two matrices: with more axes XLA's backward pass is far slower
        for norm in self.input_norm:
            x = norm(x)
        for i, layer in enumerate(self.layers):
            x = ACTIVATIONS[self.body.activation](layer(x))
            if self.body.layer_norm:
                x = self.norms[i](x)
        if self.body.recurrent:
            assert isinstance(carry, Array), "a recurrent net needs its state"
            carry = (self.lstm if self.body.cell == "lstm" else self.gru)(carry, x, lead, first)
            x = carry[..., : self.body.recurrent].reshape(-1, self.body.recurrent)
        for norm in self.gru_norm:
            x = norm(x)
        x = self.head(x).reshape(*lead, -1)
        if self.gaussian:
            x = jnp.concatenate([x, jnp.broadcast_to(self.log_std[...], x.shape)], axis=-1)
        return carry, x


@lru_cache(maxsize=256)
def _structure(body: Body, inputs: int, outputs: int, gaussian: bool) -> Structure:
    """Of all modules with this body: to trace one takes longer than the rest of making a net. Gains and initial values,
    which may be traced, are no part of it."""
    return structure_of(lambda rngs: BodyModule(body, inputs, outputs, 1.0, 0.0 if gaussian else None, rngs))


def build_body(
    body: Body,
    inputs: int | Layout,
    outputs: int,
    *,
    output_gain: float = 1.0,
    log_std: float | None = None,
    actions: bool = False,
) -> Net:
    """A net from features to ``outputs`` numbers (twice as many when ``log_std`` is given).

    Args:
        body: the architecture.
        inputs: number of features, or where images, entities and vectors are among them.
        outputs: number of outputs.
        output_gain: gain of the head's kernel.
        log_std: initial value of a parameter for each output, appended to them.
        actions: whether the outputs are those of discrete actions, some of which may target entities.

    Raises:
        InputError: there is no such activation, cell or network, a number is out of its bounds, the network reads what
            the input does not have, or the user's own network cannot be built.
    """
    check_body(body)
    layout = vector_layout(inputs) if isinstance(inputs, int) else inputs
    if own_network(body):
        return make_own(body, layout, outputs, output_gain, log_std)
    encoder = _encoder(body, layout, actions)
    width = layout.width if encoder is None else encoder.width
    outputs += sum(target.width - target.entities for target in encoder.targets) if encoder else 0
    size = (body.recurrent or 0) * (2 if body.cell == "lstm" else 1)

    def initial_carry(batch: tuple[int, ...]) -> Array | tuple[()]:
        return jnp.zeros((*batch, size)) if size else ()

    def module(rngs: nnx.Rngs) -> BodyModule:
        return BodyModule(body, width, outputs, output_gain, log_std, rngs)

    layers = replace(body, gain=1.0, hidden=tuple(body.hidden), channels=())
    structure = _structure(layers, width, outputs, log_std is not None)
    net = Net(*functional(module, structure), initial_carry)
    return net if encoder is None else _after(encoder, net)


def _encoder(body: Body, layout: Layout, actions: bool) -> Encoder | None:
    """What stands before the layers. Inputs without observations, such as the global state, are vectors."""
    rank = {"auto": 3, "cnn": 3, "impala": 3, "entities": 2, "universal": 2}.get(body.network)
    if rank is None:
        return None
    if alike(layout, rank):
        if rank == 2:
            return make_entities(body, layout, body.network == "universal", actions)
        return make_images(body, layout, body.network == "impala")
    if body.network == "universal":
        _check_universal(layout)
    if body.network != "auto" and observes(layout):
        what = "sets of entities, of shape (K, F)" if rank == 2 else "images, of shape (height, width, channels)"
        raise InputError(
            f"network {body.network!r} reads {what}, and the observations here have the shapes "
            f"{shapes_in_words(layout)}: use mlp, or declare the shapes in EnvSpec.parts."
        )
    return None


def _after(encoder: Encoder, net: Net) -> Net:
    """``net`` after an encoder, whose parameters are called ``encoder``."""

    def init(key: PRNGKeyArray) -> PyTree:
        key_encoder, key_net = jax.random.split(key)
        return {**net.init(key_net), "encoder": encoder.init(key_encoder)}

    def apply(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        seen = encoder.apply(params["encoder"], x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
        of_net = {name: p for name, p in params.items() if name != "encoder"}
        carry, y = net.apply(of_net, carry, seen[..., : encoder.width], first)
        return carry, target_outputs(y, seen[..., encoder.width :], encoder.targets) if encoder.targets else y

    return Net(init, apply, net.initial_carry)
