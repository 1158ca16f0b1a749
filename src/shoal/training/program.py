"""The training program: the state of a run, one update of it, and many updates of all seeds on all devices in one call.

:func:`stages` are the functions of one seed. :func:`one_update` puts them together, for one seed
(:func:`shoal.make_train`) or for all seeds of a device (:func:`compile_program`).
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES, total
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.training import program_cache
from shoal.training.feed import Feed
from shoal.training.sharding import Layout, put, shape_on, sharded
from shoal.training.stopping import call, ready
from shoal.types import Algorithm, Environment, EpisodeStats, Experience, Learner, Metrics, PyTree, Trajectory


class TrainState(NamedTuple):
    """The state of a run; a checkpoint holds all of it. Every leaf starts with the seed axis."""

    learner: Learner
    rollout: PyTree
    """State of the device environments; for host environments, the keys of their first episodes."""
    feed: PyTree
    """The replay buffers; empty for an on-policy algorithm."""
    key: Key[Array, " S"]


# One update.


class Stages(NamedTuple):
    """The stages of an update of one seed, as pure functions."""

    algorithm: Algorithm
    feed: Feed
    init: Callable[..., TrainState]
    """(key) -> the state before training. Further arguments are those of the algorithm's ``init`` after the key."""
    collect: Callable[[TrainState], tuple[TrainState, Trajectory, EpisodeStats, Array]]
    """state -> (state after a rollout, the rollout, sums over the episodes that ended, key of the update)."""


class Seeds(NamedTuple):
    """How functions of one seed are applied to all seeds that a device trains."""

    together: Callable[[Callable], Callable]
    """A function for all seeds at once."""
    in_turn: Callable[[Callable], Callable]
    """A function with large matrix products for all seeds."""
    first: Callable[[PyTree], PyTree]
    """The part of the first seed."""


ONE = Seeds(lambda function: function, lambda function: function, lambda tree: tree)
"""One seed, without an axis of seeds."""


def every(layout: Layout) -> Seeds:
    """All seeds of a device, as the first axis."""
    together = partial(jax.vmap, axis_name=fused.SEEDS)

    def mapped(function: Callable) -> Callable:
        return lambda *seeds: jax.lax.map(lambda one: function(*one), seeds)

    # On a CPU the seeds are updated one after another: their batched matrix products are slower and overflow the cache.
    on_cpu = layout.mesh.devices.flat[0].platform == "cpu"
    return Seeds(together, mapped if on_cpu else together, partial(jax.tree.map, lambda x: x[0]))


def stages(env: Environment, algorithm: Algorithm, num_envs: int, length: int, shards: int = 1) -> Stages:
    """The stages of an update of one seed on one device; they run inside ``shard_map`` over :data:`DEVICES`.

    Args:
        env: the environment.
        algorithm: the algorithm, made for these sizes.
        num_envs: E, on one device.
        length: T.
        shards: devices over which the environments of a seed are sharded.

    Raises:
        InputError: the replay buffer does not fit these sizes.
    """
    rollout = fused.make_rollout(env, num_envs, length)
    feed = feeds.make_feed(algorithm.replay, trajectory_shape(algorithm, rollout, num_envs), num_envs, shards)

    def init(key: Array, *given: PyTree) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        carry = algorithm.initial_carry(num_envs)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        began = rollout.init(key_rollout, carry)
        return strong(TrainState(algorithm.init(key_learner, *given), began, feed.init(), key))

    def collect(state: TrainState) -> tuple[TrainState, Trajectory, EpisodeStats, Array]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        key_rollout = jax.random.fold_in(key_rollout, jax.lax.axis_index(DEVICES))
        rolled, trajectory, stats = rollout.collect(algorithm.act, state.learner, state.rollout, key_rollout)
        return TrainState(state.learner, rolled, state.feed, key), trajectory, stats, key_update

    return Stages(algorithm, feed, init, collect)


def one_update(
    stages: Stages, seeds: Seeds = ONE
) -> Callable[[TrainState], tuple[TrainState, tuple[Metrics, EpisodeStats]]]:
    """state -> (state after a rollout and an update from it, (metrics, sums over this device's ended episodes))."""
    learn = learning(stages.algorithm, stages.feed, seeds)

    def update(state: TrainState) -> tuple[TrainState, Any]:
        state, trajectory, stats, keys = seeds.together(stages.collect)(state)
        learner, fed, metrics = learn(state.learner, state.feed, trajectory, keys)
        return state._replace(learner=learner, feed=fed), (metrics, stats)

    return update


def learning(
    algorithm: Algorithm, feed: Feed, seeds: Seeds
) -> Callable[[Learner, PyTree, Trajectory, Array], tuple[Learner, PyTree, PyTree]]:
    """(learner, feed, rollout, key) -> (learner, feed, metrics): insert a rollout into the feed, and update."""
    update = jax.jit(seeds.in_turn(algorithm.update), inline=True)  # traced once, for its shapes and for the branch

    def through_feed(fed: PyTree, trajectory: Trajectory, key: Array) -> tuple[PyTree, Any, Array]:
        key_take, key_update = jax.random.split(key)
        fed = feed.put(fed, trajectory)
        return fed, feed.take(fed, trajectory, key_take), key_update

    def learn(learner: Learner, fed: PyTree, trajectory: Trajectory, keys: Array) -> tuple[Learner, PyTree, PyTree]:
        if feed.ready is None:
            learner, metrics = update(learner, trajectory, keys)
            return learner, fed, metrics
        fed, batch, keys = seeds.together(through_feed)(fed, trajectory, keys)
        # All seeds become ready in the same rollout, so a scalar keeps lax.cond a branch; metrics are 0 until then.
        ready = feed.ready(seeds.first(fed))
        shapes = jax.eval_shape(update, learner, batch, keys)[1]
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def wait(learner: Learner, batch: Experience, _: Array) -> tuple[Learner, PyTree]:
            observe = algorithm.observe
            return seeds.together(observe)(learner, batch.newest) if observe else learner, zeros

        learner, metrics = jax.lax.cond(ready, update, wait, learner, batch, keys)
        return learner, fed, metrics

    return learn


