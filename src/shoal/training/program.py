"""The compiled program: many updates of many seeds on many devices, one call."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES, total
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.training.sharding import Layout
from shoal.types import Algorithm, Environment, EpisodeStats, Experience, Learner, PyTree, Trajectory


class TrainState(NamedTuple):
    """All of a run that changes; saving it is saving the run. Every leaf starts with the axis of seeds."""

    learner: Learner
    rollout: PyTree
    feed: PyTree
    """The replay buffer; empty for an on-policy algorithm."""
    key: Key[Array, " S"]


class Program(NamedTuple):
    """The two functions that training calls."""

    init: Callable[[Key[Array, " S"]], TrainState]
    advance: jax.stages.Wrapped
    """Jitted (state, n) -> (state after n updates, rows): row i < n of a leaf [capacity, S, ...] is update i's."""
    template: Callable[[], TrainState]
    """The state's shapes, without computing it."""
    capacity: int
    """The largest n."""
    replay_bytes: int
    """What the replay buffers of all seeds hold on one device when they are full."""


def compile_program(env: Environment, algorithm: Algorithm, layout: Layout, length: int, capacity: int) -> Program:
    """Fuse environment, policy and update; ``length`` is T, and a call's number of updates is chosen at run time."""
    rollout = fused.make(env, layout.num_envs, length)
    shards = layout.mesh.shape[DEVICES]
    feed = feeds.make(algorithm.replay, trajectory_shape(algorithm, rollout, layout.num_envs), layout.num_envs, shards)

    def init_one(key: Array) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        carry = algorithm.initial_carry(layout.num_envs)
        state = TrainState(algorithm.init(key_learner), rollout.init(key_rollout, carry), feed.init(), key)
        # A restored state knows no weak types: without them, a resumed run finds the program that the first one cached.
        return jax.tree.map(_strong, state)

    def collect(state: TrainState) -> tuple[TrainState, Trajectory | Experience, EpisodeStats, Array]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        rolled, trajectory, stats = rollout.collect(algorithm.act, state.learner, state.rollout, key_rollout)
        if feed.ready is None:
            return TrainState(state.learner, rolled, state.feed, key), trajectory, stats, key_update
        key_take, key_update = jax.random.split(key_update)
        fed = feed.put(state.feed, trajectory)
        batch = feed.take(fed, trajectory, key_take)
        return TrainState(state.learner, rolled, fed, key), batch, stats, key_update

    # Acting is many small steps, and seeds side by side share the cost of each. An update is a few large products: on a
    # CPU one seed's after another's, since a batch of them is slower there and falls out of the cache.
    together = partial(jax.vmap, axis_name=fused.SEEDS)
    on_cpu = layout.mesh.devices.flat[0].platform == "cpu"
    update = (
        (lambda *seeds: jax.lax.map(lambda one: algorithm.update(*one), seeds))
        if on_cpu
        else together(algorithm.update)
    )

    def every_seed(state: TrainState) -> tuple[TrainState, Any]:
        """One update of each seed, the same for every algorithm."""
        state, batch, stats, keys = together(collect)(state)
        if feed.ready is None:
            learner, metrics = update(state.learner, batch, keys)
        else:  # all seeds are ready at once, so one answer keeps this a branch; metrics are 0 until then
            ready = feed.ready(jax.tree.map(lambda x: x[0], state.feed))
            shapes = jax.eval_shape(update, state.learner, batch, keys)[1]
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
            learner, metrics = jax.lax.cond(
                ready, update, lambda learner, *_: (learner, nothing), state.learner, batch, keys
            )
        return state._replace(learner=learner), (metrics, total(stats))

    def advance(state: TrainState, n: Array) -> tuple[TrainState, Any]:
        shapes = jax.eval_shape(every_seed, state)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

        def body(i: Array, loop: tuple) -> tuple:
            state, rows = loop
            state, row = every_seed(state)
            return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), rows, row)

        return jax.lax.fori_loop(0, n, body, (state, rows))

    # check_vma off: what is equal on all shards is known to us (see equations/reduce.py), not provable to JAX.
    shard = partial(jax.shard_map, mesh=layout.mesh, check_vma=False)
    state_spec = _specs(layout, jax.eval_shape(feed.init))
    init = shard(jax.vmap(init_one), in_specs=layout.learner, out_specs=state_spec)
    many = shard(advance, in_specs=(state_spec, jax.P()), out_specs=(state_spec, layout.rows))

    def template() -> TrainState:
        seeds = layout.mesh.shape["seed_shards"] * layout.seeds
        return jax.eval_shape(init, jax.random.split(jax.random.key(0), seeds))

    # Named, since arrays without elements would otherwise leave the program with another sharding than they came with.
    named = jax.tree.map(layout.named, state_spec), layout.named(layout.rows)
    return Program(
        jax.jit(init, out_shardings=named[0]),
        jax.jit(many, donate_argnums=0, out_shardings=named),
        template,
        capacity,
        feed.num_bytes * layout.seeds,
    )


def _strong(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)


def trajectory_shape(algorithm: Algorithm, rollout: fused.Rollout, num_envs: int) -> PyTree:
    """The shapes of a roll-out; an empty tuple for an on-policy algorithm, whose feed needs none."""

    def roll(key: Array) -> Trajectory:
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        return rollout.collect(algorithm.act, algorithm.init(key), state, key)[1]

    return jax.eval_shape(roll, jax.random.key(0)) if jax.tree.leaves(algorithm.replay) else ()


def _specs(layout: Layout, feed: PyTree) -> TrainState:
    """How the state lies on the devices. Of a buffer, what has environments is cut as they are."""
    cut = jax.tree.map(lambda x: layout.rollout if x.ndim else layout.learner, feed)
    return TrainState(layout.learner, layout.rollout, cut, layout.learner)  # type: ignore[arg-type]


def place(state: TrainState, layout: Layout) -> TrainState:
    """Put a restored state on the devices as training left it there."""
    specs = _specs(layout, jax.eval_shape(lambda feed: jax.tree.map(lambda x: x[0], feed), state.feed))
    # Donated, so that a replay buffer is not there twice.
    return jax.device_put(state, jax.tree.map(layout.named, specs, is_leaf=lambda x: isinstance(x, jax.P)), donate=True)
