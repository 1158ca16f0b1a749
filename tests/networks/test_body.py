import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.networks.body import Body, build_body
from shoal.networks.layers import orthogonal
from support.small_nets import apply, initialise, layer_norm, noise, random

FIRST = np.zeros((2, 3), bool)


def orthonormality(kernel):
    """How far the shorter side's vectors are from orthonormal."""
    kernel = np.asarray(kernel, np.float64)
    gram = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
    return np.abs(gram - np.eye(len(gram))).max()


def test_kernels_are_orthogonal_with_their_gains_and_biases_zero():
    params = initialise(build_body(Body((7, 4), recurrent=3, gain=1.7), 5, 2, output_gain=0.01))
    for i in (0, 1):
        assert orthonormality(params["layers"][i]["kernel"] / 1.7) < 1e-5
    assert orthonormality(params["gru"]["input"]["kernel"]) < 1e-5
    assert orthonormality(params["gru"]["hidden"]["kernel"]) < 1e-5
    assert orthonormality(params["head"]["kernel"] / 0.01) < 1e-5
    biases = [x for path, x in jax.tree.leaves_with_path(params) if "bias" in jax.tree_util.keystr(path)]
    assert len(biases) == 5 and not any(b.any() for b in biases)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 7), (2, 2), (16, 16), (6, 30), (64, 64)])
def test_orthogonal_kernels_are_so_for_every_draw(shape):
    kernels = np.asarray(
        jax.jit(jax.vmap(lambda key: orthogonal(key, shape)))(jax.random.split(jax.random.key(0), 200))
    )
    assert max(orthonormality(kernel) for kernel in kernels) < 1e-4
    # Uniform: no entry prefers a sign, and an entry's square is one over the longer side.
    spread = (1 / max(shape)) ** 0.5
    assert np.abs(kernels.mean(0)).max() < 5 * spread / 200**0.5
    np.testing.assert_allclose((kernels**2).mean(), spread**2, rtol=1e-4)


def test_without_orthogonal_no_kernel_is_and_variances_are_lecun_s():
    params = initialise(build_body(Body((60,), recurrent=40, orthogonal=False), 50, 30, output_gain=0.01))
    kernels = [params["layers"][0], params["gru"]["input"], params["gru"]["hidden"], params["head"]]
    for kernel in (layer["kernel"] for layer in kernels):
        assert orthonormality(kernel) > 0.1
        np.testing.assert_allclose(kernel.std(), kernel.shape[0] ** -0.5, rtol=0.1)


def test_the_default_gain_is_the_square_root_of_two():
    assert orthonormality(initialise(build_body(Body((6,)), 6, 1))["layers"][0]["kernel"] / math.sqrt(2)) < 1e-5


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("tanh", np.tanh),
        ("relu", lambda x: np.maximum(x, 0)),
        ("gelu", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x / (1 + np.exp(-x))),
    ],
)
def test_layers_are_applied_in_order_with_the_activation_between(activation, function):
    """Twelve layers, because a tenth one comes before the second where names are sorted as text."""
    net = build_body(Body((4,) * 12, activation=activation), 4, 4)
    params, x = noise(net), random(2, 3, 4)
    expected = np.asarray(x, np.float64)
    for i in range(12):
        expected = function(expected @ params["layers"][i]["kernel"] + params["layers"][i]["bias"])
    expected = expected @ params["head"]["kernel"] + params["head"]["bias"]
    carry, y = apply(net, params, (), x, FIRST)
    assert carry == ()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_layer_norms_stand_on_the_raw_input_and_after_every_activation():
    net = build_body(Body((6, 5), layer_norm=True, input_layer_norm=True), 4, 3)
    params, x = noise(net), random(2, 3, 4)
    expected = layer_norm(x, params["input_norm"][0])
    for i in (0, 1):
        layer = params["layers"][i]
        expected = layer_norm(np.tanh(expected @ layer["kernel"] + layer["bias"]), params["norms"][i])
    expected = expected @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(apply(net, params, (), x, FIRST)[1], expected, rtol=1e-4, atol=1e-5)


def test_each_norm_is_there_only_when_asked_for():
    def count(**options):
        net = build_body(Body((4, 4), recurrent=3, **options), 4, 2)
        return len(jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0))))

    assert count(input_layer_norm=True) == count() + 2
    assert count(layer_norm=True) == count() + 2 * 3  # two layers and the GRU


def test_input_norm_makes_the_scale_of_a_sample_irrelevant():
    net = build_body(Body((6,), input_layer_norm=True), 4, 3)
    params, x = noise(net), 10 * random(2, 3, 4)
    np.testing.assert_allclose(
        apply(net, params, (), x, FIRST)[1], apply(net, params, (), 3 * x + 5, FIRST)[1], rtol=1e-3, atol=1e-4
    )


def test_no_hidden_layer_is_a_linear_map():
    net = build_body(Body(()), 4, 2)
    params, x = noise(net), random(2, 3, 4)
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(apply(net, params, (), x, FIRST)[1], expected, rtol=1e-5)


def test_log_std_is_a_parameter_that_no_input_changes(as_users_run):
    net = build_body(Body((6,)), 4, 3, log_std=-1)
    params, x = noise(net), random(2, 3, 4)
    assert initialise(net)["log_std"].dtype == jnp.float32  # a whole number is welcome, but integers do not learn
    np.testing.assert_array_equal(initialise(net)["log_std"], [-1, -1, -1])
    y = apply(net, params, (), x, FIRST)[1]
    assert y.shape == (2, 3, 6)
    np.testing.assert_array_equal(y[..., 3:], np.broadcast_to(params["log_std"], (2, 3, 3)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"activation": "relo"}, "did you mean 'relu'"),
        ({"hidden": (8, 0)}, "each item of hidden must be at least 1 and at most 65536, not 0"),
        ({"recurrent": 0}, "recurrent must be at least 1 and at most 65536, not 0"),
    ],
)
def test_impossible_bodies_are_refused(as_users_run, body, said):
    with pytest.raises(InputError, match=said):
        build_body(Body(**body), 4, 2)
