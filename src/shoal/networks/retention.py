"""Sable's network: an encoder and a decoder of retention over timesteps and, within each, over a team's agents.

With q, k, v of each token (an agent at a timestep), the recurrent form keeps a matrix S for each head:

    S ← κ S  once per timestep (0 where an episode starts),   S ← S + kᵀ v  for each token,   retention = q S

The chunkwise form computes the same for all tokens of k timesteps at once, from S before them:

    retention = (Q Kᵀ ∘ D) V + ξ ∘ (Q S),    S ← Kᵀ (V ∘ D_last) + κᵏ δ S

D_ij = κ^(t_i − t_j) where both timesteps are of one episode and t_i ≥ t_j, else 0; ξ_i = κ^(t_i + 1) before the chunk's
first start of an episode and 0 from there on; δ is 0 if there is one. In the encoder a token sees all agents of its
timestep, in the decoder those of at most its own rank. Dead agents are not kept.

Source: Mahjoub et al. 2025, Sable: a Performant, Efficient and Scalable Sequence Model for MARL; Sun et al. 2023,
Retentive Network: A Successor to Transformer for Large Language Models.
"""

from collections.abc import Callable
from math import log
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.networks.architecture import Body
from shoal.networks.layers import (
    apply_linear,
    init_layers,
    init_linear,
    init_norm,
    init_scale,
    layer_norm,
    layers,
    product,
    rms_norm,
)
from shoal.networks.net import SequenceNet
from shoal.networks.transformer import RESIDUAL_GAIN, check_transformer
from shoal.types import PyTree

CHUNK_TOKENS = 64
"""Largest number of tokens in a chunk whose length is not given."""

Recall = Callable[[Any, Array, Array, Array], tuple[Any, Array]]
"""(states before, queries, keys, values [R, D]) -> (states after, retention [R, H, D / H])."""


def decay_factors(heads: int, scale: float | Array) -> Float[Array, " H"]:
    """κ of each head: ``scale`` times 31/32 … 511/512 (Sun et al. 2023, eq. 8, whose range they shift)."""
    return scale * (1 - jnp.exp(jnp.linspace(log(1 / 32), log(1 / 512), heads)))


def default_chunk(length: int, num_agents: int) -> int:
    """Timesteps of a chunk: as many as divide ``length`` and have at most :data:`CHUNK_TOKENS` tokens."""
    return max(k for k in range(1, length + 1) if length % k == 0 and (k == 1 or k * num_agents <= CHUNK_TOKENS))


class Tokens(NamedTuple):
    """What tokens are, beside their features."""

    alive: Bool[Array, "T E N"]
    first: Bool[Array, "T E"]
    rank: Int[Array, "T E N"] | None = None
    """None: each sees all agents of its timestep."""


