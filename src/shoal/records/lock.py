"""One process trains in a run's folder at a time.

The lock is the operating system's lock on the file ``.lock`` in the folder: it is given up when the process ends,
however that happens, so that no stale lock stays behind. Worker processes do not inherit it. Commands that only read do
without. On Linux it also holds between machines that share the folder by NFS.
"""

import contextlib
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal import notices
from shoal.errors import FolderError, FolderTakenError
from shoal.notices import Warn
from shoal.records.files import make_folder, writing

FILE = ".lock"

_NOT_FOLLOWING = getattr(os, "O_NOFOLLOW", 0)
"""A symbolic link in the lock's place is refused: what it leads to is nobody's to make."""


class Lock:
    """A lock that is held; see :func:`hold`."""

    def __init__(self, folder: Path, handle: int):
        self.folder, self.handle = folder, handle
        _HELD.add(self)

    def check(self) -> None:
        """Make sure that the folder is still the one that was locked, before something is written to it.

        Raises:
            FolderError: it was deleted, moved or replaced, or its lock file was.
        """
        if not _same(self.handle, self.folder / FILE):
            raise FolderError(
                f"The run's folder {str(self.folder)!r} was deleted, moved or replaced while it was trained in, so "
                f"training stops and writes nothing more."
            )

    def release(self) -> None:
        """Give it up; harmless twice."""
        _HELD.discard(self)
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


_HELD: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):  # a child that does not become another program would hold the lock as well
    os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def hold(folder: Path, warn: Warn = notices.warn) -> Iterator[Lock]:
    """Lock a run's folder, which is made if needed.

    Where nothing else was put into a folder that was made here, it is removed again at the end.

    Args:
        folder: the run's folder.
        warn: receives one sentence where the file system has no locks, in which case everybody gets one.

    Raises:
        FolderTakenError: another process holds it.
        WriteError: the folder or the file in it cannot be made.
    """
    folder = Path(folder).absolute()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = Lock(folder, _locked(folder, warn))
    try:
        yield lock
    finally:
        if made and _same(lock.handle, folder / FILE) and [path.name for path in folder.iterdir()] == [FILE]:
            with contextlib.suppress(OSError):
                (folder / FILE).unlink()
                for path in made:
                    path.rmdir()
        lock.release()


def _locked(folder: Path, warn: Warn) -> int:
    while True:
        make_folder(folder)
        with writing(f"{folder / FILE}"):
            handle = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | _NOT_FOLLOWING, 0o666)
        try:
            if not _try_to_lock(handle):
                os.close(handle)
                raise FolderTakenError(f"Another process trains in {str(folder)!r}; only one can at a time.")
        except OSError as error:
            warn(f"Nothing keeps a second process out of {str(folder)!r}, since it cannot be locked: {error.strerror}.")
        if _same(handle, folder / FILE):
            return handle
        os.close(handle)  # the process that held it before has removed the file meanwhile


def _same(handle: int, path: Path) -> bool:
    """Whether a file is the one that is open."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_to_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_to_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
