"""One folder per checkpoint, committed by a rename, with a SHA-256 per file to detect damage.

A step is the folder ``<step>`` or ``<step>.<revision>``, written under a hidden name and renamed when all of it is on
the disk. Saving a step again adds a revision before the old one is removed, so that a crash at any time leaves an
intact checkpoint.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from shoal.errors import CheckpointError, DamagedError
from shoal.security import reading
from shoal.system.files import file_digests, remove, sync, sync_tree
from shoal.system.notices import Warn

_NAME = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)
_HIDDEN = ".unfinished-"
_DAMAGED_NAME = ".damaged-"
_DIGESTS = "sha256.json"
_DAMAGED = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""Numbers of the errors of reading a step that is not as it was written; None is that of :func:`file_digests`."""
_MAX_DIGESTS_BYTES = 16 * reading.MIB
MAX_FILE_BYTES = 128 * reading.MIB
"""Largest size in bytes of a file that is read alone: the index, at most 64 MiB, or the log's newest rows."""


def committed_steps(folder: Path) -> list[tuple[int, int, Path]]:
    """(step, revision, path) of every committed step, newest first; nothing is verified."""
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = [(match, path) for path in paths if (match := _NAME.fullmatch(path.name))]
    return sorted(((int(match[1]), int(match[2] or 0), path) for match, path in matches), reverse=True)


@contextmanager
def commit(folder: Path, step: int, keep: int):
    """Yield an empty folder to fill; at the end of the block it is flushed and becomes ``step``.

    The newest ``keep`` steps up to ``step`` remain. Later steps are removed: they were saved before the run resumed
    from an earlier step.

    Raises:
        CheckpointError: writing failed, for example because the disk is full; or ``folder`` is a symbolic link, whose
            target may hold unrelated numbered folders.
    """
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a symbolic link, so no checkpoint is saved there.")
    work = folder / f"{_HIDDEN}{step}-{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)  # not its parents: a deleted run folder must not be recreated
        sync(folder.parent)
        for leftover in folder.glob(f"{_HIDDEN}*"):
            _try_to_remove(leftover)
        work.mkdir()
        yield work
        (work / _DIGESTS).write_text(json.dumps(file_digests(work), indent=1), encoding="utf-8")
        sync_tree(work)
        before = committed_steps(folder)
        revision = 1 + max((revision for other, revision, _ in before if other == step), default=-1)
        work.rename(folder / (f"{step}.{revision}" if revision else f"{step}"))
        sync(folder)
        earlier = sorted({other for other, _, _ in before if other < step}, reverse=True)[: keep - 1]
        for other, _, path in before:
            if other not in earlier:
                _drop(path)
    except (Exception, KeyboardInterrupt) as error:
        _remove_unfinished(work)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(f"The checkpoint of step {step} cannot be written: {error.strerror or error}.") from error


def drop_after(folder: Path, step: int) -> None:
    """Remove the steps after ``step``, which were saved before the run resumed from an earlier one.

    Raises:
        CheckpointError: they cannot be removed, or ``folder`` is a symbolic link, whose target may hold unrelated
            numbered folders.
    """
    _each_after(folder, step, _drop, "removed")


def set_aside_after(folder: Path, step: int) -> None:
    """Rename the steps after ``step`` to ``.damaged-STEP``; they are never removed.

    Raises:
        CheckpointError: they cannot be renamed, or as for :func:`drop_after`.
    """
    _each_after(folder, step, _set_aside, "renamed")


def _each_after(folder: Path, step: int, do: Callable[[Path], object], done: str) -> None:
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a symbolic link, so no checkpoint is {done} there.")
    try:
        for other, _, path in committed_steps(folder):
            if other > step:
                do(path)
    except OSError as error:
        raise CheckpointError(f"Checkpoints after step {step} cannot be {done}: {error.strerror or error}.") from error


def newest_file(folder: Path, name: str, step: int | None = None) -> bytes | None:
    """The file ``name`` of the newest step (or of ``step``) in which its SHA-256 is right; None if there is none.

    A file of more than :data:`MAX_FILE_BYTES` counts as damaged.

    No other file is verified, so the time does not depend on the size of the step.
    """
    for other, _, path in committed_steps(folder):
        if step not in (None, other):
            continue
        try:
            data = reading.read_bytes(path / name, MAX_FILE_BYTES)
            if _recorded_digests(path)[name] == hashlib.sha256(data).hexdigest():
                return data
        except (OSError, ValueError, LookupError, TypeError):  # removed meanwhile, damaged, or without such a file
            continue
    return None


def _recorded_digests(path: Path) -> Any:
    """The SHA-256 of each file of a step, as its folder has them; not validated."""
    return reading.parse_json(reading.read_bytes(path / _DIGESTS, _MAX_DIGESTS_BYTES))


def replace_file(path: Path, name: str, text: str) -> None:
    """Replace a file of a copy of a step, and the digests."""
    (path / name).write_text(text, encoding="utf-8")
    (path / _DIGESTS).write_text(json.dumps(file_digests(path, but=_DIGESTS), indent=1), encoding="utf-8")


def newest_sound(folder: Path, step: int | None, warn: Warn) -> Path:
    """The newest step (or ``step``) whose files all have the right SHA-256; ``warn`` is called for each damaged one.

    Raises:
        DamagedError: there is none.
        CheckpointError: a file cannot be read, for example for lack of permission, so it may be intact.
    """
    candidates = [(other, path) for other, _, path in committed_steps(folder) if step in (None, other)]
    for other, path in candidates:
        try:
            if _recorded_digests(path) == file_digests(path, but=_DIGESTS):
                return path
        except ValueError:  # text that is not JSON
            pass
        except OSError as error:
            if error.errno not in _DAMAGED:
                why = error.strerror or error
                raise CheckpointError(f"The checkpoint of step {other} in {folder} cannot be read: {why}.") from error
        warn(f"The checkpoint of step {other} is damaged and is skipped.")
    which = "There is no checkpoint" if step is None else f"There is no checkpoint of step {step}"
    why = " that is not damaged" if candidates else ""
    policies = candidates and folder.name == "checkpoints" and (folder.parent / "policy").is_dir()
    how = f" A new run can start from its policies: --init-from {folder.parent}." if policies else ""
    raise DamagedError(f"{which}{why} in {folder}.{how}")


def _set_aside(path: Path) -> None:
    names = (f"{_DAMAGED_NAME}{path.name}{f'-{i}' if i else ''}" for i in count())
    path.rename(path.with_name(next(name for name in names if not (path.parent / name).exists())))


def _drop(path: Path) -> None:
    gone = path.with_name(_HIDDEN + path.name)
    path.rename(gone)  # so that a half-deleted step never has the name of a step
    _try_to_remove(gone)


def _remove_unfinished(work: Path) -> None:
    """Remove what a failed save wrote: its other threads may still create files in it for a moment."""
    for _ in range(20):
        _try_to_remove(work)
        if not work.exists():
            return
        time.sleep(0.05)


def _try_to_remove(path: Path) -> None:
    """Remove a folder if possible; the next save retries (on NFS another process may be reading it)."""
    with contextlib.suppress(OSError):
        remove(path)
