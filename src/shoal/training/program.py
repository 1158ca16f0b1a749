"""The compiled program: many updates of many seeds on many devices, one call."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES, total
from shoal.rollouts import fused
from shoal.training.sharding import Layout
from shoal.types import Algorithm, Environment, EpisodeStats, Learner, PyTree, Trajectory


class TrainState(NamedTuple):
    """All of a run that changes; saving it is saving the run. Every leaf starts with the axis of seeds."""

    learner: Learner
    rollout: PyTree
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


def compile_program(env: Environment, algorithm: Algorithm, layout: Layout, length: int, capacity: int) -> Program:
    """Fuse environment, policy and update; ``length`` is T, and a call's number of updates is chosen at run time."""
    rollout = fused.make(env, layout.num_envs, length)

    def init_one(key: Array) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        carry = algorithm.initial_carry(layout.num_envs)
        return TrainState(algorithm.init(key_learner), rollout.init(key_rollout, carry), key)

    def collect(state: TrainState) -> tuple[TrainState, Trajectory, EpisodeStats, Array]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        rolled, trajectory, stats = rollout.collect(algorithm.act, state.learner, state.rollout, key_rollout)
        return TrainState(state.learner, rolled, key), trajectory, stats, key_update

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
        state, trajectory, stats, keys = together(collect)(state)
        learner, metrics = update(state.learner, trajectory, keys)
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
    state_spec = TrainState(layout.learner, layout.rollout, layout.learner)  # type: ignore[arg-type]
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
    )


def place(state: TrainState, layout: Layout) -> TrainState:
    """Put a restored state on the devices as training left it there."""
    learner, rollout = layout.named(layout.learner), layout.named(layout.rollout)
    shardings = TrainState(
        jax.tree.map(lambda _: learner, state.learner),
        jax.tree.map(lambda _: rollout, state.rollout),
        learner,  # pyright: ignore[reportArgumentType]
    )
    return jax.device_put(state, shardings)
