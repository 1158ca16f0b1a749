import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations import reduce

X = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
WEIGHT = np.random.default_rng(1).uniform(size=(4, 5, 3)).astype(np.float32)
WEIGHT[0] = 0.0  # the shards then have very different weights
ALIVE = WEIGHT > 0.4
X_, W_ = jnp.asarray(X), jnp.asarray(WEIGHT)


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
@pytest.mark.parametrize("weight", [None, WEIGHT, ALIVE, WEIGHT[:, :1]])
def test_mean_and_std_are_the_weighted_ones(axis, weight):
    w = np.broadcast_to(1.0 if weight is None else weight, X.shape).astype(np.float64)
    norm = np.maximum(w.sum(axis), 1e-30)
    expected = (w * X).sum(axis) / norm
    centre = (w * X).sum(axis, keepdims=True) / np.maximum(w.sum(axis, keepdims=True), 1e-30)
    given = None if weight is None else jnp.asarray(weight)
    mean, std = reduce.mean_and_std(X_, given, axis)
    assert mean.shape == std.shape == expected.shape
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, np.sqrt((w * (X - centre) ** 2).sum(axis) / norm), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reduce.mean(X_, given, axis), expected, rtol=1e-5, atol=1e-6)


def test_booleans_and_integers_average_to_floats():
    assert reduce.mean(jnp.array([True, False, True, True])) == 0.75
    assert reduce.mean(jnp.array([1, 2, 4, 5])) == 3.0


def test_half_precision_is_summed_in_single():
    assert reduce.mean(jnp.ones(4096, jnp.bfloat16)) == 1.0
    assert reduce.mean(jnp.ones(4096, jnp.bfloat16)).dtype == jnp.float32


def test_weights_that_are_all_zero_give_zero_and_no_gradient():
    x, none = jnp.full(3, 7.0), jnp.zeros(3, bool)
    value, grad = jax.value_and_grad(reduce.share_of_mean)(x, none)
    assert value == 0.0 and not grad.any()
    assert reduce.mean_and_std(x, none) == (0.0, 0.0)


def test_values_without_weight_may_be_nan():
    x = jnp.array([1.0, jnp.nan, 3.0, jnp.inf])
    weight = jnp.array([1.0, 0.0, 1.0, 0.0])
    value, grad = jax.value_and_grad(reduce.share_of_mean)(x, weight)
    assert value == 2.0
    np.testing.assert_array_equal(grad, [0.5, 0.0, 0.5, 0.0])
    assert reduce.mean_and_std(x, weight) == (2.0, 1.0)


def test_the_denominator_is_constant_to_differentiation():
    grad = jax.grad(lambda w: reduce.share_of_mean(jnp.array([1.0, 3.0]), w))(jnp.array([1.0, 1.0]))
    np.testing.assert_array_equal(grad, [0.5, 1.5])


def test_a_large_offset_costs_the_deviation_nothing():
    x = 1000.0 + jnp.array([-1e-2, 1e-2] * 50)
    assert reduce.mean_and_std(x)[1] == pytest.approx(1e-2, rel=1e-2)


def test_a_weight_that_does_not_broadcast_is_refused():
    with pytest.raises((AssertionError, ValueError)):
        reduce.mean(jnp.ones((4, 3)), jnp.ones((2, 4, 3)))
    with pytest.raises((AssertionError, ValueError)):
        reduce.mean(jnp.ones((4, 3)), jnp.ones((4,)))


def test_total_is_the_identity_outside_shard_map():
    tree = {"a": jnp.arange(3.0), "b": (jnp.ones(()),)}
    assert reduce.total(tree) is tree
    np.testing.assert_array_equal(jax.jit(reduce.total)(tree)["a"], tree["a"])


def test_statistics_are_those_of_all_shards(on_shards):
    @on_shards
    def statistics(x, w):
        return reduce.mean_and_std(x, w), reduce.mean(x, w, axis=(0, 1)), reduce.mean(x)

    expected = reduce.mean_and_std(X_, W_), reduce.mean(X_, W_, axis=(0, 1)), reduce.mean(X_)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), statistics(X_, W_), expected)


def test_shares_and_their_gradients_add_up_to_the_mean(on_shards):
    def loss(slope, x, w):
        return reduce.share_of_mean(jnp.square(slope * x - 1.0), w)

    differentiate = jax.value_and_grad(loss)
    slope = jnp.array([0.5, -1.0, 2.0])
    sharded = on_shards(lambda x, w: reduce.total(differentiate(slope, x, w)))
    value, grad = differentiate(slope, X_, W_)
    together, together_grad = sharded(X_, W_)
    np.testing.assert_allclose(together, value, rtol=2e-6)
    np.testing.assert_allclose(together_grad, grad, rtol=2e-6)


def test_total_adds_shards_under_every_transformation(on_shards):
    def each_way(x):
        outside = reduce.total(x.sum())
        scanned = jax.lax.scan(lambda c, row: (c + reduce.total(row.sum()), None), jnp.zeros(()), x)[0]
        mapped = jax.vmap(lambda column: reduce.total(column.sum()), in_axes=1)(x).sum()
        compiled = jax.jit(lambda y: reduce.total(y.sum()))(x)
        checkpointed = jax.checkpoint(lambda y: reduce.total(y.sum()))(x)
        branch = jax.lax.cond(True, lambda y: reduce.total(y.sum()), lambda y: y.sum(), x)
        gradient = reduce.total(jax.grad(lambda s: (s * x).sum())(1.0))
        seeds = jax.vmap(lambda s: reduce.total((s * x).sum()))(jnp.ones(2))[1]
        return jnp.stack([outside, scanned, mapped, compiled, checkpointed, branch, gradient, seeds])

    np.testing.assert_allclose(on_shards(each_way)(X_[..., 0]), np.full(8, X[..., 0].sum()), rtol=1e-5)
