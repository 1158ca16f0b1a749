"""The lock of a run's folder: one process holds it, and it goes with that process, however it ends."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.errors import FolderError, FolderTakenError, WriteError
from shoal.storage import lock as locks
from shoal.storage.lock import LOCK_FILE, hold

HOLDS = """
import os, subprocess, sys, time
from pathlib import Path
from shoal.errors import FolderTakenError
from shoal.storage.lock import hold
what, folder = sys.argv[1], Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    with hold(folder):
        print("held", flush=True)
        (folder / "run.json").touch()
        if what == "fork" and os.fork() == 0:
            time.sleep(60)
        if what == "exec":
            subprocess.Popen(["sleep", "60"])
        if what == "stay":
            time.sleep(60)
        if what == "race":
            time.sleep(1)
        if what == "raise":
            raise ValueError
        print("done", flush=True)
        os._exit(0)
except FolderTakenError as error:
    print("refused", str(error).startswith("Another process is training in "), flush=True)
"""


def start(what: str, folder: Path, new_session: bool = False) -> subprocess.Popen:
    """A process that waits for a line, and then holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, what, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=new_session,
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def say(process: subprocess.Popen) -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def test_a_second_holder_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    with hold(tmp_path / "run"):
        with pytest.raises(FolderTakenError, match=r"Another process is training in '.*run'"), hold(tmp_path / "run"):
            pytest.fail("two hold it")
        with hold(tmp_path / "other"):
            pass
    with hold(tmp_path / "run"):
        pass


@pytest.mark.parametrize("what", ["stay", "raise"])
def test_the_lock_is_released_when_its_process_ends(what: str, tmp_path: Path) -> None:
    process = start(what, tmp_path)
    say(process)
    assert process.stdout and process.stdout.readline() == "held\n"
    if what == "stay":
        with pytest.raises(FolderTakenError), hold(tmp_path):
            pass
        process.kill()
    process.communicate(timeout=20)
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("what", ["fork", "exec"])
def test_processes_that_the_holder_started_do_not_keep_it(what: str, tmp_path: Path) -> None:
    with start(what, tmp_path, new_session=True) as process:
        say(process)
        assert process.stdout and [process.stdout.readline() for _ in range(2)] == ["held\n", "done\n"]
    try:
        time.sleep(0.1)
        os.killpg(process.pid, 0)  # what it started is still there
        with hold(tmp_path):
            pass
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_one_of_many_simultaneous_processes_gets_the_lock(tmp_path: Path) -> None:
    """In a folder that does not exist yet."""
    processes = [start("race", tmp_path / "new" / "run") for _ in range(6)]
    for process in processes:
        say(process)
    said = sorted(process.communicate(timeout=30)[0] for process in processes)
    assert said == ["held\ndone\n"] + ["refused True\n"] * 5


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced", "lock deleted", "lock replaced"])
def test_a_replaced_folder_is_detected(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold(folder) as lock:
        (folder / "run.json").touch()
        lock.check()
        if how == "deleted":
            shutil.rmtree(folder)
        elif how in ("moved", "replaced"):
            folder.rename(tmp_path / "elsewhere")
        else:
            (folder / LOCK_FILE).unlink()
        if how == "replaced":
            shutil.copytree(tmp_path / "elsewhere", folder)
        if how == "lock replaced":
            (folder / LOCK_FILE).touch()
        with pytest.raises(FolderError, match=r"'.*run' was deleted, moved or replaced .* writes nothing more\.$"):
            lock.check()
    assert (folder / "run.json").exists() == (how not in ("deleted", "moved"))


def test_an_empty_new_folder_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ValueError), hold(tmp_path / "runs" / "new"):
        raise ValueError
    assert not list(tmp_path.iterdir())
    with hold(tmp_path / "runs" / "new"):
        (tmp_path / "runs" / "new" / "run.json").touch()
    assert (tmp_path / "runs" / "new" / "run.json").exists()
    with hold(tmp_path / "runs"):  # was there before
        pass
    assert (tmp_path / "runs").exists()


def test_a_process_that_opened_a_deleted_lock_file_locks_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, the process that held it may have removed it with its empty folder."""
    attempts, lock = [], locks._try_to_lock

    def slow(handle: int) -> bool:
        attempts.append(handle)
        if len(attempts) == 1:
            shutil.rmtree(tmp_path / "run")
        return lock(handle)

    monkeypatch.setattr(locks, "_try_to_lock", slow)
    with hold(tmp_path / "run") as held:
        held.check()
    assert len(attempts) == 2


def test_a_file_system_without_locks_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "_try_to_lock", refuse)
    said: list[str] = []
    with hold(tmp_path, said.append) as lock:
        lock.check()
    assert len(said) == 1 and "cannot be locked (No locks available); do not start" in said[0]


@pytest.mark.parametrize("how", ["a link", "a file"])
def test_a_folder_that_cannot_be_locked_is_one_sentence(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if how == "a link":  # would make a file elsewhere
        folder.mkdir()
        (folder / LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    else:
        folder.touch()
    with pytest.raises(WriteError, match=r"cannot be written: "), hold(folder):
        pass
    assert not (tmp_path / "elsewhere").exists()
