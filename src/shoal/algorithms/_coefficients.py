"""Coefficients that move while training: the entropy bonus σ and the weight κ of a KL penalty."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.types import Metrics, Scale


class Coefficients(NamedTuple):
    """Their present values; σ is read from here only where it follows a target entropy."""

    log_entropy: Float[Array, ""]
    kl: Float[Array, ""]


def init(config: Any) -> Coefficients:
    """The coefficients that the configuration starts from; κ is 0 for an algorithm without a KL penalty."""
    entropy = config.entropy_coef if config.target_entropy is not None else 1.0
    return Coefficients(jnp.log(jnp.float32(entropy)), jnp.float32(getattr(config, "kl_coef", 0.0)))


def entropy_coef(config: Any, coefficients: Coefficients, updates: Array, scale: Scale) -> Float[Array, ""]:
    """σ after so many updates: constant, on a line to ``entropy_final``, or where its target has brought it."""
    if config.target_entropy is not None:
        return jnp.exp(coefficients.log_entropy)
    final = config.entropy_coef if config.entropy_final is None else config.entropy_final
    return config.entropy_coef + (final - config.entropy_coef) * updates / scale.num_updates


def adapt(config: Any, coefficients: Coefficients, metrics: Metrics) -> Coefficients:
    """Move σ towards its target entropy and κ towards its target KL, if any.

    log σ += rate · (target − S) with the error held to ±1 nat. κ is halved or doubled where ``kl_update``, the KL after
    the update, is outside [target/1.5, 1.5·target] (Schulman et al. 2017, section 4).
    """
    if config.target_entropy is not None:
        error = jnp.clip(config.target_entropy - metrics["entropy"], -1.0, 1.0)
        log_entropy = coefficients.log_entropy + config.target_entropy_rate * error
        coefficients = coefficients._replace(log_entropy=log_entropy)
    if getattr(config, "kl_target", None) is not None:
        kl, target = metrics["kl_update"], config.kl_target
        factor = jnp.where(kl > 1.5 * target, 2.0, jnp.where(kl < target / 1.5, 0.5, 1.0))
        coefficients = coefficients._replace(kl=coefficients.kl * factor)
    return coefficients
