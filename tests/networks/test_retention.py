"""Retention: its chunkwise form is a sum over tokens, and what acting computes one agent after the other."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.networks import retention
from shoal.networks.architecture import Body
from shoal.networks.net import SequenceNet
from support.trajectories import compiled

T, E, N, D, H, F, TOKEN = 6, 6, 3, 4, 2, 5, 3
RNG = np.random.default_rng(0)
FIRST = np.zeros((T, E), bool)
"""In chunks of 3: none, at the start of a chunk, inside, at its end, in every place, and in the first chunk alone."""
for e, places in enumerate(((), (3,), (4,), (5,), (0, 2, 3, 4, 5), (1,))):
    FIRST[list(places), e] = True
ALIVE = RNG.random((T, E, N)) > 0.3
RANK = np.argsort(RNG.random((T, E, N)), -1)
KAPPA = np.array([0.9, 0.4])


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def by_loop(q: np.ndarray, k: np.ndarray, v: np.ndarray, state: np.ndarray, rank: np.ndarray | None) -> np.ndarray:
    """[T, E, N, H, d]: each token's sum over the tokens that it sees, in float64."""
    width, found = D // H, np.zeros((T, E, N, H, D // H))
    for t, e, i, h in np.ndindex(T, E, N, H):
        own = slice(h * width, (h + 1) * width)
        for s in range(t, -1, -1):
            for j in range(N):
                if ALIVE[s, e, j] and (s < t or rank is None or rank[s, e, j] <= rank[t, e, i]):
                    weight = KAPPA[h] ** (t - s) * (q[t, e, i, own] @ k[s, e, j, own])
                    found[t, e, i, h] += weight * v[s, e, j, own]
            if FIRST[s, e]:
                break
        else:
            found[t, e, i, h] += KAPPA[h] ** (t + 1) * q[t, e, i, own] @ state[e, h]
    return found


