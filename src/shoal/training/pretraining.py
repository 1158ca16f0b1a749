"""Experience collected before training, for algorithms that choose the structure of their networks from it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from shoal.game import HostEnvironment
from shoal.rollouts import fused
from shoal.rollouts.host import WORKERS, HostRollout, Parallelism, Workers
from shoal.storage.folders import PREPARATION_FILE
from shoal.system.files import dumps, write_text
from shoal.training.progress import Progress
from shoal.training.stopping import call, wait
from shoal.types import Algorithm, AnyEnvironment, Decision, EnvSpec, Learner, Preparation, Scale, Trajectory

ENVS = 64
"""Parallel environments; many short rollouts cover more initial states than a few long ones."""
STAGE = 0x5E95
"""Folded into the run's first seed, so that preparation and training use different random numbers."""


def decide(
    module: ModuleType, env: AnyEnvironment, config: Any, scale: Scale, seed: int, workers: Workers = WORKERS
) -> Decision | None:
    """Run an algorithm's preparation on experience of initial policies; None if it has none.

    The experience depends only on ``seed``, not on the devices. All seeds of a run share the decision, since they are
    trained in one program.

    Raises:
        InputError: an option is out of range; raised before compilation.
        KeyboardInterrupt: on Ctrl-C, without waiting for compiled code.
    """
    needed = preparation(module, env.spec, config, scale)
    if needed is None:
        return None
    key_collect, key_decide = jax.random.split(jax.random.fold_in(jax.random.key(seed), STAGE))
    trajectory = collect(env, needed.algorithm, -(-needed.steps // ENVS), key_collect, workers)
    return wait(lambda: needed.decide(trajectory, key_decide))


def preparation(module: ModuleType, spec: EnvSpec, config: Any, scale: Scale) -> Preparation | None:
    """What an algorithm needs before training with this configuration; None if nothing.

    Raises:
        InputError: an option is out of range.
    """
    prepare = getattr(module, "prepare", None)
    return prepare(spec, config, scale) if prepare else None


def keep_decision(decision: Decision | None, folder: Path, progress: Progress, guard: Callable[[], None]) -> None:
    """Print the decision, and write its data to ``preparation.json``."""
    if decision:
        progress.say(decision.message)
        guard()
        write_text(folder / PREPARATION_FILE, dumps(decision.report, "preparation", indent=1) + "\n")


def collect(
    env: AnyEnvironment, algorithm: Algorithm, length: int, key: Array, workers: Workers = WORKERS
) -> Trajectory:
    """A trajectory of ``length`` steps of newly initialised policies in :data:`ENVS` environments."""
    if isinstance(env, HostEnvironment):
        learner, key_reset, key_play = _stages(algorithm, key)
        with closing(HostRollout(env, algorithm.initial_carry, Parallelism(1, ENVS, *workers), length)) as hosted:
            hosted.init(key_reset[None])
            many = jax.tree.map(lambda x: x[None], learner)
            return jax.tree.map(lambda x: jnp.asarray(x[0]), hosted.collect(algorithm.act, many, key_play[None])[0])
    rollout = fused.make_rollout(env, ENVS, length)

    def experience(key: Array) -> Trajectory:
        learner, key_reset, key_play = _stages(algorithm, key)
        state = rollout.init(key_reset, algorithm.initial_carry(ENVS))
        return rollout.collect(algorithm.act, learner, state, key_play)[1]

    return call(jax.jit(experience), key)


def _stages(algorithm: Algorithm, key: Array) -> tuple[Learner, Array, Array]:
    key_init, key_reset, key_play = jax.random.split(key, 3)
    return algorithm.init(key_init), key_reset, key_play
