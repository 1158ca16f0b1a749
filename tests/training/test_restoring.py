"""Restoring a run removes nothing that its training may still need: by a trainer that computes nothing."""

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.errors import CheckpointError, GameError
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.log import DROPPED_FILE, LOG_FILE, read_log
from shoal.training import ending
from shoal.training.ending import Standing
from shoal.training.evaluation import Evaluator, Selection
from shoal.training.settings import Settings
from support import run_folders
from support.trained import STATS, Idle, damage

SETTINGS: dict[str, Any] = {"checkpoint_seconds": 0.0, "rows": 3, "tensorboard": False}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("run")
    assert Idle(folder, 3, **SETTINGS).run()
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def restored(folder: Path, updates: int, **settings: Any) -> Idle:
    """A trainer of a run of so many updates, at its newest checkpoint."""
    trainer = Idle(folder, updates, **{**SETTINGS, **settings})
    state = trainer.program.init(None)
    trainer.program = trainer.program._replace(template=lambda: state)
    trainer.restore()
    return trainer


def steps(folder: Path, name: str) -> list[int]:
    return Checkpoints(folder / name).steps()


@pytest.mark.parametrize("kept", ["policy", "best", "metrics.jsonl"])
def test_a_run_that_lost_its_checkpoints_is_not_trained_again(kept: str, copy: Path) -> None:
    """Training would begin at step 0 and remove the policies."""
    (copy / "policy").rename(copy / kept) if kept == "best" else None
    for path in list(copy.iterdir()):
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(copy.rglob("*"))
    with pytest.raises(CheckpointError) as error:
        Idle(copy, 6, **SETTINGS).restore()
    found = "rows of metrics" if kept == "metrics.jsonl" else f"policies in {kept}"
    assert f"{copy} has {found}, but no checkpoint to resume from" in str(error.value)
    assert (f"--init-from {copy}" in str(error.value)) == (kept == "policy")
    assert sorted(copy.rglob("*")) == before


def test_nor_is_it_by_an_agent(tmp_path: Path) -> None:
    folder = run_folders.run(tmp_path / "run", [1.0])
    with pytest.raises(CheckpointError, match="has rows of metrics, but no checkpoint to resume from"):
        shoal.agent(folder=folder, progress=False, trust=True).train(8)
    assert not (folder / "policy").exists()


@pytest.fixture
def older(copy: Path) -> Path:
    """A run with best policies, whose newest checkpoint is damaged."""
    shutil.copytree(copy / "checkpoints", copy / "best")
    damage(copy / "checkpoints" / "3")
    return copy


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("updates", [2, 6])
def test_restoring_writes_nothing(updates: int, older: Path) -> None:
    """Also where the run ends at the older checkpoint, and where it has no policy."""
    shutil.rmtree(older / "policy")
    before = files(older)
    restored(older, updates)
    assert files(older) == before


