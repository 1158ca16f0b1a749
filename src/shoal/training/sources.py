"""Where a Python loop gets its trajectories from: worker processes of this machine, or actors of a Ray cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Key

from shoal.game import HostEnvironment
from shoal.notices import Warn
from shoal.rollouts.host import HostRollout
from shoal.rollouts.ray import RayRollout
from shoal.rollouts.ray_actor import joined
from shoal.rollouts.recording import Width
from shoal.training.settings import Settings
from shoal.types import Algorithm, EpisodeStats, Learner, Trajectory


class Collected(NamedTuple):
    """One roll-out in arrays of the host; leaves [S, T, E, ...] and [S, ...]."""

    trajectory: Trajectory
    stats: EpisodeStats
    metrics: dict[str, np.ndarray]
    """[S] each, beside what the algorithm says of its update."""
    parts: list[tuple[int, Trajectory]]
    """What goes to which replay buffer, where each of several actors has one of its own."""


class Source(Protocol):
    """Makes trajectories for the learner of every seed."""

    def init(self, keys: Key[Array, " S"]) -> None:
        """Start an episode in every environment."""
        ...

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """One roll-out by a learner that has learned ``version`` times."""
        ...

    def close(self) -> None:
        """End what makes them."""
        ...


class Processes:
    """Worker processes of this machine."""

    def __init__(self, env: HostEnvironment, algorithm: Algorithm, settings: Settings, warn: Warn):
        width = Width(settings.seeds, settings.num_envs, settings.num_workers, settings.worker_timeout)
        self.act = algorithm.act
        self.rollout = HostRollout(env, algorithm.initial_carry, width, settings.rollout_length, warn)
        self.init = self.rollout.init
        self.close = self.rollout.close

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Source`."""
        return Collected(*self.rollout.collect(self.act, acting(learner), keys), {}, [])

    def play(self, learner: Learner, key: Array, episodes: int, greedy: bool) -> tuple[np.ndarray, ...]:
        """Returns, lengths and metrics of whole episodes."""
        keys = jax.random.split(key, self.rollout.width.seeds)
        return self.rollout.play(self.act, acting(learner), keys, episodes, greedy)


class Cluster:
    """Ray actors. Off-policy, a roll-out is made of the chunks that arrive first, and ``version_lag`` says how many
    updates their parameters were behind."""

    def __init__(
        self,
        env: HostEnvironment,
        algorithm: Algorithm,
        settings: Settings,
        warn: Warn,
        remake: Callable[[], Algorithm],
    ):
        width = Width(settings.seeds, settings.num_envs, settings.num_workers, settings.worker_timeout)
        self.together = not jax.tree.leaves(algorithm.replay)
        self.rollout = RayRollout(env, remake, width, settings.rollout_length, settings.address, warn)
        self.init = self.rollout.init
        self.close = self.rollout.close

    def collect(self, learner: Learner, version: int, keys: Key[Array, " S"]) -> Collected:
        """See :class:`Source`."""
        chunks = self.rollout.collect(jax.device_get(acting(learner)), version, keys, self.together)
        lag = float(np.mean([version - chunk.version for chunk in chunks]))
        parts = [] if self.together else [(chunk.slot, chunk.trajectory) for chunk in chunks]
        return Collected(*joined(chunks), {"version_lag": np.full(len(keys), lag)}, parts)


def acting(learner: Learner) -> Learner:
    """What acting needs of a learner, on one device."""

    def here(x: Any) -> Any:
        return jax.device_put(x, jax.devices()[0])

    return jax.tree.map(here, learner._replace(optimiser=()))
