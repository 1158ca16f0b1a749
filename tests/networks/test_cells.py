"""Recurrent networks, with either cell."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.networks.body import Body, build_body
from shoal.networks.net import Net, last_carry
from shoal.networks.sharing import per_agent
from support import recurrent_loops as loops
from support.recurrent_loops import HIDDEN
from support.small_nets import apply, layer_norm, noise, pick, random, stack

T, E, N, F = 7, 3, 2, 4
X = random(T, E, N, F)
FIRST = np.zeros((T, E), bool)
FIRST[0, 1] = FIRST[3, 0] = FIRST[3, 2] = FIRST[6, 0] = True
STATES = {"gru": HIDDEN, "lstm": 2 * HIDDEN}
"""Numbers that a cell keeps."""


class Sequence(NamedTuple):
    """What a net made of ``X`` and ``FIRST``."""

    cell: str
    net: Net
    params: Any
    carry: jax.Array
    """Before the first timestep."""
    after: jax.Array
    y: jax.Array


@pytest.fixture(scope="module", params=STATES)
def sequence(request: pytest.FixtureRequest) -> Sequence:
    cell = request.param
    net = build_body(Body((6,), recurrent=HIDDEN, cell=cell, orthogonal=False), F, 2)
    params, carry = noise(net), random(E, N, STATES[cell], seed=2)
    return Sequence(cell, net, params, carry, *apply(net, params, carry, X, FIRST))


def test_it_is_that_of_a_naive_loop_with_resets(sequence):
    cell, _, params, carry, after, y = sequence
    assert after.shape == (T, E, N, STATES[cell]) and y.shape == (T, E, N, 2)
    for e, i in np.ndindex(E, N):
        expected = loops.states(getattr(loops, cell), params, carry[e, i], X[:, e, i], FIRST[:, e])
        np.testing.assert_allclose(after[:, e, i], expected, rtol=1e-4, atol=1e-5)
        out = expected[:, :HIDDEN] @ params["head"]["kernel"] + params["head"]["bias"]
        np.testing.assert_allclose(y[:, e, i], out, rtol=1e-4, atol=1e-5)


def test_step_by_step_is_the_same_as_the_whole_sequence(sequence):
    carry, states, outputs = sequence.carry, [], []
    for t in range(T):
        after, y = apply(sequence.net, sequence.params, carry, X[t : t + 1], FIRST[t : t + 1])
        carry = last_carry(after)
        states.append(carry)
        outputs.append(y[0])
    np.testing.assert_allclose(jnp.stack(states), sequence.after, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jnp.stack(outputs), sequence.y, rtol=1e-5, atol=1e-6)


def test_the_last_carry_is_that_of_the_last_timestep(sequence):
    np.testing.assert_array_equal(last_carry({"h": sequence.after})["h"], sequence.after[-1])
    assert last_carry(()) == ()


def test_a_reset_forgets_earlier_timesteps(sequence):
    """Environment 0 starts anew at timestep 3, environment 1 never after timestep 0."""
    after, _ = apply(sequence.net, sequence.params, sequence.carry + 1, X.at[:3].add(1.0), FIRST)
    np.testing.assert_array_equal(after[3:, 0], sequence.after[3:, 0])
    assert jnp.abs(after[3:, 1] - sequence.after[3:, 1]).min(0).max() > 1e-4
    assert jnp.abs(after[:3] - sequence.after[:3]).max() > 0.1


def test_timesteps_may_stand_beside_environments(sequence):
    """V(outcome) is read at all T steps at once, each from the state after its action: batch axes (T, E)."""
    after, y = apply(sequence.net, sequence.params, sequence.after, X[None], FIRST[None])
    for t in (0, 3):
        alone = apply(sequence.net, sequence.params, sequence.after[t], X[t : t + 1], FIRST[t : t + 1])
        np.testing.assert_allclose(after[0, t], alone[0][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y[0, t], alone[1][0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", STATES)
def test_layer_norm_also_follows_the_cell_but_stays_out_of_its_state(cell):
    body = Body((), recurrent=HIDDEN, cell=cell, orthogonal=False)
    net, plain = (build_body(replace(body, layer_norm=norm), F, 2) for norm in (True, False))
    params, carry = noise(net), random(E, N, STATES[cell], seed=2)
    after, y = apply(net, params, carry, X, FIRST)
    bare = {k: v for k, v in params.items() if k != "gru_norm"}
    bare = jax.tree.unflatten(jax.tree.structure(jax.eval_shape(plain.init, jax.random.key(0))), jax.tree.leaves(bare))
    np.testing.assert_allclose(after, apply(plain, bare, carry, X, FIRST)[0], rtol=1e-5)
    normed = layer_norm(after[..., :HIDDEN], params["gru_norm"][0])
    head = params["head"]
    np.testing.assert_allclose(y, normed @ head["kernel"] + head["bias"], rtol=1e-3, atol=1e-4)


def test_agents_with_parameters_of_their_own_have_states_of_their_own(sequence):
    cell, own, params, carry, *_ = sequence
    index = (1, 0)
    net = per_agent(own, index)
    params = stack(params, noise(own, 5))
    after, y = apply(net, params, carry, X, FIRST)
    for i, p in enumerate(index):
        alone = apply(own, pick(params, p), carry[:, i], X[:, :, i], FIRST)
        np.testing.assert_allclose(after[:, :, i], alone[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y[:, :, i], alone[1], rtol=1e-4, atol=1e-5)
    assert net.initial_carry((E,)).shape == (E, N, STATES[cell]) and not net.initial_carry((E,)).any()
