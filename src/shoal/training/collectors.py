"""Collectors of trajectories from host environments: worker processes of this machine, or actors of a Ray cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Key

from shoal.game import HostEnvironment
from shoal.rollouts.host import HostRollout
from shoal.rollouts.ray import RayRollout, joined
from shoal.rollouts.recording import Parallelism
from shoal.system.notices import Warn
from shoal.training.settings import Settings
from shoal.types import Algorithm, EpisodeStats, Learner, Trajectory


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

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Collector`."""
        return Collected(*self.rollout.collect(self.act, acting(learner), keys), {}, [])

    def play(self, learner: Learner, key: Array, episodes: int, greedy: bool) -> tuple[np.ndarray, ...]:
        """Returns, lengths and metrics of whole episodes."""
        keys = jax.random.split(key, self.rollout.parallelism.seeds)
        policies = acting(learner._replace(critic=(), statistics=()))  # as in deployment: without past selves
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

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Collector`."""
        chunks = self.rollout.collect(jax.device_get(acting(learner)), version, keys, self.together)
        lag = float(np.mean([version - chunk.version for chunk in chunks]))
        parts = [] if self.together else [(chunk.slot, chunk.trajectory) for chunk in chunks]
        return Collected(*joined(chunks), {"version_lag": np.full(len(keys), lag)}, parts)


def acting(learner: Learner) -> Learner:
    """The learner without its optimiser states, on one device."""

    def here(x: Any) -> Any:
        return jax.device_put(x, jax.devices()[0])

    return jax.tree.map(here, learner._replace(optimiser=()))
