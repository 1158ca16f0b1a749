"""Networks of the user's own, by name: what they compute, under sharing, and what is refused."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import own_nets
from shoal.errors import InputError
from shoal.networks.architecture import Body
from shoal.networks.body import build_body
from shoal.networks.inputs import vector_layout
from shoal.networks.sharing import per_agent
from support.small_nets import apply, initialise, pick, random

T, E, N, F, K = 4, 2, 3, 6, 2
X, FIRST = random(T, E, N, F), np.zeros((T, E), bool)
FIRST[2, 1] = True


def own(name, **options):
    return build_body(Body(network=f"own_nets:{name}", **options), vector_layout(F), K)


def test_a_flax_module_is_applied_to_each_row():
    net = own("flax")
    params = initialise(net)
    hidden = X @ params["hidden"]["kernel"] + params["hidden"]["bias"]
    expected = (hidden / (1 + jnp.exp(-hidden))) @ params["top"]["kernel"] + params["top"]["bias"]
    carry, y = apply(net, params, (), X, FIRST)
    assert carry == () and net.initial_carry((E, N)) == ()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("index", [(0, 0, 0), (0, 1, 2), (1, 0, 1)])
def test_a_recurrent_module_remembers_and_forgets_under_every_sharing(index):
    net, H = own("flax", recurrent=5), 5
    shared = per_agent(net, index)
    params = initialise(shared)
    carry = random(E, N, H, seed=3)
    after, y = apply(shared, params, carry, X, FIRST)
    assert after.shape == (T, E, N, H) and shared.initial_carry((E,)).shape == (E, N, H)
    for e, i in np.ndindex(E, N):
        p, h = pick(params, index[i]), np.asarray(carry[e, i])
        for t in range(T):
            h = (0 * h if FIRST[t, e] else h) / 2 + np.tanh(X[t, e, i] @ p["read"]["kernel"] + p["read"]["bias"])
            np.testing.assert_allclose(after[t, e, i], h, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(y[t, e, i], h @ p["top"]["kernel"] + p["top"]["bias"], rtol=1e-4, atol=1e-4)


def test_plain_functions_make_a_net_and_are_told_the_gain():
    net = build_body(Body(network="own_nets:linear"), vector_layout(F), K, output_gain=0.01, log_std=-1.0)
    params = initialise(net)
    kernel, bias = params["net"]
    assert 0 < np.abs(kernel).max() < 0.1 and params["log_std"].tolist() == [-1, -1]
    y = apply(net, params, (), X, FIRST)[1]
    np.testing.assert_allclose(y[..., :K], X @ kernel + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(y[..., K:], np.full((T, E, N, K), -1.0))


def test_a_network_for_features_that_are_not_negative_is_accepted():
    net = own("counts")
    params, x = initialise(net), np.abs(X)
    np.testing.assert_allclose(apply(net, params, (), x, FIRST)[1], np.log1p(x) @ params["w"], rtol=1e-5, atol=1e-6)


def test_a_partial_of_a_function_is_a_network():
    net = own("doubled")
    params = initialise(net)
    kernel, bias = params["net"]
    expected = 2 * X @ kernel + bias
    np.testing.assert_allclose(apply(net, params, (), X, FIRST)[1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("equinox") is None, reason="Equinox is not installed")
def test_an_equinox_module_is_applied_to_each_row():
    import equinox as eqx

    net = own("equinox")
    params = initialise(net)
    expected = jax.vmap(jax.vmap(jax.vmap(eqx.nn.MLP(F, K, 5, 1, key=jax.random.key(0)))))(X)
    np.testing.assert_allclose(apply(net, params, (), X, FIRST)[1], expected, rtol=1e-5, atol=1e-6)
    assert sorted(params)[:2] == [".layers[0].bias", ".layers[0].weight"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("own_nets:nothing", {}, "The module 'own_nets' has no attribute 'nothing'"),
        ("own_netz:flax", {}, "There is no module 'own_netz', which the network 'own_netz:flax' needs"),
        ("json:dumps", {}, "leads to the module 'json' of Python's standard library, which has no networks"),
        ("own_nets:encoded", {}, "leads to the module 'json' of Python's standard library, which has no networks"),
        ("own_nets:NUMBER", {}, "'own_nets:NUMBER' is not callable, so it cannot build a network"),
        ("own_nets:short", {}, r"a function \(inputs, outputs, body\) -> shoal.Net, but 'own_nets:short' cannot"),
        ("own_nets:failing", {}, r"failed with RuntimeError: no such thing \(.*own_nets.py, line \d+\)"),
        ("own_nets:mismatched", {}, r"failed with TypeError: dot_general .*\(.*own_nets.py, line \d+\)"),
        (
            "own_nets:built_nnx",
            {},
            r"lambda rngs: Layers\(..., rngs=rngs\), since .* given a Layers that is already built",
        ),
        ("own_nets:built_equinox", {}, r"takes a function from a key .* given a MLP that is already built"),
        ("own_nets:module", {}, "which is not a shoal.Net"),
        ("own_nets:narrow", {}, r"gives float32\[2, 3, 7\] for 2 timesteps of 3 rows, and 2 numbers for each row"),
        ("own_nets:counting", {}, "has the parameter 'count' of type int32: all parameters are floating-point"),
        ("own_nets:forgetful", {"recurrent": 4}, r"gives float32\[3, 4\] for 2 timesteps: each array is \[rows, H\]"),
        ("own_nets:forgetful", {}, r"recurrent is None: train it with --recurrent H, and return a net without one"),
        ("own_nets:statistics", {}, r"keeps statistics of batches \(norm.mean\), which are not parameters"),
        ("own_nets:mixing", {}, "The output of the network 'own_nets:mixing' for a row depends on the other rows"),
        ("own_nets:first", {}, "The output of the network 'own_nets:first' for a row depends on the other rows"),
        ("own_nets:summed", {}, "The output of the network 'own_nets:summed' for a row depends on the other rows"),
        ("own_nets:linen", {}, r"and a Dense is a module of flax.linen: use shoal.feed_forward\("),
        ("own_nets:undefined", {}, "gives NaN or infinite outputs for random inputs with its initial parameters"),
        ("own_nets:empty", {}, "The network 'own_nets:empty' has no parameters"),
        ("own_nets:leaking", {"recurrent": 4}, "uses its recurrent state where first is True"),
        ("own_nets:linear", {"recurrent": 4}, "recurrent is 4, and the network 'own_nets:linear' keeps no recurrent"),
    ],
)
def test_what_is_no_network_is_refused_in_one_sentence(as_users_run, name, options, said):
    with pytest.raises(InputError, match=said) as caught:
        build_body(Body(network=name, **options), vector_layout(F), K)
    assert "\n" not in str(caught.value)


def test_built_in_names_win():
    assert own_nets.NUMBER == 3  # the module is importable, and yet mlp is Shoal's
    assert "layers" in initialise(build_body(Body((4,), network="mlp"), F, K))
