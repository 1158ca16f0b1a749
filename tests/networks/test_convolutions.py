"""Convolutions against loops over pixels, and what networks for images read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.networks.architecture import Body
from shoal.networks.body import build_body
from shoal.networks.inputs import InputPart, Layout, layout_of_agents, vector_layout
from shoal.networks.layers import convolve, pooled
from support.small_nets import apply, initialise, noise, random

FIRST = np.zeros((2, 3), bool)
IMAGE, NUMBERS = (7, 8, 2), 3
MIXED = Layout((InputPart((NUMBERS,), name="speed"), InputPart(IMAGE, name="image")))


def naive(x, kernel, stride, same):
    """One image [Y, X, C]."""
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    high, wide = kernel.shape[:2]
    if same:
        x = np.pad(x, (((high - 1) // 2, high // 2), ((wide - 1) // 2, wide // 2), (0, 0)))
    rows, cols = (x.shape[0] - high) // stride + 1, (x.shape[1] - wide) // stride + 1
    y = np.zeros((rows, cols, kernel.shape[3]))
    for i, j in np.ndindex(rows, cols):
        for k, m, c, d in np.ndindex(kernel.shape):
            y[i, j, d] += kernel[k, m, c, d] * x[stride * i + k, stride * j + m, c]
    return y


@pytest.mark.parametrize(
    ("shape", "size", "stride", "same"),
    [
        ((7, 6, 2), 3, 1, False),
        ((4, 3, 2), 3, 1, True),
        ((5, 13, 2), 3, 1, True),
        ((13, 15, 1), 4, 2, False),
        ((34, 37, 1), 8, 4, False),
    ],
)
def test_a_convolution_is_that_of_a_loop(shape, size, stride, same):
    x, kernel = random(2, *shape), random(size, size, shape[2], 3, seed=2)
    y = jax.jit(convolve, static_argnums=(2, 3))(x, kernel, stride, same)
    for image, found in zip(x, y, strict=True):
        np.testing.assert_allclose(found, naive(image, kernel, stride, same), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 5), (7, 4), (1, 2)])
def test_a_maximum_is_that_of_windows_that_leave_nothing_out(shape):
    x = np.asarray(random(2, *shape, 3))
    rows, cols = -(-shape[0] // 2), -(-shape[1] // 2)
    y = pooled(jnp.array(x))
    assert y.shape == (2, rows, cols, 3)
    before = [max((n - 1) * 2 + 3 - length, 0) // 2 for n, length in zip((rows, cols), shape, strict=True)]
    for i, j in np.ndindex(rows, cols):
        top, left = 2 * i - before[0], 2 * j - before[1]
        window = x[:, max(top, 0) : top + 3, max(left, 0) : left + 3]
        np.testing.assert_array_equal(y[:, i, j], window.max((1, 2)))


def dense(x, layer, f=np.tanh):
    return f(x @ np.asarray(layer["kernel"], np.float64) + layer["bias"])


def cnn_row(params, image):
    """The 7 × 8 image after convolutions of 3 × 3 pixels, of which the last is padded, since only 3 rows are left."""
    x = np.asarray(image, np.float64)
    for layer, same in zip(params, (False, False, True), strict=True):
        x = np.maximum(naive(x, layer["kernel"], 1, same) + layer["bias"], 0)
    return x.reshape(-1)


BODY = Body(hidden=(5,), channels=(2, 3, 2))


def test_images_are_convolved_and_vectors_follow():
    net = build_body(BODY, MIXED + vector_layout(2, "id"), 4)
    params, x = noise(net), random(2, 3, MIXED.width + 2)
    y = apply(net, params, (), x, FIRST)[1]
    for t, e in np.ndindex(2, 3):
        row = np.asarray(x[t, e], np.float64)
        seen = cnn_row(params["encoder"][0], row[NUMBERS : NUMBERS + 112].reshape(IMAGE))
        seen = np.concatenate([seen, row[:NUMBERS], row[-2:]])
        expected = dense(dense(seen, params["layers"][0]), params["head"], lambda x: x)
        np.testing.assert_allclose(y[t, e], expected, rtol=2e-3, atol=1e-3)


def test_all_agents_images_go_through_one_network():
    """A critic of both agents has as many convolutions as an actor, and reads both images by them."""
    net = build_body(BODY, layout_of_agents(MIXED, range(2)), 1)
    params, x = noise(net), random(2, 3, 2 * MIXED.width)
    assert len(params["encoder"]) == 1
    y = apply(net, params, (), x, FIRST)[1]
    one, two = np.split(np.asarray(x[1, 2], np.float64), 2)
    seen = [cnn_row(params["encoder"][0], agent[NUMBERS:].reshape(IMAGE)) for agent in (one, two)]
    seen = np.concatenate([*seen, one[:NUMBERS], two[:NUMBERS]])
    expected = dense(dense(seen, params["layers"][0]), params["head"], lambda x: x)
    np.testing.assert_allclose(y[1, 2], expected, rtol=2e-3, atol=1e-3)


def test_impala_adds_two_residual_blocks_to_each_stage():
    net = build_body(Body(hidden=(), channels=(2, 3), network="impala"), Layout((InputPart((5, 4, 1)),)), 2)
    params, x = noise(net), random(2, 3, 20)
    image = np.asarray(x[0, 1], np.float64).reshape(5, 4, 1)
    for first, *blocks in params["encoder"][0]:
        image = naive(image, first["kernel"], 1, True) + first["bias"]
        image = np.asarray(pooled(jnp.array(image[None], jnp.float32))[0], np.float64)
        for one, two in (blocks[:2], blocks[2:]):
            inner = naive(np.maximum(image, 0), one["kernel"], 1, True) + one["bias"]
            image = image + naive(np.maximum(inner, 0), two["kernel"], 1, True) + two["bias"]
    expected = dense(np.maximum(image, 0).reshape(-1), params["head"], lambda x: x)
    np.testing.assert_allclose(apply(net, params, (), x, FIRST)[1][0, 1], expected, rtol=2e-3, atol=1e-2)


def test_kernels_are_orthogonal_and_steps_follow_the_size_of_the_image():
    def kernels(size):
        net = build_body(Body(hidden=()), Layout((InputPart((size, size, 3)),)), 2)
        return initialise(net)["encoder"][0] if size == 7 else jax.eval_shape(net.init, jax.random.key(0))["encoder"][0]

    small = [layer["kernel"] for layer in kernels(7)]
    assert [k.shape for k in small] == [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32)]
    assert [layer["kernel"].shape for layer in kernels(84)] == [(8, 8, 3, 16), (4, 4, 16, 32), (3, 3, 32, 32)]
    for kernel in small:
        flat = np.asarray(kernel).reshape(-1, kernel.shape[-1]) / 2**0.5
        np.testing.assert_allclose(flat.T @ flat, np.eye(kernel.shape[-1]), atol=1e-4)


def test_without_images_auto_is_the_mlp_to_the_bit():
    auto, mlp = build_body(Body((6,)), 4, 2), build_body(Body((6,), network="mlp"), 4, 2)
    jax.tree.map(np.testing.assert_array_equal, initialise(auto), initialise(mlp))
    assert "encoder" not in build_body(BODY, vector_layout(9, "state"), 2).init(jax.random.key(0))


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("cnn", r"reads images, of shape \(height, width, channels\), and .* the shapes speed \(3,\): use mlp"),
        ("entities", r"reads sets of entities, of shape \(K, F\)"),
        ("mlpp", "There is no network 'mlpp'; did you mean 'mlp'"),
    ],
)
def test_a_network_that_finds_nothing_to_read_is_refused(network, said):
    layout = Layout((InputPart((3,), name="speed"),))
    with pytest.raises(InputError, match=said):
        build_body(Body(network=network), layout, 2)


def test_parts_are_split_in_their_shapes():
    x = jnp.arange(2.0 * MIXED.width).reshape(2, -1)
    speed, image = MIXED.split(x)
    assert speed.shape == (2, 3) and image.shape == (2, 7, 8, 2)
    np.testing.assert_array_equal(image[1].reshape(-1), x[1, 3:])