def test_rows_after_the_checkpoint_are_set_aside_by_training(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (older / LOG_FILE).read_bytes().splitlines(keepends=True)
    trainer = restored(older, 6)
    start = trainer.program.start
    seen: list[int] = []

    def compiled(state: Any) -> Any:
        seen.append(len(read_log(older)))
        return start(state)

    trainer.program = trainer.program._replace(start=compiled)
    assert trainer.run() and seen == [3], "while it compiles, the rows are there"
    assert (older / DROPPED_FILE).read_bytes() == rows[2]
    assert [row["update"] for row in read_log(older)] == [1, 2, 4, 6]
    said = capsys.readouterr().err
    assert said.endswith(f"1 row after step 96 is set aside in {DROPPED_FILE}; training from there repeats it.\n")


def test_a_damaged_checkpoint_is_not_read_when_training_goes_on(copy: Path) -> None:
    """What is intact of it would be taken for the run's progress."""
    shutil.rmtree(copy / "checkpoints" / "3" / "arrays")
    assert ending.saved(copy).update == 3
    trainer = restored(copy, 6)
    assert ending.saved(copy).update == 3
    trainer.settle()
    assert ending.saved(copy).update == 2 and (copy / "checkpoints" / ".damaged-3").is_dir()
    (copy / "checkpoints" / "3").mkdir()
    restored(copy, 6).run()
    assert steps(copy, "checkpoints")[-1] == 6
    assert {path.name for path in (copy / "checkpoints").glob(".damaged-*")} == {".damaged-3", ".damaged-3-1"}


def test_what_is_newer_than_the_checkpoint_remains_until_the_next_is_saved(
    older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training may fail at once, for example by a callback's first call."""
    best, there = [], {name: steps(older, name) for name in ("checkpoints", "policy", "best")}
    monkeypatch.setattr(Selection, "restore", lambda self, at, *_: best.append(at.update))
    trainer = restored(older, 6, eval_every=48.0)
    assert trainer.update == 2 and best == [2] and {name: steps(older, name) for name in there} == there
    trainer.at = trainer.at._replace(update=3)
    trainer.save()
    assert [steps(older, name)[-1] for name in ("checkpoints", "policy")] == [3, 3]
    assert restored(older, 6).update == 3


def test_a_run_that_ends_at_an_older_checkpoint_has_its_policies(older: Path) -> None:
    assert restored(older, 2).run() and steps(older, "checkpoints")[-1] == steps(older, "policy")[-1] == 2


def test_a_checkpoint_that_cannot_be_read_is_no_damaged_one(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(stream: Any, name: str, real: Any = hashlib.file_digest) -> Any:
        if "/checkpoints/3" in stream.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", failing)
    with pytest.raises(CheckpointError, match=r"The checkpoint of step 3 in .* cannot be read: Input/output error"):
        Idle(whole, 6, **SETTINGS).restore()
    assert "damaged" not in capsys.readouterr().err


def test_a_run_goes_on_without_its_best_policies_if_all_are_damaged(tmp_path: Path) -> None:
    evaluator, policy, said = Evaluator.__new__(Evaluator), {"w": np.zeros((2, 3))}, list[str]()
    made = Selection(evaluator, Settings(seeds=2, eval_every=1.0), tmp_path)
    for i in (1, 2, 3):
        made._select({"w": np.full((2, 3), float(i))}, np.full(2, i), step=i)
        made.save(i)
    damage(made.store.folder / "2")
    again = Selection(evaluator, made.settings, tmp_path)
    again.restore(Standing(2), policy, said.append)
    assert again.best is not None and again.best.step.tolist() == [1, 1]
    damage(made.store.folder / "1")
    last = Selection(evaluator, made.settings, tmp_path)
    last.restore(Standing(2), policy, said.append)
    assert last.best is None and steps(tmp_path, "best") == [1, 2, 3]
    assert said == [f"The best policies after {i} updates are damaged and are skipped." for i in (2, 2, 1)]


@pytest.mark.parametrize("fails", [2, 3])
def test_an_evaluation_that_fails_is_repeated(fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the last update; neither it nor its row of the log is lost."""
    failing = {fails}

    def evaluate(self: Selection, policy: Any, update: int) -> dict[str, Any]:
        if update in failing:
            raise GameError("toys:busy raised", None, "", "")
        self.score = [float(update)]
        return {"greedy/return": self.score}

    monkeypatch.setattr(Selection, "evaluate", evaluate)
    flags = {"eval_every": 48.0, "rows": 1}
    with pytest.raises(GameError):
        Idle(tmp_path, 3, **SETTINGS | flags).run()
    again = restored(tmp_path, 3, **flags)
    with pytest.raises(GameError):
        again.run()
    assert (
        again.update == fails
        and not again.ended
        and [row["update"] for row in read_log(tmp_path)] == [1, 2][: fails - 1]
    )
    failing.clear()
    assert restored(tmp_path, 3, **flags).run()
    last = restored(tmp_path, 3, **flags)
    assert last.ended and last.at.best == (3.0,)
    assert [(row["update"], row["greedy/return"]) for row in read_log(tmp_path)] == [(i, [float(i)]) for i in (1, 2, 3)]


@pytest.mark.parametrize("rows", [2, 6])
def test_a_run_that_ends_at_once_is_completed(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was interrupted after update 4, in the middle of a row or behind one, and has no more updates now."""
    judged, count = [], []

    def evaluate(self: Selection, policy: Any, update: int) -> dict[str, Any]:
        judged.append(update)
        self.score = [float(update)]
        return {"greedy/return": self.score}

    def going(trainer: Idle) -> Idle:
        def advance(state: Any, n: Any) -> Any:
            count.append(1)
            trainer.stop.asked = len(count) == 4
            return state, ({"loss": np.full((1, 1), float(len(count)))}, STATS)

        trainer.program = trainer.program._replace(start=lambda state: advance)
        return trainer

    monkeypatch.setattr(Selection, "evaluate", evaluate)
    flags = {"eval_every": 240.0, "rows": rows}
    assert not going(Idle(tmp_path, 6, **SETTINGS | flags)).run() and len(count) == 4 and not judged
    for _ in range(2 if rows == 2 else 1):  # of what is completed nothing is made again
        ended = restored(tmp_path, 4, **flags)
        ended.program = ended.program._replace(start=lambda state: pytest.fail("it compiles"))
        assert ended.run() and judged == [4] and ended.at.best == (4.0,)
    losses = {row["update"]: row["loss"] for row in read_log(tmp_path)}
    assert losses == ({3: [2.0], 4: [4.0]} if rows == 2 else {i: [float(i)] for i in (1, 2, 3, 4)})
    assert going(restored(tmp_path, 6, **flags)).run() and judged == [4, 5, 6]
    assert {row["update"]: row["loss"] for row in read_log(tmp_path)} == losses | {5: [5.0], 6: [6.0]}
