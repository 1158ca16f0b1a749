"""Experience before training: for algorithms that decide something by it before their parameters have a shape."""

from contextlib import closing
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from shoal.composing.preparation import Decision
from shoal.game import HostEnvironment
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout
from shoal.rollouts.recording import Width
from shoal.training.stopping import call
from shoal.types import Algorithm, AnyEnvironment, Learner, Scale, Trajectory

ENVS = 64
"""Environments side by side: many short roll-outs say more of the starts than few long ones."""
STAGE = 0x5E95
"""Folded into the run's first seed, so that training draws other numbers than preparation."""


def decide(
    module: ModuleType, env: AnyEnvironment, config: Any, scale: Scale, seed: int, num_workers: int | None = None
) -> Decision | None:
    """Let an algorithm decide what it leaves open until it has seen the environment; None where it leaves nothing open.

    The experience is that of initial policies, drawn from ``seed`` alone: all seeds of a run share the decision, since
    they are trained in one program, and it does not depend on the devices.

    Raises:
        InputError: an option is out of range, before anything compiles.
    """
    prepare = getattr(module, "prepare", None)
    preparation = prepare(env.spec, config, scale) if prepare else None
    if preparation is None:
        return None
    key_collect, key_decide = jax.random.split(jax.random.fold_in(jax.random.key(seed), STAGE))
    trajectory = collect(env, preparation.algorithm, -(-preparation.steps // ENVS), key_collect, num_workers)
    return preparation.decide(trajectory, key_decide)


def collect(
    env: AnyEnvironment, algorithm: Algorithm, length: int, key: Array, num_workers: int | None = None
) -> Trajectory:
    """``length`` steps of freshly initialised policies in each of :data:`ENVS` environments."""
    if isinstance(env, HostEnvironment):
        learner, key_reset, key_play = _stages(algorithm, key)
        with closing(HostRollout(env, algorithm.initial_carry, Width(1, ENVS, num_workers), length)) as hosted:
            hosted.init(key_reset[None])
            many = jax.tree.map(lambda x: x[None], learner)
            return jax.tree.map(lambda x: jnp.asarray(x[0]), hosted.collect(algorithm.act, many, key_play[None])[0])
    rollout = fused.make(env, ENVS, length)

    def experience(key: Array) -> Trajectory:
        learner, key_reset, key_play = _stages(algorithm, key)
        state = rollout.init(key_reset, algorithm.initial_carry(ENVS))
        return rollout.collect(algorithm.act, learner, state, key_play)[1]

    return call(jax.jit(experience), key)


def _stages(algorithm: Algorithm, key: Array) -> tuple[Learner, Array, Array]:
    key_init, key_reset, key_play = jax.random.split(key, 3)
    return algorithm.init(key_init), key_reset, key_play
