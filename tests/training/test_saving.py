"""How often a run is saved."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.algorithms import mappo
from shoal.runs import api
from shoal.runs.api import trainer_of
from shoal.training.program import TrainState
from shoal.training.settings import Settings
from shoal.types import EpisodeStats, Learner

STATS = EpisodeStats(np.ones((4, 1)), np.ones((4, 1, 3)), np.ones((4, 1)))  # type: ignore[arg-type]


def quick(state: Any, n: Any) -> Any:
    """A program of up to four updates per call, which takes two milliseconds and learns nothing."""
    time.sleep(0.002)
    return state, ({"loss": np.ones((4, 1))}, STATS)


def saves(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> int:
    """Checkpoints of 40 updates where one takes ten milliseconds."""
    folder.mkdir()
    settings = Settings(num_envs=4, rollout_length=12, steps=40 * 48.0, tensorboard=False, checkpoint_seconds=seconds)
    trainer = trainer_of(api.Run(folder, "mappo", "toys:busy", {}, settings, mappo.Config(), toys.busy()), False)
    learner = Learner({"w": jnp.ones(1)}, (), (), (), jnp.zeros(1, int))
    trainer.state = TrainState(learner, (), (), jax.random.split(jax.random.key(0), 1))
    trainer.program = trainer.program._replace(start=lambda state: quick)
    count: list[int] = []
    monkeypatch.setattr(trainer, "save", lambda: (time.sleep(0.01), count.append(trainer.update)))
    assert trainer.run()
    return len(count)


def test_a_checkpoint_that_takes_long_is_written_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large replay buffer costs a twentieth of the time at most, unless every call shall be saved."""
    monkeypatch.setattr("shoal.training.trainer.CALL_SECONDS", 0.0)
    assert saves(tmp_path / "always", monkeypatch, 0.0) > 20
    assert saves(tmp_path / "seldom", monkeypatch, 0.001) < 6
