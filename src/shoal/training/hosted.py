"""The training program of host environments: a Python loop around the compiled update, and collectors of trajectories.

Trajectories come from worker processes of this machine, or from actors of a Ray cluster.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.game import HostEnvironment, blank
from shoal.rollouts.host import HostRollout, Parallelism, visible
from shoal.rollouts.pool import sendable
from shoal.rollouts.ray import RayRollout, actors, joined_chunks, library
from shoal.system.notices import Warn
from shoal.training import feed as feeds
from shoal.training.feed import Feed
from shoal.training.program import Program, TrainState, every, learning, state_specs, strong
from shoal.training.settings import Settings
from shoal.training.sharding import SEED_SHARDS, Layout, shape_on, sharded
from shoal.training.stopping import call, ready, wait
from shoal.types import Algorithm, AnyEnvironment, EpisodeStats, Learner, PyTree, Step, Trajectory


class Collected(NamedTuple):
    """One rollout in host arrays; leaves [S, T, E, ...] and [S, ...]."""

    trajectory: Trajectory
    stats: EpisodeStats
    metrics: dict[str, np.ndarray]
    """[S] each; logged with the metrics of the update."""
    parts: list[tuple[int, Trajectory]]
    """(index of the replay buffer, its chunk) for asynchronous actors; otherwise empty."""


class Collector(Protocol):
    """Collects trajectories with the policies of all seeds."""

    def init(self, keys: Key[Array, " S"]) -> None:
        """Start an episode in every environment."""
        ...

    def prepare(self, learner: Learner, keys: Key[Array, " S"]) -> None:
        """Compile what :meth:`collect` computes for such a learner and such keys, so that its time is without it."""
        ...

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """One rollout; ``version`` is the number of updates that ``learner`` has had."""
        ...

    def close(self) -> None:
        """Stop the worker processes or actors."""
        ...


class ProcessCollector:
    """Collects with worker processes of this machine."""

    def __init__(self, env: HostEnvironment, algorithm: Algorithm, settings: Settings, warn: Warn):
        parallelism = Parallelism(settings.seeds, settings.num_envs, settings.num_workers, settings.worker_timeout)
        self.act = algorithm.act
        self.rollout = HostRollout(env, algorithm.initial_carry, parallelism, settings.rollout_length, warn)
        self.init = self.rollout.init
        self.close = self.rollout.close

    def prepare(self, learner: Learner, keys: Key[Array, " S"]) -> None:
        """See :class:`Collector`."""
        self.rollout.prepare(self.act, acting_learner(learner), keys, False, self.rollout.length)

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Collector`."""
        return Collected(*self.rollout.collect(self.act, acting_learner(learner), keys), {}, [])

    def play(self, learner: Learner, key: Array, episodes: int, greedy: bool) -> tuple[np.ndarray, ...]:
        """Returns, lengths and metrics of whole episodes."""
        keys = jax.random.split(key, self.rollout.parallelism.seeds)
        policies = acting_learner(learner._replace(critic=(), statistics=()))  # as in deployment: without past selves
        return self.rollout.play(self.act, policies, keys, episodes, greedy)


