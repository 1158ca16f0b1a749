"""Returns that look forward from each step: λ-returns, n-step returns and plain discounted sums.

The first two follow one rule at the ends: a death (discount 0) does not bootstrap, a time limit (``last`` with
discount 1) and the end of the rollout bootstrap on V(outcome). No reward counts for an earlier episode.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.equations.recurrence import backward, per_agent

Scalar = float | int | Float[Array, ""]


def td_lambda(
    reward: Float[Array, "T *b"],
    discount: Float[Array, "T *b"],
    next_value: Float[Array, "T *b"],
    last: Bool[Array, "T ..."],
    *,
    gamma: Scalar,
    lam: Scalar,
    unroll: int = 1,
) -> Float[Array, "T *b"]:
    """The λ-return.

        G_t = r_t + γ d_t [(1 − λ_t) V(outcome_t) + λ_t G_{t+1}],    λ_t = 0 where last_t or t = T − 1, else λ

    Shapes: reward, discount, next_value and the result [T, E, N]; last [T, E]. λ = 0 is the one-step target; λ = 1 is
    the discounted return, bootstrapped where it is cut.

    Source: Sutton & Barto 2018, Reinforcement Learning, eq. 12.18 (recursive form of the λ-return, state values).
    """
    assert reward.shape == discount.shape == next_value.shape, (
        f"reward {reward.shape}, discount {discount.shape}, next_value {next_value.shape}"
    )
    mix = jnp.where(per_agent(last, reward), 0.0, jnp.broadcast_to(lam, reward.shape))
    step = gamma * discount
    # Starting from V(outcome_{T-1}) makes the last row the one-step target whatever λ is.
    return backward(reward + step * (1.0 - mix) * next_value, step * mix, next_value[-1], unroll=unroll)


def n_step_returns(
    reward: Float[Array, "T *b"],
    discount: Float[Array, "T *b"],
    next_value: Float[Array, "T *b"],
    last: Bool[Array, "T ..."],
    *,
    gamma: Scalar,
    n: int,
) -> Float[Array, "T *b"]:
    """The n-step return.

        G^1_t = r_t + γ d_t V(outcome_t)
        G^k_t = r_t + γ d_t G^{k−1}_{t+1},    but G^1_t where last_t or t = T − 1

    Shapes: reward, discount, next_value and the result [T, E, N]; last [T, E]. Near an end of the episode or of the
    rollout fewer than n rewards are summed before the value.

    Source: Sutton & Barto 2018, Reinforcement Learning, eq. 7.1.
    """
    assert n >= 1, n
    assert reward.shape == discount.shape == next_value.shape, (
        f"reward {reward.shape}, discount {discount.shape}, next_value {next_value.shape}"
    )
    step = gamma * discount
    cut = per_agent(last, reward)

    def longer(_: object, ret: Array) -> Array:
        following = jnp.concatenate([ret[1:], next_value[-1:]])
        return reward + step * jnp.where(cut, next_value, following)

    return jax.lax.fori_loop(1, n, longer, reward + step * next_value)


def discounted_returns(
    reward: Float[Array, "T *b"],
    discount: Float[Array, "T *b"],
    last: Bool[Array, "T ..."],
    *,
    gamma: Scalar,
    unroll: int = 1,
) -> Float[Array, "T *b"]:
    """The discounted sum of rewards, without bootstrapping.

        G_t = r_t + γ d_t (1 − last_t) G_{t+1},    G_T = 0

    Shapes: reward, discount and the result [T, E, N]; last [T, E]. An episode that is cut, by a time limit or by the
    end of the rollout, counts as if it earned nothing afterwards; ``td_lambda(..., lam=1)`` bootstraps instead.

    Source: Sutton & Barto 2018, Reinforcement Learning, eq. 3.9.
    """
    assert reward.shape == discount.shape, f"reward {reward.shape}, discount {discount.shape}"
    trace = jnp.where(per_agent(last, reward), 0.0, gamma * discount)
    return backward(reward, trace, jnp.zeros_like(reward[0]), unroll=unroll)
