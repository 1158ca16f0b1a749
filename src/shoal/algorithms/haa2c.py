"""HAA2C: HAPPO's loop over agents without a clip (Zhong et al. 2024).

In a random order i_1 … i_n, agent i_m maximises by several gradient steps

    max_θ  E[ r M + σ S(π_θ) ],    r = π_θ(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m})
    M^{i_1} = Â,    M^{i_1:m+1} = π_new(a^{i_m}|o^{i_m}) / π_old(a^{i_m}|o^{i_m}) · M^{i_1:m}

and the critic is fitted last. All other stages are those of :mod:`shoal.algorithms.happo`. At r = 1 the gradient is
that of A2C with M as the advantage; nothing but the number and the size of the steps keeps r near 1. Deviations from
the authors' code (HARL): those of HAPPO, and r is capped at e^20. Options and results: docs/algorithms/happo.md.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from shoal.algorithms import happo
from shoal.bounds import Count, Index, Rate
from shoal.equations.distributions import Distribution
from shoal.equations.surrogate import importance_ratio, kl_penalty
from shoal.learning.config import EpochsConfig, PpoConfig, own_fields
from shoal.networks.sharing import Sharing
from shoal.types import Algorithm, EnvSpec, Metrics, Scale

make_policy = happo.make_policy


@dataclass(frozen=True)
class Config(EpochsConfig):
    """HAA2C's hyper-parameters. "Code" is the authors' (HARL) for MPE.

    The code has HAPPO's values (:class:`shoal.algorithms.happo.Config`) but for the clip.
    """

    order: happo.Order = "random"
    """Agents update in a new random order each time, or in their ``fixed`` order. Code: random."""
    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share parameters. Code: none."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Code: 5e-4 (1e-4 for Hopper and Walker2d)."""
    epochs: Count = 5
    """Passes over each batch, for every agent and for the critic. Code: 5 (3 for Hopper)."""


def policy_loss(
    c: PpoConfig, pi: Distribution, batch: Any, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """−E[r M + σ S] over one minibatch of one agent, whose advantage is M, and its metrics."""
    log_ratio = pi.log_prob(batch.action) - batch.extras["log_prob"]
    surrogate, entropy = importance_ratio(log_ratio) * batch.advantage, pi.entropy()
    metrics = {"policy_loss": -surrogate, "entropy": entropy, "kl": kl_penalty(log_ratio)}
    loss = -jnp.sum(batch.weight * (surrogate + entropy_coef * entropy))
    return loss, {name: jnp.sum(batch.weight * x) for name, x in metrics.items()}


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """HAA2C for an environment.

    Raises:
        InputError: as :func:`shoal.algorithms.happo.make`.
    """
    return happo.make(spec, happo.Config(**own_fields(config, Config)), scale, policy_loss)
