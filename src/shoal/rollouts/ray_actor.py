"""The actor in a process of a Ray cluster: environments and a compiled policy. Does not import Ray."""

import pickle
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal import isolation
from shoal.rollouts.host import HostRollout
from shoal.rollouts.recording import Parallelism
from shoal.types import Algorithm, EpisodeStats, PyTree, Trajectory


class Chunk(NamedTuple):
    """T steps of one actor's environments; leaves [S, T, E / W, ...]."""

    slot: int
    """Index of the part of the environments."""
    version: int
    """Version of the parameters that acted."""
    trajectory: Trajectory
    stats: EpisodeStats


class Order(NamedTuple):
    """Arguments of a rollout, the same for all actors."""

    version: int
    """Version of the parameters."""
    first: np.ndarray
    """Key data of S keys for the first episodes of an actor."""
    keys: np.ndarray
    """Key data of S keys for acting and resets."""
    number: int = 0
    """Number of chunks already requested with these keys."""


class Actor:
    """Collects rollouts in a process of the cluster."""

    def __init__(self, recipe: bytes, parallelism: Parallelism, length: int, paths: list[str]):
        isolation.guard_libraries()
        sys.path.extend(path for path in paths if path not in sys.path)
        self.recipe = recipe  # pickled, since arguments are read before sys.path is extended
        self.parallelism, self.length, self.begun = parallelism, length, False

    def ready(self) -> None:
        """Build environments and algorithm; not in the constructor, whose errors Ray reports less clearly."""
        env, remake = pickle.loads(self.recipe)
        self.algorithm: Algorithm = remake()
        self.rollout = HostRollout(env, self.algorithm.initial_carry, self.parallelism, self.length)

    def collect(self, order: Order, slot: int, learner: PyTree) -> Chunk:
        """T steps of its environments."""
        if not self.begun:
            self.rollout.init(_keys(order.first, order.version), slot)
            self.begun = True
        keys = _keys(order.keys, order.number)
        trajectory, stats = self.rollout.collect(self.algorithm.act, learner, keys, part=slot)
        return Chunk(slot, order.version, trajectory, stats)


def _keys(data: np.ndarray, number: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(data))
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys) if number else keys


def joined(chunks: list[Chunk]) -> tuple[Trajectory, EpisodeStats]:
    """Concatenate chunks along the environment axis and sum their statistics; leaves [S, T, E, ...] and [S, ...]."""
    trajectories = [chunk.trajectory for chunk in chunks]
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), *[t._replace(carry=()) for t in trajectories])
    carry = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *[t.carry for t in trajectories])
    stats = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *[chunk.stats for chunk in chunks])
    return whole._replace(carry=carry), stats
