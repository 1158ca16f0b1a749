"""Trajectories on the host, while they are made: where each half of the environments stands, and what it did."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.game import HostEnvironment, HostTimestep, blank
from shoal.types import EpisodeStats, PyTree, Step, Trajectory


class Width(NamedTuple):
    """How many environments, and how they are stepped."""

    seeds: int
    """S."""
    num_envs: int
    """E of each seed."""
    num_workers: int | None = None
    """Processes; None for one per core, 0 to step in this one."""
    timeout: float = 60.0
    """Seconds after which a silent worker is taken to hang."""
    halves: int | None = None
    """Parts that take turns; None for two where E is even."""


class Half:
    """Environments that are decided on together: E / halves of every seed. Rows of arrays are [S · size]."""

    def __init__(self, index: int, seeds: int, size: int, initial_carry: Callable[[int], PyTree]):
        self.index, self.seeds, self.size = index, seeds, size
        self.envs = slice(index * size, (index + 1) * size)
        self.initial = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), initial_carry(size))
        self.carry = self.initial
        self.step: HostTimestep | None = None
        self.returns = self.lengths = np.zeros(0)

    def begin(self, step: HostTimestep) -> None:
        """All episodes start at ``step`` [S · size, ...]."""
        self.step, self.carry = step, self.initial
        self.returns, self.lengths = np.zeros_like(step.reward), np.zeros(len(step.reward), np.float32)

    def begin_again(self, ended: np.ndarray, fresh: HostTimestep) -> HostTimestep:
        """Where the half stands once the episodes that ended are followed by new ones."""
        assert self.step is not None
        self.returns, self.lengths = np.where(ended[:, None], 0, self.returns), np.where(ended, 0, self.lengths)
        return HostTimestep._make(np.where(_wide(ended, b), a, b) for a, b in zip(fresh, self.step, strict=True))

    def seen(self) -> Step:
        """What the policy acts on; leaves [S, size, ...]."""
        assert self.step is not None
        return self.shaped(visible(self.step))

    def shaped(self, rows: Any) -> Any:
        """[S · size, ...] as [S, size, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.seeds, self.size, *x.shape[1:]), rows)


class Ended(NamedTuple):
    """What one step of a half led to; arrays are [S · size, ...]."""

    outcome: HostTimestep
    returns: np.ndarray
    """Of the episode so far, with this step."""
    lengths: np.ndarray
    lost: np.ndarray
    """Cut off by the loss of a worker; not an episode that counts."""


class Recording:
    """A trajectory that is being written; leaves [S, T, E, ...]."""

    def __init__(self, env: HostEnvironment, width: Width, length: int, noted: PyTree):
        batch = (width.seeds, length, width.num_envs)
        self.step, self.outcome = visible(blank(env.spec, *batch)), visible(blank(env.spec, *batch))
        self.action, self.extras = jax.tree.map(lambda x: np.empty((*batch, *x.shape[2:]), x.dtype), noted)
        self.episodes, self.lengths = np.zeros(width.seeds, np.float32), np.zeros(width.seeds, np.float32)
        self.returns = np.zeros((width.seeds, env.spec.num_agents), np.float32)
        self._leaves = jax.tree.leaves((self.step, self.outcome, self.action, self.extras))
        self.metrics = np.zeros((width.seeds, len(env.spec.metrics)), np.float32)
        self.known = np.zeros_like(self.metrics)

    def write(self, half: Half, t: int, noted: tuple[Step, Any, Any], ended: Ended) -> None:
        """One timestep of one half: what was seen, the action and its extras, and what that led to."""
        seen, *decided = noted
        at = (slice(None), t, half.envs)
        rows = jax.tree.leaves((seen, half.shaped(visible(ended.outcome)), decided))
        for there, here in zip(self._leaves, rows, strict=True):
            there[at] = here
        counted = ended.outcome.last & ~ended.lost
        if counted.any():
            metrics = ended.outcome.metrics
            counted, returns, lengths, metrics = half.shaped((counted, ended.returns, ended.lengths, metrics))
            self.episodes += counted.sum(1)
            self.returns += np.where(counted[..., None], returns, 0).sum(1)
            self.lengths += np.where(counted, lengths, 0).sum(1)
            known = counted[..., None] & np.isfinite(metrics)
            self.metrics += np.where(known, metrics, 0).sum(1)
            self.known += known.sum(1)

    def trajectory(self, carry: PyTree) -> Trajectory:
        """What was written, after the recurrent state it began with."""
        return Trajectory._make((self.step, self.action, self.extras, self.outcome, carry))

    def stats(self) -> EpisodeStats:
        """Of the episodes that ended; leaves [S, ...]."""
        measured = (self.metrics, self.known) if self.metrics.size else ((), ())
        return EpisodeStats._make((self.episodes, self.returns, self.lengths, *measured))


def visible(timesteps: HostTimestep) -> Step:
    """What algorithms are given of timesteps: all but the metrics of episodes."""
    return Step._make(timesteps)._replace(metrics=())


def copied(timesteps: HostTimestep, rows: slice) -> HostTimestep:
    """Rows of arrays that others go on writing to."""
    return HostTimestep._make(leaf[rows].copy() for leaf in timesteps)


def _wide(condition: np.ndarray, like: np.ndarray) -> np.ndarray:
    return condition.reshape(-1, *(1,) * (like.ndim - 1))
