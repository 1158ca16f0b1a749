"""Step a device environment one compiled call at a time."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal.game import HostTimestep, action_shape
from shoal.rollouts import fused
from shoal.spec import Box
from shoal.types import Environment, Step


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


# Speed of a device environment in a compiled rollout of many copies.


ENVS, LENGTH = 256, 32
"""Number of copies and of steps of the rollout."""


def vmapped_rate(env: Environment) -> tuple[float, float]:
    """Steps per second of ``ENVS`` copies in one compiled rollout of random legal actions, and seconds to compile."""
    space = env.spec.action

    def act(_: Any, carry: Any, step: Step, key: Array, greedy: bool) -> tuple[Any, Array, dict[str, Array]]:
        if isinstance(space, Box):
            low, high = (float(np.nan_to_num(x, posinf=1.0, neginf=-1.0)) for x in (space.low, space.high))
            return carry, jax.random.uniform(key, step.legal.shape, minval=low, maxval=high), {}
        drawn = jax.random.uniform(key, step.legal.shape)
        return carry, jnp.where(step.legal, drawn, -1.0).argmax(-1).astype(jnp.int32), {}

    rollout = fused.make_rollout(env, ENVS, LENGTH)
    before = time.perf_counter()
    state = jax.jit(lambda key: rollout.init(key, ()))(jax.random.key(0))
    # The trajectory is summed, so that the compiler does not remove parts of it as unused.
    collect = jax.jit(lambda state, key: _summed(rollout.collect(act, (), state, key)))
    state, _ = jax.block_until_ready(collect(state, jax.random.key(0)))
    started = time.perf_counter()
    rounds = 0
    while time.perf_counter() < started + 0.3:
        state, _ = jax.block_until_ready(collect(state, jax.random.key(rounds)))
        rounds += 1
    return rounds * ENVS * LENGTH / (time.perf_counter() - started), started - before


def _summed(collected: Any) -> tuple[Any, Array]:
    state, trajectory, _ = collected
    sums = [leaf.sum(dtype=jnp.float32) for leaf in jax.tree.leaves(trajectory.outcome)]
    return state, jnp.stack(sums).sum()
