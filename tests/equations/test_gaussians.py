import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.distributions import Deterministic, DiagGaussian, TanhGaussian

KEY = jax.random.key(0)
REAL = jnp.array([True, True, False])
MEAN = jnp.array([[0.3, -0.8, 7.0], [1.5, 0.0, jnp.nan]])
LOG_STD = jnp.array([[-0.5, 0.2, jnp.nan], [-1.0, -0.3, jnp.inf]])
LOW, HIGH = -1.0, 3.0


def gaussian(mean=MEAN, log_std=LOG_STD):
    return DiagGaussian(mean, log_std, jnp.broadcast_to(REAL, mean.shape))


def squashed(mean=MEAN, log_std=LOG_STD):
    return TanhGaussian(mean, log_std, LOW, HIGH, jnp.broadcast_to(REAL, mean.shape))


def point(mean=MEAN, log_std=LOG_STD):
    return Deterministic(mean, jnp.broadcast_to(REAL, mean.shape))


def normal_density(x, mean, std):
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))


def on_grid(d, low, high, count=20001):
    """(step, log-density [count, 2 rows, 2 real dimensions]) of each dimension on its own."""
    x = np.linspace(low, high, count, dtype=np.float32)
    one = type(d)(**{**vars(d), "mean": d.mean[..., None], "log_std": d.log_std[..., None], "real": d.real[..., None]})
    logp = jax.jit(lambda x: jax.vmap(lambda v: one.log_prob(jnp.full((2, 3, 1), v)))(x))(x)
    return x, np.asarray(logp, np.float64)[..., :2]


def test_gaussian_log_prob_is_that_of_the_normal():
    action = jnp.array([[0.1, 0.2, 100.0], [-1.0, 2.0, jnp.nan]])
    expected = np.log(normal_density(np.asarray(action), np.asarray(MEAN), np.exp(np.asarray(LOG_STD))))[:, :2].sum(-1)
    np.testing.assert_allclose(gaussian().log_prob(action), expected, rtol=1e-5)


def test_gaussian_entropy_and_divergence_are_integrals_of_its_density():
    x, logp = on_grid(gaussian(), -12, 12)
    other = gaussian(MEAN[::-1], LOG_STD[::-1])
    _, logq = on_grid(other, -12, 12)
    p = np.exp(logp)
    np.testing.assert_allclose(np.trapezoid(p, x, axis=0), 1.0, rtol=1e-4)
    np.testing.assert_allclose(gaussian().entropy(), np.trapezoid(-p * logp, x, axis=0).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(gaussian().kl(other), np.trapezoid(p * (logp - logq), x, axis=0).sum(-1), rtol=1e-3)


def test_tanh_gaussian_density_integrates_to_one_over_the_box():
    """This holds the whole change of variables: the slope of tanh and the size of the box."""
    x, logp = on_grid(squashed(), LOW + 1e-4, HIGH - 1e-4, 40001)
    other = squashed(MEAN[::-1] * 0.5, LOG_STD[::-1])
    _, logq = on_grid(other, LOW + 1e-4, HIGH - 1e-4, 40001)
    p = np.exp(logp)
    np.testing.assert_allclose(np.trapezoid(p, x, axis=0), 1.0, rtol=2e-3)
    np.testing.assert_allclose(squashed().kl(other), np.trapezoid(p * (logp - logq), x, axis=0).sum(-1), rtol=1e-2)
    np.testing.assert_allclose(squashed().entropy(), np.trapezoid(-p * logp, x, axis=0).sum(-1), atol=0.02)


def test_entropy_of_a_wide_tanh_gaussian_falls():
    """As a squashed normal widens it piles up at the edges; an entropy bonus must see that and not grow for ever."""
    stds = jnp.log(jnp.array([0.1, 0.8, 2.0, 5.0]))[:, None]
    narrow, best, wide, wider = TanhGaussian(jnp.zeros((4, 1)), stds, -1.0, 1.0, jnp.ones((4, 1), bool)).entropy()
    assert narrow < best > wide > wider


def test_tanh_gaussian_stays_in_the_box_and_finite_at_its_edge():
    far = squashed(jnp.full((2, 3), 50.0))
    assert (far.mode()[:, :2] == HIGH).all()
    differentiate = jax.value_and_grad(lambda mean, a: squashed(mean).log_prob(a).sum())
    for action in (jnp.full((2, 3), HIGH), jnp.full((2, 3), LOW), far.mode()):
        value, grad = differentiate(MEAN, action)
        assert jnp.isfinite(value) and jnp.isfinite(grad).all()


@pytest.mark.parametrize("make", [gaussian, squashed])
def test_samples_follow_the_density(make):
    d = make()
    sample = np.asarray(jax.jit(jax.vmap(d.sample))(jax.random.split(KEY, 4000)))
    assert (sample[..., 2] == 0).all()
    x = jnp.arctanh((sample[..., :2] - 1.0) / 2.0) if make is squashed else sample[..., :2]
    np.testing.assert_allclose(x.mean(0), MEAN[:, :2], atol=0.08)
    np.testing.assert_allclose(x.std(0), jnp.exp(LOG_STD[:, :2]), rtol=0.06)
    np.testing.assert_allclose(-np.mean(jax.vmap(d.log_prob)(sample), 0), d.entropy(), atol=0.08)


@pytest.mark.parametrize("make", [gaussian, squashed, point])
def test_padded_dimensions_change_nothing_and_receive_nothing(make):
    """MEAN and LOG_STD hold NaN and infinity in the padded dimension."""
    action = jnp.array([[0.1, 0.2, jnp.nan], [0.5, -0.5, 9.0]])

    def score(mean, log_std, action):
        d, other = make(mean, log_std), make(mean + 0.1, log_std)
        noise = jnp.ones(d.noise_shape)
        return (d.log_prob(action) + d.entropy() + d.kl(other)).sum() + d.sample_from(noise).sum()

    differentiate = jax.jit(jax.value_and_grad(score, (0, 1, 2)))
    value, grads = differentiate(MEAN, LOG_STD, action)
    clean, clean_grads = differentiate(
        jnp.nan_to_num(MEAN, nan=-3.0), jnp.nan_to_num(LOG_STD, nan=1.0, posinf=2.0), jnp.nan_to_num(action)
    )
    assert jnp.isfinite(value) and value == clean
    for grad, expected in zip(grads, clean_grads, strict=True):
        assert not grad[:, 2].any() and jnp.isfinite(grad).all()
        np.testing.assert_array_equal(grad, expected)
    for out in (make().mode(), make().sample(KEY)):
        assert not out[:, 2].any()
