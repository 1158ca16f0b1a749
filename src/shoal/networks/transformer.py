"""The encoder and the decoder of the Multi-Agent Transformer: sequences whose elements are a team's agents.

The encoder maps the agents' features to representations, each of which depends on all agents, and to values. The
decoder gives each agent an output that depends on all representations and on the actions of the agents before it.
There are no positional encodings. The order is data: ``rank[i]`` agents decode before agent i. Rows are not sorted.

Source: Wen et al. 2022, Multi-Agent Reinforcement Learning is a Sequence Modeling Problem, figure 2.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.bounds import check_bounds
from shoal.errors import InputError, unknown
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.layers import (
    apply_linear,
    attend,
    attention_weights,
    init_attention,
    init_layers,
    init_linear,
    init_norm,
    layer_norm,
    layers,
)
from shoal.networks.net import SequenceNet
from shoal.types import PyTree

RESIDUAL_GAIN = 0.01
"""Gain of the layers that end a residual branch: a new block is close to the identity (authors' code)."""

Recall = Callable[[Any, Array, Array], tuple[Any, Array]]
"""(cache of earlier rows, queries [R, D], keys and values [R, 2 D]) -> (new cache, attention [R, D])."""


class Encoder(NamedTuple):
    """From features of agents to values and representations."""

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Float[Array, "*b N F"], Bool[Array, "*b N"]], tuple[Array, Array]]
    """(params, features, alive) -> (value [*b, N], representation [*b, N, D]). Attention masks dead agents."""
    attention: Callable[[PyTree, Float[Array, "*b N F"], Bool[Array, "*b N"]], Float[Array, "*b N N"]]
    """(params, features, alive) -> each agent's weights over all agents, mean over blocks and heads."""


class Decoder(NamedTuple):
    """From representations and actions to outputs, one for each agent."""

    init: Callable[[PRNGKeyArray], PyTree]
    parallel: Callable[[PyTree, Float[Array, "*b N D"], Float[Array, "*b N F"], Int[Array, "*b N"]], Array]
    """(params, representation, token, rank) -> output [*b, N, K]. ``token[i]`` encodes the action just before agent
    i's, or that there was none; agent i attends to its own token and those of lower rank."""
    start: Callable[[int], PyTree]
    """E -> an empty cache of keys and values."""
    step: Callable[[PyTree, PyTree, Int[Array, ""], Array, Array], tuple[PyTree, Array]]
    """(params, cache, rank m, representation [E, D], token [E, F]) -> (cache, output [E, K]) of each environment's
    agent of rank m, after those of ranks 0 … m − 1: the row that ``parallel`` gives, at the cost of one row."""


def check_transformer(body: Body, heads: int) -> int:
    """The width D of the transformer.

    Raises:
        InputError: there is no such activation, ``hidden`` is empty, or heads do not divide the width.
    """
    if body.activation not in ACTIVATIONS:
        raise unknown("activation", body.activation, ACTIVATIONS)
    check_bounds(body)
    if not body.hidden:
        raise InputError("A layer has to embed the inputs: hidden cannot be empty.")
    if body.hidden[-1] % heads:
        raise InputError(
            f"{heads} heads do not divide {body.hidden[-1]}, the width of the layer that embeds the inputs."
        )
    return body.hidden[-1]


