"""A record has the behaviour versions with which its run was trained, not those of the code that evaluates it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.reporting.facts import facts_of
from shoal.reporting.run_page import origin_rows
from shoal.runs import api, behaviour
from shoal.runs.run import Run
from shoal.storage.manifest import read_run_json
from shoal.studies import execution
from shoal.studies.plan import Cell
from shoal.studies.record import read_record, write_record
from shoal.training.evaluation import Evaluation
from support.small_studies import TINY, cells_of, toml, write_study_file

ONE = f"""
title = "T"
question = "Q?"

[defaults]
{toml(TINY | {"steps": 16, "seeds": 1})}
[grid]
algorithm = ["ippo"]
environment = ["matrix/climbing"]

[evaluation]
episodes = 2
"""
EVALUATION = Evaluation(np.zeros((1, 2, 2)), np.ones((1, 2)), np.zeros((1, 2)))


def change_run_file(cell: Cell, change: Any) -> None:
    path = cell.folder / "run.json"
    found = json.loads(path.read_text("utf-8"))
    change(found["made_with"])
    path.write_text(json.dumps(found), encoding="utf-8")


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return cells_of(write_study_file(tmp_path, ONE))[0]


def test_a_finished_run_is_recorded_with_its_own_versions(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    trained = {"algorithm": 1, "environment": 1}
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    monkeypatch.setattr(Run, "evaluate", lambda *_, **__: EVALUATION)  # compiling it is not needed here
    assert execution.run_cell(cell, progress=False).behaviour == trained
    monkeypatch.setitem(behaviour.ENVIRONMENTS, "matrix/", 2)
    assert execution.run_cell(cell, progress=False).behaviour == trained, "the run was not trained again"

    def on_a_gpu(made: dict[str, Any]) -> None:
        made["hardware"]["devices"][0]["kind"] = "GPU of before"
        made["versions"]["jax"] = "0.0.1"

    change_run_file(cell, on_a_gpu)
    capsys.readouterr()
    run = api.resume(cell.folder, steps=32, progress=False)
    assert "continues with other numbers than it began with: matrix had behaviour version 1 and has 2 now." in (
        capsys.readouterr().err
    )
    record = execution.record_of(cell, run, EVALUATION, None, 0.0)
    assert record.behaviour == trained
    (before,) = read_run_json(cell.folder)["made_with"]["earlier"]
    assert before["versions"]["jax"] == "0.0.1" and set(before) == {"versions", "commit", "platform", "hardware"}
    assert record.hardware["earlier"] == [before["hardware"]]
    here, there = record.machine.split(", before on ")
    assert there.endswith("× GPU of before") and "GPU" not in here
    write_record(path := cell.folder / "record.json", record)
    assert read_record(path) == record
    shown = origin_rows(facts_of(cell.folder), None)
    assert "GPU of before" in shown["Before it was resumed"] and "GPU" not in shown["Machine"]
    api.resume(cell.folder, steps=48, progress=False)
    assert read_run_json(cell.folder)["made_with"]["earlier"] == [before], "the same machine is not another one"

    change_run_file(cell, lambda made: made.pop("behaviour"))  # as in folders of earlier versions of Shoal
    assert execution.record_of(cell, run, EVALUATION, None, 0.0).behaviour == {"algorithm": 0, "environment": 0}


@pytest.mark.parametrize("found", [None, [1], {"algorithm": "1"}, {"algorithm": True}, {"algorithm": -1}])
def test_damaged_versions_are_unknown(found: Any) -> None:
    assert behaviour.kept({"behaviour": found}) is None
    assert behaviour.oldest(None, {"algorithm": 3}) == {"algorithm": 0}


def test_of_a_continued_run_the_lower_versions_are_kept() -> None:
    before = {"algorithm": 1, "environment": 3}
    now = {"algorithm": 2, "environment": 2, "normalise_inputs": 2}
    assert behaviour.oldest(before, now) == {"algorithm": 1, "environment": 2, "normalise_inputs": 1}
