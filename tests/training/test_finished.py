"""Resuming a run that has finished: it says so, compiles nothing, and makes up for what is missing."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
import toys
from shoal import cli
from shoal.errors import InputError
from shoal.runs import api, final_evaluation
from shoal.runs.api import trainer_of
from shoal.storage.checkpoint import Checkpoints
from shoal.training import stopping
from shoal.training.trainer import Trainer
from shoal.trust.run_file import config_of_run, own_record
from support import trained

DONE = "This run has finished its 3,200 steps per seed; more steps would continue it.\n"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done") / "run"
    words = ["train", "mappo", "toys:busy", "--folder", str(folder), "--eval-episodes", "4", "--no-tensorboard"]
    words += ["--num-envs", "16", "--rollout-length", "8", "--steps", "3200", "--hidden", "8", "--epochs", "1"]
    assert cli.main([*words, "--seeds", "2", "--minibatches", "1", "--no-progress"]) == 0
    return folder


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return trained.copied(done, tmp_path / "run")


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is an environment built, or an algorithm made."""
    for name in ("shoal.training.stopping.wait", "shoal.environments.registry.make", "shoal.algorithms.mappo.make"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("something was made"))
    monkeypatch.setattr(Trainer, "__init__", lambda *_, **__: pytest.fail("a trainer was made"))


def test_settings_of_a_finished_run_change_and_what_it_was_made_with_stays(copy: Path) -> None:
    text = (copy / "run.json").read_text(encoding="utf-8")
    found = json.loads(text)
    found["made_with"]["hardware"]["devices"][0]["count"] = 7
    found["made_with"]["versions"]["jax"] = "0.0.1"
    (copy / "run.json").write_text(json.dumps(found), encoding="utf-8")
    assert cli.main(["train", "--resume", str(copy), "--checkpoint-seconds", "7", "--no-progress"]) == 0
    after = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    assert after["made_with"] == found["made_with"]
    assert after["config"]["settings"] == found["config"]["settings"] | {"checkpoint_seconds": 7.0}


