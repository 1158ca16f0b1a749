"""What tests that train share."""

import functools
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import toys
from shoal import opening
from shoal.algorithms import mappo
from shoal.run import Run
from shoal.training.program import Program
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.training.updates import TrainState
from shoal.types import EpisodeStats, Learner

UPDATES = 400
"""Of the run that is interrupted in many ways."""

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 6,
    "seeds": 2,
    "rows": 1000,
    "hidden": (4,),
    "epochs": 1,
    "minibatches": 1,
    "learning_rate": 0.05,
    "curve_episodes": 5,
    "tensorboard": False,
    "progress": False,
    "devices": 1,
}
"""Of runs with evaluations during training; an update has 24 steps. Nothing follows a schedule, but runs of up to as
many steps are the same program: whichever file trains first compiles it for the others."""

RECURRENT: dict[str, Any] = {
    "seeds": 3,
    "seed": 5,
    "schedule_steps": 24 * 24,
    "num_envs": 4,
    "rollout_length": 12,
    "steps": UPDATES * 48,
    "rows": 30,  # a row is the mean of 13 updates, which no call's length is a multiple of
    "hidden": (8,),
    "recurrent": 4,
    "chunk_length": 4,
    "epochs": 2,
    "minibatches": 3,
    "lr_final": 0.1,
    "normalise_inputs": True,
    "target_entropy": 0.6,
    "tensorboard": False,
    "eval_episodes": 0,
}
"""Three seeds, E cut over two devices, and every kind of thing that has to be saved."""


QUICK: dict[str, Any] = {
    "num_envs": 16,
    "rollout_length": 8,
    "steps": 25 * 16 * 8,
    "hidden": (16,),
    "learning_rate": 1e-2,
    "epochs": 4,
    "seeds": 2,
    "rows": 1000,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
}
"""25 updates, enough for a small game; a seed per device."""


def cache_environment() -> dict[str, str]:
    """Environment variables with which a subprocess finds the compiled programs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_NUM_CPU_DEVICES": "2",
    }


class Whole(NamedTuple):
    """A run of :data:`RECURRENT` that nothing disturbed."""

    folder: Path
    trainer: Any
    """As training left it."""


STATS = EpisodeStats(np.ones((1, 1)), np.ones((1, 1, 3)), np.ones((1, 1)))  # type: ignore[arg-type]
"""Of one update of one seed."""


@functools.cache
def _made() -> Trainer:
    """One that is not used itself: making its program takes a second."""
    settings = Settings(num_envs=4, rollout_length=12, devices=1)
    trainer = Run(Path("unused"), "mappo", "toys:busy", {}, settings, mappo.Config(), toys.busy()).trainer(False)
    template = trainer.program.template()
    learner = Learner({"w": jnp.ones(1)}, (), (), (), jnp.zeros(1, int))
    state = TrainState(learner, (), (), jax.random.split(jax.random.key(0), 1))

    def advance(state: TrainState, n: Any) -> Any:
        return state, ({"loss": np.ones((1, 1))}, STATS)

    trainer.program = trainer.program._replace(
        init=lambda keys: state, start=lambda state: advance, ahead=None, template=lambda: template, capacity=1
    )
    return trainer


class Idle(Trainer):
    """A trainer that computes nothing; each call makes one update of 48 steps, which loses 1."""

    def __init__(self, folder: Path, updates: int, **settings: Any):
        made = _made()
        chosen = Settings(num_envs=4, rollout_length=12, devices=1, steps=updates * 48.0, **settings)
        super().__init__(made.env, made.algorithm, chosen, made.layout, folder, False)

    def _program(self, remake: Any) -> Program:
        return idle_program()


def idle_program() -> Program:
    """Its program, for a test that trains in ``toys:busy`` with one seed, and puts it in the place of the true one."""
    return _made().program


def copied(folder: Path, to: Path) -> Path:
    """A copy of a run's folder, recorded as the user's own as if it had been trained there."""
    copy = Path(shutil.copytree(folder, to))
    opening.remember(opening.open_run(copy, trust=True))
    return copy


def damage(folder: Path) -> None:
    """Cut the largest file of a checkpoint short."""
    largest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size // 2)
