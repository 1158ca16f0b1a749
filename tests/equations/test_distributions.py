import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.equations.distributions import Categorical, Deterministic, DiagGaussian, TanhGaussian

ROWS, A = 6, 5
ACTIONS = jnp.arange(A)
KEY = jax.random.key(0)
LARGEST = np.nextafter(np.float32(1), np.float32(0))

everything = jax.jit(
    lambda d, other: (
        jax.vmap(d.log_prob, out_axes=-1)(jnp.tile(ACTIONS[:, None], (1, ROWS))),
        d.entropy(),
        d.kl(other),
        d.mode(),
        d.probabilities(),
    )
)
choose = jax.jit(lambda d, noise: d.sample_from(noise))


def rows(seed: int, scale: float = 3.0):
    """Logits and legal actions, at least one per row."""
    rng = np.random.default_rng(seed)
    legal = rng.uniform(size=(ROWS, A)) > 0.4
    legal[np.arange(ROWS), rng.integers(0, A, ROWS)] = True
    return rng.normal(size=(ROWS, A)).astype(np.float32) * np.float32(scale), legal


def plain(logits, legal):
    """Probabilities by the book, over the legal actions of one row at a time."""
    p = np.zeros((ROWS, A))
    for row, ok in enumerate(legal):
        e = np.exp(logits[row, ok].astype(np.float64) - logits[row, ok].max())
        p[row, ok] = e / e.sum()
    return p


def categorical(logits, legal):
    return Categorical(jnp.asarray(logits), jnp.asarray(legal))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_categorical_is_the_softmax_over_legal_actions(seed):
    (logits, legal), (other, _) = rows(seed), rows(seed + 1)
    log_prob, entropy, kl, mode, probabilities = everything(categorical(logits, legal), categorical(other, legal))
    p, q = plain(logits, legal), plain(other, legal)
    log_p, log_q = (np.log(np.where(legal, x, 1.0)) for x in (p, q))
    np.testing.assert_allclose(probabilities, p, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.where(legal, log_prob, 0), log_p, rtol=1e-4, atol=1e-5)
    assert (np.asarray(log_prob)[~legal] < -1e8).all() and np.isfinite(log_prob).all()
    np.testing.assert_allclose(entropy, -(p * log_p).sum(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kl, (p * (log_p - log_q)).sum(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(mode, p.argmax(-1))
    np.testing.assert_array_equal(np.asarray(probabilities)[~legal], 0.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 30.0, 1e4]))
def test_no_noise_ever_picks_an_illegal_action(seed, scale):
    logits, legal = rows(seed, scale)
    noise = np.random.default_rng(seed).uniform(size=ROWS).astype(np.float32)
    for u in (noise, np.zeros(ROWS, np.float32), np.full(ROWS, LARGEST), np.ones(ROWS, np.float32)):
        action = np.asarray(choose(categorical(logits, legal), jnp.asarray(u)))
        assert legal[np.arange(ROWS), action].all()


def test_noise_spread_evenly_gives_each_action_its_probability():
    count = 2000
    logits, legal = rows(3, 1.0)
    d = Categorical(jnp.tile(logits, (count, 1, 1)), jnp.tile(legal, (count, 1, 1)))
    noise = jnp.broadcast_to((jnp.arange(count)[:, None] + 0.5) / count, (count, ROWS))
    action = np.asarray(d.sample_from(noise))
    share = np.stack([(action == a).mean(0) for a in range(A)], -1)
    np.testing.assert_allclose(share, plain(logits, legal), atol=1.5 / count)


def test_samples_by_key_have_the_right_frequencies_and_differ_by_row():
    logits = np.log(np.array([0.1, 0.2, 0.4, 0.25, 0.05], np.float32))
    d = categorical(np.tile(logits, (4000, 1)), np.ones((4000, A), bool))
    share = np.bincount(np.asarray(d.sample(KEY)), minlength=A) / 4000
    np.testing.assert_allclose(share, np.exp(logits), atol=0.025)


def test_illegal_actions_receive_no_gradient_even_where_they_are_nan():
    logits, legal = rows(4)
    action = jnp.asarray(legal.argmax(-1))

    def score(x, mask):
        d, uniform = Categorical(x, mask), Categorical(jnp.zeros_like(x), mask)
        return (jnp.exp(d.log_prob(action)) + d.entropy() + d.kl(uniform) + uniform.kl(d)).sum()

    differentiate = jax.jit(jax.value_and_grad(score))
    poisoned = jnp.where(jnp.asarray(legal), jnp.asarray(logits), jnp.nan)
    value, grad = differentiate(poisoned, jnp.asarray(legal))
    np.testing.assert_array_equal(np.asarray(grad)[~legal], 0.0)
    assert np.isfinite(value) and np.isfinite(grad).all() and (np.abs(np.asarray(grad))[legal.sum(-1) > 1] > 0).any()
    # What legal actions receive is what they would receive if the others did not exist.
    row = int(legal.sum(-1).argmax())
    few = jnp.asarray(logits[row, legal[row]])

    def small(x):
        all_legal = jnp.ones(x.shape, bool)
        d, uniform = Categorical(x, all_legal), Categorical(jnp.zeros_like(x), all_legal)
        return jnp.exp(d.log_prob(jnp.array(0))) + d.entropy() + d.kl(uniform) + uniform.kl(d)

    np.testing.assert_allclose(np.asarray(grad)[row, legal[row]], jax.grad(small)(few), rtol=1e-4, atol=1e-6)


def test_a_row_with_no_legal_action_is_uniform():
    logits, _ = rows(5)
    d = categorical(logits, np.zeros((ROWS, A), bool))
    log_prob, entropy, kl, mode, probabilities = everything(d, d)
    np.testing.assert_allclose(log_prob, -np.log(A), rtol=1e-6)
    np.testing.assert_allclose(entropy, np.log(A), rtol=1e-6)
    np.testing.assert_allclose(probabilities, 1 / A, rtol=1e-6)
    np.testing.assert_array_equal(kl, 0.0)
    np.testing.assert_array_equal(mode, 0)
    np.testing.assert_array_equal(choose(d, jnp.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9])), [0, 0, 1, 2, 3, 4])
    grad = jax.grad(lambda x: (Categorical(x, d.legal).log_prob(mode) + Categorical(x, d.legal).entropy()).sum())
    assert not grad(d.logits).any()


