"""The compiled training program: one call makes many updates of all seeds on all devices."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal.equations.reduce import DEVICES, total
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.training import updates
from shoal.training.sharding import Layout, shape_on
from shoal.training.stopping import begin, call, wait
from shoal.training.updates import TrainState
from shoal.types import Algorithm, Environment, EpisodeStats, PyTree, Trajectory


class Program(NamedTuple):
    """The functions that the trainer calls."""

    init: Callable[..., TrainState]
    """(keys [S]) -> the state. Further arguments [S, ...] are those of the algorithm's ``init`` after the key."""
    start: Callable[[TrainState], Callable[[TrainState, np.int32], tuple[TrainState, Any]]]
    """Compile for this state: returns (state, n) -> (state after n updates, rows), where row i < n of a leaf
    [capacity, S, ...] holds the metrics of update i."""
    template: Callable[..., TrainState]
    """Shapes of the state, without computing it; its arguments are those of ``init`` after the keys."""
    capacity: int
    """The largest n."""
    replay_bytes: int
    """Bytes of the replay buffers of all seeds on one device."""
    play: Any = None
    """(learner, key, episodes, greedy) -> returns, lengths and metrics of whole episodes in the worker processes of
    training; None, or a result of None, without such processes."""
    close: Callable[[], None] = lambda: None
    """Stop worker processes and actors."""
    ahead: Callable[[], Callable[[], Callable[[TrainState, np.int32], tuple[TrainState, Any]]]] | None = None
    """Begin to compile as ``start`` does, for the state that ``init`` will return; returns a function that waits for
    the compilation. None where ``start`` needs the state itself."""


def compile_program(env: Environment, algorithm: Algorithm, layout: Layout, length: int, capacity: int) -> Program:
    """Compile environment, policy and update together; ``length`` is T, and n is a run-time argument."""
    rollout = fused.make(env, layout.num_envs, length)
    shards = layout.mesh.shape[DEVICES]
    feed = feeds.make(algorithm.replay, trajectory_shape(algorithm, rollout, layout.num_envs), layout.num_envs, shards)
    update_seeds = updates.make(algorithm, feed, layout)

    def init_one(key: Array, *given: PyTree) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        carry = algorithm.initial_carry(layout.num_envs)
        state = TrainState(algorithm.init(key_learner, *given), rollout.init(key_rollout, carry), feed.init(), key)
        return updates.strong(state)

    def collect(state: TrainState) -> tuple[TrainState, Trajectory, EpisodeStats, Array]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        rolled, trajectory, stats = rollout.collect(algorithm.act, state.learner, state.rollout, key_rollout)
        return TrainState(state.learner, rolled, state.feed, key), trajectory, stats, key_update

    @partial(jax.jit, inline=True)  # traced once, for its shapes and for the loop
    def every_seed(state: TrainState) -> tuple[TrainState, Any]:
        state, trajectory, stats, keys = jax.vmap(collect, axis_name=fused.SEEDS)(state)
        learner, fed, metrics = update_seeds(state.learner, state.feed, trajectory, keys)
        return state._replace(learner=learner, feed=fed), (metrics, total(stats))

    def advance(state: TrainState, n: Array) -> tuple[TrainState, Any]:
        shapes = jax.eval_shape(every_seed, state)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

        def body(i: Array, loop: tuple) -> tuple:
            state, rows = loop
            state, row = every_seed(state)
            return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), rows, row)

        return jax.lax.fori_loop(0, n, body, (state, rows))

    # check_vma is off: JAX cannot prove which values are equal on all shards (see equations/reduce.py).
    shard = partial(jax.shard_map, mesh=layout.mesh, check_vma=False)
    state_spec = updates.state_specs(layout, jax.eval_shape(feed.init))
    init = shard(jax.vmap(init_one), in_specs=layout.learner, out_specs=state_spec)
    many = shard(advance, in_specs=(state_spec, jax.P()), out_specs=(state_spec, layout.rows))

    # Explicit output shardings, since empty arrays would otherwise leave with another sharding than they entered with.
    named = jax.tree.map(layout.named, state_spec), layout.named(layout.rows)
    initialise = jax.jit(init, out_shardings=named[0])

    def template(*given: PyTree) -> TrainState:
        seeds = layout.mesh.shape["seed_shards"] * layout.seeds
        keys = jax.device_put(jax.random.split(jax.random.key(0), seeds), layout.named(layout.learner))
        return jax.eval_shape(initialise, keys, *given)  # not traced again when it is called

    jitted = jax.jit(many, donate_argnums=0, out_shardings=named)

    def ahead() -> Callable[[], Any]:
        shapes = jax.tree.map(lambda where, part: jax.tree.map(partial(shape_on, where), part), named[0], template())
        return begin(jitted.lower(shapes, np.int32(1)).compile)

    return Program(
        partial(call, initialise),
        lambda state: wait(jitted.lower(state, np.int32(1)).compile),
        template,
        capacity,
        feed.num_bytes * layout.seeds,
        ahead=ahead,
    )


def trajectory_shape(algorithm: Algorithm, rollout: fused.Rollout, num_envs: int) -> PyTree:
    """Shapes of a rollout; an empty tuple for an on-policy algorithm, whose feed needs none."""

    def roll(key: Array) -> Trajectory:
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        return rollout.collect(algorithm.act, algorithm.init(key), state, key)[1]

    return jax.eval_shape(roll, jax.random.key(0)) if jax.tree.leaves(algorithm.replay) else ()
