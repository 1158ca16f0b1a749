import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.equations import normalise
from shoal.equations.normalise import INPUTS, VALUES, Running

STREAM = np.random.default_rng(0).normal(3.0, 2.0, size=(5, 4, 6, 3)).astype(np.float32)  # updates, T, E, N
ALIVE = np.random.default_rng(1).uniform(size=STREAM.shape) > 0.3
exponential = jax.jit(lambda s, x, w: normalise.update(s, x, w, beta=0.9))
exact = jax.jit(lambda s, x, w: normalise.update(s, x, w, beta=None))


def after_stream(update, shape):
    stats = normalise.init(shape)
    for x, alive in zip(STREAM, ALIVE, strict=True):
        stats = update(stats, jnp.asarray(x), jnp.asarray(alive))
    return stats


@pytest.mark.parametrize("shape", [(), (3,)])
def test_exact_statistics_are_those_of_all_samples(shape):
    axes = (0, 1, 2) if shape else None
    stats = after_stream(exact, shape)
    masked = np.ma.array(STREAM, mask=~ALIVE, dtype=np.float64)
    mean, std = normalise.moments(stats, VALUES)
    np.testing.assert_allclose(mean, masked.mean(axes), rtol=1e-5)
    np.testing.assert_allclose(std, masked.std(axes), rtol=1e-4)
    np.testing.assert_allclose(stats.weight, ALIVE.sum(axes))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_exponential_statistics_weigh_batches_by_age(shape):
    """The textbook form: biased averages of the batches' means, divided by the weight they have gathered."""
    axes = (0, 1) if shape else None
    biased, gathered = 0.0, 0.0
    for x, alive in zip(STREAM, ALIVE, strict=True):
        batch = np.ma.array(x, mask=~alive, dtype=np.float64)
        biased = 0.9 * biased + 0.1 * np.stack([batch.mean(axes), (batch**2).mean(axes)])
        gathered = 0.9 * gathered + 0.1
    stats = after_stream(exponential, shape)
    np.testing.assert_allclose(np.stack([stats.mean, stats.square]), biased / gathered, rtol=1e-5)
    np.testing.assert_allclose(stats.weight, np.full(shape, gathered), rtol=1e-5)


def test_the_default_rate_is_debiased_from_the_first_batch_on():
    stats = normalise.init(())
    for count, x in enumerate(STREAM, start=1):
        stats = normalise.update(stats, jnp.asarray(x))
        np.testing.assert_allclose(stats.mean, STREAM[:count].mean(), rtol=1e-3)
        np.testing.assert_allclose(normalise.moments(stats, VALUES)[1], STREAM[:count].std(), rtol=1e-3)


def test_before_any_batch_normalising_changes_nothing():
    x = jnp.asarray(STREAM[0])
    np.testing.assert_array_equal(normalise.normalise(normalise.init((3,)), x, INPUTS), x)
    np.testing.assert_array_equal(normalise.denormalise(normalise.init(()), x, VALUES), x)


@pytest.mark.parametrize("update", [exponential, exact])
def test_a_batch_without_weight_changes_nothing(update):
    nothing = jnp.full((4, 6, 3), jnp.nan), jnp.zeros((4, 6, 3), bool)
    fresh = normalise.init((3,))
    for stats in (fresh, update(fresh, jnp.asarray(STREAM[0]), jnp.asarray(ALIVE[0]))):
        jax.tree.map(np.testing.assert_array_equal, update(stats, *nothing), stats)


def test_a_feature_that_is_nan_where_it_has_no_weight_stays_out():
    x = jnp.where(jnp.asarray(ALIVE[0]), jnp.asarray(STREAM[0]), jnp.nan)
    clean = exact(normalise.init((3,)), jnp.asarray(STREAM[0]), jnp.asarray(ALIVE[0]))
    jax.tree.map(np.testing.assert_array_equal, exact(normalise.init((3,)), x, jnp.asarray(ALIVE[0])), clean)


@pytest.mark.parametrize(("floor", "std"), [(VALUES, (0.1, 0.1)), (INPUTS, (5e-3, 1e-3))])
def test_a_constant_feature_is_not_blown_up(floor, std):
    """Statistics of values stop at the official 0.1; those of inputs at 0.001, or a thousandth of a larger constant."""
    stats = exact(normalise.init((2,)), jnp.full((4, 2), jnp.array([5.0, 0.0])), jnp.ones((4, 2)))
    np.testing.assert_allclose(normalise.moments(stats, floor), ((5.0, 0.0), std), rtol=1e-5)


def test_denormalise_undoes_normalise():
    stats, x = after_stream(exponential, (3,)), jnp.asarray(STREAM[1])
    z = normalise.normalise(stats, x, VALUES)
    assert abs(float(z.mean())) < 0.3 and 0.7 < float(z.std()) < 1.3
    np.testing.assert_allclose(normalise.denormalise(stats, z, VALUES), x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beta", [None, 0.9])
def test_shards_agree_on_the_statistics_of_all(on_shards, beta):
    x, alive = jnp.asarray(STREAM[0]), jnp.asarray(ALIVE[0]).at[0].set(False)
    start = exact(normalise.init((3,)), jnp.asarray(STREAM[1]), jnp.asarray(ALIVE[1]))
    sharded = on_shards(lambda x, alive: normalise.update(start, x, alive, beta))(x, alive)
    whole = normalise.update(start, x, alive, beta)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), sharded, whole)


def test_features_must_stand_last():
    with pytest.raises(AssertionError, match="features"):
        normalise.update(normalise.init((6,)), jnp.asarray(STREAM[0]))


def random_statistics(rng, shape):
    mean, std = rng.normal(0, 20, shape), rng.uniform(0.2, 30, shape)
    return Running(*(jnp.asarray(x, jnp.float32) for x in (mean, mean**2 + std**2, np.ones(shape))))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(), (3,), (2, 3)]))
def test_popart_keeps_what_the_layer_predicts(seed, shape):
    rng = np.random.default_rng(seed)
    old, new = random_statistics(rng, shape), random_statistics(rng, shape)
    kernel, bias, hidden = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((2, 4, 3), (2, 3), (2, 5, 4)))

    def predict(stats, kernel, bias):
        per_layer = Running(*(jnp.broadcast_to(x, (2, 3))[:, None] for x in stats))
        return normalise.denormalise(per_layer, hidden @ kernel + bias[:, None], VALUES)

    before, after = predict(old, kernel, bias), predict(new, *normalise.popart(old, new, kernel, bias))
    np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-3)
