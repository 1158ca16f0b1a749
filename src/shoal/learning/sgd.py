"""Gradient descent: minibatches and blocks of a batch, gradients over all devices, and the loop of epochs.

A batch is a NamedTuple whose leaves are [items, L, ...]: an item is one timestep of one environment (L = 1), or for
recurrent nets a chunk of L timesteps; ``carry``, where there is one, holds the recurrent states before each item. Its
``weight`` marks the rows that count: :func:`shuffled_minibatches` makes the weights of a minibatch add up to one over
all devices, and losses are sums over rows times weight. Minibatches may therefore be cut into blocks, and environments
into shards, without changing results. Losses receive a part of a batch time-major, leaves [L, items, ...], as networks
read it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from shoal.equations.reduce import DEVICES, total
from shoal.errors import IndivisibleError, InputError
from shoal.learning.optimiser import OptimiserStep
from shoal.types import Metrics, PyTree, Scale

Batch = TypeVar("Batch", bound=Any)
Tree = TypeVar("Tree")
Found = TypeVar("Found")
KL_MARGIN = 1.5
"""An update stops where the KL exceeds this many times ``kl_stop``, as in Spinning Up and Stable-Baselines3."""
LEAST_ROWS = 24
"""Rows of a timestep below which products in a recurrent net's loop run at a fraction of their rate on a CPU."""
ACCELERATOR_ROWS = 2**18
"""Least number of rows of a block on an accelerator, which has no cache to fit but memory for large products."""
IMAGE_BYTES = 2**21
"""Largest number of bytes of images in a block. What a CNN keeps for its gradient takes about 30 times as many."""