def test_the_ratio_of_an_illegal_action_is_one():
    """A dead agent's stored action may be illegal; its ratio must not overflow."""
    first, second = (categorical(*rows(seed)) for seed in (1, 2))
    legal = jnp.zeros((ROWS, A), bool).at[:, 1].set(True)
    action = jnp.zeros(ROWS, int)
    new, old = (Categorical(d.logits, legal).log_prob(action) for d in (first, second))
    np.testing.assert_allclose(jnp.exp(new - old), 1.0)


def test_deterministic_is_a_point():
    value, real = jnp.array([[0.3, -0.8, 7.0], [1.5, 0.0, jnp.nan]]), jnp.array([True, True, False])
    d, other = Deterministic(value, real), Deterministic(value + 1.0, real)
    action = jnp.nan_to_num(value)
    np.testing.assert_array_equal(d.sample(KEY), jnp.where(real, value, 0.0))
    np.testing.assert_array_equal(d.log_prob(action), 0.0)
    assert (d.log_prob(action + 1.0) < -1e8).all() and (d.kl(other) > 1e8).all()
    assert not d.entropy().any() and not d.kl(d).any()


def wide(make):
    x = jax.random.normal(KEY, (4, 3, A))
    mask = jnp.broadcast_to(ACTIONS < 3, x.shape)
    return {
        "categorical": Categorical(x, mask),
        "gaussian": DiagGaussian(x, 0.1 * x, mask),
        "tanh": TanhGaussian(x, 0.1 * x, -2.0, 1.0, mask),
        "point": Deterministic(x, mask),
    }[make]


@pytest.mark.parametrize("make", ["categorical", "gaussian", "tanh", "point"])
def test_every_transformation_gives_the_same_numbers(make):
    def answers(d, noise):
        action = d.sample_from(noise)
        return action, d.log_prob(action), d.entropy(), d.kl(d), d.mode()

    d = wide(make)
    noise = d.noise(KEY)
    np.testing.assert_array_equal(d.sample(KEY), d.sample_from(noise))
    once = jax.jit(answers)(d, noise)
    assert once[0].shape == (4, 3) + (() if make == "categorical" else (A,))
    assert [x.shape for x in once[1:4]] == [(4, 3)] * 3
    mapped = jax.jit(jax.vmap(jax.vmap(answers)))(d, noise)
    scanned = jax.lax.scan(lambda c, x: (c, answers(*x)), None, (d, noise))[1]
    for other in (mapped, scanned):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), once, other)


@pytest.mark.parametrize("make", ["categorical", "gaussian", "tanh", "point"])
def test_noise_for_a_whole_roll_out_needs_only_shapes(make):
    d = wide(make)
    shapes = jax.eval_shape(lambda: d)
    assert shapes.noise_shape == d.noise_shape == d.noise(KEY).shape
    assert type(jax.tree.map(lambda _: None, d)) is type(d)
    leaves, structure = jax.tree.flatten_with_path(d)
    assert jax.tree.structure(d) == structure and leaves[0][0][0].name in vars(d)
