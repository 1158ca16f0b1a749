"""Baselines of the multi-agent policy gradient: what is subtracted from Q(s, u) without biasing ∇ log π(u^a) Q(s, u).

A baseline may depend on the state and on the others' actions u^{-a}, never on u^a. It is computed from K options of the
agent's own action, the others' held fixed: their values ``q`` [*b, K], their weights ``p`` [*b, K], which add up to
one, and for the optimal one ``square`` [*b, K] = ‖∇ log π(u)‖². For a categorical policy the options are all its
actions and p = π, and the sums below are the papers' expectations; for a continuous one they are K draws with p = 1/K.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalar = float | int | Float[Array, ""]


def counterfactual(q: Float[Array, "*b K"], p: Float[Array, "*b K"]) -> Float[Array, "*b"]:
    """b(s, u^{-a}) = Σ_u π(u | h^a) Q(s, u^{-a}, u); an option of weight 0 changes nothing.

    Source: Foerster et al. 2018, Counterfactual Multi-Agent Policy Gradients, eq. 4.
    """
    assert q.shape == p.shape, f"q {q.shape}, p {p.shape}"
    return jnp.where(p > 0, p * q, 0.0).sum(-1)


def optimal(q: Float[Array, "*b K"], p: Float[Array, "*b K"], square: Float[Array, "*b K"]) -> Float[Array, "*b"]:
    """b*(s, u^{-a}) = E_u[Q(s, u^{-a}, u) ‖∇ log π(u)‖²] / E_u[‖∇ log π(u)‖²], which minimises the variance.

    1e-8 is added to every ‖∇ log π(u)‖²: a policy with one possible action, where ∇ log π = 0, gets the counterfactual
    baseline.

    Source: Kuba et al. 2021, Settling the Variance of Multi-Agent Policy Gradients, Theorem 3.
    """
    assert q.shape == p.shape == square.shape, f"q {q.shape}, p {p.shape}, square {square.shape}"
    weight = p * (square + 1e-8)
    return counterfactual(q, weight / weight.sum(-1, keepdims=True))


def softmax_score_square(
    pi: Float[Array, "*b A"], legal: Bool[Array, "*#b A"], epsilon: Scalar = 0.0
) -> Float[Array, "*b A"]:
    """‖∇_z log π(u)‖² of every action, z being the logits: the surrogate that stands for ‖∇_θ log π(u)‖².

        π = softmax(z):                  ‖e_u − π‖² = 1 + ‖π‖² − 2 π(u)
        π = (1 − ε) p + ε / n, p = softmax(z):    ((1 − ε) p(u) / π(u))² ‖e_u − p‖²

    over the n legal actions. ``epsilon`` is ε < 1.

    Source: Kuba et al. 2021, section 4.2 (the surrogate optimal baseline); the second line is this library's.
    """
    learned = jnp.where(legal, jnp.maximum(pi - epsilon / legal.sum(-1, keepdims=True), 0.0), 0.0)  # (1 − ε) p
    p = learned / (1.0 - epsilon)
    others = jnp.maximum(jnp.square(p).sum(-1, keepdims=True) - jnp.square(p), 0.0)
    # (1 − p_u)² + Σ_{v≠u} p_v² is the same sum without 1 − 1, which would cancel where π is nearly deterministic.
    return jnp.square(learned / jnp.where(pi > 0, pi, 1.0)) * (jnp.square(1.0 - p) + others)


def gaussian_score_square(
    z: Float[Array, "*b A"], log_std: Float[Array, "*b A"], real: Bool[Array, "*#b A"]
) -> Float[Array, "*b"]:
    """‖∇_{μ, log σ} log N(μ + σ z; μ, σ)‖² = Σ_i z_i² / σ_i² + (z_i² − 1)², over real dimensions.

    A one-to-one map of the draw, such as the tanh of a squashed policy, leaves it as it is.

    Source: Kuba et al. 2021, section 4.2, with log σ as the second parameter of each dimension.
    """
    square = jnp.square(z)
    return jnp.where(real, square * jnp.exp(-2.0 * log_std) + jnp.square(square - 1.0), 0.0).sum(-1)
