"""A lock that lets only one process train in a run's folder at a time.

It is the operating system's lock on the file ``.lock`` in the folder, which is released whenever the process ends, so
that no stale lock remains. Worker processes do not inherit it. Commands that only read do not take it. On Linux it also
works between machines that share the folder by NFS.
"""

import contextlib
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import FolderError, FolderTakenError
from shoal.system import notices
from shoal.system.files import make_folder, writing
from shoal.system.notices import Warn

LOCK_FILE = ".lock"

_NOT_FOLLOWING = getattr(os, "O_NOFOLLOW", 0)
"""Fail if the lock file is a symbolic link: its target could be any file."""


class Lock:
    """A lock that this process holds; see :func:`hold`."""

    def __init__(self, folder: Path, handle: int):
        self.folder, self.handle = folder, handle
        _HELD.add(self)

    def check(self) -> None:
        """Check that the folder is still the one that was locked; called before every write.

        Raises:
            FolderError: the folder or its lock file was deleted, moved or replaced.
        """
        if not _same(self.handle, self.folder / LOCK_FILE):
            raise FolderError(
                f"The run's folder {str(self.folder)!r} was deleted, moved or replaced during training, so training "
                f"stops and writes nothing more."
            )

    def release(self) -> None:
        """Release the lock; idempotent."""
        _HELD.discard(self)
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


_HELD: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):  # a forked child would otherwise hold the lock as well
    os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def hold(folder: Path, warn: Warn = notices.warn) -> Iterator[Lock]:
    """Lock a run's folder, which is created if needed, and removed at the end if it was created here and is empty.

    Args:
        folder: the run's folder.
        warn: called with one sentence if the file system has no locks, in which case the folder is not protected.

    Raises:
        FolderTakenError: another process holds the lock.
        WriteError: the folder or the lock file cannot be created.
    """
    folder = Path(folder).absolute()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = Lock(folder, _locked(folder, warn))
    try:
        yield lock
    finally:
        if made and _same(lock.handle, folder / LOCK_FILE) and [path.name for path in folder.iterdir()] == [LOCK_FILE]:
            with contextlib.suppress(OSError):
                (folder / LOCK_FILE).unlink()
                for path in made:
                    path.rmdir()
        lock.release()


def _locked(folder: Path, warn: Warn) -> int:
    while True:
        make_folder(folder)
        with writing(f"{folder / LOCK_FILE}"):
            handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | _NOT_FOLLOWING, 0o666)
        try:
            if not _try_to_lock(handle):
                os.close(handle)
                said = f"Another process is training in {str(folder)!r}; stop it, or choose another folder."
                raise FolderTakenError(said, folder)
        except OSError as error:
            warn(f"{str(folder)!r} cannot be locked ({error.strerror}); do not start a second process in this folder.")
        if _same(handle, folder / LOCK_FILE):
            return handle
        os.close(handle)  # the previous holder removed the file meanwhile


def _same(handle: int, path: Path) -> bool:
    """Whether ``path`` is the file that is open as ``handle``."""
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
