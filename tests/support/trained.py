"""What tests that train share."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.algorithms import mappo
from shoal.game import HostEnvironment
from shoal.runs import open as opening
from shoal.runs.api import trainer_of
from shoal.runs.run import Run
from shoal.training.evaluation import Evaluator
from shoal.training.program import Program, TrainState
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import EpisodeStats, Learner

UPDATES = 400
"""Of the run that is interrupted in many ways."""

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 6,
    "seeds": 2,
    "rows": 1000,
    "hidden": (4,),
    "orthogonal": False,  # such kernels take as long to compile as a small update
    "epochs": 1,
    "minibatches": 1,
    "learning_rate": 0.05,
    "curve_episodes": 5,
    "tensorboard": False,
    "progress": False,
    "devices": 1,
    "schedule_steps": 24 * 24,
}
"""Of runs with evaluations during training; an update has 24 steps. Nothing follows a schedule, but runs of up to as
many steps are the same program: whichever file trains first compiles it for the others."""

RECURRENT: dict[str, Any] = {
    "seeds": 3,
    "seed": 5,
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


def cache_folder() -> str:
    """Where compiled programs are kept; JAX's options have no types."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def cache_environment() -> dict[str, str]:
    """Environment variables with which a subprocess finds the compiled programs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": cache_folder(),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_NUM_CPU_DEVICES": "2",
    }


def judged(row: dict[str, Any]) -> list[float]:
    """The scores of an evaluation during training in the mode that it found better."""
    return row["sampled/return" if row.get("sampled/better") else "greedy/return"]


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
    trainer = trainer_of(Run(Path("unused"), "mappo", "toys:busy", {}, settings, mappo.Config(), toys.busy()), False)
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


@contextlib.contextmanager
def untrained() -> Iterator[None]:
    """Runs that start in this context end at their last step with noise for what they would have learned, for tests of
    what a run's folder holds: no update is compiled."""

    def run(self: Trainer) -> bool:
        state, rng = self.program.init(self.layout.keys(self.settings.seed)), np.random.default_rng(0)
        is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
        noisy = lambda x: x + rng.random(x.shape).astype(x.dtype) if is_float(x) else x  # noqa: E731
        self.state = state._replace(learner=jax.tree.map(noisy, state.learner))
        self.at = self.at._replace(update=self.settings.num_updates)
        self.save()
        return self.ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", run)
        yield


UNCOMPILED = {
    "steps", "stop_at", "time_budget", "seed", "init_from", "rows", "checkpoint_seconds", "keep", "eval_episodes",
    "eval_every", "curve_episodes", "tensorboard",
}  # fmt: skip
"""Settings that are no part of the program of training: steps set its number of updates, which is compared itself."""

_PROGRAMS: dict[str, Program] = {}
"""Of all contexts of this process."""


@contextlib.contextmanager
def one_program() -> Iterator[None]:
    """Runs in this context share compiled programs, and with those of other such contexts, where algorithm,
    configuration, sizes and the spec of the environment on the device are the same: in these, a spec stands for one
    environment. To trace a program again takes most of the time of a tiny run."""
    evaluations: dict[Any, Any] = {}
    own_program, prepare = Trainer._program, Evaluator.prepare

    def shared(self: Trainer, remake: Any) -> Program:
        key = _key(self, remake)
        if key is None:
            return own_program(self, remake)
        if key not in _PROGRAMS:
            _PROGRAMS[key] = _compiled_once(own_program(self, remake))
        return _PROGRAMS[key]

    def prepared(self: Evaluator, learner: Learner) -> None:
        shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(learner)]
        act = self.algorithm.act
        what = (repr(self.env.spec), act.__module__, act.__qualname__, self.episodes, self.greedy)
        key = (*what, jax.tree.structure(learner), *shapes)
        self._compiled = self._compiled or evaluations.get(key)
        prepare(self, learner)
        evaluations[key] = self._compiled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_program", shared)
        patch.setattr(Evaluator, "prepare", prepared)
        yield


def _key(trainer: Trainer, remake: Any) -> str | None:
    """All that a program is made of; None where it cannot be told."""
    given = getattr(remake, "keywords", {})  # remake: shoal.runs.build.make_algorithm with all its arguments
    if isinstance(trainer.env, HostEnvironment) or "scale" not in given or given["opponents"]:
        return None
    settings = {name: value for name, value in vars(trainer.settings).items() if name not in UNCOMPILED}
    updates = max(trainer.settings.num_updates, trainer.settings.schedule_updates)
    return repr((remake.args, given["scale"], settings, updates, trainer.layout))


def _compiled_once(made: Program) -> Program:
    """The program, whose function is compiled the first time that it is asked for."""
    compiled: list[Any] = []

    def started(compile_now: Callable[[], Any]) -> Any:
        if not compiled:
            compiled.append(compile_now())
        return compiled[0]

    def ahead() -> Callable[[], Any]:
        assert made.ahead is not None
        wait = (lambda: compiled[0]) if compiled else made.ahead()
        return lambda: started(wait)

    return made._replace(start=lambda state: started(lambda: made.start(state)), ahead=ahead)


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
