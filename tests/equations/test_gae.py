import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.equations.returns import gae

T, E, N = 7, 3, 2
GAMMA, LAM = 0.9, 0.8
estimate = jax.jit(lambda *x: gae(*x, gamma=GAMMA, lam=LAM))


def batch(seed: int):
    """Rewards, values, and episodes that end by death of some agents, by death of all, or by a time limit."""
    rng = np.random.default_rng(seed)
    reward, value, next_value = (rng.normal(size=(T, E, N)).astype(np.float32) for _ in range(3))
    discount = (rng.uniform(size=(T, E, N)) > 0.25).astype(np.float32)
    last = rng.uniform(size=(T, E)) < 0.3
    return tuple(map(jnp.asarray, (reward, discount, value, next_value, last)))


def by_sum(reward, discount, value, next_value, last):
    """The advantage as the sum Σ_k (γλ)^k δ_{t+k} over what is left of the episode, one number at a time."""
    advantage = np.zeros((T, E, N))
    for t, e, n in np.ndindex(T, E, N):
        weight = 1.0
        for k in range(t, T):
            d = discount[k, e, n]
            advantage[t, e, n] += weight * (reward[k, e, n] + GAMMA * d * next_value[k, e, n] - value[k, e, n])
            weight *= GAMMA * LAM
            if last[k, e] or d == 0:
                break
    return advantage


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_is_the_discounted_sum_of_temporal_differences(seed):
    x = batch(seed)
    advantage, target = estimate(*x)
    np.testing.assert_allclose(advantage, by_sum(*map(np.asarray, x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target, advantage + x[2], rtol=1e-6)


def one_agent(discount, last):
    """Two steps, rewards 1 and 2, values 10 and 20 before and 30 and 40 after; γ = ½, λ = ½."""

    def column(*x):
        return jnp.array(x, jnp.float32)[:, None, None]

    return gae(
        column(1, 2), column(*discount), column(10, 20), column(30, 40), jnp.array(last)[:, None], gamma=0.5, lam=0.5
    )[0][:, 0, 0]


def test_by_hand_a_death_does_not_bootstrap_and_a_time_limit_does():
    np.testing.assert_allclose(one_agent((1, 1), (False, False)), [6.0 + 0.25 * 2.0, 2.0])
    np.testing.assert_allclose(one_agent((1, 1), (True, False)), [6.0, 2.0])  # time limit: bootstraps, cuts
    np.testing.assert_allclose(one_agent((0, 1), (True, False)), [-9.0, 2.0])  # death of the team
    np.testing.assert_allclose(one_agent((0, 1), (False, False)), [-9.0, 2.0])  # death of one agent
    np.testing.assert_allclose(one_agent((1, 0), (False, True)), [6.0 + 0.25 * -18.0, -18.0])


def test_nothing_passes_from_one_episode_to_the_one_before():
    reward, discount, value, next_value, last = batch(3)
    last = last.at[2].set(True)
    other = reward.at[3:].add(100.0)
    before, after = (estimate(r, discount, value, next_value, last)[0] for r in (reward, other))
    np.testing.assert_array_equal(before[:3], after[:3])
    assert (before[3:] != after[3:]).all()


def test_traced_coefficients_unrolling_and_per_agent_ends_change_nothing():
    x = batch(5)
    advantage, _ = estimate(*x)
    per_agent = (*x[:4], jnp.broadcast_to(x[4][..., None], (T, E, N)))
    unrolled = jax.jit(lambda *x, gamma, lam: gae(*x, gamma=gamma, lam=lam, unroll=4)[0])
    again = unrolled(*per_agent, gamma=jnp.array(GAMMA), lam=jnp.array(LAM))
    np.testing.assert_allclose(again, advantage, rtol=1e-5, atol=1e-6)


def test_shapes_that_do_not_match_are_refused():
    reward, discount, value, next_value, last = batch(0)
    with pytest.raises(Exception, match=r"discount|last"):
        gae(reward, discount[..., :1], value, next_value, last, gamma=1.0, lam=1.0)
    with pytest.raises(AssertionError, match="last"):
        gae(reward, discount, value, next_value, last[:, :2], gamma=1.0, lam=1.0)
