"""Searches that take longer: other algorithms, a process that is killed, and learning."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.storage.checkpoint import Checkpoints
from shoal.studies.study_file import read_study
from shoal.studies.tuning.methods import methods
from shoal.studies.tuning.record import read_tuning_record as read_record
from shoal.studies.tuning.record import tuning_record_path
from shoal.studies.tuning.structures import Population
from support.small_studies import TUNING, write_tuning_file

OFF_POLICY = {"learning_starts": 64, "batch_size": 8, "buffer_size": 512}
METHODS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "qmix": (OFF_POLICY, {"learning_rate": 0.01, "gamma": 0.9, "epsilon_fraction": 0.5, "target_rate": 0.05}),
    "maddpg": (OFF_POLICY, {"learning_rate": 0.01, "gamma": 0.9, "target_rate": 0.05}),
    "hatrpo": ({"epochs": 1, "minibatches": 1}, {"max_kl": 0.02, "critic_learning_rate": 0.01, "lam": 0.9}),
    "mappo": (
        {"epochs": 2, "minibatches": 2, "lr_final": 0.1},
        {"learning_rate": 0.01, "clip": 0.1, "max_grad_norm": 0.5},
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_trial_is_the_run_with_its_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags, values = METHODS[name]
    lines = "".join(f"{flag} = {value}\n" for flag, value in flags.items())
    text = TUNING.replace('"mappo"', f'"{name}"').replace("epochs = 1\nminibatches = 1\n", lines)
    ranges = "".join(f"{flag} = {{ values = [{value}, {value * 0.99}] }}\n" for flag, value in values.items())
    text = text[: text.index("learning_rate = { low")] + ranges
    text = (
        text.replace("devices = 1\n", "")
        .replace("steps = 1024", "steps = 256")
        .replace("trials = 4", "trials = 3\ndefault = false")
    )
    seen: list[Any] = []
    evaluate = Population._evaluate

    def spy(self: Population, state: Any, trials: Any, number: int) -> Any:
        seen.append((dict(trials), jax.device_get(state.learner)))
        return evaluate(self, state, trials, number)

    monkeypatch.setattr(Population, "_evaluate", spy)
    report = shoal.tune(write_tuning_file(tmp_path, text), out=tmp_path / "out", progress=False)
    assert report.ok, str(report)
    (record,) = report.records.values()
    assert {span["kind"] for span in record.ranges.values()} == {"traced"} and record.programs == 1
    trials, learner = seen[-1]
    (chosen,) = trials.values()
    sizes = {"num_envs": 4, "rollout_length": 4, "hidden": (4,), "steps": 256}
    shoal.train(
        name, "matrix/two_step", folder=tmp_path / "run", progress=False, eval_episodes=0, seed=10_000, seeds=2,
        tensorboard=False, **flags, **sizes, **chosen,
    )  # fmt: skip
    policy = Checkpoints(tmp_path / "run" / "policy").restore(learner.policy.policy)[0]
    start = Checkpoints(tmp_path / "run" / "checkpoints")
    assert start.latest() == 16
    for here, there in zip(jax.tree.leaves(policy), jax.tree.leaves(learner.policy.policy), strict=True):
        np.testing.assert_allclose(np.asarray(here), there, rtol=2e-3, atol=2e-5)


def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    text = TUNING.replace("devices = 1", "devices = 1\ncheckpoint_seconds = 0").replace("steps = 1024", "steps = 32768")
    whole, killed = write_tuning_file(tmp_path / "whole", text), write_tuning_file(tmp_path / "killed", text)
    assert shoal.tune(whole, out=tmp_path / "whole" / "out", progress=False).ok
    (method,) = methods(read_study(killed))
    states = tmp_path / "killed" / "out" / "demo" / method.name / "states"
    command = [sys.executable, "-m", "shoal.cli", "tune", str(killed), "--out", str(tmp_path / "killed" / "out")]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
    seen = 0
    for _ in range(3):
        process = subprocess.Popen([*command, "--no-progress"], env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and (len(list(states.glob("*/*"))) <= 0 or _newest(states) == seen):
            time.sleep(0.02)
        seen = _newest(states)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run([*command, "--no-progress"], env=environment, capture_output=True).returncode == 0
    records = [read_record(tuning_record_path(file.parent / "records" / "demo", method)) for file in (whole, killed)]
    assert records[0].trials == records[1].trials and records[0].winner == records[1].winner


def _newest(states: Path) -> int:
    """The largest update of a checkpoint."""
    return max((Checkpoints(folder).latest() or 0 for folder in states.glob("*")), default=0)


def test_tuning_beats_a_bad_default(tmp_path: Path) -> None:
    """The default hardly learns; on seeds and episodes that tuning never saw, the tuned runs are better."""
    text = TUNING.replace("minibatches = 1", "minibatches = 1\nlearning_rate = 1e-5\nentropy_coef = 0.05")
    text = text.replace("matrix/two_step", "matrix/penalty").replace("steps = 1024", "steps = 16384")
    text = text.replace("rollout_length = 4", "rollout_length = 4\nenv = { horizon = 4, k = -2.0 }")
    text = text.replace("trials = 4", "trials = 9").replace("rungs = 2\neta = 2", "rungs = 2\neta = 3")
    path = write_tuning_file(tmp_path, text.replace("seeds = 2", "seeds = 5", 1))
    assert shoal.tune(path, out=tmp_path / "out", progress=False).ok
    report = shoal.study(path, out=tmp_path / "out", progress=False)
    assert report.ok, str(report)
    default, best = (report.records[state.cell.name].scores.mean(1) for state in report.states)
    assert best.min() > default.max()
