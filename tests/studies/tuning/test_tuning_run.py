"""Searches that really train: what they record, what a stop loses, and that trials are runs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.config import config_files
from shoal.runs import behaviour
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.studies.archive import gather
from shoal.studies.study_file import read_study
from shoal.studies.tuning.methods import methods
from shoal.studies.tuning.record import TuningRecord, tuning_records
from shoal.studies.tuning.record import read_tuning_record as read_record
from shoal.studies.tuning.running import fixed_flags
from shoal.studies.tuning.structures import Population
from support.selection import quick
from support.small_studies import TUNING, write_tuning_file

SECOND, WHOLE = "second rung", "first rung and end of a rung and second rung"


def tuned(path: Path) -> TuningRecord:
    report = shoal.tune(path, out=path.parent / "out", progress=False)
    assert report.ok, str(report)
    (record,) = report.records.values()
    return record


def states(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """The learners at the end of every rung, by its number, filled while a search runs."""
    seen: dict[int, Any] = {}
    evaluate = Population._evaluate

    def spy(self: Population, state: Any, trials: Any, number: int) -> Any:
        seen[number] = (list(trials), jax.device_get(state.learner))
        return evaluate(self, state, trials, number)

    monkeypatch.setattr(Population, "_evaluate", spy)
    return seen


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuningRecord, dict[int, Any]]:
    folder = tmp_path_factory.mktemp("search")
    with pytest.MonkeyPatch.context() as patch:
        seen = states(folder, patch)
        path = write_tuning_file(folder)
        return path, tuned(path), seen


def test_a_search_records_its_budget_and_every_trial(search: tuple) -> None:
    path, record, _ = search
    # 4 trials train 512 steps, and 2 of them 512 more, with 2 seeds each; 6 evaluations of 2 seeds × 4 episodes.
    assert record.budget == {"steps": 6144, "trained": 6144, "episodes": 48}
    assert record.rungs == [[512, 4], [1024, 2]] and record.programs == 1
    assert sorted(len(trial["scores"]) for trial in record.trials) == [1, 1, 2, 2]
    assert all(np.shape(trial["scores"]) == (len(trial["scores"]), 1, 2) for trial in record.trials)
    assert record.trials[0]["values"] == {"learning_rate": 7e-4, "gamma": 0.99}, "the default is among them"
    assert {span["kind"] for span in record.ranges.values()} == {"traced"}
    (file,) = (path.parent / "records" / "demo").iterdir()
    assert read_record(file) == record and file.stem == methods(read_study(path))[0].name
    assert not list((path.parent / "out").glob("*/*/states")), "states are of no use any more"


def test_a_search_is_read_from_an_archive(search: tuple, tmp_path: Path) -> None:
    path, record, _ = search
    shutil.copytree(path.parent / "records" / "demo", tmp_path / "demo")
    assert gather(tmp_path / "demo") == 1 and not list((tmp_path / "demo").glob("*.json"))
    assert tuning_records(tmp_path / "demo", methods(read_study(path))) == {methods(read_study(path))[0].name: record}


def test_the_best_half_continues(search: tuple) -> None:
    _, record, seen = search
    first = {i: np.mean(trial["scores"][0]) for i, trial in enumerate(record.trials)}
    best = sorted(sorted(first, key=lambda i: -first[i])[:2])
    assert seen[0][0] == [0, 1, 2, 3] and seen[1][0] == best
    ends = {i: np.mean(record.trials[i]["scores"][1]) for i in best}
    assert record.winner == max(best, key=lambda i: ends[i])


def test_a_trial_is_the_run_with_its_values(search: tuple, tmp_path: Path) -> None:
    """A rung is a prefix of the whole trial, which is what ``shoal train`` does with the same values and seeds."""
    _, record, seen = search
    trials, learner = seen[1]
    values = record.trials[trials[-1]]["values"]
    flags = {"num_envs": 4, "rollout_length": 4, "hidden": (4,), "devices": 1, "epochs": 1, "minibatches": 1}
    run = shoal.train(
        "mappo", "matrix/two_step", folder=tmp_path / "run", progress=False, eval_episodes=0, steps=1024,
        seed=10_000, seeds=2, tensorboard=False, **flags, **values,
    )  # fmt: skip
    assert run.finished
    policy = Checkpoints(tmp_path / "run" / "policy").restore(jax.tree.map(lambda x: x[-2:], learner.policy.policy))[0]
    for here, there in zip(jax.tree.leaves(policy), jax.tree.leaves(learner.policy.policy), strict=True):
        np.testing.assert_allclose(np.asarray(here), there[-2:], rtol=2e-4, atol=2e-6)


FIXED = {"num_envs": 4, "rollout_length": 4, "hidden": (4,), "epochs": 1, "minibatches": 1}
"""What the file sets for all trials, without seeds, steps, and what does not change training."""


def test_the_winner_becomes_a_preset_and_the_tuned_run(search: tuple) -> None:
    path, record, _ = search
    (file,) = (path.parent / "presets").iterdir()
    assert config_files.read_preset(file, "mappo") == FIXED | record.flags
    report = shoal.study(path, out=path.parent / "out", dry_run=True)
    default, best = (state.cell for state in report.states)
    assert best.flags == default.flags | record.flags and best.digest != default.digest
    assert shoal.tune(path, out=path.parent / "out", dry_run=True).plan.count("recorded") == 2, "nothing is left"


def test_a_preset_of_several_environments_leaves_out_what_differs_between_them(search: tuple) -> None:
    (method,) = methods(read_study(search[0]))
    (cell,) = method.cells
    other = replace(cell, flags=cell.flags | {"epochs": 2, "clip": 0.1} | {"seeds": 3})
    found, unequal = fixed_flags(replace(method, cells=(cell, other)))
    assert sorted(unequal) == ["clip", "epochs"] and found == {x: FIXED[x] for x in FIXED if x != "epochs"}


def test_the_page_is_made_from_the_record_alone(search: tuple) -> None:
    path, record, _ = search
    page = shoal.results(path)
    files = [page.with_name("demo-tuning.md"), *page.parent.glob("*.svg")]
    assert len(files) == 2
    first = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    shoal.results(path)
    assert [file.read_bytes() for file in files] == first
    text = first[0].decode()
    assert text.count("\n|") == (2 + 2) + (2 + 4), "both ranges and all four trials"
    assert (
        "6,144 environment steps" in text
        and "0, without tuning" in text
        and f"The winner, trial {record.winner}" in text
    )
    assert first[1].count(b"<circle") == 4 + 2 + 4 + 4, "every trial at every rung, and by each value"


def test_a_search_outlives_what_it_does_not_depend_on(search: tuple, tmp_path: Path) -> None:
    """Other seeds and checkpoints of the study's runs; a preset that was lost is written again."""
    path, record, _ = search
    shutil.copytree(path.parent / "records", tmp_path / "records")
    changed = write_tuning_file(tmp_path)
    text = changed.read_text(encoding="utf-8").replace("seeds = 2", "seeds = 5\ncheckpoint_seconds = 60.0", 1)
    changed.write_text(text, encoding="utf-8")
    report = shoal.tune(changed, out=tmp_path / "out", progress=False)
    assert [one.trials for one in report.records.values()] == [record.trials] and not report.searches
    (file,) = (tmp_path / "presets").iterdir()
    assert config_files.read_preset(file, "mappo") == FIXED | record.flags
    for before, after in (
        ("gamma = { values = [0.9, 0.99] }", "gamma = { values = [0.9, 0.95] }"),
        ("steps = 1024", "steps = 2048"),
        ("[4]", "[5]"),
    ):
        changed.write_text(text.replace(before, after, 1), encoding="utf-8")
        assert "missing" in shoal.tune(changed, out=tmp_path / "out", dry_run=True).plan


