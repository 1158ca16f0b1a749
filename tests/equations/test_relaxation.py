"""The Gumbel-softmax: what it samples, what its gradient is, and that illegal actions have no part in either."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.distributions import gumbel_softmax

LOGITS = jnp.array([1.0, -0.5, 3.0, 0.2, -1.0])
LEGAL = jnp.array([True, True, False, True, True])
WEIGHTS = jnp.array([0.3, -1.0, 7.0, 2.0, 0.5])


def test_samples_are_distributed_as_the_softmax_over_legal_actions() -> None:
    noise = jax.random.gumbel(jax.random.key(0), (40_000, 5))
    sample = np.asarray(gumbel_softmax(jnp.broadcast_to(LOGITS, noise.shape), LEGAL, noise, temperature=0.6))
    assert set(np.unique(sample)) == {0.0, 1.0} and (sample.sum(-1) == 1).all()
    p = np.exp(np.where(LEGAL, LOGITS, -np.inf))
    np.testing.assert_allclose(sample.mean(0), p / p.sum(), atol=0.012)  # five standard errors
    assert (sample[:, 2] == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("straight", [True, False])
def test_the_gradient_is_that_of_the_relaxed_sample(temperature: float, straight: bool) -> None:
    """∂y_i/∂z_j = y_i (δ_ij − y_j) / τ over the legal actions, exactly 0 for the illegal one."""
    noise = jax.random.gumbel(jax.random.key(1), (5,))

    def value(z: jax.Array) -> jax.Array:
        y = gumbel_softmax(z, LEGAL, noise, temperature=temperature, straight_through=straight)
        return (WEIGHTS * y).sum()

    z = (np.asarray(LOGITS) + np.asarray(noise))[np.asarray(LEGAL)] / temperature
    y = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    w = np.asarray(WEIGHTS)[np.asarray(LEGAL)]
    gradient = np.asarray(jax.grad(value)(LOGITS))
    np.testing.assert_allclose(gradient[np.asarray(LEGAL)], y * (w - (y * w).sum()) / temperature, rtol=1e-4, atol=1e-6)
    assert gradient[2] == 0
    expected = w[z.argmax()] if straight else (y * w).sum()
    np.testing.assert_allclose(value(LOGITS), expected, rtol=1e-5)


@pytest.mark.parametrize("straight", [True, False])
def test_logits_of_illegal_actions_do_not_change_samples(straight: bool) -> None:
    noise = jax.random.gumbel(jax.random.key(1), (5,))

    def sample(z: jax.Array) -> jax.Array:
        return gumbel_softmax(z, LEGAL, noise, straight_through=straight)

    for junk in (jnp.nan, jnp.inf, 1e20):
        spoiled = LOGITS.at[2].set(junk)
        np.testing.assert_array_equal(sample(spoiled), sample(LOGITS))
        np.testing.assert_array_equal(jax.jacobian(sample)(spoiled), jax.jacobian(sample)(LOGITS))
    assert sample(LOGITS)[2] == 0
    assert not jax.jacobian(sample)(LOGITS)[2].any()


def test_low_temperatures_are_nearly_one_hot_and_high_ones_nearly_even() -> None:
    noise = jax.random.gumbel(jax.random.key(2), (5,))
    cold, hot = (gumbel_softmax(LOGITS, LEGAL, noise, temperature=t, straight_through=False) for t in (0.01, 100.0))
    np.testing.assert_allclose(cold, gumbel_softmax(LOGITS, LEGAL, noise), atol=1e-3)
    np.testing.assert_allclose(hot, jnp.where(LEGAL, 0.25, 0.0), atol=0.02)
