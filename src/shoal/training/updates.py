"""The training state, and one update of every seed from a rollout."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from shoal.rollouts import fused
from shoal.training.feed import Feed
from shoal.training.sharding import Layout
from shoal.types import Algorithm, Learner, PyTree, Trajectory


class TrainState(NamedTuple):
    """The state of a run; a checkpoint holds all of it. Every leaf starts with the seed axis."""

    learner: Learner
    rollout: PyTree
    """State of the device environments; for host environments, the keys of their first episodes."""
    feed: PyTree
    """The replay buffers; empty for an on-policy algorithm."""
    key: Key[Array, " S"]


UpdateSeeds = Callable[[Learner, PyTree, Trajectory, Array], tuple[Learner, PyTree, PyTree]]
"""(learner, feed, newest trajectory, key) -> (learner, feed, metrics) for all seeds on one device; metrics are [S]."""


def make(algorithm: Algorithm, feed: Feed, layout: Layout) -> UpdateSeeds:
    """A function that inserts a rollout into the feed and updates every seed."""
    # On a CPU the seeds are updated one after another: their batched matrix products are slower and overflow the cache.
    together = partial(jax.vmap, axis_name=fused.SEEDS)
    on_cpu = layout.mesh.devices.flat[0].platform == "cpu"
    update = (
        (lambda *seeds: jax.lax.map(lambda one: algorithm.update(*one), seeds))
        if on_cpu
        else together(algorithm.update)
    )
    update = jax.jit(update, inline=True)  # traced once, for its shapes and for the branch

    def through_feed(fed: PyTree, trajectory: Trajectory, key: Array) -> tuple[PyTree, Any, Array]:
        key_take, key_update = jax.random.split(key)
        fed = feed.put(fed, trajectory)
        return fed, feed.take(fed, trajectory, key_take), key_update

    def update_seeds(
        learner: Learner, fed: PyTree, trajectory: Trajectory, keys: Array
    ) -> tuple[Learner, PyTree, PyTree]:
        if feed.ready is None:
            learner, metrics = update(learner, trajectory, keys)
            return learner, fed, metrics
        fed, batch, keys = together(through_feed)(fed, trajectory, keys)
        # All seeds become ready in the same rollout, so a scalar keeps lax.cond a branch; metrics are 0 until then.
        ready = feed.ready(jax.tree.map(lambda x: x[0], fed))
        shapes = jax.eval_shape(update, learner, batch, keys)[1]
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        learner, metrics = jax.lax.cond(ready, update, lambda learner, *_: (learner, zeros), learner, batch, keys)
        return learner, fed, metrics

    return update_seeds


def strong(tree: PyTree) -> PyTree:
    """Remove weak types: a restored state has none, and a resumed run then finds the cached compiled program."""
    return jax.tree.map(_strong, tree)


def _strong(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)


def state_specs(layout: Layout, feed: PyTree) -> TrainState:
    """Partition specs of the state; buffer leaves with an environment axis are sharded over environments."""
    cut = jax.tree.map(lambda x: layout.rollout if x.ndim else layout.learner, feed)
    return TrainState(layout.learner, layout.rollout, cut, layout.learner)  # type: ignore[arg-type]


def place(state: TrainState, layout: Layout) -> TrainState:
    """Put a restored state on the devices with the sharding of training."""
    specs = state_specs(layout, jax.eval_shape(lambda feed: jax.tree.map(lambda x: x[0], feed), state.feed))
    if all(leaf.ndim < 2 for leaf in jax.tree.leaves(state.rollout)):  # the keys of host environments
        specs = specs._replace(rollout=layout.learner)
    # Donated, so that there are never two copies of a replay buffer.
    return jax.device_put(state, jax.tree.map(layout.named, specs, is_leaf=lambda x: isinstance(x, jax.P)), donate=True)
