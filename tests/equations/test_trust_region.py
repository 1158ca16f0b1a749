"""Fisher-vector products against dense matrices, conjugate gradients against a solver, the search against a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from shoal.equations.distributions import Categorical, DiagGaussian, TanhGaussian
from shoal.equations.trust_region import (
    conjugate_gradients,
    fisher_vector_product,
    line_search,
    linearise,
    step_length,
)

ROWS, INPUTS, HIDDEN, A = 6, 3, 3, 3
RNG = np.random.default_rng(0)
X = jnp.array(RNG.normal(size=(ROWS, INPUTS)), jnp.float32)
MASK = jnp.array(np.where(np.arange(A) == 0, True, RNG.random((ROWS, A)) > 0.3))
WEIGHT = jnp.array([0.3, 0.1, 0.0, 0.2, 0.25, 0.15])
PARAMS = {
    "in": jnp.array(RNG.normal(size=(INPUTS, HIDDEN)), jnp.float32),
    "out": jnp.array(RNG.normal(size=(HIDDEN, A)), jnp.float32),
    "log_std": jnp.array(RNG.normal(size=A) / 3, jnp.float32),
}
THETA, UNRAVEL = ravel_pytree(PARAMS)
KINDS = {
    "categorical": lambda z, log_std: Categorical(z, MASK),
    "gaussian": lambda z, log_std: DiagGaussian(z, log_std, MASK),
    "squashed": lambda z, log_std: TanhGaussian(z, log_std, -1.0, 2.0, MASK),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def outputs(theta):
    p = UNRAVEL(theta)
    return jnp.tanh(X @ p["in"]) @ p["out"], jnp.broadcast_to(p["log_std"], (ROWS, A))


def policy(kind):
    return lambda theta: KINDS[kind](*outputs(theta))


def dense(kind):
    """H, a column for each unit vector."""
    product = jax.jit(lambda v: fisher_vector_product(linearise(policy(kind), THETA), WEIGHT, v))
    return np.stack([product(e) for e in jnp.eye(THETA.size)], 1)


@every_kind
def test_products_are_those_of_the_hessian_of_the_true_kl(kind):
    old = policy(kind)(THETA)
    kl = lambda theta: jnp.sum(WEIGHT * old.kl(policy(kind)(theta)))  # noqa: E731
    hessian = jax.jit(jax.hessian(kl))(THETA)
    H = dense(kind)
    np.testing.assert_allclose(H, hessian, atol=2e-6)
    np.testing.assert_allclose(H, H.T, atol=1e-6)
    assert np.linalg.eigvalsh(H).min() > -1e-6
    assert np.abs(H).max() > 0.01


@every_kind
def test_products_are_those_of_j_f_j(kind):
    """F from the books: diag(p) − p pᵀ; 1 / σ² for a mean and 2 for a log σ, of the real dimensions only."""
    J, J_std = (np.asarray(j, np.float64) for j in jax.jit(jax.jacobian(outputs))(THETA))
    dist = policy(kind)(THETA)
    H = np.zeros((THETA.size, THETA.size))
    for row in range(ROWS):
        if isinstance(dist, Categorical):
            p = np.asarray(dist.probabilities()[row], np.float64)
            H += WEIGHT[row] * J[row].T @ (np.diag(p) - np.outer(p, p)) @ J[row]
        else:
            real = np.asarray(MASK[row], np.float64)
            H += WEIGHT[row] * J[row].T @ np.diag(real * np.exp(-2 * np.asarray(dist.log_std[row]))) @ J[row]
            H += WEIGHT[row] * J_std[row].T @ np.diag(2 * real) @ J_std[row]
    np.testing.assert_allclose(dense(kind), H, atol=2e-6)


@every_kind
def test_a_row_without_weight_does_not_contribute(kind):
    def spoiled(theta):
        z, log_std = outputs(theta)
        return KINDS[kind](z + jnp.where(WEIGHT > 0, 0.0, 1e30)[:, None], log_std)

    v = jnp.array(RNG.normal(size=THETA.size), jnp.float32)
    products = [fisher_vector_product(linearise(f, THETA), WEIGHT, v) for f in (policy(kind), spoiled)]
    np.testing.assert_allclose(*products, rtol=1e-5, atol=1e-6)


def system(seed, size=8):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return (root @ root.T / size + 0.3 * np.eye(size)).astype(np.float32), rng.normal(size=size).astype(np.float32)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_conjugate_gradients_solve_in_as_many_turns_as_there_are_dimensions(seed):
    """And two more, since rounding in float32 leaves an error above 1e-3 after 8 turns in 4 of 2500 systems."""
    H, b = system(seed)
    x = conjugate_gradients(lambda v: jnp.asarray(H @ v), jnp.array(b), iterations=10, tolerance=1e-12)
    np.testing.assert_allclose(x, np.linalg.solve(H.astype(np.float64), b), rtol=1e-4, atol=1e-4)


def test_after_k_turns_the_error_is_the_least_in_the_krylov_space():
    """min over span{b, H b, …} of ½ xᵀHx − b·x."""
    H, b = system(3)
    for k in (1, 2, 4):
        x = conjugate_gradients(lambda v: jnp.asarray(H @ v), jnp.array(b), iterations=k, tolerance=0.0)
        space = np.linalg.qr(np.stack([np.linalg.matrix_power(H.astype(np.float64), i) @ b for i in range(k)], 1))[0]
        best = space @ np.linalg.solve(space.T @ H @ space, space.T @ b)
        np.testing.assert_allclose(x, best, rtol=1e-3, atol=1e-3)


def test_conjugate_gradients_stop_at_the_tolerance_and_at_what_cannot_be_solved():
    H, b = system(4)
    loose = conjugate_gradients(lambda v: jnp.asarray(H @ v), jnp.array(b), iterations=8, tolerance=1e-2)
    tight = conjugate_gradients(lambda v: jnp.asarray(H @ v), jnp.array(b), iterations=8, tolerance=1e-12)
    assert 1e-5 < np.square(H @ loose - b).sum() <= 1e-2 + 1e-6
    assert np.square(H @ tight - b).sum() < 1e-6
    for hopeless in (jnp.zeros(8), jnp.full(8, jnp.nan)):
        np.testing.assert_array_equal(
            conjugate_gradients(lambda v: jnp.asarray(H @ v), hopeless, iterations=8, tolerance=0.0), 0
        )


def test_a_step_of_that_length_has_the_kl_allowed():
    """To second order ½ (β x)ᵀ H (β x) = δ; where there is no curvature there is no step."""
    H, x = system(5)
    for delta in (1e-3, 0.1):
        step = step_length(jnp.array(x @ H @ x), delta) * x
        np.testing.assert_allclose(0.5 * step @ H @ step, delta, rtol=1e-5)
    for nothing in (0.0, -1.0, jnp.nan):
        assert step_length(jnp.float32(nothing), 0.1) == 0


OPTIONS = {"max_kl": 0.1, "steps": 5, "backtrack": 0.5, "accept_ratio": 0.5}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([-1.0, 0.0, 0.01, 0.2, 1.0, 3.0, float("nan")]), min_size=5, max_size=5),
    st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.2, float("nan")]), min_size=5, max_size=5),
    st.sampled_from([2.0, 0.0, -1.0, float("nan")]),
)
def test_the_line_search_takes_the_first_acceptable_step(improvements, kls, expected):
    found = searched(jnp.array(improvements), jnp.array(kls), jnp.float32(expected))
    for j, (gain, kl) in enumerate(zip(improvements, kls, strict=True)):
        if gain > 0 and gain >= 0.5 * 0.5**j * expected and kl <= np.float32(0.1):
            np.testing.assert_allclose(found, (0.5**j, gain, kl), rtol=1e-6)
            return
    assert found == (0, 0, 0)


@jax.jit
def searched(improvements, kls, expected):
    def trial(fraction):
        j = jnp.round(-jnp.log2(fraction)).astype(int)
        return improvements[j], kls[j]

    return line_search(trial, expected, **OPTIONS)


def test_line_searches_under_vmap_are_independent():
    """Seeds are vmapped: one finds at once, one at the third trial, one never."""
    gains = jnp.array([[3.0, 0, 0, 0, 0], [-1, -1, 1, 3, 3], [-1, -1, -1, -1, -1]])
    found = jax.vmap(searched)(gains, jnp.zeros((3, 5)), jnp.full(3, 2.0))
    np.testing.assert_allclose(found.fraction, [1, 0.25, 0])
    np.testing.assert_allclose(found.improvement, [3, 1, 0])
