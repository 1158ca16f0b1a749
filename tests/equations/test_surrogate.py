import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations import surrogate

CLIP = 0.2
RATIO = np.array([0.5, 0.9, 1.0, 1.1, 2.0, 5.0], np.float32)
LOG_RATIO = jnp.log(RATIO)


def value_and_slope(f, x):
    """f and its derivative by the ratio, element by element."""
    value, grad = f(x), jax.grad(lambda y: f(y).sum())(x)
    return value, grad / jnp.exp(x)


@pytest.mark.parametrize(
    ("advantage", "dual", "value", "slope"),
    [
        (+2.0, None, [1.0, 1.8, 2.0, 2.2, 2.4, 2.4], [2, 2, 2, 2, 0, 0]),
        (-2.0, None, [-1.6, -1.8, -2.0, -2.2, -4.0, -10.0], [0, -2, -2, -2, -2, -2]),
        (-2.0, 3.0, [-1.6, -1.8, -2.0, -2.2, -4.0, -6.0], [0, -2, -2, -2, -2, 0]),
        (+2.0, 3.0, [1.0, 1.8, 2.0, 2.2, 2.4, 2.4], [2, 2, 2, 2, 0, 0]),
        (0.0, 3.0, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_clipped_surrogate_by_hand(advantage, dual, value, slope):
    got = value_and_slope(lambda x: surrogate.clipped_surrogate(x, jnp.full(6, advantage), CLIP, dual), LOG_RATIO)
    np.testing.assert_allclose(got[0], value, rtol=1e-5)
    np.testing.assert_allclose(got[1], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("f", [surrogate.kl_penalty, lambda x: surrogate.clipped_surrogate(x, jnp.zeros(2), CLIP, 3.0)])
def test_a_ratio_that_overflows_gives_finite_values_and_gradients(f):
    value, vjp = jax.vjp(f, jnp.array([200.0, -1e9]))
    assert jnp.isfinite(value).all() and jnp.isfinite(vjp(jnp.zeros(2))[0]).all()


def test_a_dual_clip_that_would_bind_inside_the_clip_range_is_refused():
    with pytest.raises(AssertionError, match="exceed 1"):
        surrogate.clipped_surrogate(LOG_RATIO, LOG_RATIO, CLIP, 1.0)


def test_a_traced_clip_range_is_accepted():
    f = jax.jit(lambda clip: surrogate.clipped_surrogate(LOG_RATIO, jnp.ones(6), clip))
    np.testing.assert_allclose(f(jnp.array(0.05)), np.minimum(RATIO, 1.05), rtol=1e-6)


def test_huber_is_square_inside_and_linear_outside():
    e = jnp.array([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0])
    value, slope = surrogate.huber(e, 1.0), jax.grad(lambda x: surrogate.huber(x, 1.0).sum())(e)
    np.testing.assert_allclose(value, [2.5, 0.5, 0.0, 0.125, 0.5, 2.5])
    np.testing.assert_allclose(slope, [-1.0, -1.0, 0.0, 0.5, 1.0, 1.0])


def test_clipped_value_loss_by_hand():
    """Old value 1, target 2: moving up from 1 is clipped at 1.2, moving away from the target never is."""
    value = jnp.array([0.0, 1.1, 1.5, 2.9])
    old, target = jnp.ones(4), jnp.full(4, 2.0)

    def loss(v):
        return surrogate.clipped_value_loss(v, old, target, CLIP, None)

    np.testing.assert_allclose(loss(value), [2.0, 0.405, 0.32, 0.405], rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda v: loss(v).sum())(value), [-2.0, -0.9, 0.0, 0.9], rtol=1e-5)


def test_value_loss_without_clip_and_with_huber():
    value, old, target = jnp.array([0.0, 3.0]), jnp.array([5.0, 5.0]), jnp.array([1.0, 13.0])
    np.testing.assert_allclose(surrogate.clipped_value_loss(value, old, target, None, None), [0.5, 50.0])
    np.testing.assert_allclose(surrogate.clipped_value_loss(value, old, target, None, 2.0), [0.5, 18.0])
    # Clipped at 5 ± 1 the errors are 3 and -7.
    np.testing.assert_allclose(surrogate.clipped_value_loss(value, old, target, 1.0, 2.0), [4.0, 18.0])


def test_kl_penalty_has_the_divergence_as_its_mean_over_old_samples():
    old, new = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.2, 0.6])
    log_ratio = jnp.log(new) - jnp.log(old)
    expected = (old * (jnp.log(old) - jnp.log(new))).sum()
    np.testing.assert_allclose((old * surrogate.kl_penalty(log_ratio)).sum(), expected, rtol=1e-5)
    assert (surrogate.kl_penalty(log_ratio) > 0).all()
    slope = jax.grad(lambda x: surrogate.kl_penalty(x).sum())(log_ratio)
    np.testing.assert_allclose(slope, new / old - 1.0, rtol=1e-5)


def test_the_clip_fraction_carries_no_gradient():
    np.testing.assert_array_equal(surrogate.clip_fraction(LOG_RATIO, CLIP), [1, 0, 0, 0, 1, 1])
    assert not jax.grad(lambda x: surrogate.clip_fraction(x, CLIP).sum())(LOG_RATIO).any()
