"""Distributions over action vectors: normal, and tanh of normal; ``distributions`` states their interface."""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.equations.pytree import pytree

EDGE = 1.0 - 1e-6
"""A squashed action is clipped to ±EDGE (of the unit box) before atanh, which is infinite at ±1."""

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)

# Gauss-Hermite quadrature for a standard normal, 5 points: Σ_i w_i f(x_i) ≈ E[f(x)].
_NODES = (0.0, math.sqrt(5 - math.sqrt(10)), math.sqrt(5 + math.sqrt(10)))
_WEIGHTS = (8 / 15, (7 + 2 * math.sqrt(10)) / 60, (7 - 2 * math.sqrt(10)) / 60)


@pytree
@dataclass(frozen=True)
class DiagGaussian:
    """A normal distribution per action dimension, unbounded: the environment clips."""

    mean: Float[Array, "*b A"]
    log_std: Float[Array, "*#b A"]
    real: Bool[Array, "*#b A"]

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """[*b, A]."""
        return self.mean.shape

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*b A"]:
        """Standard normal numbers."""
        return jax.random.normal(key, self.noise_shape)

    def sample_from(self, noise: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
        """μ + σ · noise; differentiable in μ and σ."""
        mean, log_std = self._masked()
        return jnp.where(self.real, mean + jnp.exp(log_std) * noise, 0.0)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*b A"]:
        """One action per row."""
        return self.sample_from(self.noise(key))

    def log_prob(self, action: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        """Σ_i −½ ((a_i − μ_i) / σ_i)² − log σ_i − ½ log 2π."""
        mean, log_std = self._masked()
        z = (jnp.where(self.real, action, 0.0) - mean) * jnp.exp(-log_std)
        return self._sum(-0.5 * jnp.square(z) - log_std - HALF_LOG_TAU)

    def entropy(self) -> Float[Array, "*b"]:
        """Σ_i log σ_i + ½ log 2πe."""
        _, log_std = self._masked()
        return self._sum(log_std + (0.5 + HALF_LOG_TAU))

    def kl(self, other: "DiagGaussian") -> Float[Array, "*b"]:
        """KL(self ‖ other) = Σ_i log σ'_i / σ_i + (σ_i² + (μ_i − μ'_i)²) / 2 σ'_i² − ½, exact."""
        (mean, log_std), (other_mean, other_log_std) = self._masked(), other._masked()
        gap = log_std - other_log_std
        square = jnp.square((mean - other_mean) * jnp.exp(-other_log_std))
        return self._sum(0.5 * (jnp.expm1(2.0 * gap) + square) - gap)

    def mode(self) -> Float[Array, "*b A"]:
        """μ."""
        return self._masked()[0]

    def _masked(self) -> tuple[Array, Array]:
        """(μ, log σ) with padded dimensions at 0 before any arithmetic, so that their values have no effect."""
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        return jnp.where(self.real, self.mean, 0.0), jnp.where(self.real, log_std, 0.0)

    def _sum(self, x: Array) -> Array:
        return jnp.where(self.real, x, 0.0).sum(-1)


@pytree
@dataclass(frozen=True)
class TanhGaussian:
    """a = low + (high − low) (tanh(x) + 1) / 2 with x normal: never outside the finite box.

    Source: Haarnoja et al. 2018, Soft Actor-Critic, appendix C (the change of variables, eq. 21).
    """

    mean: Float[Array, "*b A"]
    log_std: Float[Array, "*#b A"]
    low: float = field(metadata={"static": True})
    high: float = field(metadata={"static": True})
    real: Bool[Array, "*#b A"]

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """[*b, A]."""
        return self.mean.shape

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*b A"]:
        """Standard normal numbers."""
        return jax.random.normal(key, self.noise_shape)

    def sample_from(self, noise: Float[Array, "*b A"]) -> Float[Array, "*b A"]:
        """squash(μ + σ · noise); differentiable in μ and σ."""
        return self._squash(self._base().sample_from(noise))

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*b A"]:
        """One action per row, in [low, high]."""
        return self.sample_from(self.noise(key))

    def log_prob(self, action: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        """log N(x; μ, σ) − Σ_i log(1 − tanh² x_i) − Σ_i log((high − low) / 2), with x = atanh of the unit-box action.

        An action nearer to the edge than 5e-7 of the box's width is clipped to that distance, so the value is finite.
        """
        base = self._base()
        unit = (jnp.where(self.real, action, self._middle) - self._middle) / self._half
        x = jnp.arctanh(jnp.clip(unit, -EDGE, EDGE))
        return base.log_prob(x) - base._sum(self._log_slope(x))

    def entropy(self) -> Float[Array, "*b"]:
        """H(x) + Σ_i E[log(1 − tanh² x_i)] + Σ_i log((high − low) / 2).

        The expectation has no closed form; 5-point Gauss-Hermite quadrature approximates it, without noise: to 0.01
        nats per dimension for σ ≤ 1 and to 0.1 for σ ≤ 2.
        """
        base = self._base()
        mean, log_std = base._masked()
        expected = _WEIGHTS[0] * self._log_slope(mean)
        for node, weight in zip(_NODES[1:], _WEIGHTS[1:], strict=True):
            step = node * jnp.exp(log_std)
            expected += weight * (self._log_slope(mean + step) + self._log_slope(mean - step))
        return base.entropy() + base._sum(expected)

    def kl(self, other: "TanhGaussian") -> Float[Array, "*b"]:
        """KL(self ‖ other), exact: that of the normals, because both are mapped one-to-one by the same function."""
        assert (self.low, self.high) == (other.low, other.high), "the two distributions have different boxes"
        return self._base().kl(other._base())

    def mode(self) -> Float[Array, "*b A"]:
        """squash(μ), the median of each dimension (the density itself peaks elsewhere when it is skewed)."""
        return self._squash(self._base().mode())

    @property
    def _half(self) -> float:
        return 0.5 * (self.high - self.low)

    @property
    def _middle(self) -> float:
        return 0.5 * (self.high + self.low)

    def _base(self) -> DiagGaussian:
        return DiagGaussian(self.mean, self.log_std, self.real)

    def _squash(self, x: Array) -> Array:
        return jnp.where(self.real, jnp.clip(self._middle + self._half * jnp.tanh(x), self.low, self.high), 0.0)

    def _log_slope(self, x: Array) -> Array:
        """log da/dx = log(1 − tanh² x) + log half, in the form that does not cancel for large |x|."""
        return 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x)) + math.log(self._half)
