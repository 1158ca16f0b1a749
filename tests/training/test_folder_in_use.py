"""A run's folder belongs to one training process, and what was deleted does not come back."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import cli
from shoal.errors import FolderError, FolderTakenError, InputError, WriteError
from shoal.runs import api
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.lock import hold
from shoal.training import evaluation
from shoal.training.evaluation import Evaluation
from shoal.training.progress import Progress
from shoal.training.trainer import Trainer
from support import trained

FLAGS: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 12,
    "steps": 5 * 48.0,
    "hidden": (8,),
    "epochs": 1,
    "minibatches": 1,
    "devices": 1,
    "eval_episodes": 0,
    "progress": False,
    "checkpoint_seconds": 0.0,
}


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    program = trained.idle_program()
    monkeypatch.setattr(Trainer, "_program", lambda self, remake: program)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done") / "run"
    flags = trained.SMALL | {"steps": 5 * 24, "eval_episodes": 0, "checkpoint_seconds": 0.0}
    assert shoal.train("mappo", "toys:busy", folder=folder, **flags).finished
    return folder


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return trained.copied(done, tmp_path / "run")


TRAINS = """
import sys
import shoal
from support import trained
from shoal.errors import FolderTakenError
from shoal.training.trainer import Trainer
program = trained.idle_program()
Trainer._program = lambda self, remake: program
print("ready", flush=True)
sys.stdin.readline()
try:
    run = shoal.train("mappo", "toys:busy", folder=sys.argv[1], **eval(sys.argv[2]))
    print("trained", run.finished)
except FolderTakenError as error:
    print("refused")
"""


def test_one_of_two_runs_that_start_in_a_folder_trains(tmp_path: Path) -> None:
    """Exactly one trains, undisturbed by the other."""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", TRAINS, str(tmp_path / "run"), repr(FLAGS)]
    environment = os.environ | trained.cache_environment() | {"PYTHONPATH": paths}
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(2)
        ]
        timer = threading.Timer(40, lambda: [process.kill() for process in processes])
        timer.start()
        stack.callback(timer.cancel)
        for process in processes:
            assert process.stdout and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate()[0] for process in processes]
    assert sorted(said) == ["refused\n", "trained True\n"]
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() == 5
    assert [row["update"] for row in shoal.storage.log.read_log(tmp_path / "run", warn=pytest.fail)] == [1, 2, 3, 4, 5]


def test_a_folder_in_use_can_only_be_read(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hold(copy):
        for refused in (
            lambda: shoal.resume(copy, progress=False),
            lambda: shoal.train("mappo", "toys:busy", folder=copy, progress=False),
        ):
            with pytest.raises(FolderTakenError, match="Another process is training in"):
                refused()
        assert cli.main(["train", "--resume", str(copy)]) == 2
        assert capsys.readouterr().err.startswith(f"shoal: Another process is training in '{copy}'")
        assert cli.main(["curves", str(copy)]) == 0
        shoal.load(copy)
        assert "final return" in shoal.open_run(copy).summary()
    assert cli.main(["train", "--resume", str(copy), "--seeds", "9"]) == 2  # refused, and not because of a lock
    assert "seeds cannot change" in capsys.readouterr().err


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    name = api.new_folder("mappo", "a/b")

    def start(folder: Path) -> Path:
        with hold(folder):
            (folder / "run.json").touch()
            return folder

    with hold(name):  # another process, which named its folder at the same time
        names = iter([name, name.with_name("other")])
        monkeypatch.setattr("shoal.storage.folders.new_folder", lambda *_: next(names))
        assert api.in_new_folder("mappo", "a/b", start) == name.with_name("other")


def test_a_folder_that_a_callback_wants_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Path] = []

    def start(folder: Path) -> None:
        calls.append(folder)
        assert len(calls) == 1, "it is started again"
        with hold(Path("elsewhere")):
            pass

    with hold(Path("elsewhere")), pytest.raises(FolderTakenError, match=r"training in '.*elsewhere'"):
        api.in_new_folder("mappo", "a/b", start)


@pytest.mark.parametrize("left", ["checkpoints", "policy", "metrics.jsonl"])
def test_a_run_folder_without_run_json_is_not_overwritten(left: str, copy: Path) -> None:
    """Without run.json nothing could resume it, and a new run would remove its checkpoints."""
    for path in list(copy.iterdir()):
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(copy.rglob("*"))
    with pytest.raises(InputError, match=f"contains {left} of a run, but no run.json"):
        shoal.train("mappo", "toys:busy", folder=copy, progress=False)
    assert set(before) <= set(copy.rglob("*"))


def test_a_run_that_lost_its_checkpoints_does_not_begin_again(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    before = (copy / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="has policies in policy, but no checkpoint to resume from"):
        shoal.resume(copy, progress=False)
    assert (copy / "metrics.jsonl").read_bytes() == before


def test_an_empty_name_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["mappo", "toys:busy", "--folder", ""], ["mappo", "toys:busy", "--resume", ""], ["--resume="]):
        assert cli.main(["train", *words]) == 2
    for refused in (lambda: shoal.train("mappo", "toys:busy", folder=""), lambda: shoal.resume("")):
        with pytest.raises(InputError, match="name of the run's folder is empty"):
            refused()
    assert not list(tmp_path.iterdir())


def gone(folder: Path, how: str) -> None:
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    if how == "replaced":
        folder.mkdir()
        (folder / "of another").touch()


@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("in training", "deleted"),
        ("in training", "replaced"),
        ("at the end", "replaced"),
        ("in judging", "deleted"),
    ],
)
def test_a_deleted_folder_is_not_created_again(
    how: str, when: str, tmp_path: Path, nothing_compiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything that writes: checkpoints, log, TensorBoard, the judgement."""
    folder, calls = tmp_path / "run", []

    def once(*_: Any) -> None:
        calls.append(how)
        if when == "in training" and len(calls) == 1:
            gone(folder, how)

    def judged(run: shoal.Run, episodes: int) -> Evaluation:
        if when == "in judging":
            gone(folder, how)
        return evaluation.evaluation_of(run.spec, np.ones((1, 4, 3)), np.ones((1, 4)), np.ones((1, 4, 3)))

    monkeypatch.setattr(Progress, "update", once)
    if when == "at the end":
        monkeypatch.setattr(Progress, "close", lambda self: gone(folder, how))
    monkeypatch.setattr(shoal.Run, "_evaluated", judged)
    flags: dict[str, Any] = FLAGS | {"eval_episodes": 4}
    with pytest.raises(FolderError, match=r"deleted, moved or replaced .* writes nothing more\.$"):
        shoal.train("mappo", "toys:busy", folder=folder, **flags)
    assert folder.with_name("copy").exists()
    if how == "deleted":
        assert not folder.exists()
    else:
        assert [path.name for path in folder.iterdir()] == ["of another"]


def test_pictures_of_a_folder_that_is_gone(copy: Path) -> None:
    run = shoal.open_run(copy)
    gone(copy, "deleted")
    pictures: list[Callable] = [run.curves, run.replay]
    for picture in pictures:
        with pytest.raises(InputError):
            picture()
    with pytest.raises(WriteError, match=r"curves\.png cannot be written: No such file or directory"):
        shoal.plots.curves.plot(copy.with_name("copy"), copy / "curves.png")
    assert not copy.exists()
