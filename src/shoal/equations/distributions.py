"""Action distributions as pytrees: masked Categorical, DiagGaussian, TanhGaussian and Deterministic; draws from them.

All share one interface, over batch axes ``*b`` and A actions or action dimensions:

- ``noise_shape`` and ``noise(key)``: the shape and a draw of the noise that one sample needs. The shape is also known
  for a distribution of ``jax.ShapeDtypeStruct``, so the noise of a whole rollout can be drawn at once.
- ``sample_from(noise)``: a deterministic function of that noise; ``sample(key)`` is ``sample_from(noise(key))``.
- ``log_prob(action)``, ``entropy()``, ``kl(other)``: [*b], in nats, summed over the real action dimensions.
- ``mode()``: the greedy action.

``legal`` and ``real`` mark legal actions and real (not padded) action dimensions. Other entries do not change results
and receive a gradient of exactly zero, whatever their values; padded dimensions of an action are 0.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from shoal.equations.reduce import DEVICES

Class = TypeVar("Class", bound=type)


def pytree(cls: Class) -> Class:
    """Register a frozen dataclass as a pytree; fields with ``metadata={"static": True}`` are part of its structure.

    JAX also rebuilds trees with leaves that are not arrays (axis numbers, shapes, None). Rebuilding therefore skips
    ``__init__`` and its type checks, which ``jax.tree_util.register_dataclass`` would call.
    """
    static = [f.name for f in fields(cls) if f.metadata.get("static", False)]
    leaves = [f.name for f in fields(cls) if f.name not in static]

    def flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return children, tuple(getattr(node, name) for name in static)

    def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(node, name) for name in leaves], tuple(getattr(node, name) for name in static)

    def unflatten(structure: tuple[Any, ...], children: Any) -> Any:
        node = object.__new__(cls)
        for name, value in zip([*leaves, *static], [*children, *structure], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


# Distributions over action vectors: normal, and tanh of normal.


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

    def with_log_prob(self, noise: Float[Array, "*b A"]) -> tuple[Float[Array, "*b A"], Float[Array, "*b"]]:
        """``sample_from(noise)`` and its log-probability, which has no clipping at the edges; both differentiable.

        It is that of x = μ + σ · noise in single precision, whose rounding changes it by less than 0.01 nats for
        |μ| = 1 and σ > 3e-5.
        """
        base = self._base()
        x = base.sample_from(noise)
        return self._squash(x), base.log_prob(x) - base._sum(self._log_slope(x))

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


# Distributions over choices, and deterministic ones.


ILLEGAL = -1e9
"""Logit of an illegal action: its probability underflows to exactly 0, log-probabilities and ratios stay finite."""


@pytree
@dataclass(frozen=True)
class Categorical:
    """One of A actions, with probability softmax(logits) over the legal ones; uniform where none is legal."""

    logits: Float[Array, "*b A"]
    legal: Bool[Array, "*#b A"]

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """[*b]: one uniform number per row."""
        return self.logits.shape[:-1]

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*b"]:
        """Uniform numbers in [0, 1)."""
        return jax.random.uniform(key, self.noise_shape)

    def sample_from(self, noise: Float[Array, "*b"]) -> Int[Array, "*b"]:
        """Invert the cumulative distribution: the first legal action a with Σ_{i≤a} p_i > noise.

        One uniform per row instead of A Gumbel numbers, and as fast on a CPU as the arg-max alone. Rounding cannot
        select an illegal action, except where no action is legal.
        """
        weights = jnp.exp(self._centred())
        cumulative = jnp.tensordot(jnp.tri(weights.shape[0]), weights, 1, precision="highest")
        index = self._index(noise.ndim)
        possible = weights > 0
        beyond = possible & (cumulative > noise * cumulative[-1])
        last = jnp.where(possible, index, 0).max(0)
        return jnp.minimum(jnp.where(beyond, index, weights.shape[0]).min(0), last)

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*b"]:
        """One action per row."""
        return self.sample_from(self.noise(key))

    def log_prob(self, action: Int[Array, "*b"]) -> Float[Array, "*b"]:
        """log p(action); about -1e9 for an illegal action."""
        z = self._centred()
        # A compare and a sum are as fast on a CPU as a gather, and the gradient needs no scatter.
        chosen = jnp.where(action == self._index(action.ndim), z, 0).sum(0)
        return chosen - jnp.log(jnp.exp(z).sum(0))

    def entropy(self) -> Float[Array, "*b"]:
        """H = log Σ e^z − Σ z e^z / Σ e^z."""
        z = self._centred()
        weights = jnp.exp(z)
        norm = weights.sum(0)
        return jnp.log(norm) - (weights * z).sum(0) / norm

    def kl(self, other: "Categorical") -> Float[Array, "*b"]:
        """KL(self ‖ other) = Σ p (log p − log q), exact."""
        log_p, log_q = jax.nn.log_softmax(self._centred(), 0), jax.nn.log_softmax(other._centred(), 0)
        return (jnp.exp(log_p) * (log_p - log_q)).sum(0)

    def mode(self) -> Int[Array, "*b"]:
        """The most probable legal action."""
        return jnp.argmax(self._centred(), 0)

    def probabilities(self) -> Float[Array, "*b A"]:
        """[*b, A], exactly 0 for illegal actions."""
        return jnp.moveaxis(jax.nn.softmax(self._centred(), 0), 0, -1)

    def _centred(self) -> Float[Array, "A *b"]:
        """Logits with the largest at 0 and the illegal ones near -1e9.

        Actions lead: on a CPU, sums over a short trailing axis do not vectorise, and sampling is 3 times slower.
        """
        z = jnp.moveaxis(jnp.where(self.legal, self.logits.astype(jnp.float32), ILLEGAL), -1, 0)
        return z - jax.lax.stop_gradient(z.max(0))

    def _index(self, ndim: int) -> Int[Array, "A ..."]:
        count = self.logits.shape[-1]
        return jnp.arange(count).reshape(count, *(1,) * ndim)


@pytree
@dataclass(frozen=True)
class Deterministic:
    """Always the same action: a point mass under the counting measure, so log_prob at the action and entropy are 0."""

    value: Float[Array, "*b A"]
    real: Bool[Array, "*#b A"]

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """[*b, 0]: no noise is needed."""
        return (*self.value.shape[:-1], 0)

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*b 0"]:
        """An empty array."""
        return jnp.zeros(self.noise_shape)

    def sample_from(self, noise: Float[Array, "*b 0"]) -> Float[Array, "*b A"]:
        """The action."""
        return self.mode()

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*b A"]:
        """The action."""
        return self.mode()

    def log_prob(self, action: Float[Array, "*b A"]) -> Float[Array, "*b"]:
        """0 at the action, -1e9 elsewhere."""
        return jnp.where((self.real & (action != self.value)).any(-1), ILLEGAL, 0.0)

    def entropy(self) -> Float[Array, "*b"]:
        """0."""
        return jnp.zeros(self.value.shape[:-1])

    def kl(self, other: "Deterministic") -> Float[Array, "*b"]:
        """0 where both are the same action, 1e9 elsewhere."""
        return -other.log_prob(self.value)

    def mode(self) -> Float[Array, "*b A"]:
        """The action."""
        return jnp.where(self.real, self.value, 0.0)


Distribution = Categorical | DiagGaussian | TanhGaussian | Deterministic


def described(dist: Distribution) -> dict[str, Array]:
    """A distribution in numbers, as ``Algorithm.inspect`` returns it: ``probabilities``, or ``mean`` and ``std``.

    ``mean`` is the mode of continuous actions. ``std`` is half the width of the interval that one standard deviation of
    the normal to both sides maps to, which for a Gaussian is the standard deviation. A squashed Gaussian also has
    ``normal_mean`` and ``normal_std``, those of the normal before the tanh, from which actions can be drawn.
    """
    if isinstance(dist, Categorical):
        return {"probabilities": dist.probabilities()}
    mean = dist.mode()
    if isinstance(dist, Deterministic):
        std = jnp.zeros_like(mean)
    else:
        ones = jnp.ones_like(mean)
        std = (dist.sample_from(ones) - dist.sample_from(-ones)) / 2
    found = {"mean": mean, "std": std}
    if isinstance(dist, TanhGaussian):
        spread = jnp.broadcast_to(jnp.exp(dist.log_std), dist.mean.shape)
        found |= {"normal_mean": dist.mean, "normal_std": spread}
    return {name: jnp.where(dist.real, x, jnp.nan) for name, x in found.items()}


# Draws that do not depend on the number of devices.


def row_keys(key: PRNGKeyArray, count: int) -> Key[Array, " count"]:
    """One key for each of ``count`` rows, made from its index among the rows of all devices."""
    number = jnp.arange(count)
    if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
        number += count * jax.lax.axis_index(DEVICES)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, number)


def noise(dist: Distribution, key: PRNGKeyArray, axis: int) -> Float[Array, "..."]:
    """The noise of one draw per row of ``dist``, whose environments are on ``axis``; for ``dist.sample_from``.

    Each environment has a key of its own; see :func:`row_keys`.
    """
    keys = row_keys(key, jax.tree.leaves(dist)[0].shape[axis])
    return jax.vmap(lambda one, key: one.noise(key), (axis, 0), axis)(dist, keys)


# Exploration and relaxed samples of discrete actions.

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


def gumbel_softmax(
    logits: Float[Array, "*b A"],
    legal: Bool[Array, "*#b A"],
    noise: Float[Array, "*b A"],
    *,
    temperature: Scalar = 1.0,
    straight_through: bool = True,
) -> Float[Array, "*b A"]:
    """A sample of softmax(logits) over the legal actions, as a vector that is differentiable in the logits.

        y = softmax((z + g) / τ)                                                       (Jang et al. 2017, eq. 2)
        straight through:  one_hot(argmax (z + g)) in value, y in gradient                     (section 2.2)

    Args:
        logits: z.
        legal: illegal actions get exactly 0 in value and gradient.
        noise: g, standard Gumbel numbers.
        temperature: τ; towards 0 samples become one-hot and gradients noisy.
        straight_through: one-hot samples; otherwise the relaxed ones.
    """
    z = jnp.where(legal, logits + noise, ILLEGAL)
    soft = jax.nn.softmax(z / temperature, axis=-1)
    if not straight_through:
        return soft
    hard = jax.nn.one_hot(z.argmax(-1), z.shape[-1], dtype=soft.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))  # in this order exactly one-hot
