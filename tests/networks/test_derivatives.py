"""The layers' own derivatives against those that JAX makes of plain products and a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.networks import recurrent
from shoal.networks.layers import product
from support.small_nets import random

T, R, H = 5, 3, 4
RESET = jnp.asarray(np.random.default_rng(0).random((T, R, 1)) < 0.3)
SHAPES = {"start": (R, H), "x": (T, R, 3 * H), "kernel": (H, 3 * H), "bias": (H,)}
POINT = {name: random(*shape, seed=seed) for seed, (name, shape) in enumerate(SHAPES.items(), 1)}
MOVE = {name: random(*shape, seed=seed) for seed, (name, shape) in enumerate(SHAPES.items(), 5)}


def recurrence(p):
    def gates(x):
        return tuple(jnp.split(x, 3, -1))

    return recurrent.gru_recurrence(p["start"], gates(p["x"]), RESET, gates(p["kernel"]), p["bias"])


def loop(p):
    h, states = p["start"], []
    for x, reset in zip(p["x"], RESET, strict=True):
        h = jnp.where(reset, 0.0, h)
        x_r, x_z, x_n = jnp.split(x, 3, -1)
        h_r, h_z, h_n = jnp.split(h @ p["kernel"], 3, -1)
        z = 1 / (1 + jnp.exp(-x_z - h_z))
        n = jnp.tanh(x_n + (h_n + p["bias"]) / (1 + jnp.exp(-x_r - h_r)))
        h = (1 - z) * n + z * h
        states.append(h)
    return jnp.stack(states)


def close(got, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), got, expected)


def energy(f):
    return lambda p: jnp.sum(jnp.sin(f(p)) * jnp.arange(1.0, H + 1))


@pytest.mark.parametrize("take", ["gradient", "push", "gradients of several nets", "curvature"])
def test_the_recurrence_has_the_derivatives_of_a_plain_loop(take):
    def derivative(f):
        if take == "gradient":
            return jax.grad(energy(f))(POINT)
        if take == "push":
            return jax.jvp(f, (POINT,), (MOVE,))[1]
        if take == "curvature":
            return jax.jvp(jax.grad(energy(f)), (POINT,), (MOVE,))[1]
        return jax.vmap(jax.grad(energy(f)))(jax.tree.map(lambda a, b: jnp.stack([a, b]), POINT, MOVE))

    close(*(jax.jit(lambda f=f: derivative(f))() for f in (recurrence, loop)))


@pytest.mark.parametrize("rows, width", [(7, 1), (7, 5), (40, 16)])
def test_a_product_has_the_derivatives_of_a_plain_product(rows, width):
    x, kernel = random(rows, 3), random(3, width, seed=2)

    def of(multiply):
        def f(x, kernel):
            return jnp.sum(jnp.sin(multiply(x, kernel)))

        both = jax.value_and_grad(f, (0, 1))(x, kernel)
        only = jax.grad(f, 1)(x, kernel)  # x is data, as in a first layer
        pushed = jax.jvp(f, (x, kernel), (x + 1, kernel - 1))[1]
        several = jax.vmap(jax.grad(f, (0, 1)))(jnp.stack([x, x + 1]), jnp.stack([kernel, 2 * kernel]))
        return both, only, pushed, several

    close(*(jax.jit(lambda m=m: of(m))() for m in (product, jnp.matmul)))
