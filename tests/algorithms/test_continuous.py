"""Gaussian policies: units, clipping against squashing, padded dimensions."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.distributions import DiagGaussian, TanhGaussian
from shoal.models.actor_critic import Policy, make_actor
from shoal.networks.body import Body
from shoal.networks.inputs import Inputs
from shoal.types import Box
from support.trajectories import E, compiled, make_spec, make_step

SPEC = make_spec(action=Box(2, -2.0, 6.0))
HALF, MIDDLE = 4.0, 2.0
STEP = make_step(np.random.default_rng(0), SPEC, (E,), dead=0.0)
REAL = np.asarray(STEP.legal)


@cache
def actor(squash, log_std=-0.5, gain=0.01):
    made = make_actor(SPEC, Body((6,)), (0, 0, 0), True, gain, log_std, squash)
    policy = Policy(compiled(made.init)(jax.random.key(0)), Inputs())
    return made, policy, compiled(made.act, static_argnums=4)


def with_bias(policy, bias):
    head = policy.actor["head"]
    return policy._replace(actor={**policy.actor, "head": {**head, "bias": jnp.full_like(head["bias"], bias)}})


@pytest.mark.parametrize("squash", [False, True])
def test_a_new_policy_stands_at_the_centre_of_the_box(squash):
    """The output layer's gain of 0.01 keeps means near 0 in units of half the box."""
    _, policy, act = actor(squash)
    _, action, _ = act(policy, (), STEP, jax.random.key(0), True)
    assert action.shape == (E, 3, 2)
    np.testing.assert_allclose(action, np.where(REAL, MIDDLE, 0), atol=0.02 * HALF)
    _, wide, act_wide = actor(squash, gain=1.0)
    _, action_wide, _ = act_wide(wide, (), STEP, jax.random.key(0), True)
    assert np.abs(np.where(REAL, action_wide - MIDDLE, 0)).max() > 0.1 * HALF


def test_mean_and_deviation_are_in_units_of_half_the_box():
    made, policy, act = actor(False)
    policy = with_bias(policy, 1.5)
    _, action, _ = act(policy, (), STEP, jax.random.key(0), True)
    np.testing.assert_allclose(action[REAL], MIDDLE + 1.5 * HALF, atol=0.02 * HALF)  # beyond the box: the env clips
    _, dist = made.distribution(policy.actor, (), jax.tree.map(lambda x: x[None], STEP))
    assert isinstance(dist, DiagGaussian)
    np.testing.assert_allclose(jnp.exp(dist.log_std), HALF * np.exp(-0.5), rtol=1e-5)


def test_clipping_leaves_actions_as_drawn_and_squashing_keeps_them_inside():
    step = jax.tree.map(lambda x: jnp.repeat(x, 100, 0), STEP)
    real = np.repeat(REAL, 100, 0)
    for squash in (False, True):
        _, policy, act = actor(squash, log_std=0.5)
        _, action, extras = act(with_bias(policy, 0.5), (), step, jax.random.key(0), False)
        drawn = np.asarray(action)[real]
        outside = ((drawn < -2) | (drawn > 6)).mean()
        assert outside == 0 if squash else outside > 0.2
        assert not np.asarray(action)[~real].any()
        assert jnp.isfinite(extras["log_prob"]).all()
        if not squash:
            np.testing.assert_allclose(drawn.mean(), MIDDLE + 0.5 * HALF, atol=0.5)
            np.testing.assert_allclose(drawn.std(), HALF * np.exp(0.5), rtol=0.1)


def test_squashing_is_another_distribution():
    made, policy, act = actor(True)
    _, dist = made.distribution(policy.actor, (), jax.tree.map(lambda x: x[None], STEP))
    assert isinstance(dist, TanhGaussian) and (dist.low, dist.high) == (-2.0, 6.0)
    _, action, _ = act(with_bias(policy, 1.0), (), STEP, jax.random.key(0), True)
    np.testing.assert_allclose(np.asarray(action)[REAL], MIDDLE + HALF * np.tanh(1.0), atol=0.02 * HALF)


@pytest.mark.parametrize("squash", [False, True])
def test_padded_dimensions_change_neither_log_probability_nor_entropy(squash):
    made, policy, _ = actor(squash)
    _, dist = made.distribution(policy.actor, (), jax.tree.map(lambda x: x[None], STEP))
    action = dist.sample(jax.random.key(0))
    junk = jnp.where(jnp.asarray(REAL), action, 123.0)
    np.testing.assert_array_equal(dist.log_prob(action), dist.log_prob(junk))
    # The last agent has one real dimension of the two, so about half of the others' entropy.
    entropy = np.asarray(dist.entropy())[0]
    np.testing.assert_allclose(entropy[:, 2] * 2, entropy[:, 0], rtol=0.05)
