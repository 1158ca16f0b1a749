"""The compiled program: many updates of many seeds on many devices, one call."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES, total
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.training import learning
from shoal.training.learning import TrainState
from shoal.training.sharding import Layout
from shoal.training.stopping import call, wait
from shoal.types import Algorithm, Environment, EpisodeStats, PyTree, Trajectory


class Program(NamedTuple):
    """What training calls."""

    init: Callable[[Key[Array, " S"]], TrainState]
    start: Callable[[TrainState], Callable[[TrainState, np.int32], tuple[TrainState, Any]]]
    """Compile, and begin from this state: gives (state, n) -> (state after n updates, rows), where row i < n of a leaf
    [capacity, S, ...] is update i's."""
    template: Callable[[], TrainState]
    """The state's shapes, without computing it."""
    capacity: int
    """The largest n."""
    replay_bytes: int
    """What the replay buffers of all seeds hold on one device when they are full."""
    play: Any = None
    """(learner, key, episodes, greedy) -> returns, lengths and metrics of whole episodes, where rollouts hold worker
    processes; None, or a result of None, where they do not."""
    close: Callable[[], None] = lambda: None
    """End what it holds."""


def compile_program(env: Environment, algorithm: Algorithm, layout: Layout, length: int, capacity: int) -> Program:
    """Fuse environment, policy and update; ``length`` is T, and a call's number of updates is chosen at run time."""
    rollout = fused.make(env, layout.num_envs, length)
    shards = layout.mesh.shape[DEVICES]
    feed = feeds.make(algorithm.replay, trajectory_shape(algorithm, rollout, layout.num_envs), layout.num_envs, shards)
    digest = learning.make(algorithm, feed, layout)

    def init_one(key: Array) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        carry = algorithm.initial_carry(layout.num_envs)
        state = TrainState(algorithm.init(key_learner), rollout.init(key_rollout, carry), feed.init(), key)
        return learning.strong(state)

    def collect(state: TrainState) -> tuple[TrainState, Trajectory, EpisodeStats, Array]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        rolled, trajectory, stats = rollout.collect(algorithm.act, state.learner, state.rollout, key_rollout)
        return TrainState(state.learner, rolled, state.feed, key), trajectory, stats, key_update

    def every_seed(state: TrainState) -> tuple[TrainState, Any]:
        state, trajectory, stats, keys = jax.vmap(collect, axis_name=fused.SEEDS)(state)
        learner, fed, metrics = digest(state.learner, state.feed, trajectory, keys)
        return state._replace(learner=learner, feed=fed), (metrics, total(stats))

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
    state_spec = learning.state_specs(layout, jax.eval_shape(feed.init))
    init = shard(jax.vmap(init_one), in_specs=layout.learner, out_specs=state_spec)
    many = shard(advance, in_specs=(state_spec, jax.P()), out_specs=(state_spec, layout.rows))

    def template() -> TrainState:
        seeds = layout.mesh.shape["seed_shards"] * layout.seeds
        return jax.eval_shape(init, jax.random.split(jax.random.key(0), seeds))

    # Named, since arrays without elements would otherwise leave the program with another sharding than they came with.
    named = jax.tree.map(layout.named, state_spec), layout.named(layout.rows)
    jitted = jax.jit(many, donate_argnums=0, out_shardings=named)
    return Program(
        partial(call, jax.jit(init, out_shardings=named[0])),
        lambda state: wait(jitted.lower(state, np.int32(1)).compile),
        template,
        capacity,
        feed.num_bytes * layout.seeds,
    )


def trajectory_shape(algorithm: Algorithm, rollout: fused.Rollout, num_envs: int) -> PyTree:
    """The shapes of a roll-out; an empty tuple for an on-policy algorithm, whose feed needs none."""

    def roll(key: Array) -> Trajectory:
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        return rollout.collect(algorithm.act, algorithm.init(key), state, key)[1]

    return jax.eval_shape(roll, jax.random.key(0)) if jax.tree.leaves(algorithm.replay) else ()
