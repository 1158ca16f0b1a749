"""Trust-region steps: Fisher-vector products, conjugate gradients, step length and line search.

Parameters and directions are flat vectors of D numbers. The Fisher matrix H, D × D, is never formed: only its products
H v are taken, which the caller may add up over blocks and devices.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.equations.distributions import Distribution

Scalar = float | int | Float[Array, ""]
Product = Callable[[Float[Array, " D"]], Float[Array, " D"]]


class Linearised(NamedTuple):
    """A policy near θ: its outputs z (logits; mean and log standard deviation) in every row, and their Jacobian J."""

    here: Any
    """π_θ, a :data:`Distribution` with batch axes ``*b``."""
    z: list[Array]
    """Its outputs; masks are not among them."""
    at: Callable[[list[Array]], Any]
    """Outputs -> the distribution."""
    push: Callable[[Float[Array, " D"]], list[Array]]
    """v -> J v."""
    pull: Callable[[list[Array]], Float[Array, " D"]]
    """Gradient in z -> gradient in θ, Jᵀ g."""


def linearise(distribution: Callable[[Float[Array, " D"]], Distribution], theta: Float[Array, " D"]) -> Linearised:
    """The policy near θ from one forward pass, which the gradient and all Fisher-vector products share.

    Args:
        distribution: θ -> the policy in every row, with batch axes ``*b``.
        theta: [D] θ.
    """

    def is_output(leaf: Any) -> bool:
        return jnp.issubdtype(leaf.dtype, jnp.floating)  # masks are not differentiated

    def split(theta: Array) -> tuple[list[Array], list[Array]]:
        leaves = jax.tree.leaves(distribution(theta))
        return [x for x in leaves if is_output(x)], [x for x in leaves if not is_output(x)]

    shapes, tree = jax.tree.flatten(jax.eval_shape(distribution, theta))
    z, push, masks = jax.linearize(split, theta, has_aux=True)

    def at(z: list[Array]) -> Any:
        outputs, others = iter(z), iter(masks)
        return tree.unflatten([next(outputs if is_output(x) else others) for x in shapes])

    return Linearised(at(z), z, at, push, lambda g: jax.linear_transpose(push, theta)(g)[0])


def fisher_vector_product(
    policy: Linearised, weight: Float[Array, "*b"], vector: Float[Array, " D"]
) -> Float[Array, " D"]:
    """H v, with H the Hessian in θ' of Σ_b w_b KL(π_θ(·|b) ‖ π_θ'(·|b)) at θ' = θ.

        H = Σ_b w_b J_bᵀ F_b J_b

    where J_b is the Jacobian of the distribution's parameters z_b in θ and F_b the Hessian of the exact KL in z_b. This
    is exact: the other term of the chain rule has the gradient of the KL in z as a factor, which is zero where the
    policies are equal. The product costs one push-forward and one pull-back. H is positive semi-definite.

    Args:
        policy: π_θ, linearised.
        weight: [*b], not negative; a row of weight 0 adds nothing, whatever its values.
        vector: [D] v.

    Source: Schulman et al. 2015, Trust Region Policy Optimization, appendix C.1.
    """

    def divergence(z: list[Array]) -> Array:
        return jnp.sum(jnp.where(weight > 0, weight * policy.here.kl(policy.at(z)), 0.0))

    return policy.pull(jax.jvp(jax.grad(divergence), (policy.z,), (policy.push(vector),))[1])


def conjugate_gradients(
    product: Product, b: Float[Array, " D"], *, iterations: int, tolerance: float
) -> Float[Array, " D"]:
    """x with H x ≈ b, for a positive definite H given by its products; x starts at 0.

    Args:
        product: v -> H v.
        b: [D].
        iterations: largest number of products.
        tolerance: stop when |b − H x|² is not above this, and at x = 0 where b contains NaN.

    Source: Hestenes & Stiefel 1952, Methods of Conjugate Gradients for Solving Linear Systems.
    """

    def unfinished(loop: tuple[Array, ...]) -> Array:
        k, _, _, _, square = loop
        return (k < iterations) & (square > tolerance)

    def turn(loop: tuple[Array, ...]) -> tuple[Array, ...]:
        k, x, residual, direction, square = loop
        bent = product(direction)
        curvature = direction @ bent
        length = jnp.where(curvature > 0, square / curvature, 0.0)
        x, residual = x + length * direction, residual - length * bent
        following = residual @ residual
        return k + 1, x, residual, residual + following / square * direction, following

    start = jnp.int32(0), jnp.zeros_like(b), b, b, b @ b
    return jax.lax.while_loop(unfinished, turn, start)[1]


def step_length(curvature: Float[Array, ""], max_kl: Scalar) -> Float[Array, ""]:
    """β = sqrt(2 δ / xᵀHx), with which a step β x has a KL of δ to second order; 0 where xᵀHx is not positive.

    Args:
        curvature: xᵀHx.
        max_kl: δ, in nats.

    Source: Schulman et al. 2015, appendix C; Kuba et al. 2022, Trust Region Policy Optimisation in Multi-Agent
    Reinforcement Learning, Algorithm 2, line 12.
    """
    return jnp.where(curvature > 0, jnp.sqrt(2.0 * max_kl / jnp.where(curvature > 0, curvature, 1.0)), 0.0)


class Search(NamedTuple):
    """Result of a line search; all zero where no fraction of the step was accepted."""

    fraction: Float[Array, ""]
    """α^j, the accepted part of the full step."""
    improvement: Float[Array, ""]
    """Increase of the objective."""
    kl: Float[Array, ""]
    """Mean KL(old ‖ new), in nats."""


def line_search(
    trial: Callable[[Float[Array, ""]], tuple[Float[Array, ""], Float[Array, ""]]],
    expected: Float[Array, ""],
    *,
    max_kl: Scalar,
    steps: int,
    backtrack: float,
    accept_ratio: float,
) -> Search:
    """The first α^j, j = 0 … steps − 1, whose improvement is positive and at least κ α^j ``expected``, with KL ≤ δ.

    A trial with NaN is not accepted.

    Args:
        trial: fraction of the full step -> (improvement of the objective, mean KL), both measured, not predicted.
        expected: improvement that the gradient predicts for the full step, β x·g.
        max_kl: δ, in nats.
        steps: L.
        backtrack: α, between 0 and 1.
        accept_ratio: κ.

    Source: Kuba et al. 2022, Algorithm 2, line 13.
    """

    def unfinished(loop: tuple[Array, Array, Search]) -> Array:
        j, _, found = loop
        return (j < steps) & (found.fraction == 0)

    def turn(loop: tuple[Array, Array, Search]) -> tuple[Array, Array, Search]:
        j, fraction, _ = loop
        improvement, kl = trial(fraction)
        accepted = (improvement > 0) & (improvement >= accept_ratio * fraction * expected) & (kl <= max_kl)
        found = Search(*(jnp.where(accepted, x, 0.0) for x in (fraction, improvement, kl)))
        return j + 1, fraction * backtrack, found

    zero = jnp.zeros_like(expected)
    return jax.lax.while_loop(unfinished, turn, (jnp.int32(0), zero + 1.0, Search(zero, zero, zero)))[2]
