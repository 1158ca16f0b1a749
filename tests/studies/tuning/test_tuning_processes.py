"""Several processes that tune the methods of one study, one after the other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from shoal.errors import CheckpointError
from shoal.storage import manifest
from shoal.studies.study_file import read_study
from shoal.studies.tuning import running, search
from shoal.studies.tuning.file import Rung
from shoal.studies.tuning.methods import methods
from shoal.studies.tuning.search import Search
from shoal.studies.tuning.separate import SeparateRuns
from shoal.studies.tuning.structures import Population
from shoal.training.ending import Standing
from shoal.training.sharding import SEED_SHARDS
from support.small_studies import TUNING, write_tuning_file

FURTHER = "has trained further than the scores in the search's file; delete that folder to train its trials again"


def test_a_method_that_another_process_recorded_meanwhile_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TUNING.replace('algorithm = "mappo"\n', "")
    text = text.replace("[[variants]]", '[grid]\nalgorithm = ["mappo", "ippo"]\n\n[[variants]]', 1)
    study = read_study(write_tuning_file(tmp_path, text))
    first, second = methods(study)
    recorded: dict[str, Any] = {}
    searched: list[str] = []

    def complete(_: Search, folder: Path, *__: Any) -> bool:
        searched.append(folder.name)
        recorded[second.name] = "theirs"
        return True

    def held(_: Path, chosen: list[Any]) -> dict[str, Any]:
        return {one.name: recorded[one.name] for one in chosen if one.name in recorded}

    monkeypatch.setattr(search, "complete_search", complete)
    monkeypatch.setattr(running, "tuning_records", held)
    monkeypatch.setattr(running, "tuning_record_of", lambda _: "own")
    monkeypatch.setattr(running, "write_tuning_record", lambda *_: None)
    monkeypatch.setattr(running, "_preset", lambda *_: tmp_path)
    opened: dict[str, Any] = {first.name: MagicMock(), second.name: MagicMock()}
    report = running.TuningReport(study, [first, second], opened, {})
    running._run(report, tmp_path / "out", tmp_path / "records" / "demo", False)
    assert report.ok and searched == [first.name]
    assert report.records == {first.name: "own", second.name: "theirs"}


def test_a_search_goes_on_from_what_another_process_stored_since_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method: Any = MagicMock(trials=2, rungs=[Rung(64, 2)], tuning=MagicMock(rounds=1))
    setting: Any = MagicMock()
    ours = search.open_search(method, [setting], [], tmp_path)
    theirs = Search(method, [setting], [], [{"gamma": 0.9}, {"gamma": 0.99}], {"0/0/0": {0: [1.0], 1: [2.0]}})
    search._store(theirs, tmp_path)
    monkeypatch.setattr(Search, "propose", lambda _: pytest.fail("the trials are drawn again"))
    assert search.complete_search(ours, tmp_path, False, lambda _: None)
    assert (ours.trials, ours.scores, ours.winner()) == (theirs.trials, theirs.scores, 1)


@pytest.mark.parametrize(("update", "trials"), [(8, [0, 1]), (4, [1])])
def test_states_of_a_later_rung_are_refused(update: int, trials: list[int]) -> None:
    """They would be scored as those of the rung, or their trials would not be found in them."""
    meta = {"entries": len(trials), "trials": trials, "sound": [True] * len(trials)}
    population: Any = MagicMock(traced=[], tuning=MagicMock(seeds=1))
    population.checkpoints.load_meta.return_value = meta
    population.checkpoints.restore.return_value = (np.zeros(len(trials)), meta, update)
    program: Any = MagicMock(template=lambda: np.zeros(2))
    layout: Any = SimpleNamespace(seeds=2, mesh=SimpleNamespace(shape={SEED_SHARDS: 1}))
    with pytest.raises(CheckpointError, match=FURTHER):
        Population._state(population, {0: {}, 1: {}}, 4, program, layout, {})


def test_a_run_of_a_later_rung_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance: Any = MagicMock(updates=(4, 8), settings=SimpleNamespace(steps_per_update=16))
    resumed: list[int] = []
    monkeypatch.setattr("shoal.studies.tuning.separate.ending.saved", lambda _: Standing(8))
    monkeypatch.setattr("shoal.studies.tuning.separate.flags_of", lambda _: {})
    monkeypatch.setattr("shoal.studies.tuning.separate.requested", lambda *_: False)
    monkeypatch.setattr("shoal.runs.api.resume", lambda _, **flags: resumed.append(flags["steps"]))
    (tmp_path / manifest.RUN_JSON).touch()
    runs = SeparateRuns(instance, tmp_path)
    with pytest.raises(CheckpointError, match=FURTHER):
        runs._trained(0, tmp_path, False)
    runs._trained(1, tmp_path, False)
    assert resumed == [8 * 16]
