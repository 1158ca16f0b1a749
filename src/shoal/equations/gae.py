"""Generalised advantage estimation."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.equations.recurrence import backward, per_agent

Scalar = float | int | Float[Array, ""]


def gae(
    reward: Float[Array, "T *b"],
    discount: Float[Array, "T *b"],
    value: Float[Array, "T *b"],
    next_value: Float[Array, "T *b"],
    last: Bool[Array, "T ..."],
    *,
    gamma: Scalar,
    lam: Scalar,
    unroll: int = 1,
) -> tuple[Float[Array, "T *b"], Float[Array, "T *b"]]:
    """The advantage of each action, and the target for the value of the state it was taken in.

        δ_t = r_t + γ d_t V(outcome_t) − V(s_t)
        A_t = δ_t + γ λ d_t (1 − last_t) A_{t+1},    A_T = 0
        target_t = A_t + V(s_t)

    A death (d_t = 0) does not bootstrap. A time limit (last_t, with d_t = 1) bootstraps on V(outcome_t). Both cut the
    trace, so that no reward counts for an earlier episode.

    Args:
        reward: [T, E, N] r_t, ``outcome.reward``.
        discount: [T, E, N] d_t, ``outcome.discount``: 0 on true termination, else 1.
        value: [T, E, N] V(s_t).
        next_value: [T, E, N] V(outcome_t), after the action and before any reset.
        last: [T, E] ``outcome.last``; missing trailing axes broadcast.
        gamma: γ.
        lam: λ.
        unroll: as of ``jax.lax.scan``.

    Returns:
        (advantage, value_target), both [T, E, N].

    Source: Schulman et al. 2016, High-Dimensional Continuous Control Using GAE, eq. 11, 12 and 16.
    """
    assert reward.shape == discount.shape == value.shape == next_value.shape, (
        f"reward {reward.shape}, discount {discount.shape}, value {value.shape}, next_value {next_value.shape}"
    )
    delta = reward + gamma * discount * next_value - value
    trace = jnp.where(per_agent(last, reward), 0.0, gamma * lam * discount)
    advantage = backward(delta, trace, jnp.zeros_like(delta[0]), unroll=unroll)
    return advantage, advantage + value
