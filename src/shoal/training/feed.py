"""The input of an update: the newest trajectory, or batches from a replay buffer on the device.

A buffer is a ring of timesteps for each environment, part of the compiled program's state and of every checkpoint.
Inserting and sampling never copy it. Its sequences are drawn as those of flashbax 0.1.3's trajectory buffer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from shoal.equations.reduce import DEVICES
from shoal.errors import IndivisibleError, InputError
from shoal.training.memory import num_bytes
from shoal.types import Experience, PyTree, Replay, Trajectory


class Ring(NamedTuple):
    """The newest M timesteps of each of E environments; checkpoints name its fields."""

    current_index: Int[Array, ""]
    """Where the next timestep is written."""
    experience: PyTree
    """Leaves [E, M, ...]."""
    is_full: Bool[Array, ""]
    """Whether the oldest timesteps have been overwritten."""


class Feed(NamedTuple):
    """Functions of the replay buffers of one seed's environments on one device; pass-through without buffers."""

    init: Callable[[], PyTree]
    """() -> empty buffers."""
    put: Callable[[PyTree, Trajectory], PyTree]
    """(buffers, trajectory) -> buffers with the trajectory inserted."""
    take: Callable[[PyTree, Trajectory, PRNGKeyArray], Trajectory | Experience]
    """(buffers, newest trajectory, key) -> the argument of ``update``; the key is the same on every device."""
    ready: Callable[[PyTree], Bool[Array, ""]] | None
    """Whether the buffers hold enough to learn from; None without buffers."""
    num_bytes: int
    """Size of the buffers in bytes."""
    sample_bytes: int = 0
    """Size in bytes of what one update draws from them."""
    timesteps: int = 0
    """Timesteps that the buffers hold when they are full: those of whole rollouts."""


def make_feed(replay: PyTree, trajectory: PyTree, num_envs: int, shards: int) -> Feed:
    """The feed of an algorithm with ``Algorithm.replay``.

    Args:
        replay: a :class:`Replay`, or a tuple of them; an empty tuple for an on-policy algorithm.
        trajectory: shapes of a trajectory of T steps in ``num_envs`` environments.
        num_envs: E, on one device.
        shards: devices over which the environments of a seed are sharded.

    Raises:
        InputError: a batch is not divisible by the number of devices, or the buffer is too small for its sequences.
    """
    check_batches(replay, shards)
    structure, buffers = jax.tree.structure(replay, is_leaf=_is_replay), wanted(replay)
    if not buffers:
        return Feed(lambda: (), lambda feed, _: feed, lambda _, newest, __: newest, None, 0)
    length = trajectory.step.first.shape[0]
    sizes = [_size(one, num_envs, shards, length) for one in buffers]

    def put(feed: list[Ring], newest: Trajectory) -> list[Ring]:
        return [_added(ring, one.keep(newest)) for ring, one in zip(feed, buffers, strict=True)]

    def take(feed: list[Ring], newest: Trajectory, key: PRNGKeyArray) -> Experience:
        if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
            key = jax.random.fold_in(key, jax.lax.axis_index(DEVICES))
        keys = jax.random.split(key, len(buffers))
        samples = [_drawn(ring, one, shards, k) for ring, one, k in zip(feed, buffers, keys, strict=True)]
        return Experience(newest, jax.tree.unflatten(structure, samples))

    def init() -> list[Ring]:
        return [_empty(one, trajectory, num_envs, size) for one, size in zip(buffers, sizes, strict=True)]

    def ready(feed: list[Ring]) -> Bool[Array, ""]:
        counts = [least_held(one, num_envs * shards) for one in buffers]
        enough = [ring.is_full | (ring.current_index >= count) for ring, count in zip(feed, counts, strict=True)]
        return jnp.stack(enough).all()

    empty = jax.eval_shape(init)
    samples = jax.eval_shape(take, empty, trajectory, jax.eval_shape(jax.random.key, 0)).samples
    return Feed(init, put, take, ready, num_bytes(empty), num_bytes(samples), sum(sizes) * num_envs)


def several_feeds(one: Feed, count: int) -> Feed:
    """``count`` buffers like ``one``, each of which supplies a part of every batch; the caller fills them."""

    def take(feeds: list[PyTree], newest: Trajectory, key: PRNGKeyArray) -> Experience:
        keys = jax.random.split(key, count)
        drawn = [one.take(fed, newest, k).samples for fed, k in zip(feeds, keys, strict=True)]  # type: ignore[union-attr]
        return Experience(newest, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=2), *drawn))

    def ready(feeds: list[PyTree]) -> Bool[Array, ""]:
        assert one.ready is not None
        return jnp.stack([one.ready(fed) for fed in feeds]).all()

    sizes = (count * size for size in (one.num_bytes, one.sample_bytes, one.timesteps))
    return Feed(lambda: [one.init() for _ in range(count)], lambda feeds, _: feeds, take, ready, *sizes)


def timesteps(feed: PyTree) -> int:
    """The timesteps of each environment that a buffer which is not full holds; 0 without a buffer."""
    rings = jax.tree.leaves(feed, is_leaf=lambda node: isinstance(node, Ring))
    return max((int(np.asarray(ring.current_index).max()) for ring in rings), default=0)


