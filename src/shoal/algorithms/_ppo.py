"""What the PPO family shares and no paper calls its idea: minibatches, gradients and optimisers.

A batch is a pytree whose leaves are [items, ...]: an item is one moment of one environment, or for recurrent nets one
chunk of L moments. Losses are sums over items weighted so that the weights of a minibatch add up to one over all
devices; minibatches may therefore be cut into blocks, and environments into shards, without changing a number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from shoal.equations.reduce import DEVICES, total
from shoal.errors import InputError
from shoal.types import Metrics, PyTree, Scale, Step

Loss = Callable[[PyTree, Any], tuple[Float[Array, ""], Metrics]]


class Batch(NamedTuple):
    """What PPO learns from; leaves are [items, L, N ...], carries [items, N, H]."""

    step: Step
    action: Array
    log_prob: Array
    advantage: Array
    target: Array
    """Value target, in the normaliser's units."""
    value: Array
    """What the critic put out before this update, in the normaliser's units."""
    weight: Array
    """``alive`` in 0..1; :func:`minibatches` makes each minibatch's weights add up to one."""
    actor_carry: PyTree
    critic_carry: PyTree


def items(tree: PyTree, length: int) -> PyTree:
    """Cut [T, E, ...] into chunks: [T/L · E, L, ...], an item per chunk."""

    def cut(x: Array) -> Array:
        T, E = x.shape[:2]
        chunks = x.reshape(T // length, length, E, *x.shape[2:])
        return jnp.swapaxes(chunks, 1, 2).reshape(T // length * E, length, *x.shape[2:])

    return jax.tree.map(cut, tree)


def time_major(batch: Batch) -> Batch:
    """Items as environments: leaves [L, items, ...], as networks read them; carries stay [items, ...]."""
    carries = {"actor_carry": batch.actor_carry, "critic_carry": batch.critic_carry}
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch._replace(actor_carry=(), critic_carry=()))._replace(
        **carries
    )


def chunk_starts(carry: PyTree, after: PyTree, length: int) -> PyTree:
    """The recurrent state before each chunk [items, ...], from the first and those after each moment [T, E, ...]."""

    def starts(first: Array, later: Array) -> Array:
        before = jnp.concatenate([first[None], later[length - 1 : later.shape[0] - 1 : length]])
        return before.reshape(-1, *first.shape[1:])

    return jax.tree.map(starts, carry, after)


def check_items(scale: Scale, minibatches: int, chunk: int | None) -> None:
    """Refuse a roll-out that does not divide into chunks and minibatches, naming numbers that would.

    Raises:
        InputError: it does not divide.
    """
    T, E = scale.rollout_length, scale.num_envs
    length = chunk or 1
    if T % length:
        near = _nearest_divisor(T, length)
        raise InputError(f"chunk_length {length} does not divide the roll-out of {T} steps; {near} would.")
    count = T // length * E
    if count % minibatches:
        near = _nearest_divisor(count, minibatches)
        what = "chunks" if chunk else "moments"
        raise InputError(
            f"{count} {what} per device ({T} steps × {E} environments"
            + (f", chunks of {length}" if chunk else "")
            + f") do not divide into {minibatches} minibatches; {near} would."
        )


def _nearest_divisor(n: int, wanted: int) -> int:
    return min((m for m in range(1, n + 1) if n % m == 0), key=lambda m: abs(m - wanted))


def check_options(config: Any) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        InputError: naming the option and its range.
    """
    for name in ("epochs", "minibatches", "chunk_length", "block"):
        if getattr(config, name) < 1:
            raise InputError(f"{name} must be at least 1, not {getattr(config, name)}.")
    for name, low, high in (("gamma", 0, 1), ("lam", 0, 1), ("lr_final", 0, 1)):
        if not low <= getattr(config, name) <= high:
            raise InputError(f"{name} must lie between {low} and {high}, not at {getattr(config, name):g}.")
    for name in ("clip", "value_clip", "huber", "learning_rate", "critic_learning_rate", "max_grad_norm", "adam_eps"):
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise InputError(f"{name} must be above 0, not {value:g}.")
    for name in ("entropy_coef", "kl_coef", "value_coef"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise InputError(f"{name} must be finite and not negative, not {getattr(config, name):g}.")
    if config.dual_clip is not None and config.dual_clip <= 1:
        raise InputError(f"dual_clip must exceed 1, not {config.dual_clip:g}.")
    if config.kl_target is not None and config.kl_coef <= 0:
        raise InputError("kl_target doubles and halves kl_coef, which must therefore start above 0.")


def shuffle(key: PRNGKeyArray, n: int) -> UInt32[Array, " n"]:
    """A random order of 0..n−1, another one on every device.

    One sort of random numbers that carry their index in the low bits: four times faster than ``permutation`` on a CPU.
    """
    if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
        key = jax.random.fold_in(key, jax.lax.axis_index(DEVICES))
    mask = jnp.uint32((1 << (n - 1).bit_length()) - 1)
    return jax.lax.sort((jax.random.bits(key, (n,)) & ~mask) | jnp.arange(n, dtype=jnp.uint32), is_stable=False) & mask


def minibatches(key: PRNGKeyArray, batch: Batch, count: int) -> Batch:
    """The batch in random order, cut in ``count``: leaves [count, items/count, ...], weights adding up to one each."""
    order = shuffle(key, batch.weight.shape[0])

    def cut(x: Array) -> Array:
        x = x.at[order].get(mode="promise_in_bounds", unique_indices=True)
        return x.reshape(count, x.shape[0] // count, *x.shape[1:])

    batch = jax.tree.map(cut, batch)
    weight = batch.weight
    sums = total(weight.reshape(count, -1).sum(1))
    scale = 1 / jnp.maximum(sums, 1.0)
    return batch._replace(weight=weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)))


def gradient(loss: Loss, params: PyTree, batch: Batch, block: int) -> tuple[PyTree, Metrics]:
    """The gradient of a sum over items and its metrics, added up over blocks and devices.

    Blocks of at most ``block`` rows (items × moments × agents) keep activations in the processor's cache.
    """
    count, rows = batch.weight.shape[0], batch.weight.size
    needed = min(count, -(-rows // block))
    pieces = next(k for k in range(needed, count + 1) if count % k == 0)
    if pieces > 4 * needed:  # a count with few divisors: crumbs would cost more than the cache saves
        pieces = 1
    grad = jax.grad(loss, has_aux=True)
    if pieces == 1:
        sums = grad(params, batch)
    else:
        cut = jax.tree.map(lambda x: x.reshape(pieces, x.shape[0] // pieces, *x.shape[1:]), batch)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(grad, params, jax.tree.map(lambda x: x[0], cut))
        )
        sums, _ = jax.lax.scan(lambda acc, piece: (jax.tree.map(jnp.add, acc, grad(params, piece)), None), zeros, cut)
    # One message between devices, not one per parameter: the latency of each is that of a small matrix product.
    flat, unravel = ravel_pytree(sums)
    return unravel(total(flat))


class Optimiser(NamedTuple):
    """Adam after a global-norm clip, one for each policy along the leading axis of the parameters."""

    init: Callable[[PyTree], PyTree]
    step: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, Float[Array, ""]]]
    """(gradient, optimiser state, parameters) -> (parameters, optimiser state, mean gradient norm)."""


def optimiser(
    learning_rate: float, final_fraction: float, steps: int, max_grad_norm: float | None, eps: float
) -> Optimiser:
    """Adam (Kingma & Ba 2015); its rate goes linearly to ``final_fraction`` of itself over ``steps`` gradient steps."""
    rate = optax.linear_schedule(learning_rate, learning_rate * final_fraction, min(steps, 2**31 - 1))
    clip = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    tx = optax.chain(clip, optax.scale_by_adam(eps=eps), optax.scale_by_learning_rate(rate))

    def one(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Array]:
        # One vector instead of a dozen small leaves: the arithmetic is tiny and each kernel has a fixed cost.
        flat, _ = ravel_pytree(gradient)
        weights, unravel = ravel_pytree(params)
        updates, state = tx.update(flat, state, weights)
        return unravel(jax.tree.map(jnp.add, weights, updates)), state, jnp.linalg.norm(flat)

    def init(params: PyTree) -> PyTree:
        return jax.vmap(lambda p: tx.init(ravel_pytree(p)[0]))(params)

    def step(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Array]:
        params, state, norm = jax.vmap(one)(gradient, state, params)
        return params, state, norm.mean()

    return Optimiser(init, step)


def adapt_coefficients(statistics: Any, metrics: Metrics, config: Any) -> Any:
    """Move the entropy coefficient towards its target entropy and the KL coefficient towards its target KL, if any.

    log σ += rate · (target − S) with the rate held to ±1 nat; κ is halved or doubled outside [target/1.5, 1.5·target]
    (Schulman et al. 2017, eq. 8).
    """
    if config.target_entropy is not None:
        error = jnp.clip(config.target_entropy - metrics["entropy"], -1.0, 1.0)
        statistics = statistics._replace(
            log_entropy_coef=statistics.log_entropy_coef + config.target_entropy_rate * error
        )
    if config.kl_target is not None:
        kl, target = metrics["kl"], config.kl_target
        factor = jnp.where(kl > 1.5 * target, 2.0, jnp.where(kl < target / 1.5, 0.5, 1.0))
        statistics = statistics._replace(kl_coef=statistics.kl_coef * factor)
    return statistics