def strong(tree: PyTree) -> PyTree:
    """Remove weak types: a restored state has none, and a resumed run then finds the cached compiled program."""
    return jax.tree.map(_strong, tree)


def _strong(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)


def state_specs(layout: Layout, feed: PyTree) -> TrainState:
    """Partition specs of the state; buffer leaves with an environment axis are sharded over environments."""
    cut = jax.tree.map(lambda x: layout.rollout if x.ndim else layout.learner, feed)
    return TrainState(layout.learner, layout.rollout, cut, layout.learner)  # type: ignore[arg-type]


def placed_state(state: TrainState, layout: Layout) -> TrainState:
    """Put a restored state on the devices with the sharding of training."""
    specs = state_specs(layout, jax.eval_shape(lambda feed: jax.tree.map(lambda x: x[0], feed), state.feed))
    if all(leaf.ndim < 2 for leaf in jax.tree.leaves(state.rollout)):  # the keys of host environments
        specs = specs._replace(rollout=layout.learner)
    # Donated, so that there are never two copies of a replay buffer.
    return put(state, jax.tree.map(layout.named, specs, is_leaf=lambda x: isinstance(x, jax.P)), donate=True)


# Many updates of all seeds on all devices.


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
    feed: Feed
    """Of one seed on one device."""
    play: Any = None
    """(learner, key, episodes, greedy) -> returns, lengths and metrics of whole episodes in the worker processes of
    training; None, or a result of None, without such processes."""
    close: Callable[[], None] = lambda: None
    """Stop worker processes and actors."""
    ahead: Callable[[], Callable[[], Callable[[TrainState, np.int32], tuple[TrainState, Any]]]] | None = None
    """Begin to compile as ``start`` does, for the state that ``init`` will return; returns a function that waits for
    the compilation. None where ``start`` needs the state itself."""


def compile_program(
    env: Environment, algorithm: Algorithm, layout: Layout, length: int, capacity: int, key: str = ""
) -> Program:
    """Compile environment, policy and update together; ``length`` is T, and n is a run-time argument.

    With a ``key`` of all that determines the program, it is stored for the next process, which does not even trace it
    (:mod:`shoal.training.program_cache`).
    """
    of_seed = stages(env, algorithm, layout.num_envs, length, layout.mesh.shape[DEVICES])
    every_seed = jax.jit(one_update(of_seed, every(layout)), inline=True)

    def advance(state: TrainState, n: Array) -> tuple[TrainState, Any]:
        shapes = jax.eval_shape(every_seed, state)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shapes)

        def body(i: Array, loop: tuple) -> tuple:
            state, rows = loop
            state, row = every_seed(state)
            return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), rows, row)

        state, (metrics, stats) = jax.lax.fori_loop(0, n, body, (state, rows))
        return state, (metrics, total(stats))  # added up over devices once in a call, which costs each update no wait

    state_spec = state_specs(layout, jax.eval_shape(of_seed.feed.init))
    init = sharded(jax.vmap(of_seed.init), layout, layout.learner, state_spec)
    many = sharded(advance, layout, (state_spec, jax.P()), (state_spec, layout.rows))

    # Explicit output shardings, since empty arrays would otherwise leave with another sharding than they entered with.
    named = jax.tree.map(layout.named, state_spec), layout.named(layout.results)
    initialise = jax.jit(init, out_shardings=named[0])

    devices = [*layout.mesh.devices.flat]

    @cache
    def known() -> Any:
        return program_cache.stored(key and f"{key}-init", devices)

    def begun(keys: Array, *given: PyTree) -> TrainState:
        if given or not key:
            return call(initialise, keys, *given)
        first = known() or program_cache.compiled(f"{key}-init", devices, lambda: initialise.lower(keys))()
        return ready(first(keys))

    def template(*given: PyTree) -> TrainState:
        if not given and (first := known()):
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), first.out_info)
        return jax.eval_shape(initialise, layout.keys(0), *given)  # not traced again when it is called

    jitted = jax.jit(many, donate_argnums=0, out_shardings=named)

    def compiling(shapes: Callable[[], TrainState]) -> Callable[[], Any]:
        return program_cache.compiled(key, devices, lambda: jitted.lower(shapes(), np.int32(1)))

    def shapes() -> TrainState:
        return jax.tree.map(lambda where, part: jax.tree.map(partial(shape_on, where), part), named[0], template())

    return Program(
        begun,
        lambda state: compiling(lambda: state)(),
        template,
        capacity,
        of_seed.feed,
        ahead=partial(compiling, shapes),
    )


def trajectory_shape(algorithm: Algorithm, rollout: fused.Rollout, num_envs: int) -> PyTree:
    """Shapes of a rollout; an empty tuple for an on-policy algorithm, whose feed needs none."""

    def roll(key: Array) -> Trajectory:
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        return rollout.collect(algorithm.act, algorithm.init(key), state, key)[1]

    return jax.eval_shape(roll, jax.random.key(0)) if jax.tree.leaves(algorithm.replay) else ()