def updates_before_learning(replay: PyTree, num_envs: int, length: int) -> int:
    """Number of rollouts that are stored before the buffers hold enough for the first update.

    Args:
        replay: ``Algorithm.replay``.
        num_envs: environments of a seed, over all devices.
        length: T, the steps of a rollout.
    """
    return max((-(-least_held(one, num_envs) // length) - 1 for one in wanted(replay)), default=0)


def least_held(one: Replay, num_envs: int) -> int:
    """Timesteps per environment that a buffer must hold before it is sampled."""
    return max(one.length, -(-one.warm_up // num_envs))


def wanted(replay: PyTree) -> list[Replay]:
    """The :class:`Replay` leaves of ``Algorithm.replay``."""
    return jax.tree.leaves(replay, is_leaf=_is_replay)


def _is_replay(node: Any) -> bool:
    return isinstance(node, Replay)


def check_batches(replay: PyTree, shards: int, what: str = "devices") -> None:
    """Check that each batch divides into equal parts.

    Args:
        replay: ``Algorithm.replay``.
        shards: number of devices, or of actors with a buffer each.
        what: the setting of that number.

    Raises:
        IndivisibleError: one does not.
    """
    for one in wanted(replay):
        if one.batch % shards:
            times = f" × ensemble {one.shares}" if one.shares > 1 else ""
            raise IndivisibleError(
                f"batch_size {one.batch // one.shares}{times} is not divisible by {what} {shards}: set batch_size or "
                f"{what} so that it is."
            )


def _size(one: Replay, num_envs: int, shards: int, length: int) -> int:
    """M, a multiple of the rollout length: rollouts are written in one piece, and sequences stay aligned with them."""
    per_env = one.capacity // (num_envs * shards) // length * length
    needed = max(one.length, length)
    if per_env < needed:
        least = -(-needed // length) * length * num_envs * shards
        raise InputError(
            f"buffer_size {one.capacity} is too small for {num_envs * shards} environments with rollouts of {length} "
            f"and sequences of {one.length} steps; it must be at least {least}."
        )
    warm_up = least_held(one, num_envs * shards)
    if warm_up > per_env:
        least = -(-warm_up // length) * length * num_envs * shards
        raise InputError(
            f"learning_starts {one.warm_up} exceeds the {per_env * num_envs * shards} timesteps of whole rollouts that "
            f"a replay buffer of {one.capacity} holds; buffer_size must be at least {least}."
        )
    return per_env


def _empty(one: Replay, trajectory: PyTree, num_envs: int, size: int) -> Ring:
    kept = jax.eval_shape(one.keep, trajectory)
    experience = jax.tree.map(lambda x: jnp.zeros((num_envs, size, *x.shape[2:]), x.dtype), kept)
    return Ring(jnp.int32(0), experience, jnp.bool_(False))


def _added(ring: Ring, newest: PyTree) -> Ring:
    """The ring with a rollout, leaves [T, E, ...], in place of its oldest T timesteps."""
    at = ring.current_index
    write = lambda whole, x: jax.lax.dynamic_update_slice_in_dim(whole, jnp.swapaxes(x, 0, 1), at, 1)  # noqa: E731
    experience = jax.tree.map(write, ring.experience, newest)
    size, steps = (jax.tree.leaves(tree)[0].shape[axis] for tree, axis in ((ring.experience, 1), (newest, 0)))
    return Ring((at + steps) % size, experience, ring.is_full | (at + steps >= size))


def _drawn(ring: Ring, one: Replay, shards: int, key: PRNGKeyArray) -> PyTree:
    """Sequences of uniformly drawn environments, leaves [draws, L, batch, ...], or what ``one.cut`` reads of them.

    They start at a multiple of ``one.period`` steps after the oldest timestep, or where ``one.starts`` says, and all of
    these that are complete are equally likely. They may lead over the ring's end.
    """
    envs, size = jax.tree.leaves(ring.experience)[0].shape[:2]
    oldest = jnp.where(ring.is_full, ring.current_index, 0)
    held = jnp.where(ring.is_full, size, ring.current_index)
    count = one.draws * (one.batch // shards)
    if one.starts is None:
        starts = jnp.maximum((held - one.length) // one.period + 1, 0)
        key, key_start = jax.random.split(key)
        first = oldest + jax.random.randint(key_start, (count,), 0, starts) * one.period
        env = jax.random.randint(jax.random.split(key)[1], (count,), 0, envs)
    else:
        complete = (jnp.arange(size) - oldest) % size + one.length <= held
        wanted = one.starts(ring.experience) & complete
        ranks = jnp.cumsum(jnp.where(wanted.any(), wanted, complete).reshape(-1))
        chosen = jnp.searchsorted(ranks, jax.random.randint(key, (count,), 1, ranks[-1] + 1))
        env, first = chosen // size, chosen % size

    def read(fields: Callable[[PyTree], PyTree], at: Array) -> PyTree:
        index = env[:, None], (first[:, None] + at) % size
        return jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), fields(ring.experience))

    def in_batches(x: Array) -> Array:
        return jnp.swapaxes(x.reshape(one.draws, one.batch // shards, *x.shape[1:]), 1, 2)

    sample = one.cut(read) if one.cut else read(lambda stored: stored, jnp.arange(one.length))
    return jax.tree.map(in_batches, sample)