def items(tree: PyTree, length: int) -> PyTree:
    """Cut [T, E, ...] into chunks: [T/L · E, L, ...], an item per chunk."""

    def cut(x: Array) -> Array:
        T, E = x.shape[:2]
        chunks = x.reshape(T // length, length, E, *x.shape[2:])
        return jnp.swapaxes(chunks, 1, 2).reshape(T // length * E, length, *x.shape[2:])

    return jax.tree.map(cut, tree)


def time_major(batch: Batch) -> Batch:
    """Items as environments: leaves [items, L, ...] to [L, items, ...], as networks read them; ``carry`` stays."""
    swap = lambda tree: jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)  # noqa: E731
    if not hasattr(batch, "carry"):
        return swap(batch)
    return swap(batch._replace(carry=()))._replace(carry=batch.carry)


def chunk_starts(carry: PyTree, after: PyTree, length: int) -> PyTree:
    """The recurrent state before each chunk [items, ...], from the first and those after each timestep [T, E, ...]."""

    def starts(first: Array, later: Array) -> Array:
        before = jnp.concatenate([first[None], later[length - 1 : later.shape[0] - 1 : length]])
        return before.reshape(-1, *first.shape[1:])

    return jax.tree.map(starts, carry, after)


def check_items(scale: Scale, minibatches: int, chunk: int | None) -> None:
    """Refuse a rollout that does not divide into chunks and minibatches, naming a number that would.

    Raises:
        InputError: it does not divide into chunks.
        IndivisibleError: it does not divide into minibatches.
    """
    T, E = scale.rollout_length, scale.num_envs
    length = chunk or 1
    if T % length:
        near = _nearest_divisor(T, length)
        raise InputError(f"chunk_length {length} does not divide the rollout of {T} steps; {near} would.")
    count = T // length * E
    if count % minibatches:
        near = _nearest_divisor(count, minibatches)
        what = "chunks" if chunk else "timesteps"
        raise IndivisibleError(
            f"{count} {what} per device ({T} steps × {E} environments"
            + (f", chunks of {length}" if chunk else "")
            + f") do not divide into {minibatches} minibatches; {near} would."
        )


def _nearest_divisor(n: int, wanted: int) -> int:
    return min((m for m in range(1, n + 1) if n % m == 0), key=lambda m: abs(m - wanted))


def shuffle(key: PRNGKeyArray, n: int) -> UInt32[Array, " n"]:
    """A random order of 0..n−1, different on every device.

    Sorts random numbers with their index in the low bits: four times faster than ``permutation`` on a CPU.
    """
    if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
        key = jax.random.fold_in(key, jax.lax.axis_index(DEVICES))
    mask = jnp.uint32((1 << (n - 1).bit_length()) - 1)
    return jax.lax.sort((jax.random.bits(key, (n,)) & ~mask) | jnp.arange(n, dtype=jnp.uint32), is_stable=False) & mask


def shuffled_minibatches(key: PRNGKeyArray, batch: Batch, count: int) -> Batch:
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


def whole(batch: Batch) -> Batch:
    """The batch as one minibatch in its own order: weights adding up to one over all devices."""
    return batch._replace(weight=batch.weight / jnp.maximum(total(batch.weight.sum()), 1.0))


Loss = Callable[[PyTree, Any], tuple[Float[Array, ""], Metrics]]
"""(parameters, time-major part of a batch) -> (sum over rows times ``weight``, metrics that are such sums too)."""


def of_scalars(loss: Loss) -> Loss:
    """``loss``, with a check of its results when it is traced: means over gradient steps would hide metrics' shapes.

    Raises:
        InputError: in the returned function: the loss or a metric is not a scalar.
    """

    def checked(params: PyTree, part: Any) -> tuple[Array, Metrics]:
        value, metrics = loss(params, part)
        for name, x in {"": value, **metrics}.items():
            if jnp.shape(x):
                which = f"'s metric {name!r}" if name else ""
                raise InputError(
                    f"The loss{which} has the shape {jnp.shape(x)}; it must be one number, a "
                    f"sum over rows times batch.weight."
                )
        return value, metrics

    return checked


def read_metric(metrics: Metrics, name: str, option: str) -> Float[Array, ""]:
    """The loss's metric that an option is compared with.

    Raises:
        InputError: a loss that replaces the algorithm's does not return it.
    """
    if name not in metrics:
        raise InputError(
            f"{option} is compared with the loss's metric {name!r}, which this loss does not return: add it to the "
            f"metrics, or leave out {option}."
        )
    return metrics[name]


def gradient(
    loss: Loss, params: PyTree, batch: Any, block: int, policy_of: tuple[int, ...] | None = None
) -> tuple[PyTree, Metrics]:
    """The gradient of a sum over items and its metrics, added up over blocks and devices.

    With ``policy_of`` the loss is a sum over agents too: ``batch.weight`` ends in the axis N, and agent i's rows depend
    on no parameters but those of net ``policy_of[i]`` along the leading axis P (or on a net for all, of P = 1). Each
    net's gradient is then that of the mean over its own agents' rows, as if it were trained alone. The gradient
    of the team's mean is the same times the net's share of the rows: the effects of a clip of the norm and of Adam's ε
    would depend on the number of nets.
    """
    grad = jax.grad(of_scalars(loss), has_aux=True)
    if policy_of is None or max(policy_of) == 0:
        return sums(lambda part: grad(params, part), batch, block)

    def of(part: Any) -> tuple[tuple[PyTree, Metrics], Array]:
        return grad(params, part), part.weight.reshape(-1, len(policy_of)).sum(0)

    (slope, metrics), weight = sums(of, batch, block)
    share = jnp.zeros(max(policy_of) + 1).at[jnp.array(policy_of)].add(weight)
    own = 1 / jnp.where(share > 0, share, 1.0)  # a net whose agents are all dead has a gradient of 0

    def scaled(x: Array) -> Array:
        return x if x.shape[0] == 1 else x * own.reshape(-1, *(1,) * (x.ndim - 1))

    return jax.tree.map(scaled, slope), metrics


def image_blocks(step: Any) -> int:
    """Number of blocks of at most :data:`IMAGE_BYTES` of timesteps' images; 0 where observations are not bytes."""
    obs = getattr(step, "obs", None)
    return -(-obs.size // IMAGE_BYTES) if obs is not None and obs.dtype == jnp.uint8 else 0


def over_time(follow: Callable[[PyTree, Any], tuple[PyTree, Found]], carry: PyTree, steps: Any) -> Found:
    """What ``follow`` finds in all timesteps, one block of timesteps after another where they have many images.

    Args:
        follow: (recurrent state, timesteps [T ...]) -> (recurrent state after the last, what it finds [T ...]).
        carry: the recurrent state before the first timestep.
        steps: timesteps, and what belongs to them, for example their outcomes; leaves [T, ...].
    """
    length, needed = steps[0].first.shape[0], image_blocks(steps[0])
    if needed <= 1:
        return follow(carry, steps)[1]
    pieces = next(k for k in range(min(needed, length), length + 1) if length % k == 0)
    cut = jax.tree.map(lambda x: x.reshape(pieces, length // pieces, *x.shape[1:]), steps)
    _, found = jax.lax.scan(follow, carry, cut)
    return jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), found)


def blocks(batch: Batch, block: int) -> Batch:
    """The batch cut along its items: leaves [K, items / K, L, ...].

    Blocks of at most ``block`` rows (items × timesteps × agents) keep activations in the processor's cache. Those of
    sequences are larger where a timestep would have fewer than :data:`LEAST_ROWS` rows. Images, which take more memory
    than a row of numbers, make them smaller (:func:`image_blocks`). On an accelerator a block has at least
    :data:`ACCELERATOR_ROWS` rows.
    """
    if jax.default_backend() != "cpu":
        block = max(block, ACCELERATOR_ROWS)
    (count, length), rows, images = (
        batch.weight.shape[:2],
        batch.weight.size,
        image_blocks(getattr(batch, "step", None)),
    )
    needed = min(count, max(-(-rows // block), images))
    if length > 1:
        needed = min(needed, max(1, rows // length // LEAST_ROWS))
    pieces = next(k for k in range(needed, count + 1) if count % k == 0)
    if (
        pieces > 4 * needed and images <= 1
    ):  # a count with few divisors: tiny pieces would cost more than the cache saves
        pieces = 1
    return jax.tree.map(lambda x: x.reshape(pieces, x.shape[0] // pieces, *x.shape[1:]), batch)


def sums(f: Callable[[Any], Tree], batch: Any, block: int) -> Tree:
    """``f`` of a batch, time-major, where ``f`` is a sum over items: added up over :func:`blocks` and devices."""
    cut = blocks(batch, block)
    first = jax.tree.map(lambda x: x[0], cut)
    if cut.weight.shape[0] == 1:
        added = f(time_major(first))
    else:
        shapes = jax.eval_shape(f, time_major(first))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        added, _ = jax.lax.scan(lambda acc, piece: (jax.tree.map(jnp.add, acc, f(time_major(piece))), None), zeros, cut)
    return add_up(added)


def add_up(tree: Tree) -> Tree:
    """The sum over devices: one all-reduce, not one per leaf, whose latency is that of a small matrix product."""
    flat, unravel = ravel_pytree(tree)
    return unravel(total(flat))


def sgd(
    loss: Loss,
    step: OptimiserStep,
    params: PyTree,
    state: PyTree,
    batch: Any,
    key: PRNGKeyArray,
    *,
    epochs: int,
    minibatches: int,
    block: int,
    net_of: tuple[int, ...] | None = None,
    refresh: Callable[[PyTree], Any] | None = None,
    kl_stop: float | Array | None = None,
) -> tuple[PyTree, PyTree, Metrics]:
    """Gradient steps on shuffled minibatches, ``epochs`` times over the batch.

    Args:
        loss: what is minimised.
        step: one optimiser step.
        params: parameters.
        state: the optimiser's state.
        batch: leaves [items, L, ...], with a ``weight``.
        key: decides the order; the same on every device.
        epochs: passes over the batch.
        minibatches: gradient steps in each; the number of items is a multiple of it.
        block: rows whose activations are held at once; see :func:`sums`.
        net_of: see :func:`gradient`.
        refresh: (parameters) -> a recomputed batch, before every epoch but the first; None to keep it.
        kl_stop: leave out the gradient step of the first minibatch whose metric ``kl`` is above :data:`KL_MARGIN` times
            this, and all after it; None for all steps.

    Returns:
        (parameters, state, metrics averaged over the gradient steps). With ``kl_stop`` they are averaged over the
        minibatches that were evaluated, the one that stopped included, and ``epochs_done`` is the number of steps taken
        over ``minibatches``.

    Raises:
        InputError: the loss or one of its metrics is not a scalar, or ``kl`` is missing with ``kl_stop``.
    """

    def descend(carry: tuple, part: Any) -> tuple[tuple, Metrics]:
        params, state = carry
        slope, metrics = gradient(loss, params, part, block, net_of)
        params, state, norms = step(slope, state, params)
        return (params, state), metrics | norms

    def fresh_batch(params: PyTree, index: Array) -> Any:
        return batch if refresh is None else jax.lax.cond(index > 0, refresh, lambda _: batch, params)

    def epoch(carry: tuple, turn: tuple[Array, PRNGKeyArray]) -> tuple[tuple, dict[str, Array]]:
        index, key = turn
        return jax.lax.scan(descend, carry, shuffled_minibatches(key, fresh_batch(carry[0], index), minibatches))

    turns = jnp.arange(epochs), jax.random.split(key, epochs)
    if kl_stop is None:
        (params, state), metrics = jax.lax.scan(epoch, (params, state), turns)
        return params, state, jax.tree.map(jnp.mean, metrics)

    # STOP AT A KL
    def attempt(loop: Loop, part: Any) -> tuple[Loop, Sums]:
        after, metrics = descend(loop.carry, part)
        kl = read_metric(metrics, "kl", "kl_stop")
        within = ~(kl > KL_MARGIN * kl_stop)  # a NaN goes on, and is reported as such
        carry = jax.tree.map(lambda old, new: jnp.where(within, new, old), loop.carry, after)
        return Loop(carry, within), Sums(metrics, jnp.float32(1.0), within.astype(jnp.float32))

    def attempts(loop: Loop, turn: tuple[Array, PRNGKeyArray]) -> tuple[Loop, Sums]:
        parts = shuffled_minibatches(turn[1], fresh_batch(loop.carry[0], turn[0]), minibatches)
        loop, sums = jax.lax.scan(_while_going(attempt), loop, parts)
        return loop, jax.tree.map(lambda x: x.sum(0), sums)

    loop, sums = jax.lax.scan(_while_going(attempts), Loop((params, state), jnp.array(True)), turns)
    metrics, evaluated, steps = jax.tree.map(lambda x: x.sum(0), sums)
    mean = jax.tree.map(lambda x: x / evaluated, metrics)
    return *loop.carry, mean | {"epochs_done": steps / minibatches}


class Loop(NamedTuple):
    """State of the gradient steps of an update that may stop."""

    carry: tuple[PyTree, PyTree]
    """Parameters and the optimiser's state."""
    going: Bool[Array, ""]
    """False after a minibatch whose KL was too large."""


class Sums(NamedTuple):
    """Over minibatches."""

    metrics: Metrics
    evaluated: Float[Array, ""]
    """Minibatches of which the gradient was computed."""
    steps: Float[Array, ""]
    """Gradient steps taken."""


def _while_going(f: Callable[[Loop, Any], tuple[Loop, Sums]]) -> Callable[[Loop, Any], tuple[Loop, Sums]]:
    """``f``, which is not computed after the stop (but under ``vmap`` over seeds, where it is discarded)."""

    def skip(loop: Loop, x: Any) -> tuple[Loop, Sums]:
        return loop, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(f, loop, x)[1])

    return lambda loop, x: jax.lax.cond(loop.going, f, skip, loop, x)
