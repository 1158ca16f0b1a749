"""Attention over the entities that an agent observes, in any order and number.

An entity is a row of an observation's part of shape [K, F], for example the units in sight; it is absent where all its
features are 0. Absent ones change nothing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.attention import attend, init_attention, init_linear, init_norm, layer_norm, linear
from shoal.networks.encoders import Encoder, alike, flat, rest, size_of, together
from shoal.networks.layout import Layout
from shoal.types import PyTree


def make_entities(body: Body, layout: Layout) -> Encoder:
    """For each agent: its vectors' embedding after attention, and the mean over present entities; then all vectors.

    Every kind of entity has an embedding of its own. The embedding of the agent's own vectors is one more element among
    which attention takes place. The width D is that of the first hidden layer.

    Raises:
        InputError: heads do not divide the width.
    """
    groups = alike(layout, 2)
    others = rest(layout, groups)
    agents = len(groups[0].where)
    vectors = [group for group in alike(layout, 1) if len(group.where) == agents]
    own = sum(group.shape[0] for group in vectors)
    D, heads = body.hidden[0] if body.hidden else 64, body.entity_heads
    if D % heads:
        raise InputError(f"{heads} entity_heads do not divide the width of {D}, that of the first hidden layer.")
    width = agents * (2 if own else 1) * D + size_of(layout, others)

    def init(key: PRNGKeyArray) -> PyTree:
        key_self, key_embed, key_blocks = jax.random.split(key, 3)
        keys = jax.random.split(key_embed, len(groups))
        return {
            "self": [init_linear(key_self, body, own, D, body.gain)] if own else [],
            "embed": [init_linear(k, body, g.shape[1], D, body.gain) for k, g in zip(keys, groups, strict=True)],
            "blocks": [_init_block(k, body, D) for k in jax.random.split(key_blocks, body.entity_blocks)],
        }

    def elements(params: PyTree, parts: list[Array]) -> tuple[Float[Array, "B J D"], Bool[Array, "B J"]]:
        """Embeddings of each agent's elements, B = R · agents, and which are present."""
        found, present = [], []
        act = ACTIVATIONS[body.activation]
        for p in params["self"]:
            x = jnp.concatenate([together(parts, group) for group in vectors], axis=-1).reshape(-1, own)
            found.append(act(linear(p, x))[:, None])
            present.append(jnp.ones((x.shape[0], 1), bool))
        for p, group in zip(params["embed"], groups, strict=True):
            x = together(parts, group).reshape(-1, *group.shape)
            found.append(act(linear(p, x.reshape(-1, group.shape[1]))).reshape(-1, group.shape[0], D))
            present.append((x != 0).any(-1))
        return jnp.concatenate(found, axis=1), jnp.concatenate(present, axis=1)

    def apply(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R E"]:
        parts = layout.split(x)
        tokens, present = elements(params, parts)
        for block in params["blocks"]:
            tokens = _block(block, body, tokens, present)
        start = 1 if own else 0
        weight = present[:, start:, None].astype(tokens.dtype)
        mean = (tokens[:, start:] * weight).sum(1) / jnp.maximum(weight.sum(1), 1.0)
        pooled = jnp.concatenate([tokens[:, 0], mean], axis=-1) if own else mean
        return jnp.concatenate([pooled.reshape(x.shape[0], -1), *flat(parts, others)], axis=-1)

    return Encoder(width, init, apply)


def _init_block(key: PRNGKeyArray, body: Body, width: int) -> PyTree:
    attention, first, second = jax.random.split(key, 3)
    return {
        "attention": init_attention(attention, body, width, 1.0),
        "attention_norm": init_norm(width),
        "first": init_linear(first, body, width, width, body.gain),
        "second": init_linear(second, body, width, width, 1.0),
        "mlp_norm": init_norm(width),
    }


def _block(params: PyTree, body: Body, x: Float[Array, "B J D"], present: Array) -> Float[Array, "B J D"]:
    """Attention to the present elements and an MLP, each added to its input and normalised."""
    p, shape = params["attention"], x.shape
    x = x.reshape(-1, shape[-1])  # products of two matrices
    query, memory = (linear(p[name], x).reshape(*shape[:2], -1) for name in ("query", "memory"))
    near = attend(query, memory, present[:, None, :], body.entity_heads).reshape(x.shape)
    x = layer_norm(params["attention_norm"], x + linear(p["output"], near))
    change = linear(params["second"], ACTIVATIONS[body.activation](linear(params["first"], x)))
    return layer_norm(params["mlp_norm"], x + change).reshape(shape)
