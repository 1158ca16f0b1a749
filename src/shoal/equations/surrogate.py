"""The clipped objectives of PPO, element by element; the caller averages and masks (see ``reduce``).

Throughout, ``log_ratio`` is log π_new(a|s) − log π_old(a|s) of a stored action, and any shape is accepted.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = float | int | Float[Array, ""]

MAX_LOG_RATIO = 20.0
"""Ratios are capped at e^20: beyond it exp overflows, and 0 · inf in a masked entry's gradient is NaN."""


def importance_ratio(log_ratio: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """r = exp(log_ratio), capped at e^20."""
    return jnp.exp(jnp.minimum(log_ratio, MAX_LOG_RATIO))


def clipped_surrogate(
    log_ratio: Float[Array, "*b"],
    advantage: Float[Array, "*b"],
    clip: Scalar,
    dual_clip: Scalar | None = None,
) -> Float[Array, "*b"]:
    """The clipped objective, to be maximised.

        L = min(r A, clip(r, 1 − ε, 1 + ε) A),    r = exp(log_ratio)

    and with ``dual_clip`` c > 1, where A < 0, L = max(L, c A): where r > c too, the gradient is 0.

    Args:
        log_ratio: [...].
        advantage: [...], a constant to differentiation if the caller made it one.
        clip: ε.
        dual_clip: c, or None.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, eq. 7; the dual clip: Ye et al. 2020,
    Mastering Complex Control in MOBA Games with Deep Reinforcement Learning, eq. 5.
    """
    assert log_ratio.shape == advantage.shape, f"log_ratio {log_ratio.shape}, advantage {advantage.shape}"
    assert not isinstance(dual_clip, float | int) or dual_clip > 1, f"dual_clip must exceed 1, not {dual_clip}"
    ratio = importance_ratio(log_ratio)
    objective = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)
    return dual_clipped(objective, advantage, dual_clip)


def dual_clipped(
    objective: Float[Array, "*b"], advantage: Float[Array, "*b"], dual_clip: Scalar | None
) -> Float[Array, "*b"]:
    """The objective, no less than ``dual_clip`` · A where A < 0; unchanged where ``dual_clip`` is None."""
    if dual_clip is None:
        return objective
    return jnp.where(advantage < 0, jnp.maximum(objective, dual_clip * advantage), objective)


def huber(e: Float[Array, "*b"], delta: Scalar) -> Float[Array, "*b"]:
    """½ e² where |e| ≤ δ, δ (|e| − ½ δ) beyond. Source: Huber 1964, Robust Estimation of a Location Parameter."""
    size = jnp.abs(e)
    inner = jnp.minimum(size, delta)
    return inner * (size - 0.5 * inner)


_huber = huber  # ``clipped_value_loss`` has an argument of that name


def clipped_value_loss(
    value: Float[Array, "*b"],
    old_value: Float[Array, "*b"],
    target: Float[Array, "*b"],
    clip: Scalar | None,
    huber: Scalar | None,
) -> Float[Array, "*b"]:
    """The value loss, to be minimised; the larger of the clipped and the unclipped loss.

        L = max(ℓ(V − G), ℓ(V_old + clip(V − V_old, −ε, ε) − G))

    Args:
        value: [...] V of the current critic.
        old_value: [...] V_old, as stored at acting time and on the same scale.
        target: [...] G.
        clip: ε, or None for ℓ(V − G).
        huber: ℓ is the Huber loss of this width, or ½ e² where None.

    Source: Yu et al. 2022, The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games, appendix A, L(φ).
    """
    assert value.shape == old_value.shape == target.shape, (
        f"value {value.shape}, old_value {old_value.shape}, target {target.shape}"
    )

    def loss(error: Array) -> Array:
        return 0.5 * jnp.square(error) if huber is None else _huber(error, huber)

    unclipped = loss(value - target)
    if clip is None:
        return unclipped
    return jnp.maximum(unclipped, loss(old_value + jnp.clip(value - old_value, -clip, clip) - target))


def kl_penalty(log_ratio: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """An unbiased, nonnegative estimate of KL(π_old ‖ π_new) from actions sampled by π_old.

        k3 = r − 1 − log r,    r = exp(log_ratio)

    Its mean over samples of π_old is the divergence; a sum over all actions without their probabilities is not.

    Source: Schulman 2020, Approximating KL Divergence, estimator k3.
    """
    capped = jnp.minimum(log_ratio, MAX_LOG_RATIO)
    return jnp.expm1(capped) - capped


def clip_fraction(log_ratio: Float[Array, "*b"], clip: Scalar) -> Float[Array, "*b"]:
    """1 where |r − 1| > ε, else 0; its mean is the share of samples outside the clip range. No gradient passes."""
    return (jnp.abs(jnp.expm1(jnp.minimum(log_ratio, MAX_LOG_RATIO))) > clip).astype(log_ratio.dtype)
