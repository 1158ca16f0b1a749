"""Step a device environment one compiled call at a time."""

from typing import Any

import jax
import numpy as np

from shoal.game import HostTimestep, action_shape
from shoal.types import Environment


class DeviceInstance:
    """An instance of a device environment; each reset and step is one compiled call."""

    def __init__(self, env: Environment):
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._unknown = np.full(len(env.spec.metrics), np.nan, np.float32)
        self._state: Any = None
        self._key, self._t = jax.random.key(0), 0
        zeros = np.zeros(*action_shape(env.spec))
        self.reset(0)
        self.step(zeros)  # compiled before anything is timed

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        self._key, self._t = jax.random.key(seed), 0
        self._state, step = self._reset(self._key)
        return HostTimestep(*map(np.asarray, step._replace(metrics=self._unknown)))  # reset may omit metrics

    def step(self, action: np.ndarray) -> HostTimestep:
        """Play ``action``."""
        self._t += 1
        self._state, step = self._step(jax.random.fold_in(self._key, self._t), self._state, action)
        return HostTimestep(*map(np.asarray, step))

    def close(self) -> None:
        """Do nothing: there are no resources."""
