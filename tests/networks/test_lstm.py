"""The derivative of the LSTM against finite differences, and how it is made. See ``test_cells.py``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.learning.config import AgentConfig, check_options
from shoal.networks.architecture import Body
from shoal.networks.body import build_body
from support import recurrent_loops as loops
from support.small_nets import FAST, noise, random

T, F, H = 6, 4, loops.HIDDEN
NET = build_body(Body((), recurrent=H, cell="lstm", orthogonal=False), F, 2)
PARAMS = noise(NET)


def test_its_gradient_is_that_of_the_loop():
    """Of one environment and agent, by central differences of the loop in double precision."""
    x, carry, first = random(T, 1, F), random(1, 2 * H, seed=2), np.zeros((T, 1), bool)
    first[3] = True
    weight = np.asarray(random(T, 2 * H, seed=7), np.float64)

    def loss(params, carry, x):
        after, _ = NET.apply(params, carry, x, jnp.array(first))
        return (after[:, 0] * weight).sum()

    params = jax.tree.map(lambda a: np.asarray(a, np.float64), PARAMS)
    found = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), compiler_options=FAST)(PARAMS, carry, x)

    def slope(change):
        def total(params, carry, x):
            return (loops.states(loops.lstm, params, carry, x, first[:, 0]) * weight).sum()

        return (total(*change(1e-5)) - total(*change(-1e-5))) / 2e-5

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


def test_forget_gates_start_open():
    bias = build_body(Body((), recurrent=3, cell="lstm"), 2, 1).init(jax.random.key(0))["lstm"]["input"]["bias"]
    np.testing.assert_array_equal(bias, [0] * 3 + [1] * 3 + [0] * 6)


def test_an_lstm_without_a_width_is_refused():
    with pytest.raises(InputError, match="cell 'lstm' needs a recurrent network: set its width with --recurrent H"):
        check_options(AgentConfig(network=Body(cell="lstm")))
