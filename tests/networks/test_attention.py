"""Attention, the encoder and the decoder, against plain NumPy and against what the paper's sequence says."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.networks import layers
from shoal.networks.body import Body
from shoal.networks.transformer import Decoder, make_decoder, make_encoder
from support.small_nets import FAST, layer_norm, noise, random

B, N, D, F = 4, 3, 6, 5
BODY = Body(hidden=(D,), activation="tanh", layer_norm=True, input_layer_norm=True, orthogonal=False)
ALIVE = jnp.array([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0]], bool)
RANK = jnp.array([[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]])


def run(f, *args):
    return jax.jit(f, compiler_options=FAST)(*args)


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def naive_attend(query, memory, seen, heads):
    """A loop over queries and heads; only the keys that are seen are looked at."""
    out, d = np.zeros(query.shape), query.shape[-1] // heads
    width = query.shape[-1]
    for b, i, h in np.ndindex(query.shape[0], query.shape[1], heads):
        mine = slice(h * d, (h + 1) * d)
        keys = [j for j in range(memory.shape[1]) if seen[b, i, j]]
        scores = np.array([query[b, i, mine] @ memory[b, j, :width][mine] for j in keys]) / np.sqrt(d)
        out[b, i, mine] = sum(w * memory[b, j, width:][mine] for w, j in zip(softmax(scores), keys, strict=True))
    return out


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_is_a_softmax_over_the_keys_that_may_be_seen(heads):
    query, memory = random(B, N, D), random(B, 4, 2 * D, seed=2)
    seen = np.random.default_rng(0).random((B, N, 4)) > 0.4
    seen[..., 1] = True
    expected = naive_attend(np.asarray(query), np.asarray(memory), seen, heads)
    got = layers.attend(query, memory, jnp.asarray(seen), heads)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_what_may_not_be_seen_changes_nothing_and_learns_nothing():
    query, memory = random(1, N, D), random(1, N, 2 * D, seed=2)
    seen = jnp.array([[[1, 0, 0], [0, 0, 0], [1, 0, 1]]], bool)  # nobody sees key 1, and query 1 sees nothing
    rows = jnp.array([0, 2])

    @jax.jit
    def attended(memory):
        out = layers.attend(query, memory, seen, 2)
        return jnp.square(out[:, rows]).sum(), out

    ((_, one), gradient), (_, two) = (
        jax.value_and_grad(attended, has_aux=True)(memory),
        attended(memory.at[:, 1].mul(1e6)),
    )
    np.testing.assert_array_equal(one[:, rows], two[:, rows])
    assert jnp.isfinite(two).all()
    assert not gradient[:, 1].any() and gradient[:, 0].any()


def test_layer_norm():
    params, x = {"scale": random(D, seed=3), "bias": random(D, seed=4)}, 3 * random(7, D) + 5
    np.testing.assert_allclose(layers.layer_norm(params, x), layer_norm(x, params), rtol=1e-4, atol=1e-5)


def dense(params, x):
    return x @ np.asarray(params["kernel"], np.float64) + np.asarray(params["bias"], np.float64)


def gelu(x):
    """The approximation that JAX computes by default."""
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def naive_decoder(params, rep, token):
    """One team in decoding order [N, ...], literally: row m of every sequence reads rows 0 … m."""

    def norm(p, x):
        return layer_norm(x, p)

    def attend(p, query, x):
        causal = np.tri(len(x), dtype=bool)[None]
        mixed = naive_attend(dense(p["query"], query)[None], dense(p["memory"], x)[None], causal, 2)[0]
        return dense(p["output"], mixed)

    x = norm(params["embed"]["norms"][0], gelu(dense(params["embed"]["layers"][0], token)))
    for block in params["blocks"]:
        x = norm(block["self_norm"], x + attend(block["self"], x, x))
        x = norm(block["cross_norm"], rep + attend(block["cross"], rep, x))
        x = norm(block["mlp_norm"], x + dense(block["second"], gelu(dense(block["first"], x))))
    x = norm(params["hidden"]["norms"][0], gelu(dense(params["hidden"]["layers"][0], x)))
    return dense(params["head"], x)


def decoder(log_std=None) -> Decoder:
    body = Body(hidden=(D,), activation="gelu", layer_norm=True, orthogonal=False)
    return make_decoder(body, 2, 2, N, F, 4, 0.01, log_std)


PARAMS = noise(decoder())
OTHER = random(B, N, F, seed=6)
REP, TOKEN = random(2, B, N, D), random(2, B, N, F, seed=2)
RANKS = jnp.stack([RANK, RANK[::-1]])


def test_the_decoder_is_the_paper_s_with_agents_left_where_they_are():
    got = np.asarray(run(decoder().parallel, PARAMS, REP, TOKEN, RANKS))
    for t, b in np.ndindex(2, B):
        order = np.argsort(RANKS[t, b])
        rows = naive_decoder(PARAMS, np.asarray(REP[t, b], np.float64)[order], np.asarray(TOKEN[t, b])[order])
        np.testing.assert_allclose(got[t, b][order], rows, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("log_std", [None, -0.5])
def test_decoding_with_a_cache_equals_decoding_at_once(log_std):
    net, params = decoder(log_std), noise(decoder(log_std))
    at_once = run(net.parallel, params, REP[0], TOKEN[0], RANK)
    order, cache = jnp.argsort(RANK, axis=-1), net.start(B)
    step = jax.jit(net.step, compiler_options=FAST)
    for m in range(N):
        rows = jnp.arange(B), order[:, m]
        cache, output = step(params, cache, jnp.int32(m), REP[0][rows], TOKEN[0][rows])
        np.testing.assert_allclose(output, at_once[rows], rtol=1e-5, atol=1e-5)


def test_the_decoder_does_not_depend_on_later_agents():
    parallel = jax.jit(decoder().parallel, compiler_options=FAST)
    before = parallel(PARAMS, REP[0], TOKEN[0], RANK)
    for j in range(N):
        changed = jnp.abs(parallel(PARAMS, REP[0], TOKEN[0].at[:, j].set(OTHER[:, j]), RANK) - before).max(-1) > 0
        np.testing.assert_array_equal(changed, RANK[:, j : j + 1] <= RANK)


ENCODER = make_encoder(BODY, 2, 2, F)
ENCODER_PARAMS = noise(ENCODER)
X = random(B, N, F, seed=5)


def test_dead_agents_are_masked_out_of_attention():
    apply = jax.jit(ENCODER.apply, compiler_options=FAST)
    value, rep = apply(ENCODER_PARAMS, X, ALIVE)
    assert value.shape == (B, N) and rep.shape == (B, N, D)
    for j in range(N):
        other_value, other_rep = apply(ENCODER_PARAMS, X.at[:, j].set(OTHER[:, j]), ALIVE)
        for b, i in itertools.product(range(B - 1), range(N)):
            if i != j and ALIVE[b, i]:
                moved = jnp.abs(other_rep[b, i] - rep[b, i]).max(), jnp.abs(other_value[b, i] - value[b, i])
                assert (min(moved) > 0) if ALIVE[b, j] else (max(moved) == 0), (b, i, j)
    assert jnp.isfinite(value).all()  # also where all are dead


def test_the_encoder_knows_no_order_of_agents():
    apply = jax.jit(ENCODER.apply, compiler_options=FAST)
    value, rep = apply(ENCODER_PARAMS, X, ALIVE)
    for order in itertools.permutations(range(N)):
        order = jnp.array(order)
        moved_value, moved_rep = apply(ENCODER_PARAMS, X[:, order], ALIVE[:, order])
        np.testing.assert_allclose(moved_value, value[:, order], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(moved_rep, rep[:, order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "heads", "said"),
    [
        ({"hidden": (6,)}, 4, "4 heads do not divide 6, the width of the layer"),
        ({"hidden": ()}, 1, "A layer has to embed the inputs"),
        ({"hidden": (4, 0)}, 1, "each item of hidden must be at least 1"),
        ({"hidden": (4,), "activation": "swish"}, 1, "no activation 'swish'"),
    ],
)
def test_invalid_input_is_refused(as_users_run, body, heads, said):
    with pytest.raises(InputError, match=said):
        make_encoder(Body(**body), 1, heads, F)