@pytest.mark.parametrize(("length", "ordered"), [(1, True), (3, True), (6, False), (2, False)])
def test_the_chunkwise_form_is_the_sum_over_earlier_tokens(length: int, ordered: bool) -> None:
    q, k, v = normal(3, T, E, N, D)
    state, rank = normal(E, H, D // H, D // H), RANK if ordered else None
    tokens = retention.Tokens(jnp.asarray(ALIVE), jnp.asarray(FIRST), None if rank is None else jnp.asarray(rank))
    v = np.where(ALIVE[..., None], v, np.nan)  # what dead agents have is not read
    found = compiled(
        lambda q, k, v, state: retention.chunkwise(q, k, v, state, jnp.asarray(KAPPA, jnp.float32), tokens, length)
    )(q, k, v, state)
    np.testing.assert_allclose(found, by_loop(q, k, v, state, rank), rtol=1e-4, atol=1e-5)


@cache
def make(memory: bool = True, decay: float = 0.8, chunk_length: int | None = 3, position: bool = True) -> SequenceNet:
    body = Body((7, D), activation="gelu", layer_norm=True, input_layer_norm=True, orthogonal=False)
    return retention.make_retention_net(
        body, 2, H, N, F, TOKEN, 3, 1.0, -0.5, memory=memory, decay=decay, chunk_length=chunk_length, position=position
    )


X, TOKENS = jnp.asarray(normal(T, E, N, F)), jnp.asarray(normal(T, E, N, TOKEN))


PARAMETERS = jax.tree.map(
    lambda x: normal(*x.shape) / 2 + (x.ndim == 1), jax.eval_shape(make().init, jax.random.key(0))
)
CARRY = jax.tree.map(lambda x: normal(*x.shape), jax.eval_shape(lambda: make().initial_carry(E)))
"""In the middle of an episode."""
CARRY["position"] = np.arange(3, 3 + E, dtype=np.float32)


@cache
def whole(net: SequenceNet) -> Any:
    def run(params: Any, start: Any, x: jax.Array, alive: jax.Array) -> Any:
        value, rep = net.encode(params, start, x, alive, jnp.asarray(FIRST))
        output = net.decode(params, start, rep, TOKENS, jnp.asarray(RANK), alive, jnp.asarray(FIRST))
        return value, rep, output

    return compiled(run)


def at_once(net: SequenceNet, start: Any, alive: np.ndarray = ALIVE, x: Any = X) -> Any:
    """(values, representations, outputs) of all timesteps."""
    return jax.device_get(whole(net)(PARAMETERS, start, x, alive))


def in_turn(net: SequenceNet, start: Any) -> Any:
    """The same, one timestep after another and one agent after the other."""

    params = jax.tree.map(jnp.asarray, PARAMETERS)

    def timestep(carry: Any, moment: tuple) -> Any:
        x, token, alive, first, rank = moment
        value, rep, state = net.begin(params, carry, x, alive, first)
        order = jnp.argsort(rank, axis=-1)
        by_rank = [
            jnp.take_along_axis(y, order.reshape(E, N, *(1,) * (y.ndim - 2)), axis=1) for y in (rep, token, alive)
        ]

        def turn(state: Any, agent: tuple) -> Any:
            return net.step(params, state, *agent)

        agents = (jnp.arange(N), *(jnp.swapaxes(y, 0, 1) for y in by_rank))
        state, output = jax.lax.scan(turn, state, agents)
        output = jnp.take_along_axis(jnp.swapaxes(output, 0, 1), rank[..., None], axis=1)
        return net.end(state), (value, rep, output)

    moments = (X, TOKENS, *map(jnp.asarray, (ALIVE, FIRST, RANK)))
    return jax.device_get(compiled(lambda start: jax.lax.scan(timestep, start, moments)[1])(start))


def test_acting_gives_what_training_computes_wherever_an_episode_starts_in_a_chunk() -> None:
    for got, expected in zip(at_once(make(), CARRY), in_turn(make(), CARRY), strict=True):
        np.testing.assert_allclose(got[ALIVE], expected[ALIVE], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_without_memory_it_is_memory_that_decays_at_once() -> None:
    forgetful = make(decay=0.0, chunk_length=1, position=False)
    for got, expected in zip(at_once(make(memory=False), ()), at_once(forgetful, CARRY), strict=True):
        np.testing.assert_allclose(got[ALIVE], expected[ALIVE], rtol=1e-5, atol=1e-5)
    assert make(memory=False).initial_carry(E) == ()


def test_the_encoder_treats_agents_alike_and_reads_nothing_of_the_dead() -> None:
    value, rep, _ = at_once(make(), CARRY)
    order = [2, 0, 1]
    moved = at_once(make(), CARRY, ALIVE[:, :, order], X[:, :, order])
    np.testing.assert_allclose(moved[0], value[:, :, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved[1], rep[:, :, order], rtol=1e-4, atol=1e-5)
    other = at_once(make(), CARRY, x=np.where(ALIVE[..., None], X, X + 1))
    np.testing.assert_array_equal(other[0][ALIVE], value[ALIVE])


def test_the_place_in_an_episode_matters_and_is_counted_from_its_start() -> None:
    value, _, _ = at_once(make(), CARRY)
    later, _, _ = at_once(make(), CARRY | {"position": CARRY["position"] + 1})
    from_start = np.cumsum(FIRST, 0) > 0
    moved = (value != later).any(-1)
    np.testing.assert_array_equal(moved, ~from_start)


def test_chunks_divide_the_rollout_and_are_small() -> None:
    assert retention.default_chunk(128, 3) == 16
    assert retention.default_chunk(25, 10) == 5
    assert retention.default_chunk(25, 100) == 1
    np.testing.assert_allclose(retention.decay_factors(1, 0.8), [0.8 * 31 / 32], rtol=1e-6)
    np.testing.assert_allclose(retention.decay_factors(2, 1.0), [31 / 32, 511 / 512], rtol=1e-6)
