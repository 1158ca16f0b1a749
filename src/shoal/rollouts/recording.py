"""Recording of trajectories in host arrays, and the state of each half of the environments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.game import HostEnvironment, HostTimestep, blank
from shoal.types import EpisodeStats, PyTree, Step, Trajectory


class Workers(NamedTuple):
    """The worker processes of rollouts that a run makes besides training."""

    number: int | None = None
    """None for one per core, 0 to step in this process."""
    timeout: float = 60.0
    """Seconds without an answer after which a worker counts as hung."""


WORKERS = Workers()


class Parallelism(NamedTuple):
    """Numbers of seeds, environments and workers of a host rollout."""

    seeds: int
    """S."""
    num_envs: int
    """E of each seed."""
    num_workers: int | None = None
    """Worker processes; None for one per core, 0 to step in this process."""
    timeout: float = 60.0
    """Seconds without an answer after which a worker counts as hung."""
    halves: int | None = None
    """Number of parts that take turns; None for two if E is even, else one."""


class Half:
    """A batch of environments that act together: E / halves of every seed. The first axis of arrays is S · size."""

    def __init__(self, index: int, seeds: int, size: int, initial_carry: Callable[[int], PyTree]):
        self.index, self.seeds, self.size = index, seeds, size
        self.envs = slice(index * size, (index + 1) * size)
        self.initial = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), initial_carry(size))
        self.carry = self.initial
        self.step: HostTimestep | None = None
        self.returns = self.lengths = np.zeros(0)

    def begin(self, step: HostTimestep) -> None:
        """Start all episodes at ``step`` [S · size, ...]."""
        self.step, self.carry = step, self.initial
        self.returns, self.lengths = np.zeros_like(step.reward), np.zeros(len(step.reward), np.float32)

    def begin_again(self, ended: np.ndarray, fresh: HostTimestep) -> HostTimestep:
        """The half's timesteps with those of ``ended`` episodes replaced by ``fresh``; resets returns and lengths."""
        assert self.step is not None
        self.returns, self.lengths = np.where(ended[:, None], 0, self.returns), np.where(ended, 0, self.lengths)
        return HostTimestep._make(np.where(_wide(ended, b), a, b) for a, b in zip(fresh, self.step, strict=True))

    def shown(self) -> Step:
        """The input of the policy; leaves [S, size, ...]."""
        assert self.step is not None
        return self.shaped(visible(self.step))

    def shaped(self, rows: Any) -> Any:
        """Reshape [S · size, ...] to [S, size, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.seeds, self.size, *x.shape[1:]), rows)


class Ended(NamedTuple):
    """The result of one step of a half; arrays are [S · size, ...]."""

    outcome: HostTimestep
    returns: np.ndarray
    """Undiscounted return of the episode so far, including this step."""
    lengths: np.ndarray
    lost: np.ndarray
    """Episodes truncated by the loss of a worker, which are not counted."""


class Recording:
    """Arrays of a trajectory in progress; leaves [S, T, E, ...]. ``decided`` gives the shapes of action and extras."""

    def __init__(self, env: HostEnvironment, parallelism: Parallelism, length: int, decided: PyTree):
        batch = (parallelism.seeds, length, parallelism.num_envs)
        self.step, self.outcome = visible(blank(env.spec, *batch)), visible(blank(env.spec, *batch))
        self.action, self.extras = jax.tree.map(lambda x: np.empty((*batch, *x.shape[2:]), x.dtype), decided)
        self.episodes, self.lengths = np.zeros(parallelism.seeds, np.float32), np.zeros(parallelism.seeds, np.float32)
        self.returns = np.zeros((parallelism.seeds, env.spec.num_agents), np.float32)
        self._leaves = jax.tree.leaves((self.step, self.outcome, self.action, self.extras))
        self.metrics = np.zeros((parallelism.seeds, len(env.spec.metrics)), np.float32)
        self.known = np.zeros_like(self.metrics)

    def write(self, half: Half, t: int, before: tuple[Step, Any, Any], ended: Ended) -> None:
        """Write one timestep of one half: ``before`` is (step, action, extras), ``ended`` the result."""
        step, *decided = before
        at = (slice(None), t, half.envs)
        rows = jax.tree.leaves((step, half.shaped(visible(ended.outcome)), decided))
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
        """The recorded trajectory; ``carry`` is the recurrent state before its first step."""
        return Trajectory._make((self.step, self.action, self.extras, self.outcome, carry))

    def stats(self) -> EpisodeStats:
        """Sums over the episodes that ended; leaves [S, ...]."""
        measured = (self.metrics, self.known) if self.metrics.size else ((), ())
        return EpisodeStats._make((self.episodes, self.returns, self.lengths, *measured))


class Episodes:
    """Whole episodes of every seed, ``episodes`` in all, of which each environment plays a fixed number.

    Counting the first episodes to end would over-represent short ones.
    """

    def __init__(self, env: HostEnvironment, parallelism: Parallelism, episodes: int):
        seeds, num_envs = parallelism.seeds, parallelism.num_envs
        playing = min(num_envs, episodes)
        self.quota = np.array([episodes // playing + (e < episodes % playing) for e in range(num_envs)])
        self.quota[playing:] = 0
        self.first = np.concatenate([[0], np.cumsum(self.quota)[:-1]])
        self.done = np.zeros((seeds, num_envs), int)
        self.returns = np.zeros((seeds, episodes, env.spec.num_agents), np.float32)
        self.lengths = np.zeros((seeds, episodes))
        self.metrics = np.zeros((seeds, episodes, len(env.spec.metrics)), np.float32)

    def add(self, half: Half, ended: Ended) -> None:
        """Count the episodes of a half that ended at this step."""
        for s, e in np.argwhere(half.shaped(ended.outcome.last & ~ended.lost)):
            env, row = e + half.envs.start, s * half.size + e
            if self.done[s, env] < self.quota[env]:
                at = self.first[env] + self.done[s, env]
                self.returns[s, at], self.lengths[s, at] = ended.returns[row], ended.lengths[row]
                self.metrics[s, at] = ended.outcome.metrics[row]
                self.done[s, env] += 1

    def finished(self, half: Half) -> np.ndarray:
        """bool [S · size]: games of a half that have played all their episodes."""
        return (self.done >= self.quota)[:, half.envs].reshape(-1)


def visible(timesteps: HostTimestep) -> Step:
    """Timesteps as algorithms receive them, without the metrics of episodes and without ``leaving``."""
    return Step._make(timesteps[: len(Step._fields)])._replace(metrics=())


def copied(timesteps: HostTimestep, rows: slice) -> HostTimestep:
    """Copy rows of arrays that workers continue to write to."""
    return HostTimestep._make(leaf[rows].copy() for leaf in timesteps)


def _wide(condition: np.ndarray, like: np.ndarray) -> np.ndarray:
    return condition.reshape(-1, *(1,) * (like.ndim - 1))
