"""A run that is interrupted while it trains, and before its record is written, leaves the same record and page."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.errors import FolderTakenError, InputError
from shoal.storage.folders import check_free
from shoal.storage.lock import hold
from shoal.studies import execution
from shoal.studies.archive import extract
from shoal.studies.record import read_record
from shoal.studies.results import markdown_page
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study as read_study
from shoal.studies.summaries import curve_of
from shoal.training.trainer import Trainer
from support.small_studies import TINY, cells_of, toml, write_study_file

TEXT = f"""
title = "T"
question = "Q?"
[defaults]
algorithm = "mappo"
environment = "matrix/climbing"
env.horizon = 2
{toml(TINY)}
[evaluation]
episodes = 3
greedy = false
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    monkeypatch.setattr("shoal.training.trainer.CALL_SECONDS", 0.0)


def record_files(folder: Path) -> list[Path]:
    """The records of a finished study beside the study's file, taken out of their archive."""
    records = folder / "records" / "demo"
    extract(records)
    return sorted(records.glob("*.json"))


def final_page(path: Path) -> str:
    """The page of results with all times as 0."""
    study, cells = read_study(path), cells_of(path)
    records = records_of_cells(records_folder(study, None), cells)
    zero = {"training": 0, "other": 0}
    return markdown_page(study, cells, {name: replace(record, seconds=zero) for name, record in records.items()})


def test_a_run_that_was_killed_before_it_began_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = cells_of(write_study_file(tmp_path, TEXT))
    copy = cell.folder / "opponents" / "policy"
    copy.mkdir(parents=True)
    with hold(cell.folder), pytest.raises(FolderTakenError):
        execution.discard_opponents(cell.folder)
    assert copy.exists(), "they are of a run that another process begins"

    def train(*_: Any, folder: Path, **__: Any) -> Any:
        check_free(folder)
        raise InputError("It begins.")

    monkeypatch.setattr("shoal.runs.api.train", train)
    with pytest.raises(InputError, match="It begins"):
        execution.run_cell(cell)


def test_a_run_that_ends_early_has_its_own_step_and_digest(tmp_path: Path) -> None:
    """It counts as trained although it has not made all its steps."""
    whole, path = write_study_file(tmp_path / "whole", TEXT), tmp_path / "demo.toml"
    limits = "eval_every = 32\nstop_at = -1e9\ncurve_episodes = 3\ntime_budget = 1e6\n"
    path.write_text(TEXT.replace("[evaluation]", limits + "[evaluation]"), encoding="utf-8")
    assert shoal.study(path, out=tmp_path / "runs", progress=False).ok
    (cell,), (other,) = cells_of(path), cells_of(whole)
    assert cell.digest != other.digest
    (file,) = record_files(tmp_path)
    record = read_record(file)
    assert record.evaluation["step"] == record.curve["step"][-1] == 32 and record.run["settings"]["steps"] == 96
    file.unlink()
    (state,) = shoal.study(path, out=tmp_path / "runs", progress=False, dry_run=True).states
    assert (state.word, state.trained) == ("trained", 1.0)


def test_interrupted_twice_it_gives_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = (write_study_file(tmp_path / name, TEXT) for name in ("whole", "broken"))
    assert shoal.study(whole, out=tmp_path / "whole" / "runs", progress=False).ok
    save = Trainer.save

    def interrupted(at: str, error: BaseException) -> Callable[..., Any]:
        def raising(self: Any, *arguments: Any) -> Any:
            if at == "training" and self.update < 5:
                return save(self)
            raise error

        return raising

    def call(**more: Any) -> Any:
        return shoal.study(broken, out=tmp_path / "broken" / "runs", progress=False, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", interrupted("training", KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt, match=r"Stopped with 0 of 1 runs recorded; the same command continues."):
            call()
    states = [(state.word, state.trained) for state in call(dry_run=True).states]
    assert states == [("unfinished", pytest.approx(4 / 6))]
    with monkeypatch.context() as patch:
        patch.setattr(execution, "record_of", interrupted("record", MemoryError()))
        report = call()
        assert not report.ok and len(report.failed) == 1
    assert [state.word for state in call(dry_run=True).states] == ["trained"]
    monkeypatch.setattr("shoal.training.program.compile_program", lambda *_: pytest.fail("trained again"))
    assert call().ok
    assert final_page(broken) == final_page(whole)
    names = [path.name for path in record_files(tmp_path / "whole")]
    assert [path.name for path in record_files(tmp_path / "broken")] == names
    for name in names:
        here, there = (read_record(tmp_path / which / "records" / "demo" / name) for which in ("broken", "whole"))
        zero = {"training": 0, "other": 0}
        assert replace(here, seconds=zero) == replace(there, seconds=zero)
        assert there.scores.shape == (2, 3) and there.evaluation["step"] == 96 and not there.evaluation["greedy"]
        assert there.curve["step"][-1] == 96 and there.hardware["product_gflops"] == 100
        assert there.run["settings"]["rollout_length"] == 4 and there.run["env"] == {"horizon": 2}
    (tmp_path / "whole" / "records" / "demo" / names[0]).unlink()
    monkeypatch.chdir(tmp_path)
    folder = next((tmp_path / "whole" / "runs" / "demo").glob(f"*{names[0][-15:-5]}"))
    text = (folder / "run.json").read_text(encoding="utf-8").replace('"lam": 0.95', '"lam": 0.5')
    (folder / "run.json").write_text(text, encoding="utf-8")
    report = shoal.study(whole, out=tmp_path / "whole" / "runs", progress=False)
    assert [reason for _, reason in report.failed] == [
        f"{folder} contains another run (lam is 0.5 there and 0.95 in the study); move or delete that folder."
    ]


RIVALS = f"""
title = "T"
question = "Q?"
[defaults]
algorithm = "ippo"
environment = "mpe/simple_push"
env.horizon = 3
eval_every = 48
curve_episodes = 2
{toml(TINY)}
[evaluation]
episodes = 3
[[tables]]
title = "The adversary"
metric = "return/adversary"
[[tables]]
title = "Kept away"
metric = "agent_reached"
[[figures]]
title = "The agent over time"
metric = "return/agent"
"""


def test_tables_state_the_return_of_each_role(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, RIVALS)
    assert shoal.study(path, out=tmp_path / "runs", progress=False).ok
    (file,) = record_files(tmp_path)
    record = read_record(file)
    adversary, agent = (record.values(f"return/{name}") for name in ("adversary", "agent"))
    assert adversary is not None and agent is not None and adversary.shape == agent.shape == (2, 3)
    np.testing.assert_allclose(adversary + agent, record.scores, rtol=1e-4)
    assert (agent < 0).all() and (adversary < -agent).all()  # the adversary earns the agent's distance minus its own
    text = final_page(path)
    assert "metric return/adversary" in text and "metric agent_reached" in text
    steps, curve = curve_of(record, "return/agent")
    assert len(steps) == 2 and curve.shape == (2, 2)


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, RIVALS.replace("return/adversary", "return/adversry"))
    with pytest.raises(InputError, match=r"no metric 'return/adversry'; did you mean 'return/adversary'\?"):
        shoal.study(path, out=tmp_path / "runs", progress=False, dry_run=True)
