import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nets import apply, layer_norm, noise, pick, random, stack

from shoal.networks.body import Body, build
from shoal.networks.net import last_carry
from shoal.networks.sharing import per_agent

T, E, N, F, H = 7, 3, 2, 4, 5
NET = build(Body((6,), recurrent=H), F, 2)
PARAMS = noise(NET)
X, CARRY = random(T, E, N, F), random(E, N, H, seed=2)
FIRST = np.zeros((T, E), bool)
FIRST[0, 1] = FIRST[3, 0] = FIRST[3, 2] = FIRST[6, 0] = True


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive(params, carry, x, first):
    """One environment, one agent: x [T, F], carry [H], first [T]."""
    (layer,), gru, after = params["layers"].values(), params["gru"], []
    w, b, u = gru["input"]["kernel"], gru["input"]["bias"], gru["hidden"]["kernel"]
    for x_t, first_t in zip(np.asarray(x, np.float64), first, strict=True):
        carry = np.zeros(H) if first_t else carry
        x_t = np.tanh(x_t @ layer["kernel"] + layer["bias"])
        reset = sigmoid(x_t @ w[:, :H] + b[:H] + carry @ u[:, :H])
        update = sigmoid(x_t @ w[:, H : 2 * H] + b[H : 2 * H] + carry @ u[:, H : 2 * H])
        new = np.tanh(x_t @ w[:, 2 * H :] + b[2 * H :] + reset * (carry @ u[:, 2 * H :] + gru["candidate_bias"]))
        carry = (1 - update) * new + update * carry
        after.append(carry)
    return np.stack(after)


@pytest.fixture(scope="module")
def sequence():
    return apply(NET, PARAMS, CARRY, X, FIRST)


def test_a_sequence_is_that_of_a_naive_gru_with_resets(sequence):
    after, y = sequence
    assert after.shape == (T, E, N, H) and y.shape == (T, E, N, 2)
    for e, i in np.ndindex(E, N):
        expected = naive(PARAMS, CARRY[e, i], X[:, e, i], FIRST[:, e])
        np.testing.assert_allclose(after[:, e, i], expected, rtol=1e-4, atol=1e-5)
        head = PARAMS["head"]
        np.testing.assert_allclose(y[:, e, i], expected @ head["kernel"] + head["bias"], rtol=1e-4, atol=1e-5)


def test_step_by_step_is_the_same_as_the_whole_sequence(sequence):
    carry, states, outputs = CARRY, [], []
    for t in range(T):
        after, y = apply(NET, PARAMS, carry, X[t : t + 1], FIRST[t : t + 1])
        carry = last_carry(after)
        states.append(carry)
        outputs.append(y[0])
    np.testing.assert_allclose(jnp.stack(states), sequence[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jnp.stack(outputs), sequence[1], rtol=1e-5, atol=1e-6)


def test_the_last_carry_is_that_of_the_last_timestep(sequence):
    np.testing.assert_array_equal(last_carry({"h": sequence[0]})["h"], sequence[0][-1])
    assert last_carry(()) == ()


def test_nothing_before_a_reset_matters(sequence):
    """Environment 0 starts anew at timestep 3, environment 1 never after timestep 0."""
    after, _ = apply(NET, PARAMS, CARRY + 1, X.at[:3].add(1.0), FIRST)
    np.testing.assert_array_equal(after[3:, 0], sequence[0][3:, 0])
    assert jnp.abs(after[3:, 1] - sequence[0][3:, 1]).min(0).max() > 1e-4
    assert jnp.abs(after[:3] - sequence[0][:3]).max() > 0.1


def test_timesteps_may_stand_beside_environments(sequence):
    """V(outcome) is read at all T steps at once, each from the state after its action: batch axes (T, E)."""
    after, y = apply(NET, PARAMS, sequence[0], X[None], FIRST[None])
    for t in (0, 3):
        alone = apply(NET, PARAMS, sequence[0][t], X[t : t + 1], FIRST[t : t + 1])
        np.testing.assert_allclose(after[0, t], alone[0][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y[0, t], alone[1][0], rtol=1e-5, atol=1e-6)


def test_layer_norm_also_follows_the_gru_but_stays_out_of_its_state():
    net = build(Body((), recurrent=H, layer_norm=True), F, 2)
    params = noise(net)
    after, y = apply(net, params, CARRY, X, FIRST)
    bare = {k: v for k, v in params.items() if k != "gru_norm"}
    plain = build(Body((), recurrent=H), F, 2)
    bare = jax.tree.unflatten(jax.tree.structure(jax.eval_shape(plain.init, jax.random.key(0))), jax.tree.leaves(bare))
    np.testing.assert_allclose(after, apply(plain, bare, CARRY, X, FIRST)[0], rtol=1e-5)
    normed = layer_norm(after, params["gru_norm"][0])
    head = params["head"]
    np.testing.assert_allclose(y, normed @ head["kernel"] + head["bias"], rtol=1e-3, atol=1e-4)


def test_agents_with_parameters_of_their_own_have_states_of_their_own():
    index = (1, 0)
    net = per_agent(NET, index)
    params = stack(PARAMS, noise(NET, 5))
    after, y = apply(net, params, CARRY, X, FIRST)
    for i, p in enumerate(index):
        alone = apply(NET, pick(params, p), CARRY[:, i], X[:, :, i], FIRST)
        np.testing.assert_allclose(after[:, :, i], alone[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y[:, :, i], alone[1], rtol=1e-4, atol=1e-5)
    assert net.initial_carry((E,)).shape == (E, N, H) and not net.initial_carry((E,)).any()
