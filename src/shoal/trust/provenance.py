"""Records of the run folders that the user's own training created, one file each in the user's state folder.

A record holds the folder's path, a random mark that is also kept in the folder, a digest of the entries of its
``run.json`` that determine what is imported and called, and digests of the user's own modules. A folder that was copied
or moved, or created by another user, has no record; neither has one that was put in the place of an own run later,
since it lacks the mark.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shoal.security import reading
from shoal.system import machine
from shoal.system.files import to_json

MAX_FILE_BYTES = reading.MIB
"""Largest size in bytes of a record."""
MARK_FILE = ".own"
"""File in a run's folder with its mark."""
_MARK = re.compile(rb"[0-9a-f]{32}")
_TRIES = 10
"""How often a record is written again if another process has written the same folder's mark meanwhile."""


class OwnRecord(NamedTuple):
    """The record of a folder that the user's own training created."""

    directory: str | None
    """Folder of the module that defines the user's own environment, if there is one."""
    modules: tuple[tuple[str, str], ...] = ()
    """Names of the user's own modules in that folder that the run imports, and digests of their files."""


def provenance_folder() -> Path:
    """The folder of records: ``$XDG_STATE_HOME/shoal/runs``, or ``~/.local/state/shoal/runs``.

    Raises:
        OSError: there is no home folder.
    """
    return (machine.state_folder() / "shoal" / "runs").resolve()


def record_folder(
    folder: Path, decides: Mapping[str, Any], directory: str | None, modules: Mapping[str, str] | None = None
) -> None:
    """Record that the user's own training wrote ``folder``, and mark it; atomic, also for concurrent processes.

    Args:
        folder: the run's.
        decides: the entries of its ``run.json`` that determine what is imported and called; JSON values.
        directory: see :class:`OwnRecord`.
        modules: see :class:`OwnRecord`; digests by name.

    Raises:
        OSError: a folder cannot be written, or the state folder lies in the run's.
    """
    path = _file(folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = {"folder": str(folder.resolve()), "digest": _digest(decides), "directory": directory}
    entry["modules"] = dict(modules or {})
    mark, before = _mark(folder), _entry(path)
    if mark is None or before is None or before.get("mark") != mark:  # not one that somebody else may know
        mark = secrets.token_hex(16)
        _replace(folder / MARK_FILE, mark, 0o644)  # others may copy the folder
    for _ in range(_TRIES):
        _replace(path, json.dumps(entry | {"mark": mark}), 0o600)
        if (now := _mark(folder)) in (mark, None):
            return
        mark = now


def _replace(path: Path, text: str, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        os.close(handle)
        Path(temporary).write_text(text, encoding="utf-8")
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def marked_record(folder: Path, decides: Mapping[str, Any]) -> OwnRecord | None:
    """The record of ``folder``; None if there is none, ``folder`` lacks its mark, or ``decides`` has changed since."""
    entry, mark = _matching(folder, decides), _mark(folder)
    if entry is None or mark is None or entry.get("mark") != mark:
        return None
    directory, modules = entry.get("directory"), entry.get("modules")
    if not isinstance(modules, dict) or not all(isinstance(digest, str) for digest in modules.values()):
        return None
    return OwnRecord(directory if isinstance(directory, str) else None, tuple(modules.items()))


def _matching(folder: Path, decides: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entries of a folder's record, if it is of the same path and the same ``decides``."""
    try:
        entry = _entry(_file(folder))
    except OSError:
        return None
    wanted = {"folder": str(folder.resolve()), "digest": _digest(decides)}
    return entry if entry is not None and all(entry.get(key) == value for key, value in wanted.items()) else None


def _entry(path: Path) -> dict[str, Any] | None:
    """The entries of a record; None if there is none, it is damaged, or another user's."""
    try:
        if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
            return None
        entry = reading.parse_json(reading.read_bytes(path, MAX_FILE_BYTES))
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) else None


def _mark(folder: Path) -> str | None:
    """The mark in a folder, if it holds one."""
    try:
        found = reading.read_bytes(folder / MARK_FILE, MAX_FILE_BYTES)
    except (OSError, ValueError):
        return None
    return found.decode() if _MARK.fullmatch(found) else None


def _file(folder: Path) -> Path:
    state, folder = provenance_folder(), folder.resolve()
    if state.is_relative_to(folder):
        raise OSError(f"{state} lies in the run's folder")
    return state / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"


def _digest(decides: Mapping[str, Any]) -> str:
    text = json.dumps(to_json(decides), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
