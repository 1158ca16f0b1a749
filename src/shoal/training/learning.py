"""What every roll-out's trajectories are put to: one update of each seed, wherever they were made."""

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
    """All of a run that changes; saving it is saving the run. Every leaf starts with the axis of seeds."""

    learner: Learner
    rollout: PyTree
    """Where environments on the device stand; empty where worker processes step them."""
    feed: PyTree
    """The replay buffer; empty for an on-policy algorithm."""
    key: Key[Array, " S"]


Digest = Callable[[Learner, PyTree, Trajectory, Array], tuple[Learner, PyTree, PyTree]]
"""(learner, feed, newest trajectory, key) -> (learner, feed, metrics), of every seed on one device; metrics are [S]."""


def make(algorithm: Algorithm, feed: Feed, layout: Layout) -> Digest:
    """One update of each seed, the same for every algorithm."""
    # Acting is many small steps, and seeds side by side share the cost of each. An update is a few large products: on a
    # CPU one seed's after another's, since a batch of them is slower there and falls out of the cache.
    together = partial(jax.vmap, axis_name=fused.SEEDS)
    on_cpu = layout.mesh.devices.flat[0].platform == "cpu"
    update = (
        (lambda *seeds: jax.lax.map(lambda one: algorithm.update(*one), seeds))
        if on_cpu
        else together(algorithm.update)
    )

    def through_feed(fed: PyTree, trajectory: Trajectory, key: Array) -> tuple[PyTree, Any, Array]:
        key_take, key_update = jax.random.split(key)
        fed = feed.put(fed, trajectory)
        return fed, feed.take(fed, trajectory, key_take), key_update

    def digest(learner: Learner, fed: PyTree, trajectory: Trajectory, keys: Array) -> tuple[Learner, PyTree, PyTree]:
        if feed.ready is None:
            learner, metrics = update(learner, trajectory, keys)
            return learner, fed, metrics
        fed, batch, keys = together(through_feed)(fed, trajectory, keys)
        # All seeds are ready at once, so one answer keeps this a branch; metrics are 0 until then.
        ready = feed.ready(jax.tree.map(lambda x: x[0], fed))
        shapes = jax.eval_shape(update, learner, batch, keys)[1]
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        learner, metrics = jax.lax.cond(ready, update, lambda learner, *_: (learner, nothing), learner, batch, keys)
        return learner, fed, metrics

    return digest


def strong(tree: PyTree) -> PyTree:
    """Without weak types, which a restored state does not know: so a resumed run finds the program the first cached."""
    return jax.tree.map(_strong, tree)


def _strong(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)


def state_specs(layout: Layout, feed: PyTree) -> TrainState:
    """How the state lies on the devices. Of a buffer, what has environments is cut as they are."""
    cut = jax.tree.map(lambda x: layout.rollout if x.ndim else layout.learner, feed)
    return TrainState(layout.learner, layout.rollout, cut, layout.learner)  # type: ignore[arg-type]


def place(state: TrainState, layout: Layout) -> TrainState:
    """Put a restored state on the devices as training left it there."""
    specs = state_specs(layout, jax.eval_shape(lambda feed: jax.tree.map(lambda x: x[0], feed), state.feed))
    # Donated, so that a replay buffer is not there twice.
    if all(leaf.ndim < 2 for leaf in jax.tree.leaves(state.rollout)):  # keys of episodes to come, no environments
        specs = specs._replace(rollout=layout.learner)
    return jax.device_put(state, jax.tree.map(layout.named, specs, is_leaf=lambda x: isinstance(x, jax.P)), donate=True)
