"""Running statistics of a stream of numbers, to bring value targets, inputs and rewards to one scale."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from shoal.equations.reduce import total


class Floor(NamedTuple):
    """The smallest variance to divide by: the larger of ``absolute`` and ``relative`` · E[x²]."""

    absolute: float
    relative: float
    """0, or more than the rounding of E[x²] − E[x]² in single precision, which is about 1e-7 of E[x²]."""

    def __call__(self, stats: "Running") -> Float[Array, "*f"] | float:
        """Of these statistics, [*f] or one number."""
        return jnp.maximum(self.absolute, self.relative * stats.square) if self.relative else self.absolute


VALUES = Floor(1e-2, 1e-6)
"""Of value targets: 0.01 as in the MAPPO authors' ValueNorm, or more where the mean is over a thousand times the
deviation, which single precision does not resolve."""
INPUTS = Floor(1e-6, 1e-6)
"""Of observations and states: a deviation of 0.001, or a thousandth of the root mean square if that is more, is
still scaled to 1. A feature that has been constant becomes 0, and is clipped where it first changes (see
:func:`shoal.networks.inputs.normalised`)."""
REWARDS = Floor(1e-8, 1e-6)
"""Of rewards and returns: those of 1e-4 are still scaled to 1, and those that are all 0 stay 0."""


class Running(NamedTuple):
    """Debiased statistics of each feature."""

    mean: Float[Array, "*f"]
    """Estimate of E[x]."""
    square: Float[Array, "*f"]
    """Estimate of E[x²]."""
    weight: Float[Array, "*f"]
    """1 − β^updates for exponential averages, the number of samples for exact ones."""


def init(shape: tuple[int, ...]) -> Running:
    """Statistics of no samples: mean 0 and standard deviation 1, so that normalising is the identity."""
    return Running(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape))


def update(
    stats: Running,
    x: Float[Array, "..."],
    weight: Shaped[Array, "..."] | None = None,
    beta: float | None = 0.99999,
) -> Running:
    """Add one batch, averaged over its leading axes and over all device shards.

        b = mean(x),    w' = β w + 1 − β,    m' = m + (b − m) (1 − β) / w'          (β given)
        b = mean(x),    w' = w + n,          m' = m + (b − m) n / w'                (β None)

    The first line is the debiased exponential average Σ_k β^(K−k) b_k / Σ_k β^(K−k), in which a batch counts once
    whatever its size; with β close to 1 that is nearly the plain mean over batches. The second is the exact mean over
    all samples so far. E[x²] is kept the same way.

    Args:
        stats: features [*f].
        x: [..., *f].
        weight: broadcasts to ``x``, for example ``alive``; a batch of weight 0 changes nothing.
        beta: β, or None. The MAPPO code's value is 0.99999.

    Source: Kingma & Ba 2015, Adam, section 3 (debiasing), with E[x] and E[x²] as in the MAPPO authors' ValueNorm.
    """
    features = stats.mean.shape
    lead = x.ndim - len(features)
    assert lead >= 0 and x.shape[lead:] == features, f"x {x.shape} does not end in the features {features}"
    w = jnp.ones(x.shape) if weight is None else jnp.broadcast_to(weight, x.shape).astype(jnp.float32)
    x = jnp.where(w != 0, x, 0).astype(jnp.float32)
    axes = tuple(range(lead))
    n, first, second = total((w.sum(axes), (w * x).sum(axes), (w * x * x).sum(axes)))
    seen = n > 0
    n_or_1 = jnp.where(seen, n, 1.0)
    if beta is None:
        grown, step = stats.weight + n, n / (stats.weight + n_or_1)
    else:
        grown = jnp.where(seen, beta * stats.weight + (1.0 - beta), stats.weight)
        step = jnp.where(seen, (1.0 - beta) / (beta * stats.weight + (1.0 - beta)), 0.0)
    return Running(
        mean=stats.mean + (first / n_or_1 - stats.mean) * step,
        square=stats.square + (second / n_or_1 - stats.square) * step,
        weight=grown,
    )


def moments(stats: Running, floor: Floor) -> tuple[Float[Array, "*f"], Float[Array, "*f"]]:
    """(mean, standard deviation), both [*f]: σ = sqrt(max(E[x²] − E[x]², floor))."""
    return stats.mean, jnp.sqrt(jnp.maximum(stats.square - jnp.square(stats.mean), floor(stats)))


def normalise(stats: Running, x: Float[Array, "..."], floor: Floor) -> Float[Array, "..."]:
    """(x − μ) / σ for x [..., *f]."""
    mean, std = moments(stats, floor)
    return (x - mean) / std


def denormalise(stats: Running, x: Float[Array, "..."], floor: Floor) -> Float[Array, "..."]:
    """σ x + μ for x [..., *f], the inverse of :func:`normalise`."""
    mean, std = moments(stats, floor)
    return x * std + mean


def popart(
    old: Running, new: Running, kernel: Float[Array, "*p H K"], bias: Float[Array, "*p K"]
) -> tuple[Float[Array, "*p H K"], Float[Array, "*p K"]]:
    """Rescale a linear output layer so that new statistics do not change its denormalised output.

        W' = W σ / σ',    b' = (σ b + μ − μ') / σ',    so that    σ' (h W' + b') + μ' = σ (h W + b) + μ  for every h

    The deviations are those of values (:data:`VALUES`).

    Args:
        old: statistics μ, σ that the layer was trained under, [*p, K] or anything that broadcasts to ``bias``.
        new: the statistics μ', σ' that its output will be denormalised with.
        kernel: W [*p, H, K].
        bias: b [*p, K].

    Returns:
        (W', b').

    Source: van Hasselt et al. 2016, Learning values across many orders of magnitude, proposition 1; Hessel et al. 2019,
    Multi-task Deep Reinforcement Learning with PopArt (the same step for K outputs).
    """
    assert kernel.shape[:-2] + kernel.shape[-1:] == bias.shape, f"kernel {kernel.shape}, bias {bias.shape}"
    (old_mean, old_std), (new_mean, new_std) = moments(old, VALUES), moments(new, VALUES)
    scale = jnp.broadcast_to(old_std / new_std, bias.shape)
    return kernel * scale[..., None, :], (old_std * bias + old_mean - new_mean) / new_std
