"""Searches whose trials are runs, since worker processes step the environment."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import numpy as np
import pytest

import shoal
from shoal.errors import NonFiniteError
from shoal.storage import manifest
from shoal.studies.tuning import running
from shoal.studies.tuning.record import TuningRecord
from shoal.studies.tuning.search import Search
from shoal.studies.tuning.separate import SEED_DISTANCE, SeparateRuns
from shoal.system.files import to_json
from support.small_studies import TUNING, write_tuning_file

TEXT = TUNING.replace('"matrix/two_step"', '"counters:hosted"').replace("steps = 1024", "steps = 128\nnum_workers = 0")
TEXT = TEXT.replace("trials = 4", "trials = 3").replace("epochs = 1", "epochs = 1\nlr_final = 0.0")
FLAGS: dict[str, Any] = {
    "num_envs": 4, "rollout_length": 4, "hidden": (4,), "devices": 1, "epochs": 1, "minibatches": 1, "num_workers": 0,
    "tensorboard": False, "lr_final": 0.0, "seed": 10_000, "seeds": 2, "eval_episodes": 0, "progress": False,
}  # fmt: skip


def tuned(path: Path) -> TuningRecord:
    report = shoal.tune(path, out=path.parent / "out", progress=False)
    assert report.ok, str(report)
    (record,) = report.records.values()
    return record


def test_each_trial_is_the_run_with_its_values_and_the_best_continue(tmp_path: Path, monkeypatch: Any) -> None:
    """After the last rung its parameters are those of a run that stopped at the first one and went on."""
    path, ends = write_tuning_file(tmp_path, TEXT), {}
    trained = SeparateRuns._trained

    def spy(self: SeparateRuns, number: int, folder: Path, progress: bool) -> Any:
        run = trained(self, number, folder, progress)
        ends[number, int(folder.name)] = jax.device_get(run._learner().policy.actor)
        return run

    monkeypatch.setattr(SeparateRuns, "_trained", spy)
    record = tuned(path)
    monkeypatch.undo()
    (best,) = [i for i, trial in enumerate(record.trials) if len(trial["scores"]) == 2]
    assert set(ends) == {(0, 0), (0, 1), (0, 2), (1, best)} and record.winner == best
    first = [np.mean(trial["scores"][0]) for trial in record.trials]
    assert first[best] == max(first)
    assert record.rungs == [[64, 3], [128, 1]] and record.budget["trained"] == (3 * 64 + 64) * 2
    assert record.trials[0]["values"] == {"learning_rate": 7e-4, "gamma": 0.99}, "the default is among them"
    assert not list((tmp_path / "out").glob("*/*/states"))

    values = record.trials[best]["values"]
    flags: dict[str, Any] = FLAGS | values
    run = shoal.train("mappo", "counters:hosted", folder=tmp_path / "run", steps=64, schedule_steps=128, **flags)
    early = run.evaluate(4, greedy=True, seed=2_000_000).scores.mean(1)
    np.testing.assert_allclose(record.trials[best]["scores"][0][0], early, rtol=1e-5)
    run = shoal.resume(tmp_path / "run", steps=128, progress=False)
    late = run.evaluate(4, greedy=True, seed=2_000_000 + SEED_DISTANCE).scores.mean(1)
    np.testing.assert_allclose(record.trials[best]["scores"][1][0], late, rtol=1e-5)
    for here, there in zip(jax.tree.leaves(run._learner().policy.actor), jax.tree.leaves(ends[1, best]), strict=True):
        np.testing.assert_array_equal(here, there)


def test_a_search_continues_and_a_trial_that_diverges_leaves(tmp_path: Path, monkeypatch: Any) -> None:
    path, begun = write_tuning_file(tmp_path, TEXT), []
    trained = SeparateRuns._trained

    def interrupted(self: SeparateRuns, number: int, folder: Path, progress: bool) -> Any:
        begun.append((number, int(folder.name)))
        if begun.count((0, 1)) == 1 and begun[-1] == (0, 1):
            raise KeyboardInterrupt
        if begun[-1] == (0, 2):
            raise NonFiniteError("NaN")
        return trained(self, number, folder, progress)

    monkeypatch.setattr(SeparateRuns, "_trained", interrupted)
    with pytest.raises(KeyboardInterrupt, match="0 of 1 methods tuned; the same command continues"):
        tuned(path)
    record = tuned(path)
    assert begun[:4] == [(0, 0), (0, 1), (0, 1), (0, 2)], "what has its scores is not trained again"
    assert record.trials[2]["scores"] == [[None]] and record.winner in (0, 1)


def test_the_plan_says_that_trials_are_runs(tmp_path: Path) -> None:
    report = shoal.tune(write_tuning_file(tmp_path, TEXT), out=tmp_path / "out", dry_run=True, trust=True)
    assert "trials are runs, one after the other" in report.plan and "traced" not in report.plan


def test_what_ends_runs_early_does_not_end_trials(tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[dict[str, Any]] = []

    def train(*_: Any, **flags: Any) -> Any:
        asked.append(flags)
        raise NonFiniteError("NaN")

    monkeypatch.setattr("shoal.runs.api.train", train)
    ends = "steps = 128\neval_every = 64\nstop_at = 1.0\ntime_budget = 60\n"
    report = shoal.tune(write_tuning_file(tmp_path, TEXT.replace("steps = 128\n", ends)), out=tmp_path / "out")
    assert not report.ok and len(asked) == 3
    assert all(flags[name] is None for flags in asked for name in ("eval_every", "stop_at", "time_budget"))


def test_a_search_that_is_recorded_later_names_what_it_was_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    here = manifest.describe_machine()
    there = here | {"commit": "ab" * 20 + "+", "platform": "another", "hardware": here["hardware"] | {"cores": 999}}
    monkeypatch.setattr(running, "product_rate", lambda: 1e11)
    method: Any = MagicMock(ranges={}, rungs=[], values={})

    def recorded(machines: list[dict[str, Any]]) -> TuningRecord:
        state = Search(method, [], [], machines=to_json(machines))
        monkeypatch.setattr(Search, "reached", lambda _: {})
        monkeypatch.setattr(Search, "winner", lambda _: 0)
        return running.tuning_record_of(state)

    record = recorded([here, there])
    assert (record.commit, record.changed, record.platform) == ("ab" * 20, True, "another")
    assert record.hardware["cores"] == 999 and record.hardware["product_gflops"] is None
    assert record.hardware["earlier"] == [to_json(here["hardware"])]
    assert recorded([there, here]).hardware["product_gflops"] == 100.0
