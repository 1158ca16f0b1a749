"""A full disk is one sentence, wherever it is noticed, and leaves what was saved before as it was."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoal.errors import CheckpointError, InputError, WriteError
from shoal.plots import curves
from shoal.rollouts import worker
from shoal.storage import checkpoint, manifest, tensorboard
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.log import LOG_FILE, Log, read_log
from shoal.system.files import append, write_text
from shoal.video import encode
from support import trained


class Disk:
    """Counts what is written, and is full from one call on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count, self.full_at = 0, 10**9
        for name, function in (("write", os.write), ("fsync", fsync), ("open", os.open)):
            monkeypatch.setattr(os, name, self.limited(function))
        for name in ("write_bytes", "write_text", "mkdir", "rename", "replace"):
            monkeypatch.setattr(Path, name, self.limited(getattr(Path, name)))
        monkeypatch.setattr(checkpoint, "_write_arrays", self.limited(_write_arrays_quickly))

    def limited(self, function: Callable) -> Callable:
        opens = function.__name__ == "open"

        def call(*args: Any, **kwargs: Any) -> Any:
            if opens and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return function(*args, **kwargs)
            self.count += 1
            if self.count >= self.full_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **kwargs)

        return call


def fsync(handle: int) -> None:
    """Flushing takes most of the time, and shows nothing here."""


def _write_arrays_quickly(folder: Path, arrays: list[np.ndarray]) -> None:
    folder.mkdir()
    for i, array in enumerate(arrays):
        with (folder / str(i)).open("wb") as file:
            file.write(array.tobytes())


def test_training_with_a_disk_that_is_full_from_any_call_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every file of a run, whichever comes first: also TensorBoard's, which is written at the end once more."""
    disk = Disk(monkeypatch)
    said, full_at, finished = set(), 0, False
    while not finished:
        full_at += 1
        folder = tmp_path / str(full_at)
        folder.mkdir()
        trainer = trained.Idle(folder, updates=3, checkpoint_seconds=0.0)
        disk.count, disk.full_at = 0, full_at
        try:
            finished = trainer.run()
        except InputError as error:
            assert isinstance(error, (WriteError, CheckpointError))
            assert str(error).endswith("cannot be written: No space left on device.") and "\n" not in str(error)
            said.add(str(error).split(" cannot")[0].split(" of step")[0].split(".tfevents")[0])
        finally:
            disk.full_at = 10**9
        assert not list(folder.rglob(".*")), "something unfinished is left"
        steps = Checkpoints(folder / "checkpoints").steps()
        for step in steps:
            Checkpoints(folder / "checkpoints").load_meta(step, warn=pytest.fail)
        rows = read_log(folder, warn=pytest.fail)
        assert [row["update"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= max(steps, default=0)
    assert full_at > 60 and said == {"The checkpoint", LOG_FILE, "tensorboard", "events.out"}
    assert capfd.readouterr() == ("", "")


def test_the_first_of_two_write_errors_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint fails first, and TensorBoard's last rows cannot be written either."""
    trainer, failed = trained.Idle(tmp_path, updates=3, checkpoint_seconds=0.0), []

    def full(*_: Any) -> None:
        failed.append(True)
        raise CheckpointError("The checkpoint cannot be written.")

    def full_as_well(*_: Any) -> None:
        if failed:
            raise WriteError("events cannot be written.")

    monkeypatch.setattr(trainer.checkpoints, "save", lambda step, *_: step and full())
    monkeypatch.setattr(tensorboard.Events, "flush", lambda self: setattr(self, "_flushed", 0.0))
    monkeypatch.setattr(trainer.log, "flush", full_as_well)
    with pytest.raises(CheckpointError, match=r"The checkpoint cannot"):
        trainer.run()
    with pytest.raises(WriteError, match="events cannot"), trainer.log:
        pass


def test_a_row_that_was_written_in_part_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = Log(tmp_path, tensorboard=False), os.write
    log.write({"step": 1})
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))  # which is no error
    log.write({"step": 2})
    left = [4, 0]

    def fills_up(handle: int, data: memoryview) -> int:
        if not (room := left.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[:room])

    monkeypatch.setattr(os, "write", fills_up)
    with pytest.raises(WriteError, match=r"metrics\.jsonl cannot be written: No space left"):
        log.write({"step": 3})
    assert (tmp_path / LOG_FILE).read_text() == '{"step": 1}\n{"step": 2}\n'