class RayCollector:
    """Collects with Ray actors. Off-policy, a rollout consists of the chunks that arrive first; the metric
    ``version_lag`` is the mean number of updates by which their parameters are outdated."""

    def __init__(
        self,
        env: HostEnvironment,
        algorithm: Algorithm,
        settings: Settings,
        warn: Warn,
        remake: Callable[[], Algorithm],
    ):
        parallelism = Parallelism(settings.seeds, settings.num_envs, settings.num_workers, settings.worker_timeout)
        self.together = not jax.tree.leaves(algorithm.replay)
        self.rollout = RayRollout(env, remake, parallelism, settings.rollout_length, settings.address, warn)
        self.init = self.rollout.init
        self.close = self.rollout.close

    def prepare(self, learner: Learner, keys: Key[Array, " S"]) -> None:
        """Nothing: actors have compiled when they are ready."""

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Collector`."""
        chunks = self.rollout.collect(jax.device_get(acting_learner(learner)), version, keys, self.together)
        lag = float(np.mean([version - chunk.version for chunk in chunks]))
        parts = [] if self.together else [(chunk.slot, chunk.trajectory) for chunk in chunks]
        return Collected(*joined_chunks(chunks), {"version_lag": np.full(len(keys), lag)}, parts)


def acting_learner(learner: Learner) -> Learner:
    """The learner without its optimiser states, on one device."""

    return jax.device_put(learner._replace(optimiser=()), jax.devices()[0])


MAX_HOST_ENVIRONMENTS = 65_536
"""Largest number of host environments, over all seeds."""


def compile_host_program(
    env: HostEnvironment,
    algorithm: Algorithm,
    layout: Layout,
    settings: Settings,
    warn: Warn,
    remake: Callable[[], Algorithm],
) -> Program:
    """The program of host environments; each call makes one update, so that an error loses at most one rollout.

    The environments' states cannot be saved: a resumed run keeps the learner and buffers, and starts new episodes.
    ``remake`` builds the algorithm again in the process of a Ray actor.

    Raises:
        InputError: there are too many environments, they cannot be sent to worker processes, or Ray is missing.
    """
    objects = settings.seeds * settings.num_envs
    if objects > MAX_HOST_ENVIRONMENTS:
        raise InputError(
            f"The run has {objects} host environments, and the limit is {MAX_HOST_ENVIRONMENTS}; lower num_envs."
        )
    if settings.workers == "ray":
        library()
        actors(Parallelism(settings.seeds, settings.num_envs, settings.num_workers))
    elif settings.num_workers != 0:
        sendable(env)
    feed, put = _feed(env, algorithm, layout, settings)
    update_seeds = learning(algorithm, feed, every(layout))
    collectors: list[ProcessCollector | RayCollector] = []

    def init_one(key: Array) -> TrainState:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        return strong(TrainState(algorithm.init(key_learner), key_rollout, feed.init(), key))

    def learn(state: TrainState, trajectory: Trajectory, key: Array, key_update: Array) -> tuple[TrainState, Any]:
        learner, fed, metrics = update_seeds(state.learner, state.feed, trajectory, key_update)
        return TrainState(learner, state.rollout, fed, key), metrics

    state_spec = state_specs(layout, jax.eval_shape(feed.init))._replace(rollout=layout.learner)
    rows = P(SEED_SHARDS, None, DEVICES)
    trajectory_spec = Trajectory(rows, rows, rows, rows, layout.rollout)  # type: ignore[arg-type]
    places = jax.tree.map(layout.named, trajectory_spec, is_leaf=lambda x: isinstance(x, P))
    init = sharded(jax.vmap(init_one), layout, layout.learner, state_spec)
    specs = state_spec, trajectory_spec, layout.learner, layout.learner
    many = sharded(learn, layout, specs, (state_spec, layout.learner))
    named = jax.tree.map(layout.named, state_spec)
    jitted = jax.jit(many, donate_argnums=0, out_shardings=(named, layout.named(layout.learner)))
    split = jax.jit(jax.vmap(partial(jax.random.split, num=3), out_axes=1))

    def start(state: TrainState) -> Callable[[TrainState, np.int32], tuple[TrainState, Any]]:
        if settings.workers == "ray":
            collector: ProcessCollector | RayCollector = RayCollector(env, algorithm, settings, warn, remake)
        else:
            collector = ProcessCollector(env, algorithm, settings, warn)
        collectors.append(collector)
        shapes = host_trajectory_shape(env, algorithm, settings.num_envs, settings, settings.seeds)
        key = shape_on(layout.named(layout.learner), state.key)
        placed = jax.tree.map(lambda place, tree: jax.tree.map(partial(shape_on, place), tree), places, shapes)
        compiled = wait(jitted.lower(state, placed, key, key).compile)
        updates = int(np.asarray(state.learner.updates).max())
        begun = updates or feeds.timesteps(state.feed)  # a buffer fills before the first update
        first = jax.device_put(state.rollout, jax.devices()[0])
        collector.init(first if begun == 0 else jax.vmap(lambda key: jax.random.fold_in(key, begun))(first))
        collector.prepare(state.learner, jax.device_put(split(state.key)[1], jax.devices()[0]))
        versions = itertools.count(updates)

        def advance(state: TrainState, n: np.int32) -> tuple[TrainState, Any]:
            key, key_rollout, key_update = split(state.key)
            made = collector.collect(state.learner, next(versions), jax.device_put(key_rollout, jax.devices()[0]))
            for slot, part in made.parts:
                state.feed[slot] = put(state.feed[slot], part)
            keys = jax.device_put((key, key_update), layout.named(layout.learner))
            state, metrics = compiled(state, jax.device_put(made.trajectory, places), *keys)
            return state, jax.tree.map(lambda x: np.asarray(x)[None], (ready(metrics) | made.metrics, made.stats))

        return advance

    def play(learner: Learner, key: Array, episodes: int, greedy: bool) -> tuple[np.ndarray, ...] | None:
        if settings.num_starts is not None:  # whose workers know no other initial states
            return None
        first = collectors[0] if collectors else None
        return first.play(learner, key, episodes, greedy) if isinstance(first, ProcessCollector) else None

    def template() -> TrainState:
        return jax.eval_shape(init, jax.random.split(jax.random.key(0), settings.seeds))

    def close() -> None:
        for one in collectors:
            one.close()

    return Program(
        partial(call, jax.jit(init, out_shardings=named)),
        start,
        template,
        1,
        feed,
        play,
        close,
    )


def _feed(
    env: HostEnvironment, algorithm: Algorithm, layout: Layout, settings: Settings
) -> tuple[Feed, Callable[[Any, Trajectory], Any]]:
    """The feed, and a function that inserts one actor's chunk (all seeds) into that actor's buffer.

    Asynchronous actors have one buffer each, since a sequence must not mix the environments of several actors.
    """
    if settings.workers != "ray" or not jax.tree.leaves(algorithm.replay):
        shape = host_trajectory_shape(env, algorithm, layout.num_envs, settings)
        return feeds.make_feed(algorithm.replay, shape, layout.num_envs, layout.mesh.shape[DEVICES]), lambda fed, _: fed
    parts = actors(Parallelism(settings.seeds, settings.num_envs, settings.num_workers))
    feeds.check_batches(algorithm.replay, parts, "num_workers")
    size = settings.num_envs // parts
    one = feeds.make_feed(algorithm.replay, host_trajectory_shape(env, algorithm, size, settings), size, parts)
    return feeds.several_feeds(one, parts), jax.jit(jax.vmap(one.put), donate_argnums=0)


def host_trajectory_shape(
    env: AnyEnvironment, algorithm: Algorithm, num_envs: int, settings: Settings, *seeds: int
) -> PyTree:
    """Shapes of a rollout; leaves [*seeds, T, E, ...]."""

    def acted(key: Array, step: Step) -> tuple[PyTree, Array, dict[str, Array]]:
        return algorithm.act(algorithm.init(key), algorithm.initial_carry(num_envs), step, key, False)

    step = visible(blank(env.spec, num_envs))
    carry, action, extras = jax.eval_shape(acted, jax.random.key(0), step)
    whole = partial(_wider, *seeds, settings.rollout_length)
    step, action, extras = jax.tree.map(whole, (step, action, extras))
    return Trajectory(step, action, extras, step, jax.tree.map(partial(_wider, *seeds), carry))


def _wider(*batch_and_leaf: Any) -> jax.ShapeDtypeStruct:
    *batch, leaf = batch_and_leaf
    return jax.ShapeDtypeStruct((*batch, *leaf.shape), leaf.dtype)
