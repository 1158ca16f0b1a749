"""Damage is seen and said, and a crash at any time never leaves a run without a checkpoint."""

import errno
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import CheckpointError
from shoal.storage import step_folders
from shoal.storage.checkpoint import Checkpoints


def small(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(5, value, np.float32), "n": np.array(int(value), np.int32)}


def largest(step: Path) -> Path:
    return max((p for p in step.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def truncate(step: Path) -> None:
    with largest(step).open("r+b") as file:
        file.truncate(largest(step).stat().st_size // 2)


def flip(step: Path) -> None:
    file = largest(step / "arrays")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def half_written(step: Path) -> None:
    for path in step.iterdir():
        if path.name != "arrays":
            path.unlink()


def emptied(step: Path) -> None:
    shutil.rmtree(step)
    step.mkdir()


DAMAGE = {
    "truncated": truncate,
    "one bit": flip,
    "arrays deleted": lambda step: shutil.rmtree(step / "arrays"),
    "one file deleted": lambda step: largest(step / "arrays").unlink(),
    "index deleted": lambda step: (step / "index.json").unlink(),
    "digests deleted": lambda step: (step / "sha256.json").unlink(),
    "digests are no JSON": lambda step: (step / "sha256.json").write_text("{"),
    "a file too many": lambda step: (step / "arrays" / "more").write_text("x"),
    "half-written": half_written,
    "emptied": emptied,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_skipped_with_a_warning(copy: Path, damage: Any):
    damage(copy / "30")
    said: list[str] = []
    back, meta, step = Checkpoints(copy).restore(small(0), warn=said.append)
    assert step == 20 and meta == {"at": 20} and back["n"] == 20
    assert said == ["The checkpoint of step 30 is damaged and is skipped."]
    with pytest.raises(CheckpointError, match="no checkpoint of step 30 that is not damaged"):
        Checkpoints(copy).restore(small(0), step=30, warn=said.append)
    Checkpoints(copy).save(30, small(31), {"at": 31})  # and it can be replaced
    assert Checkpoints(copy).load_meta() == {"at": 31}


def test_a_flipped_bit_is_found_in_any_file(copy: Path):
    files = [path for path in (copy / "30").rglob("*") if path.is_file()]
    assert len(files) > 5
    for file in files:
        sound = file.read_bytes()
        for place in (0, len(sound) // 2, len(sound) - 1):
            data = bytearray(sound)
            data[place] ^= 4
            file.write_bytes(data)
            assert Checkpoints(copy).load_meta() == {"at": 20}, (file, place)
        file.write_bytes(sound)
    assert Checkpoints(copy).load_meta() == {"at": 30}


def test_damage_is_reported_on_standard_error_unless_told_otherwise(copy: Path, capfd: pytest.CaptureFixture[str]):
    flip(copy / "30")
    Checkpoints(copy).restore(small(0))
    out, err = capfd.readouterr()
    assert out == "" and err == "The checkpoint of step 30 is damaged and is skipped.\n"


def test_damage_of_all_checkpoints_is_an_error(copy: Path, tmp_path: Path):
    said: list[str] = []
    for step in ("10", "20", "30"):
        emptied(copy / step)
    with pytest.raises(CheckpointError, match="no checkpoint that is not damaged"):
        Checkpoints(copy).restore(small(0), warn=said.append)
    assert len(said) == 3
    with pytest.raises(CheckpointError, match=re.escape(f"There is no checkpoint in {tmp_path / 'nowhere'}.")):
        Checkpoints(tmp_path / "nowhere").restore(small(0))
    with pytest.raises(CheckpointError, match="no checkpoint of step 15"):
        Checkpoints(copy).load_meta(15)


def test_a_full_disk_leaves_the_old_checkpoints(copy: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(step_folders, "sync_tree", full)
        with pytest.raises(CheckpointError, match="step 40 cannot be written: No space left"):
            Checkpoints(copy).save(40, small(40), {})
    assert Checkpoints(copy).steps() == [10, 20, 30]
    Checkpoints(copy).save(40, small(40), {})
    assert Checkpoints(copy).steps() == [20, 30, 40] and not list(copy.glob(".*"))


def test_an_operating_system_error_in_orbax_is_one_sentence(copy: Path, capfd: pytest.CaptureFixture[str]):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
        with pytest.raises(CheckpointError, match=r"step 40 cannot be written: File too large\.$"):
            Checkpoints(copy).save(40, {"x": np.random.default_rng(0).normal(size=50_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert Checkpoints(copy).load_meta() == {"at": 30}
    assert capfd.readouterr() == ("", "")


class Crash(BaseException):
    """Not an Exception, so that nothing tidies up after it."""


@pytest.mark.parametrize("step", [30, 40])
def test_a_crash_before_any_step_of_a_save_leaves_the_old_or_the_new(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
):
    calls, rmtree = {"count": 0, "crash_at": -1}, shutil.rmtree

    def counted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls["count"] += 1
            if calls["count"] == calls["crash_at"]:
                if function is rmtree and (index := args[0] / "index.json").exists():
                    index.unlink()  # half-way through
                raise Crash
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr("shoal.storage.checkpoint._write_arrays", counted(_write_arrays_quickly))
    for name in ("sync", "sync_tree", "file_digests"):
        monkeypatch.setattr(step_folders, name, counted(getattr(step_folders, name)))
    monkeypatch.setattr("shutil.rmtree", counted(shutil.rmtree))
    for name in ("write_text", "write_bytes", "rename", "mkdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    found = []
    for crash_at in range(1, 100):
        folder = tmp_path / str(crash_at)
        calls["crash_at"] = -1
        shutil.copytree(three, folder)
        calls.update(count=0, crash_at=crash_at)
        try:
            Checkpoints(folder).save(step, small(99), {"at": 99})
        except Crash:
            calls["crash_at"] = -1
            for left in Checkpoints(folder).steps():
                Checkpoints(folder).load_meta(left, warn=pytest.fail)
            found.append(Checkpoints(folder).load_meta()["at"])
            Checkpoints(folder).save(step + 1, small(step), {"at": "next"})
            assert Checkpoints(folder).load_meta() == {"at": "next"} and not list(folder.glob(".*"))
        else:
            break
    assert found == sorted(found) and set(found) == {30, 99}
    assert len(found) > 10


def _write_arrays_quickly(folder: Path, arrays: list[np.ndarray]) -> None:
    folder.mkdir()
    for i, array in enumerate(arrays):
        (folder / str(i)).write_bytes(array.tobytes())


SAVES_FOREVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from shoal.storage.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
for i in itertools.count():
    state = {"x": np.full((40, 50), i, np.float32), "n": np.array(i, np.int32)}
    checkpoints.save(i // 2, state, {"i": i})  # every step twice
    print(i, flush=True)
"""


def test_killed_in_a_tight_loop_of_saves_it_restores(tmp_path: Path):
    rng = random.Random(0)
    folders = [tmp_path / str(i) for i in range(3)]
    runs = [
        subprocess.Popen([sys.executable, "-c", SAVES_FOREVER, str(f)], stdout=subprocess.PIPE, text=True)
        for f in folders
    ]
    for folder, run in zip(folders, runs, strict=True):
        assert run.stdout
        for _ in range(4):
            run.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        os.kill(run.pid, signal.SIGKILL)
        printed = run.communicate()[0].split("\n")[:-1]
        said: list[str] = []
        template = {"x": np.zeros((40, 50), np.float32), "n": np.array(0, np.int32)}
        back, meta, step = Checkpoints(folder).restore(template, warn=said.append)
        assert said == []
        assert meta["i"] >= int([3, *printed][-1]) and step == meta["i"] // 2
        assert back["n"] == meta["i"] and (back["x"] == meta["i"]).all()


def test_a_failed_save_is_removed_though_other_threads_still_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = step_folders.remove

    def late(path: Path) -> None:
        """The first removal finds a new file, as rmdir reports it."""
        monkeypatch.setattr(step_folders, "remove", remove)
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(step_folders, "remove", late)
    with pytest.raises(CheckpointError, match="No space left"), step_folders.commit(tmp_path, 3, keep=1) as work:
        (work / "part").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("large", ["digests", "file"])
def test_a_file_of_a_checkpoint_that_is_too_large_is_damaged(
    large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is JSON with the right digest in any case: only its size is refused."""
    with step_folders.commit(tmp_path, 3, keep=1) as work:
        (work / "index.json").write_text("{}")
    assert step_folders.newest_file(tmp_path, "index.json") == b"{}"
    if large == "digests":
        with (tmp_path / "3" / "sha256.json").open("a") as file:
            file.write(" " * 16 * 2**20)
    else:
        monkeypatch.setattr(step_folders, "MAX_FILE_BYTES", 1)
    assert step_folders.newest_file(tmp_path, "index.json") is None