def test_files_that_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.json, evaluation.json, preparation.json, tables and pictures: the old one stays, and nothing beside it."""
    image = Image.new("RGB", (4, 4))
    writers: dict[str, Callable[[], Any]] = {
        "run.json": lambda: manifest.write_run_json(tmp_path, {}),
        "evaluation.json": lambda: write_text(tmp_path / "evaluation.json", "{}"),
        "replay.gif": lambda: encode.write_video(tmp_path / "replay.gif", [image, image], [0.1, 0.1]),
        "replay.png": lambda: encode.write_video(tmp_path / "replay.png", [image], [0.1]),
        "curves.png": lambda: curves.plot(tmp_path, tmp_path / "curves.png"),
        "curves.svg": lambda: curves.plot(tmp_path, tmp_path / "curves.svg"),
    }
    append(tmp_path / LOG_FILE, b'{"step": 1, "return": 1.0}\n')
    for name in writers:
        (tmp_path / name).write_text("old")
    disk = Disk(monkeypatch)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, write in writers.items():
        full_at, written = 0, False
        while not written:
            full_at += 1
            disk.count, disk.full_at = 0, full_at
            try:
                write()
                written = True
            except WriteError as error:
                assert str(error) == f"{name} cannot be written: No space left on device."
            finally:
                disk.full_at = 10**9
            now = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
            assert now.keys() == before.keys()
            assert {n for n in now if now[n] != before[n]} <= {name}  # the last call only makes the renaming last
        assert full_at >= 4 and (tmp_path / name).read_bytes() != b"old"
        before[name] = (tmp_path / name).read_bytes()


def test_an_mp4_that_ffmpeg_cannot_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "ffmpeg"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done\necho half > "$last"\necho "No space left" >&2\nexit 1\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"ffmpeg could not write 'x\.mp4': No space left"):
        encode.write_video(tmp_path / "x.mp4", [Image.new("RGB", (4, 4))], [0.1])
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]


def test_shared_memory_that_there_is_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with holes would end the process later, by a signal."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(WriteError, match="shared memory of 4096 bytes cannot be made: No space left on device"):
        worker.memory_file(4096)
    monkeypatch.undo()
    with worker.memory_file(5000) as file:
        assert os.fstat(file.fileno()).st_blocks * 512 >= 5000


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from shoal.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_command_line_says_one_sentence(tmp_path: Path) -> None:
    words = ["train", "mappo", "mpe/simple_spread", "--folder", str(tmp_path / "run"), "--no-progress"]
    words += ["--num-envs", "2", "--rollout-length", "8", "--steps", "1e6", "--minibatches", "2", "--devices", "1"]
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}  # which is not the run's
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a truncated file would remain in the source tree
    command = [sys.executable, "-c", LIMITED, "20000", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == "shoal: The checkpoint of step 0 cannot be written: File too large.\n"
    assert not list((tmp_path / "run").rglob(".unfinished*"))


def test_a_step_that_is_a_symbolic_link(tmp_path: Path) -> None:
    """It can be restored from, and goes when its time has come; what it leads to stays."""
    checkpoints, elsewhere = Checkpoints(tmp_path / "checkpoints", keep=2), tmp_path / "elsewhere"
    checkpoints.save(1, {"x": np.ones(3)}, {"at": 1})
    (tmp_path / "checkpoints" / "1").rename(elsewhere)
    (tmp_path / "checkpoints" / "1").symlink_to(elsewhere)
    (tmp_path / "checkpoints" / "2").symlink_to(tmp_path / "nowhere")
    (tmp_path / "checkpoints" / "3").touch()
    said: list[str] = []
    assert checkpoints.restore({"x": np.zeros(3)}, warn=said.append)[1:] == ({"at": 1}, 1)
    assert [sentence.split()[4] for sentence in said] == ["3", "2"]
    for step in (4, 5, 6):
        checkpoints.save(step, {"x": np.ones(3)}, {"at": step})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["5", "6"]
    assert (elsewhere / "index.json").exists()


def test_a_step_that_cannot_be_deleted_fails_no_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS a file that another process reads stays until it is closed."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(OSError(errno.ENOTEMPTY, "Not empty")))
        for step in (1, 2, 3):
            checkpoints.save(step, {"x": np.ones(3)}, {})
    assert checkpoints.steps() == [3]
    checkpoints.save(4, {"x": np.ones(3)}, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["4"]


@pytest.mark.parametrize("name", ["checkpoints", "policy"])
def test_nothing_is_saved_through_a_link(name: str, tmp_path: Path) -> None:
    """Saving removes numbered folders, and a run folder from elsewhere may link to anything."""
    (tmp_path / "photos" / "2019").mkdir(parents=True)
    (tmp_path / name).symlink_to(tmp_path / "photos")
    with pytest.raises(CheckpointError, match=f"{name} is a symbolic link"):
        Checkpoints(tmp_path / name, keep=1).save(3000, {"x": np.ones(3)}, {})
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["2019"]
