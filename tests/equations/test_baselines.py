"""Baselines against their definitions, written out action by action, and scores against automatic differentiation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.baselines import counterfactual, gaussian_score_square, optimal, softmax_score_square
from shoal.equations.distributions import Categorical, DiagGaussian, TanhGaussian, mixed_with_uniform

RNG = np.random.default_rng(0)
LOGITS = jnp.array(2 * RNG.normal(size=(6, 4)), jnp.float32)
LEGAL = jnp.array(RNG.random((6, 4)) > 0.3).at[:, 0].set(True).at[:2].set(True)
Q = jnp.array(RNG.normal(size=(6, 4)) * 10, jnp.float32)


def policy(logits, epsilon) -> Any:
    """A softmax over legal actions; with an ε, mixed with the uniform one."""
    dist = Categorical(logits, LEGAL)
    return dist if epsilon == 0 else mixed_with_uniform(dist, epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_score_of_a_softmax_is_the_norm_of_its_gradient(epsilon):
    def gradient(action):
        return jax.grad(lambda z: policy(z, epsilon).log_prob(jnp.full(6, action)).sum())(LOGITS)

    expected = jnp.stack([jnp.square(gradient(a)).sum(-1) for a in range(4)], -1)
    square = softmax_score_square(policy(LOGITS, epsilon).probabilities(), LEGAL, epsilon)
    np.testing.assert_allclose(square[LEGAL], expected[LEGAL], rtol=1e-4)
    if epsilon == 0:
        pi = np.asarray(policy(LOGITS, 0.0).probabilities(), np.float64)
        formula = 1 + np.square(pi).sum(-1, keepdims=True) - 2 * pi  # as the paper's code has it
        np.testing.assert_allclose(square[LEGAL], formula[np.asarray(LEGAL)], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("squash", [False, True])
def test_the_score_of_a_gaussian_is_the_norm_of_its_gradient(squash):
    mean, log_std = (jnp.array(RNG.normal(size=(5, 3)), jnp.float32) for _ in range(2))
    real = jnp.array([True, True, False])
    log_std, z = log_std / 2, jnp.array(RNG.normal(size=(5, 3)), jnp.float32) / 2

    def dist(mean, log_std):
        return TanhGaussian(mean, log_std, -1.0, 3.0, real) if squash else DiagGaussian(mean, log_std, real)

    action = dist(mean, log_std).sample_from(z)
    parts = jax.grad(lambda *x: dist(*x).log_prob(action).sum(), (0, 1))(mean, log_std)
    expected = sum(jnp.square(g).sum(-1) for g in parts)
    square = gaussian_score_square(z.at[:, 2].set(jnp.nan), log_std.at[:, 2].set(jnp.nan), real)
    np.testing.assert_allclose(square, expected, rtol=2e-3)


def test_the_counterfactual_baseline_is_the_policy_s_mean():
    pi = policy(LOGITS, 0.0).probabilities()
    expected = [sum(p * q for p, q in zip(*row, strict=True)) for row in zip(pi, Q, strict=True)]
    np.testing.assert_allclose(counterfactual(Q, pi), expected, rtol=1e-5)


def test_the_optimal_baseline_weighs_by_the_score():
    pi = policy(LOGITS, 0.0).probabilities()
    square = softmax_score_square(pi, LEGAL)
    expected = [(p * s * q).sum() / (p * s).sum() for p, s, q in zip(pi, square, Q, strict=True)]
    np.testing.assert_allclose(optimal(Q, pi, square), expected, rtol=1e-4)


def test_values_of_impossible_actions_change_nothing():
    pi = policy(LOGITS, 0.0).probabilities()
    square = softmax_score_square(pi, LEGAL)
    worse = jnp.where(LEGAL, Q, jnp.nan)
    np.testing.assert_array_equal(counterfactual(worse, pi), counterfactual(Q, pi))
    np.testing.assert_array_equal(optimal(worse, pi, square), optimal(Q, pi, square))


def test_a_policy_without_choice_has_the_value_of_its_action_for_a_baseline():
    """‖∇ log π‖ is 0 for the action that is certain: nothing divides by zero, and the advantage is 0."""
    pi = jnp.eye(4)
    square = softmax_score_square(pi, jnp.ones((4, 4), bool))
    np.testing.assert_allclose(optimal(Q[:4], pi, square), jnp.diag(Q), rtol=1e-6)
    only = jnp.array([[True, False, False, False]])
    np.testing.assert_allclose(softmax_score_square(pi[:1], only)[0, 0], 0, atol=1e-6)


def test_an_epsilon_keeps_every_legal_action_possible():
    dist: Any = mixed_with_uniform(Categorical(100 * LOGITS, LEGAL), 0.2)
    p = np.asarray(dist.probabilities())
    count = np.asarray(LEGAL).sum(-1, keepdims=True)
    softmax = np.asarray(Categorical(100 * LOGITS, LEGAL).probabilities())
    np.testing.assert_allclose(p, np.where(LEGAL, 0.8 * softmax + 0.2 / count, 0), rtol=1e-5)
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)
    assert (dist.mode() == Categorical(LOGITS, LEGAL).mode()).all()


def test_an_epsilon_of_0_changes_nothing():
    def log_prob(logits, epsilon):
        dist = Categorical(logits, LEGAL)
        return (mixed_with_uniform(dist, epsilon) if epsilon is not None else dist).log_prob(jnp.zeros(6, int)).sum()

    got, expected = (jax.value_and_grad(log_prob)(50 * LOGITS, epsilon) for epsilon in (jnp.float32(0), None))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], atol=1e-6)
    gaussian = DiagGaussian(LOGITS, LOGITS, LEGAL)
    assert mixed_with_uniform(gaussian, None) is gaussian
