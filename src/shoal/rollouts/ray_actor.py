"""What lives in a process of a Ray cluster: environments, and an act of its own compiled for them. Knows no Ray."""

import pickle
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal.rollouts.host import HostRollout
from shoal.rollouts.recording import Width
from shoal.types import Algorithm, EpisodeStats, PyTree, Trajectory


class Chunk(NamedTuple):
    """What one actor collected: T steps of its environments; leaves [S, T, E / W, ...]."""

    slot: int
    """Which part of the environments."""
    version: int
    """The parameters that acted."""
    trajectory: Trajectory
    stats: EpisodeStats


class Order(NamedTuple):
    """What all actors are told."""

    version: int
    """Of the parameters."""
    first: np.ndarray
    """Data of S keys: where an actor's first episodes start."""
    keys: np.ndarray
    """Data of S keys for acting and resetting."""
    number: int = 0
    """How many chunks were asked for with these keys."""


class Actor:
    """Lives in a process of the cluster."""

    def __init__(self, recipe: bytes, width: Width, length: int, paths: list[str]):
        sys.path.extend(path for path in paths if path not in sys.path)
        self.recipe = recipe  # not an argument itself, which would be read before the paths are there
        self.width, self.length, self.begun = width, length, False

    def ready(self) -> None:
        """Build everything: not while the actor begins, since Ray says less of what is raised there."""
        env, remake = pickle.loads(self.recipe)
        self.algorithm: Algorithm = remake()
        self.rollout = HostRollout(env, self.algorithm.initial_carry, self.width, self.length)

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
    """Chunks side by side, along the axis of environments; leaves [S, T, E, ...] and [S, ...]."""
    trajectories = [chunk.trajectory for chunk in chunks]
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), *[t._replace(carry=()) for t in trajectories])
    carry = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *[t.carry for t in trajectories])
    stats = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *[chunk.stats for chunk in chunks])
    return whole._replace(carry=carry), stats
