"""The mixing critic against loops, and what sets it apart from a critic that reads state and actions side by side."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.networks.hyper import Mixer, Mixing, mixing_critic
from support.small_nets import FAST, initialise, noise, random

N, A, S, E = 3, 4, 5, 6
ROWS = (2, 3)


def value(mixer, params, x, u):
    return jax.jit(mixer.apply, compiler_options=FAST)(params, x, u)


def slope(mixer, params, x, u):
    """∂Q/∂u [*b N A]."""
    return jax.jit(jax.grad(lambda u: mixer.apply(params, x, u).sum()), compiler_options=FAST)(u)


def made(kind: Mixing = "mix", layers: int = 2, seed: int = 0) -> tuple[Mixer, Any]:
    mixer = mixing_critic(kind, S, N, A, E, layers)
    return mixer, noise(mixer, seed)


def dense(layer, x):
    return x @ np.asarray(layer["kernel"][0], np.float64) + np.asarray(layer["bias"][0], np.float64)


def naive_net(params, x):
    for i in sorted(params.get("layers", {})):
        x = np.maximum(dense(params["layers"][i], x), 0)
    return dense(params["head"], x)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_forward_pass_is_the_paper_s_one_state_at_a_time(layers):
    mixer, params = made(layers=layers)
    x, u = random(*ROWS, S, seed=1), random(*ROWS, N, A, seed=2)
    q = value(mixer, params, x, u)
    for b in np.ndindex(ROWS):
        s = np.asarray(x[b], np.float64)
        w1 = naive_net(params["w1"], s).reshape(N * A, E)
        hidden = np.zeros(E)
        for i, a in np.ndindex(N, A):
            hidden += float(u[(*b, i, a)]) * w1[i * A + a]
        hidden = np.maximum(hidden + naive_net(params["b1"], s), 0)
        np.testing.assert_allclose(q[b], hidden @ naive_net(params["w2"], s) + naive_net(params["b2"], s)[0], rtol=1e-4)
    assert len(jax.tree.leaves(params)) == 2 * (2 * layers + 1 + 2)


def test_the_plain_critic_is_two_relu_layers_on_both():
    mixer, params = made("mlp")
    x, u = random(*ROWS, S, seed=1), random(*ROWS, N, A, seed=2)
    both = np.concatenate([x, u.reshape(*ROWS, N * A)], -1, dtype=np.float64)
    np.testing.assert_allclose(value(mixer, params, x, u), naive_net(params, both)[..., 0], rtol=1e-4, atol=1e-5)


def test_the_state_reaches_the_slope_through_the_weights_and_in_the_plain_critic_it_does_not():
    """∂v/∂u = f_s(s) ∂f_u/∂u with hypernetworks, ∂f_u/∂u without: with every ReLU open, only the first feels s."""
    u = jnp.ones((1, N, A)) / A
    x, y = random(1, S, seed=1), random(1, S, seed=2)
    mixer, params = made("mlp")
    for i in params["layers"]:
        params["layers"][i]["bias"] += 1e3 * (1 + 1e3 * i)
    here, there = (slope(mixer, params, state, u) for state in (x, y))
    np.testing.assert_allclose(here, there, atol=1e-4)
    mixer, params = made("mix")
    params["b1"]["head"]["bias"] += 1e3
    for state, got in ((state, slope(mixer, params, state, u)) for state in (x, y)):
        w1, w2 = (naive_net(params[name], np.asarray(state[0])) for name in ("w1", "w2"))
        np.testing.assert_allclose(got[0], (w1.reshape(N * A, E) @ w2).reshape(N, A), rtol=1e-3, atol=1e-4)
    assert jnp.abs(slope(mixer, params, x, u) - slope(mixer, params, y, u)).max() > 0.1


def test_mixers_without_absolute_weights_have_slopes_of_both_signs():
    """A mixer with |W| could only rise with its inputs (QMIX); this one has slopes of both signs."""
    mixer, params = made()
    slopes = slope(mixer, params, random(20, S, seed=1), random(20, N, A, seed=2))
    assert 0.2 < float((slopes < 0).mean()) < 0.8


@pytest.mark.parametrize("n", [2, 20])
def test_at_first_joint_actions_differ_as_much_however_many_agents_and_units_there_are(n):
    """The hidden layer sums N rows of W₁ and the output E numbers: neither sum may grow with its length."""
    u = jax.nn.one_hot(jax.random.randint(jax.random.key(1), (500, n), 0, A), A)
    for width in (8, 128):
        mixer = mixing_critic("mix", 1, n, A, width)
        q = [value(mixer, initialise(mixer, seed), jnp.ones((500, 1)), u).std() for seed in range(6)]
        assert 0.05 < np.mean(q) < 0.5


def test_parameters_have_the_axis_of_policies():
    for kind in ("mix", "mlp"):
        assert all(leaf.shape[0] == 1 for leaf in jax.tree.leaves(made(kind)[1]))


def test_invalid_input_is_refused(as_users_run):
    with pytest.raises(InputError, match="no mixing 'sum'"):
        mixing_critic("sum", S, N, A, E)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="hidden must be at least 1"):
        mixing_critic("mix", S, N, A, 0)
