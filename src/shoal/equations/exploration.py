"""Exploration as part of the policy, with its log-probabilities and gradients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.equations.distributions import Categorical, Distribution

Scalar = float | int | Float[Array, ""]


def mixed_with_uniform(dist: Distribution, epsilon: Scalar | None) -> Distribution:
    """π(u) = (1 − ε) softmax(z)_u + ε / n over the n legal actions, so that none is less likely than ε / n.

    The gradient of log π passes through the mixture; the most probable action stays the same for ε < 1. Computed from
    log-probabilities: with ε = 0 it is the same distribution to rounding, however unlikely an action is. With None the
    distribution is returned unchanged.

    Source: Foerster et al. 2018, Counterfactual Multi-Agent Policy Gradients, section 5.2 (bounded softmax).
    """
    if epsilon is None:
        return dist
    assert isinstance(dist, Categorical), "only discrete actions have a uniform policy to mix in"
    log_p = jax.nn.log_softmax(jnp.where(dist.legal, dist.logits.astype(jnp.float32), -1e9), -1)
    log_uniform = -jnp.log(jnp.maximum(dist.legal.sum(-1, keepdims=True), 1))
    return Categorical(jnp.logaddexp(jnp.log1p(-epsilon) + log_p, jnp.log(epsilon) + log_uniform), dist.legal)