def test_resuming_a_finished_run_prints_its_summary(
    copy: Path, nothing_compiles: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for hidden in ([], ["--no-progress"]):
        assert cli.main(["train", "--resume", str(copy), *hidden]) == 0
        out, err = capsys.readouterr()
        assert err == DONE
        judged = json.loads((copy / "evaluation.json").read_text())
        assert f"greedy score  {judged['mean']:.2f}".replace("-", "−") in out and "2 seeds × 4 episodes" in out
        assert str(copy / "replay.gif") in out and "final return" in out and "--steps 6400" in out
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_shoal_resume_returns_a_finished_run_unchanged(
    copy: Path, nothing_compiles: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shoal.resume(copy, progress=False)
    assert run.finished and run.untouched and run.evaluation is None
    assert run.final_score is not None and "2 seeds × 4 episodes" in run.final_score
    assert capsys.readouterr() == ("", DONE)
    run = shoal.resume(copy, progress=False, eval_episodes=0, steps=3100)  # rounded up to as many updates
    assert run.finished and run.final_score is None
    assert capsys.readouterr().err.endswith("Not recorded, since nothing was trained: steps.\n")
    settings = json.loads((copy / "run.json").read_text())["config"]["settings"]
    assert (settings["steps"], settings["eval_episodes"]) == (3200, 0)


@pytest.mark.parametrize("how", ["finished", "by another environment"])
def test_resuming_does_not_trust_the_folder_of_another_person(
    how: str, done: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Nothing that it names was built, so nothing has been permitted."""
    folder = Path(shutil.copytree(done, tmp_path / "theirs"))
    if how == "finished":
        assert shoal.resume(folder, progress=False, eval_episodes=0).untouched
    else:
        monkeypatch.setattr(api, "train_to_end", lambda run, trainer: run)
        shoal.resume(folder, environment=toys.busy(), progress=False, steps=3300)
    assert json.loads((folder / "run.json").read_text()) != json.loads((done / "run.json").read_text())
    with pytest.raises(InputError, match="not recorded as your own run"):
        _ = shoal.open_run(folder).env


def test_resuming_a_finished_run_with_trust_records_it(done: Path, tmp_path: Path) -> None:
    """As docs/security.md says of a folder that was moved, or whose modules have changed."""
    folder = Path(shutil.copytree(done, tmp_path / "moved"))
    with pytest.raises(InputError, match="not recorded as your own run"):
        _ = shoal.open_run(folder).env
    assert shoal.resume(folder, progress=False, trust=True).untouched
    found = own_record(folder, config_of_run(folder))
    assert found is not None and found.directory == str(Path(toys.__file__).parent)
    assert shoal.open_run(folder).env is not None


def test_resuming_keeps_the_trust_in_a_folder(copy: Path) -> None:
    def record() -> Any:
        return own_record(copy, config_of_run(copy))

    before = record()
    assert before is not None and before.directory == str(Path(toys.__file__).parent)
    assert shoal.resume(copy, progress=False, eval_episodes=0, workers="ray").untouched
    assert record() == before


def test_resuming_a_finished_run_drops_a_damaged_last_row(copy: Path, nothing_compiles: None) -> None:
    sound = (copy / "metrics.jsonl").read_bytes()
    (copy / "metrics.jsonl").write_bytes(sound[: len(sound) // 2])
    assert shoal.resume(copy, progress=False).finished
    assert (copy / "metrics.jsonl").read_bytes() == sound


@pytest.mark.parametrize("how", ["missing", "damaged", "of another step", "of other episodes", "not printable"])
def test_a_missing_final_evaluation_is_made_on_resuming(how: str, copy: Path) -> None:
    """A process that ended while it judged leaves none, or that of an earlier step."""
    said = json.loads((copy / "evaluation.json").read_text())
    mended = dict(said)
    if how == "missing":
        (copy / "evaluation.json").unlink()
    elif how == "damaged":
        (copy / "evaluation.json").write_text("{")
    else:
        mended |= {"step": 128} if how == "of another step" else {"episodes": 5}
        mended |= {"text": "\x1b[2J"} if how == "not printable" else {}
        (copy / "evaluation.json").write_text(json.dumps(mended))
    run = shoal.resume(copy, progress=False)
    assert run.untouched and run.evaluation is not None and run.final_score == str(run.evaluation)
    assert json.loads((copy / "evaluation.json").read_text()) == said


def test_pictures_that_are_missing_are_drawn(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that are older than the policy, which an earlier part of the run left."""
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("it trains"))
    (copy / "curves.png").unlink()
    os.utime(copy / "replay.gif", (1, 1))
    assert cli.main(["train", "--resume", str(copy), "--no-progress"]) == 0
    assert (copy / "curves.png").exists() and (copy / "replay.gif").stat().st_mtime > 1


@pytest.mark.parametrize("part", ["checkpoints", "policy"])
def test_a_run_whose_end_is_damaged_has_not_finished(part: str, copy: Path) -> None:
    trained.damage(copy / part / "25")
    run = shoal.resume(copy, progress=False)
    assert run.finished and not run.untouched
    assert Checkpoints(copy / part).load_meta(25, warn=pytest.fail) is not None
    assert final_evaluation.known_evaluation_text(copy, 3200, 4) == run.final_score


def test_restored_at_the_end_it_does_not_compile(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the last checkpoint and its policy: only the policy is missing."""
    shutil.rmtree(copy / "policy" / "25")
    monkeypatch.setattr(stopping, "wait", lambda work: pytest.fail("something compiles"))
    trainer = trainer_of(shoal.open_run(copy), False)
    trainer.restore()
    trainer.program = trainer.program._replace(start=lambda state: pytest.fail("it compiles"))
    assert trainer.run() and Checkpoints(copy / "policy").latest() == 25


def test_a_finished_run_continues_with_more_steps(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shoal.resume(copy, progress=False, steps=3300, eval_episodes=0)
    assert run.finished and not run.untouched and Checkpoints(copy / "checkpoints").latest() == 26
    assert capsys.readouterr() == ("", "")