@pytest.mark.parametrize("places", quick([SECOND, WHOLE], SECOND))
def test_a_search_goes_on_where_it_was_interrupted(
    search: tuple, places: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, record, _ = search
    again = write_tuning_file(tmp_path, TUNING.replace("devices = 1", "devices = 1\ncheckpoint_seconds = 0"))
    save, evaluate, left = Population._save, Population._evaluate, set(places.split(" and "))

    def interrupt(place: str) -> None:
        if place in left:
            left.remove(place)
            raise KeyboardInterrupt

    def saved(self: Population, trials: Any) -> None:
        save(self, trials)
        if self.update not in (32, 64):
            interrupt("first rung" if self.update < 32 else "second rung")

    def evaluated(self: Population, *args: Any) -> Any:
        interrupt("end of a rung")  # it is trained, and its scores are lost
        return evaluate(self, *args)

    monkeypatch.setattr(Population, "_save", saved)
    monkeypatch.setattr(Population, "_evaluate", evaluated)
    for _ in list(left):
        with pytest.raises(KeyboardInterrupt):
            tuned(again)
    got = tuned(again)
    assert not left
    assert (got.trials, got.winner, got.budget) == (record.trials, record.winner, record.budget)


def test_a_search_that_goes_on_elsewhere_names_both_machines_and_the_oldest_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, evaluate = write_tuning_file(tmp_path, TUNING.replace("trials = 4", "trials = 2")), []

    def evaluated(self: Population, *args: Any) -> Any:
        if not evaluate:
            evaluate.append(1)
            raise KeyboardInterrupt
        return original(self, *args)

    original, machine = Population._evaluate, manifest.describe_machine()
    monkeypatch.setattr(Population, "_evaluate", evaluated)
    other = machine | {"hardware": machine["hardware"] | {"processor": "another <b>one</b>"}}
    monkeypatch.setattr(manifest, "describe_machine", lambda *_: other)
    monkeypatch.setitem(behaviour.ALGORITHMS, "mappo", 3)
    with pytest.raises(KeyboardInterrupt):
        tuned(path)
    monkeypatch.setattr(manifest, "describe_machine", lambda *_: machine)
    monkeypatch.setitem(behaviour.ALGORITHMS, "mappo", 4)
    record = tuned(path)
    assert record.hardware["processor"] == machine["hardware"]["processor"]
    assert [one["processor"] for one in record.hardware["earlier"]] == ["another <b>one</b>"]
    assert [versions["algorithm"] for versions in record.behaviour] == [3]
    page = shoal.results(path).with_name("demo-tuning.md").read_text(encoding="utf-8")
    assert ", before on another bone/b, " in page
    assert "**The search is stale in matrix/two_step: mappo had behaviour version 3 and has 4 now.**" in page


def test_a_trial_that_diverges_leaves_and_stops_no_other(tmp_path: Path) -> None:
    text = TUNING.replace('"mappo"', '"failing:make"').replace("rungs = 2", "rungs = 2\ndefault = false")
    text = text.replace("{ low = 1e-4, high = 1e-1, log = true }", "{ values = [0.01, 1.0] }").replace("draw", "")
    # On two devices, for which five entries are filled up to six.
    text = text.replace("devices = 1\n", "").replace("trials = 4", "trials = 5")
    text = text.replace("eta = 2\nseeds = 2", "eta = 2")
    record = tuned(write_tuning_file(tmp_path, text.replace("rungs = 2", "rungs = 2\nseeds = 1\ndraw = 2")))
    diverged = [trial["values"]["learning_rate"] > 0.5 for trial in record.trials]
    assert 0 < sum(diverged) < 5, "or choose another seed of the draws"
    for trial, broken in zip(record.trials, diverged, strict=True):
        assert (trial["scores"][0] == [None]) == broken
        assert not broken or len(trial["scores"]) == 1
    assert not diverged[record.winner]
    assert "diverged" in shoal.results(tmp_path / "demo.toml").with_name("demo-tuning.md").read_text()


def test_a_flag_of_the_run_is_not_traced(tmp_path: Path) -> None:
    """It has its effect where the algorithm is built: as an array in the algorithm's options it had none."""
    text = TUNING.replace("gamma =", "reward_clip = { low = 1.0, high = 20.0 }\ngamma =")
    path = write_tuning_file(tmp_path, text.replace("[[variants]]", "normalise_rewards = true\n\n[[variants]]", 1))
    (state,) = shoal.tune(path, out=tmp_path / "out", dry_run=True).searches.values()
    assert state.traced == ["learning_rate", "gamma"]


def test_values_that_cannot_be_traced_have_a_program_each(tmp_path: Path) -> None:
    text = TUNING.replace(
        "gamma =", "hidden = { values = [[4], [6]] }\ntarget_entropy = { values = ['None', 0.3] }\ngamma ="
    )
    path = write_tuning_file(tmp_path, text.replace("trials = 4", "trials = 6"))
    report = shoal.tune(path, out=tmp_path / "out", dry_run=True)
    (state,) = report.searches.values()
    assert state.traced == ["learning_rate", "target_entropy", "gamma"]
    assert "structural (a program for each combination, " in report.plan and "here): hidden" in report.plan
    trials = state.propose()
    from shoal.studies.tuning.structures import sorted_by_structure

    kinds = {(trial["hidden"], trial["target_entropy"] is None) for trial in trials}
    structures = sorted_by_structure(dict(enumerate(trials)), state.traced)
    assert len(structures) == len(kinds) > 1
    assert sorted(number for one in structures for number in one.trials) == list(range(6))


def test_a_search_file_that_is_damaged(tmp_path: Path) -> None:
    path = write_tuning_file(tmp_path)
    folder = tmp_path / "out" / "demo" / methods(read_study(path))[0].name
    folder.mkdir(parents=True)
    (folder / "search.json").write_text(json.dumps({"trials": 3}))
    with pytest.raises(shoal.InputError, match="delete its folder to search again"):
        shoal.tune(path, out=tmp_path / "out")