def chunkwise(
    query: Float[Array, "T E N D"],
    keys: Float[Array, "T E N D"],
    values: Float[Array, "T E N D"],
    state: Float[Array, "E H d d"] | None,
    kappa: Float[Array, " H"],
    tokens: Tokens,
    length: int,
) -> Float[Array, "T E N H d"]:
    """The retention of all tokens, by chunks of ``length`` timesteps; ``length`` must divide T.

    Args:
        query: of each token; the heads are side by side.
        keys: of each token.
        values: of each token.
        state: S before the first timestep; None for 0, if T is one chunk.
        kappa: κ of each head.
        tokens: which count, where episodes start, and the order within a timestep.
        length: k, timesteps of a chunk.
    """
    (T, E, N, D), H = query.shape, kappa.shape[0]
    K, k = T // length, length

    def split(x: Array) -> Array:
        x = x.reshape(K, k, E, N, H, D // H)
        return x.transpose(2, 0, 4, 1, 3, 5).reshape(E, K, H, k * N, D // H)

    def timesteps(x: Array) -> Array:
        """[T, E, ...] -> [E, K, k, ...]."""
        return jnp.moveaxis(x.reshape(K, k, *x.shape[1:]), 2, 0)

    q, key, v = map(split, (query, keys, jnp.where(tokens.alive[..., None], values, 0.0)))
    episode = jnp.cumsum(timesteps(tokens.first), axis=-1)  # 0 for the one that goes on from the chunk before
    time = jnp.arange(k)
    gap = time[:, None] - time
    same = (episode[..., :, None] == episode[..., None, :]) & (gap >= 0)
    decay = jnp.where(same[:, :, None], kappa[:, None, None] ** jnp.maximum(gap, 0), 0.0)  # [E, K, H, k, k]

    weights = decay[..., :, None, :, None]
    if tokens.rank is not None:
        rank = timesteps(tokens.rank)
        later = (rank[..., None, :] > rank[..., None])[:, :, :, :, None, :] & (gap == 0)[:, None, :, None]
        weights = jnp.where(later[:, :, None], 0.0, weights)  # [E, K, H, k, N, k, N]
    scores = jnp.einsum("bkhid,bkhjd->bkhij", q, key).reshape(E, K, H, k, N, k, N) * weights
    found = jnp.einsum("bkhij,bkhjd->bkhid", scores.reshape(E, K, H, k * N, k * N), v)

    if state is not None:
        kept = (episode == 0)[:, :, None]  # [E, K, 1, k]
        before = state[:, None]
        if K > 1:
            recent = jnp.repeat(decay[..., -1, :], N, axis=-1)[..., None]
            added = jnp.einsum("bkhid,bkhie->bkhde", key, v * recent)
            stays = (kept[..., -1] * kappa**k)[..., None, None]  # [E, K, H, 1, 1]

            def turn(s: Array, chunk: tuple[Array, Array]) -> tuple[Array, Array]:
                return chunk[1] * s + chunk[0], s

            _, before = jax.lax.scan(turn, state, (jnp.moveaxis(added, 1, 0), jnp.moveaxis(stays, 1, 0)))
            before = jnp.moveaxis(before, 0, 1)
        xi = jnp.repeat(kept * kappa[:, None] ** (time + 1), N, axis=-1)[..., None]
        found += jnp.einsum("bkhid,bkhde->bkhie", xi * q, before)
    return found.reshape(E, K, H, k, N, D // H).transpose(1, 3, 0, 4, 2, 5).reshape(T, E, N, H, D // H)


def begin_timestep(
    state: Float[Array, "E H d d"], kappa: Float[Array, " H"], first: Bool[Array, " E"]
) -> Float[Array, "E H d d"]:
    """S before the tokens of a timestep."""
    return jnp.where(first[:, None, None, None], 0.0, kappa[:, None, None] * state)


def recall_tokens(
    state: Float[Array, "E H d d"],
    query: Float[Array, "E I D"],
    keys: Float[Array, "E I D"],
    values: Float[Array, "E I D"],
    alive: Bool[Array, "E I"],
) -> tuple[Float[Array, "E H d d"], Float[Array, "E I H d"]]:
    """(S after some tokens of a timestep, retention of their queries from it); dead agents' tokens leave S as it is."""
    q, key, v = (
        x.reshape(*x.shape[:2], state.shape[1], -1) for x in (query, keys, jnp.where(alive[..., None], values, 0.0))
    )
    state = state + jnp.einsum("bihd,bihe->bhde", key, v)
    return state, jnp.einsum("bihd,bhde->bihe", q, state)


def time_code(position: Float[Array, "*b"], width: int) -> Float[Array, "*b D"]:
    """sin and cos of the place in an episode, in turns, with wavelengths from 2π to 20,000π (Vaswani et al. 2017)."""
    angle = position[..., None] * jnp.exp(jnp.arange(0, width, 2) * (-log(10_000.0) / width))
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(*position.shape, -1)[..., :width]


def make_retention_net(
    body: Body,
    blocks: int,
    heads: int,
    num_agents: int,
    inputs: int,
    tokens: int,
    outputs: int,
    output_gain: float,
    log_std: float | None,
    *,
    memory: bool,
    decay: float,
    chunk_length: int | None,
    position: bool,
) -> SequenceNet:
    """Encoder and decoder of a team.

    Args:
        body: its ``hidden`` layers embed an agent's features, the last one's width is D; tokens are embedded by one.
        blocks: of the encoder and of the decoder.
        heads: H of each retention.
        num_agents: N.
        inputs: number of an agent's features.
        tokens: number of a token's features.
        outputs: K, twice as many when ``log_std`` is given: it is appended to a Gaussian policy's mean.
        output_gain: gain of the head's kernel.
        log_std: initial log standard deviation.
        memory: whether S is kept from one timestep to the next.
        decay: scale of κ.
        chunk_length: timesteps of a chunk; None for :func:`default_chunk`.
        position: whether inputs of a retention have the timestep's place in its episode added, with ``memory``.

    Raises:
        InputError: see :func:`check_transformer`.
    """
    width = check_transformer(body, heads)
    kappa = decay_factors(heads, decay)

    def init_retention(key: PRNGKeyArray) -> PyTree:
        one, two, three = jax.random.split(key, 3)
        normal = lambda key, n: jax.random.normal(key, (width, n * width)) / width  # noqa: E731
        norm = jax.tree.map(lambda x: x.reshape(heads, -1), init_norm(width))
        # Keys, values and gates, which read the same, are one product.
        return {"query": normal(one, 1), "memory": normal(two, 3), "output": normal(three, 1), "norm": norm}

    def init_block(key: PRNGKeyArray, retentions: tuple[str, ...]) -> PyTree:
        *keys, gate, output = jax.random.split(key, len(retentions) + 2)
        each = [
            {name: init_retention(k), f"{name}_norm": init_scale(width)}
            for name, k in zip(retentions, keys, strict=True)
        ]
        return {
            **{name: p for part in each for name, p in part.items()},
            "gate": init_linear(gate, body, width, 2 * width, body.gain),
            "second": init_linear(output, body, width, width, RESIDUAL_GAIN),
            "mlp_norm": init_scale(width),
        }

    def init_part(key: PRNGKeyArray, retentions: tuple[str, ...], widths: tuple[int, ...], head: tuple) -> PyTree:
        embed, inner, hidden, last = jax.random.split(key, 4)
        outputs, gain = head
        return {
            "embed": init_layers(embed, body, widths, init_scale),
            "blocks": [init_block(k, retentions) for k in jax.random.split(inner, blocks)],
            "hidden": init_layers(hidden, body, (width, width), init_scale),
            "head": init_linear(last, body, width, outputs, gain),
        }

    def init(key: PRNGKeyArray) -> PyTree:
        one, two = jax.random.split(key)
        encoder = init_part(one, ("self",), (inputs, *body.hidden), (1, 0.01))
        decoder = init_part(two, ("self", "cross"), (tokens, width), (outputs, output_gain))
        input_norm = [init_scale(inputs)] if body.input_layer_norm else []
        std = () if log_std is None else jnp.full(outputs, log_std, jnp.float32)
        return {"encoder": encoder | {"input_norm": input_norm}, "decoder": decoder | {"log_std": std}}

    def retain(p: PyTree, recall: Recall, state: Any, query: Array, memory: Array) -> tuple[Any, Array]:
        q = product(query, p["query"])
        key, value, gate = jnp.split(product(memory, p["memory"]), 3, axis=-1)
        state, found = recall(state, q, key, value)
        return state, product(jax.nn.silu(gate) * layer_norm(p["norm"], found).reshape(gate.shape), p["output"])

    def mlp(block: PyTree, x: Array) -> Array:
        gate, linear = jnp.split(apply_linear(block["gate"], x), 2, axis=-1)
        return rms_norm(block["mlp_norm"], x + apply_linear(block["second"], jax.nn.silu(gate) * linear))

    def head(params: PyTree, x: Array) -> Array:
        return apply_linear(params["head"], layers(params["hidden"], body, x, rms_norm))

    def encoder(
        params: PyTree, x: Array, code: Array | float, recall: Recall, states: list
    ) -> tuple[list, Array, Array]:
        """(states after, values [R], representations [R, D]) of rows of features."""
        for norm in params["input_norm"]:
            x = rms_norm(norm, x)
        x, after = layers(params["embed"], body, x, rms_norm), []
        for block, before in zip(params["blocks"], states, strict=True):
            state, near = retain(block["self"], recall, before, x + code, x + code)
            x = mlp(block, rms_norm(block["self_norm"], x + near))
            after.append(state)
        return after, head(params, x)[:, 0], x

    def decoder(
        params: PyTree, rep: Array, token: Array, code: Array | float, recall: Recall, states: list
    ) -> tuple[list, Array]:
        """(states after, outputs [R, K]) of rows."""
        x, after = layers(params["embed"], body, token, rms_norm), []
        for block, (one, two) in zip(params["blocks"], states, strict=True):
            one, near = retain(block["self"], recall, one, x + code, x + code)
            x = rms_norm(block["self_norm"], x + near)
            two, near = retain(block["cross"], recall, two, rep + code, x + code)
            x = mlp(block, rms_norm(block["cross_norm"], rep + near))
            after.append((one, two))
        x = head(params, x)
        if log_std is not None:
            x = jnp.concatenate([x, jnp.broadcast_to(params["log_std"], x.shape)], axis=-1)
        return after, x

    def zeros(num_envs: int) -> PyTree:
        one = jnp.zeros((num_envs, heads, width // heads, width // heads))
        return {"encoder": [one] * blocks, "decoder": [(one, one)] * blocks, "position": jnp.zeros(num_envs)}

    def whole(carry: PyTree, part: str, seen: Tokens) -> tuple[Array | float, Recall, list]:
        """For the timesteps at once: (code of each row, retention, states of the blocks)."""
        (T, E), N = seen.first.shape, num_agents
        if not memory:  # each timestep for itself: T · E environments of one timestep
            seen = jax.tree.map(lambda x: x.reshape(1, T * E, *x.shape[2:]), seen)
        length = 1 if not memory else min(chunk_length, T) if chunk_length else default_chunk(T, N)

        def recall(state: Any, *rows: Array) -> tuple[Any, Array]:
            q, key, v = (x.reshape(*seen.alive.shape, width) for x in rows)
            found = chunkwise(q, key, v, state if memory else None, kappa, seen, length)
            return (), found.reshape(-1, heads, width // heads)

        if not memory:
            return 0.0, recall, [((), ())] * blocks
        if not position:
            return 0.0, recall, carry[part]
        index = jnp.arange(T)[:, None]
        start = jnp.where(seen.first, index, jnp.where(index == 0, -carry["position"], -jnp.inf))
        place = index - (start if T == 1 else jax.lax.cummax(start))  # ONNX has no cummax
        code = jnp.broadcast_to(time_code(place, width)[:, :, None], (T, E, N, width))
        return code.reshape(-1, width), recall, carry[part]

    def encode(params: PyTree, carry: PyTree, x: Array, alive: Array, first: Array) -> tuple[Array, Array]:
        code, recall, states = whole(carry, "encoder", Tokens(alive, first))
        _, value, rep = encoder(params["encoder"], x.reshape(-1, inputs), code, recall, states)
        return value.reshape(alive.shape), rep.reshape(*alive.shape, width)

    def decode(
        params: PyTree, carry: PyTree, rep: Array, token: Array, rank: Array, alive: Array, first: Array
    ) -> Array:
        code, recall, states = whole(carry, "decoder", Tokens(alive, first, rank))
        _, x = decoder(params["decoder"], rep.reshape(-1, width), token.reshape(-1, tokens), code, recall, states)
        return x.reshape(*alive.shape, -1)

    def in_turn(alive: Array) -> Recall:
        """For some tokens [E, I] of one timestep."""

        def recall(state: Array, *rows: Array) -> tuple[Array, Array]:
            q, key, v = (x.reshape(*alive.shape, width) for x in rows)
            state, found = recall_tokens(state, q, key, v, alive)
            return state, found.reshape(-1, heads, width // heads)

        return recall

    def coded(place: Array, count: int) -> Array | float:
        return jnp.repeat(time_code(place, width), count, axis=0) if memory and position else 0.0

    def begin(params: PyTree, carry: PyTree, x: Array, alive: Array, first: Array) -> tuple[Array, Array, PyTree]:
        state = carry if memory else zeros(first.shape[0])
        place = jnp.where(first, 0.0, state["position"])
        kept = {
            part: jax.tree.map(lambda s: begin_timestep(s, kappa, first), state[part])
            for part in ("encoder", "decoder")
        }
        rows, code = x.reshape(-1, inputs), coded(place, num_agents)
        after, value, rep = encoder(params["encoder"], rows, code, in_turn(alive), kept["encoder"])
        state = {"encoder": after, "decoder": kept["decoder"], "position": place}
        return value.reshape(alive.shape), rep.reshape(*alive.shape, width), state

    def step(
        params: PyTree, state: PyTree, rank: Array, rep: Array, token: Array, alive: Array
    ) -> tuple[PyTree, Array]:
        del rank
        code, recall = coded(state["position"], 1), in_turn(alive[:, None])
        after, x = decoder(params["decoder"], rep, token, code, recall, state["decoder"])
        return state | {"decoder": after}, x

    def end(state: PyTree) -> PyTree:
        return state | {"position": state["position"] + 1} if memory else ()

    return SequenceNet(init, zeros if memory else lambda num_envs: (), encode, decode, begin, step, end)
