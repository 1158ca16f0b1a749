"""The LSTM against a loop over timesteps, and its derivative against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nets import FAST, apply, noise, random

from shoal.errors import InputError
from shoal.learning.config import AgentConfig, check_options
from shoal.networks.architecture import Body
from shoal.networks.body import build

T, E, N, F, H = 6, 2, 2, 4, 5
NET = build(Body((), recurrent=H, cell="lstm"), F, 2)
PARAMS = noise(NET)
X, CARRY = random(T, E, N, F), random(E, N, 2 * H, seed=2)
FIRST = np.zeros((T, E), bool)
FIRST[0, 1] = FIRST[3, 0] = FIRST[5, 0] = True


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive(params, state, x, first):
    """One environment, one agent: x [T, F], state [2 H], first [T]."""
    lstm, after = params["lstm"], []
    w, b, u = lstm["input"]["kernel"], lstm["input"]["bias"], lstm["hidden"]["kernel"]
    for x_t, first_t in zip(np.asarray(x, np.float64), first, strict=True):
        h, c = np.zeros((2, H)) if first_t else np.split(np.asarray(state, np.float64), 2)
        i, f, g, o = np.split(x_t @ w + b + h @ u, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        state = np.concatenate([sigmoid(o) * np.tanh(c), c])
        after.append(state)
    return np.stack(after)


@pytest.fixture(scope="module")
def sequence():
    return apply(NET, PARAMS, CARRY, X, FIRST)


def test_a_sequence_is_that_of_a_naive_lstm_with_resets(sequence):
    after, y = sequence
    assert after.shape == (T, E, N, 2 * H) and y.shape == (T, E, N, 2)
    for e, i in np.ndindex(E, N):
        expected = naive(PARAMS, CARRY[e, i], X[:, e, i], FIRST[:, e])
        np.testing.assert_allclose(after[:, e, i], expected, rtol=1e-4, atol=1e-5)
        head = PARAMS["head"]
        np.testing.assert_allclose(y[:, e, i], expected[:, :H] @ head["kernel"] + head["bias"], rtol=1e-4, atol=1e-5)


def test_step_by_step_is_the_same_as_the_whole_sequence(sequence):
    carry = CARRY
    for t in range(T):
        after, y = apply(NET, PARAMS, carry, X[t : t + 1], FIRST[t : t + 1])
        carry = after[-1]
        np.testing.assert_allclose(carry, sequence[0][t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y[0], sequence[1][t], rtol=1e-5, atol=1e-6)


def test_its_gradient_is_that_of_the_loop():
    """Of one environment and agent, by central differences of the loop in double precision."""
    x, carry, first = X[:, :1, 0], CARRY[:1, 0], FIRST[:, :1]
    weight = np.asarray(random(T, 2 * H, seed=7), np.float64)

    def loss(params, carry, x):
        after, _ = NET.apply(params, carry, x, jnp.array(first))
        return (after[:, 0] * weight).sum()

    params = jax.tree.map(lambda a: np.asarray(a, np.float64), PARAMS)
    found = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), compiler_options=FAST)(PARAMS, carry, x)

    def slope(change):
        up, down = ((naive(*change(sign * 1e-5), first[:, 0]) * weight).sum() for sign in (1, -1))
        return (up - down) / 2e-5

    for name, index in ((("hidden", "kernel"), (1, 3)), (("hidden", "kernel"), (4, 17)), (("input", "kernel"), (2, 8))):

        def change(by, name=name, index=index):
            copy = jax.tree.map(np.copy, params)
            copy["lstm"][name[0]][name[1]][index] += by
            return copy, carry[0], x[:, 0]

        np.testing.assert_allclose(found[0]["lstm"][name[0]][name[1]][index], slope(change), rtol=1e-3, atol=1e-4)
    for k in (1, H + 2):

        def change_start(by, k=k):
            start = np.asarray(carry[0], np.float64).copy()
            start[k] += by
            return params, start, x[:, 0]

        np.testing.assert_allclose(found[1][0, k], slope(change_start), rtol=1e-3, atol=1e-4)


def test_memories_last_at_first():
    bias = build(Body((), recurrent=3, cell="lstm"), 2, 1).init(jax.random.key(0))["lstm"]["input"]["bias"]
    np.testing.assert_array_equal(bias, [0] * 3 + [1] * 3 + [0] * 6)


def test_a_cell_without_a_width_is_refused():
    with pytest.raises(InputError, match="cell 'lstm' needs a recurrent network: set its width with --recurrent H"):
        check_options(AgentConfig(network=Body(cell="lstm")))
