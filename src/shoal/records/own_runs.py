"""Records of the run folders that the user's own training created, one file each in the user's state folder.

A record holds the folder's path and a digest of the entries of its ``run.json`` that determine what is imported and
called. A folder that was copied or moved, or created by another user, has no record.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shoal import user_folders
from shoal.records import reading
from shoal.records.files import to_json

MOST = reading.MIB
"""Largest size in bytes of a record."""


class Record(NamedTuple):
    """The record of a folder that the user's own training created."""

    directory: str | None
    """Folder of the module that defines the user's own environment, if there is one."""


def state_folder() -> Path:
    """The folder of records: ``$XDG_STATE_HOME/shoal/runs``, or ``~/.local/state/shoal/runs``.

    Raises:
        OSError: there is no home folder.
    """
    return (user_folders.state() / "shoal" / "runs").resolve()


def record(folder: Path, decides: Mapping[str, Any], directory: str | None) -> None:
    """Record that the user's own training wrote ``folder``; atomic, also for concurrent processes.

    Args:
        folder: the run's.
        decides: the entries of its ``run.json`` that determine what is imported and called; JSON values.
        directory: see :class:`Record`.

    Raises:
        OSError: the state folder cannot be written, or lies in the run's folder.
    """
    path = _file(folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = {"folder": str(folder.resolve()), "digest": _digest(decides), "directory": directory}
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        os.close(handle)
        Path(temporary).write_text(json.dumps(entry), encoding="utf-8")
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def recorded(folder: Path, decides: Mapping[str, Any]) -> Record | None:
    """The record of ``folder``; None if there is none or ``decides`` has changed since."""
    try:
        path = _file(folder)
        if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
            return None
        entry = reading.parse(reading.read_bytes(path, MOST))
    except (OSError, ValueError):
        return None
    wanted = {"folder": str(folder.resolve()), "digest": _digest(decides)}
    if not isinstance(entry, dict) or any(entry.get(key) != value for key, value in wanted.items()):
        return None
    directory = entry.get("directory")
    return Record(directory if isinstance(directory, str) else None)


def _file(folder: Path) -> Path:
    state, folder = state_folder(), folder.resolve()
    if state.is_relative_to(folder):
        raise OSError(f"{state} lies in the run's folder")
    return state / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"


def _digest(decides: Mapping[str, Any]) -> str:
    text = json.dumps(to_json(decides), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
