"""Action distributions as pytrees: masked Categorical, DiagGaussian, TanhGaussian and Deterministic.

All share one interface, over batch axes ``*b`` and A actions or action dimensions:

- ``noise_shape`` and ``noise(key)``: the shape and a draw of the noise that one sample needs. The shape is also known
  for a distribution of ``jax.ShapeDtypeStruct``, so the noise of a whole rollout can be drawn at once.
- ``sample_from(noise)``: a deterministic function of that noise; ``sample(key)`` is ``sample_from(noise(key))``.
- ``log_prob(action)``, ``entropy()``, ``kl(other)``: [*b], in nats, summed over the real action dimensions.
- ``mode()``: the greedy action.

``legal`` and ``real`` mark legal actions and real (not padded) action dimensions. Other entries do not change results
and receive a gradient of exactly zero, whatever their values; padded dimensions of an action are 0.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.equations.gaussians import DiagGaussian, TanhGaussian
from shoal.equations.pytree import pytree

__all__ = ["Categorical", "Deterministic", "DiagGaussian", "Distribution", "TanhGaussian", "described"]

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
    the normal to both sides maps to, which for a Gaussian is the standard deviation.
    """
    if isinstance(dist, Categorical):
        return {"probabilities": dist.probabilities()}
    mean = dist.mode()
    if isinstance(dist, Deterministic):
        std = jnp.zeros_like(mean)
    else:
        ones = jnp.ones_like(mean)
        std = (dist.sample_from(ones) - dist.sample_from(-ones)) / 2
    return {name: jnp.where(dist.real, x, jnp.nan) for name, x in (("mean", mean), ("std", std))}
