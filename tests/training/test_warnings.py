"""Warnings reach standard error where progress is hidden, and wherever environments are stepped outside of training."""

import io
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import counters
import shoal
import toys
from shoal.algorithms import iql
from shoal.networks.body import Body
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.runs import api
from shoal.runs.api import trainer_of
from shoal.training import checks
from shoal.training.progress import Progress
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from support import trained

SMALL = {"num_envs": 4, "rollout_length": 8, "hidden": (8,), "eval_episodes": 0, "tensorboard": False}


@pytest.mark.parametrize("shown", [True, False])
def test_warnings_are_printed_without_progress_too(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(10, seeds=1, shown=shown)
    progress.say("a note")
    progress.warn("a warning")
    assert capsys.readouterr() == ("", "a note\na warning\n" if shown else "a warning\n")


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_terminal_does_not_end_training(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

        def isatty(self) -> bool:
            return not closed or super().isatty()

    stream = Gone()
    if closed:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(10, seeds=1, shown=True)
    progress.say("a note")
    progress.warn("a warning")
    progress.update(10, 1.0, 1.0)
    progress.close()


def test_a_worker_that_dies_in_a_run_without_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = counters.hosted(False, "die", str(tmp_path))
    shoal.train("ippo", env, folder=tmp_path / "run", progress=False, steps=32, num_workers=2, **SMALL)
    out, err = capsys.readouterr()
    assert out == "" and "died (exit code 7) and is started again" in err and err.count("\n") == 1


def test_a_worker_that_dies_outside_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evaluation, preparation and cross-play make their rollouts without a place for warnings."""
    env = counters.hosted(False, "die", str(tmp_path))
    rollout = HostRollout(env, lambda num_envs: (), Parallelism(1, 2, 1), 4)

    def act(policy: jax.Array, carry: tuple, step: shoal.Step, key: jax.Array, greedy: bool) -> tuple:
        return carry, jnp.zeros(step.alive.shape, jnp.int32), {}

    rollout.init(jax.random.split(jax.random.key(0), 1))
    rollout.collect(act, jnp.zeros(1), jax.random.split(jax.random.key(1), 1))
    rollout.close()
    out, err = capsys.readouterr()
    assert out == "" and "Worker 0 died (exit code 7) and is started again" in err


def test_a_damaged_checkpoint_of_a_run_without_progress(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained.damage(copy / "checkpoints" / str(trained.UPDATES))
    trainer_of(shoal.open_run(copy), False).restore()
    assert f"step {trained.UPDATES} is damaged and is skipped" in capsys.readouterr().err


def test_a_run_too_short_to_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trainer, "run", lambda self: False)
    settings = Settings(steps=96.0, num_envs=4, rollout_length=6, devices=1, tensorboard=False, num_workers=0)
    config = iql.Config(network=Body((4,)), buffer_size=2400, learning_starts=97)
    run = api.Run(tmp_path / "run", "iql", "toys:busy", {}, settings, config, toys.busy())
    api.train_to_end(run, trainer_of(run, False))
    said = (
        "A run of 96 steps has no update, the first of which takes 120: the replay buffer is filled first "
        "(learning_starts 97)."
    )
    assert capsys.readouterr() == ("", f"{said}\n")
    api.announce(run, trainer_of(run, True))  # with notes
    assert "num_workers has no effect: toys/busy is compiled with the update.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, ""),
        ({"num_workers": 0}, "num_workers has no effect: toys/busy is compiled with the update."),
        ({"num_workers": 2, "worker_timeout": 5.0}, "num_workers and worker_timeout have no effect: toys/busy is"),
    ],
)
def test_options_of_workers_of_an_environment_that_has_none(flags: dict[str, Any], said: str) -> None:
    """Commands refuse them where the environment's name tells; files, programs and own environments get a note."""
    lines = checks.notes_on_workers(toys.busy(), Settings(**flags))
    assert len(lines) == bool(said) and "".join(lines).startswith(said)
    assert not checks.notes_on_workers(counters.hosted(), Settings(**flags))