def make_encoder(body: Body, blocks: int, heads: int, inputs: int) -> Encoder:
    """Embedding, ``blocks`` × (attention among living agents, MLP), and a value head.

    Args:
        body: its ``hidden`` layers embed the features, the last one's width is D.
        blocks: their number.
        heads: number of heads of each attention.
        inputs: number of features.
    """
    width = check_transformer(body, heads)

    def init_block(key: PRNGKeyArray) -> PyTree:
        attention, mlp = jax.random.split(key)
        return {
            "attention": init_attention(attention, body, width, RESIDUAL_GAIN),
            "attention_norm": init_norm(width),
            **_init_mlp(mlp, body, width),
        }

    def init(key: PRNGKeyArray) -> PyTree:
        embed, inner, hidden, head = jax.random.split(key, 4)
        return {
            "input_norm": [init_norm(inputs)] if body.input_layer_norm else [],
            "embed": init_layers(embed, body, (inputs, *body.hidden)),
            "blocks": [init_block(k) for k in jax.random.split(inner, blocks)],
            "value": init_layers(hidden, body, (width, width)),
            "head": init_linear(head, body, width, 1, 1.0),
        }

    def through(params: PyTree, x: Array, mask: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Each block's queries, its keys and values, and the features after it."""
        x = x.reshape(-1, x.shape[-1])
        for norm in params["input_norm"]:
            x = layer_norm(norm, x)
        x = layers(params["embed"], body, x)
        for block in params["blocks"]:
            p = block["attention"]
            query, memory = apply_linear(p["query"], x), apply_linear(p["memory"], x)
            near = _of_agents(query, memory, mask, heads)
            x = layer_norm(block["attention_norm"], x + apply_linear(p["output"], near))
            x = _mlp(block, body, x)
            yield query, memory, x

    def attention(params: PyTree, x: Array, alive: Array) -> Array:
        n, mask = alive.shape[-1], alive.reshape(-1, 1, alive.shape[-1])
        found = [
            attention_weights(
                query.reshape(-1, n, width), memory.reshape(-1, n, 2 * width)[..., :width], mask, heads
            ).mean(1)
            for query, memory, _ in through(params, x, mask)
        ]
        return jnp.stack(found).mean(0).reshape(*alive.shape, n)

    def apply(params: PyTree, x: Array, alive: Array) -> tuple[Array, Array]:
        lead, mask = x.shape[:-1], alive.reshape(-1, 1, alive.shape[-1])
        *_, (_, _, x) = through(params, x, mask)
        value = apply_linear(params["head"], layers(params["value"], body, x))
        return value.reshape(lead), x.reshape(*lead, width)

    return Encoder(init, apply, attention)


def make_decoder(
    body: Body,
    blocks: int,
    heads: int,
    num_agents: int,
    inputs: int,
    outputs: int,
    output_gain: float,
    log_std: float | None,
) -> Decoder:
    """Embedding of tokens, ``blocks`` × (attention among them, attention of representations to them, MLP), a head.

    Args:
        body: D is the width of its last layer; tokens are embedded by one layer.
        blocks: their number.
        heads: number of heads of each attention.
        num_agents: N.
        inputs: number of a token's features.
        outputs: K, twice as many when ``log_std`` is given: it is appended to a Gaussian policy's mean.
        output_gain: gain of the head's kernel.
        log_std: initial log standard deviation.
    """
    width = check_transformer(body, heads)

    def init_block(key: PRNGKeyArray) -> PyTree:
        own, cross, mlp = jax.random.split(key, 3)
        return {
            "self": init_attention(own, body, width, RESIDUAL_GAIN),
            "self_norm": init_norm(width),
            "cross": init_attention(cross, body, width, RESIDUAL_GAIN),
            "cross_norm": init_norm(width),
            **_init_mlp(mlp, body, width),
        }

    def init(key: PRNGKeyArray) -> PyTree:
        embed, inner, hidden, head = jax.random.split(key, 4)
        return {
            "embed": init_layers(embed, body, (inputs, width)),
            "blocks": [init_block(k) for k in jax.random.split(inner, blocks)],
            "hidden": init_layers(hidden, body, (width, width)),
            "head": init_linear(head, body, width, outputs, output_gain),
            "log_std": () if log_std is None else jnp.full(outputs, log_std, jnp.float32),
        }

    def through(params: PyTree, rep: Array, token: Array, recall: Recall, kept: list) -> tuple[list, Array]:
        """The decoder for all agents at once or for one rank at a time, which differ in ``recall``."""
        x, keep = layers(params["embed"], body, token), []
        for block, before in zip(params["blocks"], kept, strict=True):
            p = block["self"]
            first, near = recall(before[0], apply_linear(p["query"], x), apply_linear(p["memory"], x))
            x = layer_norm(block["self_norm"], x + apply_linear(p["output"], near))
            p = block["cross"]
            second, near = recall(before[1], apply_linear(p["query"], rep), apply_linear(p["memory"], x))
            x = layer_norm(block["cross_norm"], rep + apply_linear(p["output"], near))
            x = _mlp(block, body, x)
            keep.append((first, second))
        x = apply_linear(params["head"], layers(params["hidden"], body, x))
        if log_std is not None:
            x = jnp.concatenate([x, jnp.broadcast_to(params["log_std"], x.shape)], axis=-1)
        return keep, x

    def parallel(params: PyTree, rep: Array, token: Array, rank: Array) -> Array:
        rank = rank.reshape(-1, num_agents)
        mask = rank[:, None, :] <= rank[:, :, None]

        def recall(_: Any, query: Array, memory: Array) -> tuple[Any, Array]:
            return (), _of_agents(query, memory, mask, heads)

        rows = rep.reshape(-1, width), token.reshape(-1, inputs)
        _, x = through(params, *rows, recall, [((), ())] * blocks)
        return x.reshape(*rep.shape[:-1], -1)

    def start(num_envs: int) -> PyTree:
        empty = jnp.zeros((num_envs, num_agents, 2 * width))
        return [(empty, empty) for _ in range(blocks)]

    def step(params: PyTree, cache: PyTree, rank: Array, rep: Array, token: Array) -> tuple[PyTree, Array]:
        mask = (jnp.arange(num_agents) <= rank)[None, None]

        def recall(kept: Array, query: Array, memory: Array) -> tuple[Array, Array]:
            kept = jax.lax.dynamic_update_slice_in_dim(kept, memory[:, None], rank, axis=1)
            return kept, attend(query[:, None], kept, mask, heads)[:, 0]

        return through(params, rep, token, recall, cache)

    return Decoder(init, parallel, start, step)


def make_transformer(
    body: Body,
    blocks: int,
    heads: int,
    num_agents: int,
    inputs: int,
    tokens: int,
    outputs: int,
    output_gain: float,
    log_std: float | None,
) -> SequenceNet:
    """Encoder and decoder of a team, which keep nothing from one timestep to the next.

    Args:
        body: see :func:`make_encoder`.
        blocks: of the encoder and of the decoder.
        heads: number of heads of each attention.
        num_agents: N.
        inputs: number of an agent's features.
        tokens: number of a token's features.
        outputs: see :func:`make_decoder`, as ``output_gain`` and ``log_std``.
        output_gain: gain of the head's kernel.
        log_std: initial log standard deviation.
    """
    encoder = make_encoder(body, blocks, heads, inputs)
    decoder = make_decoder(body, blocks, heads, num_agents, tokens, outputs, output_gain, log_std)

    def init(key: PRNGKeyArray) -> PyTree:
        key_encoder, key_decoder = jax.random.split(key)
        return {"encoder": encoder.init(key_encoder), "decoder": decoder.init(key_decoder)}

    def encode(params: PyTree, carry: PyTree, x: Array, alive: Array, first: Array) -> tuple[Array, Array]:
        return encoder.apply(params["encoder"], x, alive)

    def decode(
        params: PyTree, carry: PyTree, rep: Array, token: Array, rank: Array, alive: Array, first: Array
    ) -> Array:
        return decoder.parallel(params["decoder"], rep, token, rank)

    def begin(params: PyTree, carry: PyTree, x: Array, alive: Array, first: Array) -> tuple[Array, Array, PyTree]:
        return *encode(params, carry, x, alive, first), decoder.start(first.shape[0])

    def step(
        params: PyTree, cache: PyTree, rank: Array, rep: Array, token: Array, alive: Array
    ) -> tuple[PyTree, Array]:
        return decoder.step(params["decoder"], cache, rank, rep, token)

    def attention(params: PyTree, x: Array, alive: Array) -> Array:
        return encoder.attention(params["encoder"], x, alive)

    return SequenceNet(init, lambda num_envs: (), encode, decode, begin, step, lambda cache: (), attention)


def _init_mlp(key: PRNGKeyArray, body: Body, width: int) -> PyTree:
    first, second = jax.random.split(key)
    return {
        "first": init_linear(first, body, width, width, body.gain),
        "second": init_linear(second, body, width, width, RESIDUAL_GAIN),
        "mlp_norm": init_norm(width),
    }


def _mlp(block: PyTree, body: Body, x: Array) -> Array:
    change = apply_linear(block["second"], ACTIVATIONS[body.activation](apply_linear(block["first"], x)))
    return layer_norm(block["mlp_norm"], x + change)


def _of_agents(query: Array, memory: Array, mask: Array, heads: int) -> Array:
    """Attention among the rows of each team."""
    n = mask.shape[-1]
    near = attend(query.reshape(-1, n, query.shape[-1]), memory.reshape(-1, n, memory.shape[-1]), mask, heads)
    return near.reshape(query.shape)
