"""Attention between the agents of a team, and the layers around it, as plain functions of their parameters.

Features are rows [R, D], one per agent and timestep, so that every product is one of two matrices: on a CPU this is
faster than products with more axes. Only attention itself uses the axis of agents.
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.layers import product, scaled_orthogonal
from shoal.types import PyTree

MASKED = -1e9
"""Score of a masked key: its weight underflows to exactly 0. Where all keys are masked, all weigh the same."""


def init_linear(key: PRNGKeyArray, body: Body, inputs: int, outputs: int, gain: float) -> PyTree:
    """An affine layer, with an orthogonal kernel of that gain or a LeCun normal one, as ``body`` sets."""
    kernel = scaled_orthogonal(gain) if body.orthogonal else jax.nn.initializers.lecun_normal()
    return {"kernel": kernel(key, (inputs, outputs), jnp.float32), "bias": jnp.zeros(outputs)}


def linear(params: PyTree, x: Float[Array, "R F"]) -> Float[Array, "R K"]:
    """x W + b."""
    return product(x, params["kernel"]) + params["bias"]


def init_norm(width: int) -> PyTree:
    """Scale 1, bias 0."""
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def layer_norm(params: PyTree, x: Float[Array, "R D"]) -> Float[Array, "R D"]:
    """Zero mean and unit variance over the features of each row, then scale and bias (Ba et al. 2016, eq. 4)."""
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    return x * params["scale"] + params["bias"]


def init_layers(key: PRNGKeyArray, body: Body, widths: Sequence[int]) -> PyTree:
    """Fully connected layers of the given widths, each followed by the body's activation and, if it has any, norm."""
    keys = jax.random.split(key, max(len(widths) - 1, 1))
    layers = [init_linear(k, body, i, o, body.gain) for k, (i, o) in zip(keys, pairwise(widths), strict=False)]
    return {"layers": layers, "norms": [init_norm(width) for width in widths[1:]] if body.layer_norm else []}


def layers(params: PyTree, body: Body, x: Float[Array, "R F"]) -> Float[Array, "R D"]:
    """The output of the layers of :func:`init_layers`."""
    for i, layer in enumerate(params["layers"]):
        x = ACTIVATIONS[body.activation](linear(layer, x))
        if params["norms"]:
            x = layer_norm(params["norms"][i], x)
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
    shares = weights(query, keys, mask, heads).reshape(B * heads, count, -1)
    mixed = jnp.einsum("bij,bjd->bid", shares, _split(values, heads)).reshape(B, heads, count, width)
    return jnp.swapaxes(mixed, 1, 2).reshape(query.shape)


def weights(
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
