import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import InputError
from shoal.networks.body import Body, build_body
from shoal.networks.sharing import for_team, per_agent, policy_of
from shoal.types import Discrete, EnvSpec
from support.small_nets import apply, initialise, noise, pick, random, stack

N = 3
SPEC = EnvSpec("toy", ("a", "b", "c"), (4, 4, 4), 2, Discrete(2), (2, 2, 2), (0, 1, 0), 5, True)
NET = build_body(Body((5,), orthogonal=False), 4, 2)
X, FIRST = random(2, 3, N, 4), jnp.zeros((2, 3), bool)


@pytest.mark.parametrize(
    ("sharing", "index"),
    [("shared", (0, 0, 0)), ("role", (0, 1, 0)), ("independent", (0, 1, 2)), ((1, 1, 0), (1, 1, 0))],
)
def test_sharing_modes_are_index_vectors(sharing, index):
    assert policy_of(SPEC, sharing) == index


@pytest.mark.parametrize("vector", [(), (0, 0), (0, 0, 0, 0), (0, 0, 2), (1, 1, 1), (-1, 0, 1), (0, 2, 3)])
def test_bad_vectors_are_refused(vector):
    with pytest.raises(InputError, match="must give each of the 3 agents a policy"):
        policy_of(SPEC, vector)


@pytest.mark.parametrize("sharing", ["indipendent", "", None, [0, 0, 1]])
def test_what_is_no_mode_is_refused_rather_than_taken_for_one(as_users_run, sharing):
    with pytest.raises(InputError, match="'independent' or a tuple"):
        policy_of(SPEC, sharing)


def params_of(index):
    return stack(*(noise(NET, seed) for seed in range(max(index) + 1)))


@pytest.mark.parametrize("index", [(0, 0, 0), (0, 1, 2), (2, 0, 1), (0, 0, 1), (1, 0, 1)])
def test_every_agent_uses_its_policy_s_parameters(index):
    net, params = per_agent(NET, index), params_of(index)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)
    assert all(x.shape[0] == max(index) + 1 for x in jax.tree.leaves(shapes))
    y = apply(net, params, (), X, FIRST)[1]
    for i, p in enumerate(index):
        alone = apply(NET, pick(params, p), (), X[:, :, i], FIRST)[1]
        np.testing.assert_allclose(y[:, :, i], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [(0, 1, 2), (2, 0, 1), (0, 0, 1)])
def test_gradients_stay_within_a_policy_and_add_up_over_its_agents(index):
    net, params = per_agent(NET, index), params_of(index)

    @jax.jit
    def gradient(params, weight):
        return jax.grad(lambda p: (jnp.square(net.apply(p, (), X, FIRST)[1]).sum((0, 1, 3)) * weight).sum())(params)

    alone = [gradient(params, weight) for weight in jnp.eye(N)]
    for p in range(max(index) + 1):
        assert any(x[p].any() for x in jax.tree.leaves(alone[2])) == (p == index[2])
    for *parts, whole in zip(*map(jax.tree.leaves, (*alone, gradient(params, jnp.ones(N)))), strict=True):
        np.testing.assert_allclose(sum(parts), whole, rtol=1e-4, atol=1e-5)


def test_policies_start_with_different_parameters():
    kernel = initialise(per_agent(build_body(Body((), orthogonal=False), 4, 2), (0, 1, 2)))["head"]["kernel"]
    assert jnp.abs(kernel[0] - kernel[1]).min() > 0 and jnp.abs(kernel[1] - kernel[2]).min() > 0


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(N)), st.sampled_from([(0, 0, 0), (0, 1, 2), (0, 0, 1)]))
def test_agents_may_stand_in_any_order(order, index):
    """Permuting agents together with their policies permutes the outputs; with shared parameters, agents alone do."""
    params, order = params_of(index), list(order)
    y = np.asarray(per_agent(NET, index).apply(params, (), X, FIRST)[1])
    x = jnp.asarray(np.asarray(X)[:, :, order])
    moved = per_agent(NET, tuple(index[i] for i in order)).apply(params, (), x, FIRST)[1]
    np.testing.assert_allclose(moved, y[:, :, order], rtol=1e-5, atol=1e-6)


def test_copies_of_one_policy_act_as_the_shared_one():
    shared = params_of((0,))
    copies = jax.tree.map(lambda x: jnp.repeat(x, N, 0), shared)
    one = apply(per_agent(NET, (0, 0, 0)), shared, (), X, FIRST)[1]
    for index in ((0, 1, 2), (2, 0, 1)):
        np.testing.assert_allclose(apply(per_agent(NET, index), copies, (), X, FIRST)[1], one, rtol=1e-5, atol=1e-6)


def test_a_net_of_the_team_keeps_the_axis_of_policies():
    net = for_team(NET)
    params = params_of((0,))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, jax.eval_shape(net.init, jax.random.key(0)))
    y = apply(net, params, (), X[:, :, 0], FIRST)[1]
    np.testing.assert_allclose(y, apply(NET, noise(NET, 0), (), X[:, :, 0], FIRST)[1], rtol=1e-6)
    gru = for_team(build_body(Body((5,), recurrent=6, orthogonal=False), 4, 2))
    assert gru.initial_carry((3,)).shape == (3, 6)
