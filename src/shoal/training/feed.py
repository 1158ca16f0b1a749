"""The input of an update: the newest trajectory, or batches from a replay buffer on the device.

The buffer is flashbax's: a ring of timesteps per environment, part of the compiled program's state and of every
checkpoint. Inserting and sampling never copy the buffer. This is the only file that imports flashbax, and only when a
buffer is made, so that on-policy runs start faster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.types import Experience, PyTree, Replay, Trajectory


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


def make(replay: PyTree, trajectory: PyTree, num_envs: int, shards: int) -> Feed:
    """The feed of an algorithm with ``Algorithm.replay``.

    Args:
        replay: a :class:`Replay`, or a tuple of them; an empty tuple for an on-policy algorithm.
        trajectory: shapes of a trajectory of T steps in ``num_envs`` environments.
        num_envs: E, on one device.
        shards: devices over which the environments of a seed are sharded.

    Raises:
        InputError: a batch is not divisible by the number of devices, or the buffer is too small for its sequences.
    """
    structure, buffers = jax.tree.structure(replay, is_leaf=_is_replay), wanted(replay)
    if not buffers:
        return Feed(lambda: (), lambda feed, _: feed, lambda _, newest, __: newest, None, 0)
    length = trajectory.step.first.shape[0]
    rings = [_ring(one, num_envs, shards, length) for one in buffers]

    def put(feed: list[Any], newest: Trajectory) -> list[Any]:
        def stored(kept: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), kept)  # flashbax has environments first

        return [
            ring.add(state, stored(one.keep(newest))) for ring, one, state in zip(rings, buffers, feed, strict=True)
        ]

    def take(feed: list[Any], newest: Trajectory, key: PRNGKeyArray) -> Experience:
        if DEVICES in jax.sharding.get_abstract_mesh().manual_axes:
            key = jax.random.fold_in(key, jax.lax.axis_index(DEVICES))
        keys = jax.random.split(key, len(buffers))
        drawn = [ring.sample(state, k).experience for ring, state, k in zip(rings, feed, keys, strict=True)]

        def cut(x: Array, one: Replay) -> Array:
            x = x.reshape(one.draws, one.batch // shards, *x.shape[1:])
            return jnp.swapaxes(x, 1, 2)

        samples = [jax.tree.map(lambda x, one=one: cut(x, one), d) for d, one in zip(drawn, buffers, strict=True)]
        return Experience(newest, jax.tree.unflatten(structure, samples))

    def init() -> list[Any]:
        return [ring.init(_timestep(one, trajectory)) for ring, one in zip(rings, buffers, strict=True)]

    def ready(feed: list[Any]) -> Bool[Array, ""]:
        return jnp.stack([ring.can_sample(state) for ring, state in zip(rings, feed, strict=True)]).all()

    num_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(init)))
    return Feed(init, put, take, ready, num_bytes)


def several(one: Feed, count: int) -> Feed:
    """``count`` buffers like ``one``, each of which supplies a part of every batch; the caller fills them."""

    def take(feeds: list[PyTree], newest: Trajectory, key: PRNGKeyArray) -> Experience:
        keys = jax.random.split(key, count)
        drawn = [one.take(fed, newest, k).samples for fed, k in zip(feeds, keys, strict=True)]  # type: ignore[union-attr]
        return Experience(newest, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=2), *drawn))

    def ready(feeds: list[PyTree]) -> Bool[Array, ""]:
        assert one.ready is not None
        return jnp.stack([one.ready(fed) for fed in feeds]).all()

    return Feed(lambda: [one.init() for _ in range(count)], lambda feeds, _: feeds, take, ready, count * one.num_bytes)


def updates_before_learning(replay: PyTree, num_envs: int, length: int) -> int:
    """Number of rollouts that are stored before the buffers hold enough for the first update.

    Args:
        replay: ``Algorithm.replay``.
        num_envs: environments of a seed, over all devices.
        length: T, the steps of a rollout.
    """
    return max((-(-_least(one, num_envs) // length) - 1 for one in wanted(replay)), default=0)


def _least(one: Replay, num_envs: int) -> int:
    """Timesteps per environment that a buffer must hold before it is sampled."""
    return max(one.length, -(-one.warm_up // num_envs))


def wanted(replay: PyTree) -> list[Replay]:
    """The :class:`Replay` leaves of ``Algorithm.replay``."""
    return jax.tree.leaves(replay, is_leaf=_is_replay)


def _is_replay(node: Any) -> bool:
    return isinstance(node, Replay)


def _timestep(one: Replay, trajectory: PyTree) -> PyTree:
    """One stored timestep of one environment, filled with zeros."""
    kept = jax.eval_shape(one.keep, trajectory)
    return jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), kept)


def _ring(one: Replay, num_envs: int, shards: int, length: int) -> Any:
    """A flashbax buffer whose time axis is a multiple of the rollout length, so that sequences stay aligned."""
    import flashbax

    if one.batch % shards:
        raise InputError(f"batch_size {one.batch} is not divisible by the {shards} devices.")
    per_env = one.capacity // (num_envs * shards) // length * length
    needed = max(one.length, length)
    if per_env < needed:
        least = -(-needed // length) * length * num_envs * shards
        raise InputError(
            f"buffer_size {one.capacity} is too small for {num_envs * shards} environments with rollouts of {length} "
            f"and sequences of {one.length} steps; it must be at least {least}."
        )
    warm_up = _least(one, num_envs * shards)
    if warm_up > per_env:
        raise InputError(
            f"learning_starts {one.warm_up} exceeds the capacity of the replay buffer, {one.capacity} timesteps."
        )
    return flashbax.make_trajectory_buffer(
        add_batch_size=num_envs,
        sample_batch_size=one.draws * (one.batch // shards),
        sample_sequence_length=one.length,
        period=one.period,
        min_length_time_axis=warm_up,
        max_length_time_axis=per_env,
    )
