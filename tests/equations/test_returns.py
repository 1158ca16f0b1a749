from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.equations.returns import gae, n_step_returns, td_lambda

T, E, N = 6, 2, 2
GAMMA, LAM = 0.9, 0.7
lambda_return = jax.jit(lambda *x: td_lambda(*x, gamma=GAMMA, lam=LAM))
three_steps = jax.jit(lambda *x: n_step_returns(*x, gamma=GAMMA, n=3))
seeds = st.integers(0, 10_000)


def batch(seed: int):
    rng = np.random.default_rng(seed)
    reward, next_value = (rng.normal(size=(T, E, N)).astype(np.float32) for _ in range(2))
    discount = (rng.uniform(size=(T, E, N)) > 0.2).astype(np.float32)
    last = rng.uniform(size=(T, E)) < 0.25
    return tuple(map(jnp.asarray, (reward, discount, next_value, last)))


def horizon(last, t):
    """How many rewards can be summed from t on, in one environment."""
    return next((k - t + 1 for k in range(t, T) if last[k]), T - t)


def forward(reward, discount, next_value, last, t, n):
    """At most n discounted rewards of one agent from t on, then the value of the state reached; summed forwards."""
    n = min(n, horizon(last, t))
    ret, weight = 0.0, 1.0
    for k in range(t, t + n):
        ret += weight * reward[k]
        weight *= GAMMA * discount[k]
    return ret + weight * next_value[t + n - 1]


def each_agent(x, f):
    reward, discount, next_value, last = map(np.asarray, x)
    out = np.zeros((T, E, N))
    for t, e, n in np.ndindex(T, E, N):
        out[t, e, n] = f(reward[:, e, n], discount[:, e, n], next_value[:, e, n], last[:, e], t)
    return out


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_lambda_return_is_the_mixture_of_n_step_returns(seed):
    """Sutton & Barto eq. 12.3, the forward definition: (1 − λ) Σ λ^{n−1} G^n, the rest of the weight on the longest."""

    def mixture(reward, discount, next_value, last, t):
        total, longest = partial(forward, reward, discount, next_value, last, t), horizon(last, t)
        short = sum((1 - LAM) * LAM ** (n - 1) * total(n) for n in range(1, longest))
        return short + LAM ** (longest - 1) * total(longest)

    x = batch(seed)
    np.testing.assert_allclose(lambda_return(*x), each_agent(x, mixture), rtol=1e-4, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_n_step_return_is_n_rewards_and_a_value(seed):
    x = batch(seed)
    np.testing.assert_allclose(three_steps(*x), each_agent(x, partial(forward, n=3)), rtol=1e-4, atol=1e-5)


def test_the_ends_of_the_range_of_lambda_and_n_agree():
    x = batch(1)
    one_step = x[0] + GAMMA * x[1] * x[2]
    np.testing.assert_allclose(td_lambda(*x, gamma=GAMMA, lam=0.0), one_step, rtol=1e-6)
    np.testing.assert_allclose(n_step_returns(*x, gamma=GAMMA, n=1), one_step, rtol=1e-6)
    whole = td_lambda(*x, gamma=GAMMA, lam=1.0)
    np.testing.assert_allclose(n_step_returns(*x, gamma=GAMMA, n=T + 3), whole, rtol=1e-5, atol=1e-6)


def test_is_the_target_of_gae_where_values_follow_on():
    reward, discount, next_value, last = batch(2)
    value = jnp.concatenate([jnp.full((1, E, N), 0.3), next_value[:-1]])
    target = gae(reward, discount, value, next_value, last, gamma=GAMMA, lam=LAM)[1]
    np.testing.assert_allclose(lambda_return(reward, discount, next_value, last), target, rtol=1e-4, atol=1e-5)


def test_by_hand_a_death_does_not_bootstrap_and_a_time_limit_does():
    reward, value = jnp.array([[1.0], [2.0]]), jnp.array([[30.0], [40.0]])
    for discount, last, expected in (
        ([1.0, 1.0], [False, False], 1 + 0.5 * (0.5 * 30 + 0.5 * 22)),
        ([1.0, 1.0], [True, False], 1 + 0.5 * 30),
        ([0.0, 1.0], [True, False], 1.0),
    ):
        got = td_lambda(reward, jnp.array(discount)[:, None], value, jnp.array(last), gamma=0.5, lam=0.5)
        np.testing.assert_allclose(got[:, 0], [expected, 22.0])


def test_shapes_that_do_not_match_are_refused():
    reward, discount, next_value, last = batch(0)
    for bad in ((reward[1:], discount, next_value, last), (reward, discount, next_value, last[1:])):
        with pytest.raises(Exception, match=r"reward|last|discount"):
            td_lambda(*bad, gamma=1.0, lam=1.0)
    with pytest.raises(AssertionError):
        n_step_returns(reward, discount, next_value, last, gamma=1.0, n=0)
