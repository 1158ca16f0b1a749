"""Which run folders the user's own training made, recorded outside them: in the user's state folder, a file for each.

A record holds the folder's path and a digest of what its ``run.json`` says that decides what is imported and called. A
folder that was copied, moved or made by somebody else has none.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shoal.records import reading
from shoal.records.files import to_json

MOST = reading.MIB
"""Bytes of the largest record that is read."""


class Record(NamedTuple):
    """What is known of a folder that the user's own training made."""

    directory: str | None
    """Where the module of the user's own environment was found, if there is one."""


def state_folder() -> Path:
    """Where records are kept: ``$XDG_STATE_HOME/shoal/runs``, or ``~/.local/state/shoal/runs``.

    Raises:
        OSError: there is no home folder.
    """
    root = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(root) if Path(root).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return (base / "shoal" / "runs").resolve()


def record(folder: Path, decides: Mapping[str, Any], directory: str | None) -> None:
    """Remember that the user's own training wrote ``folder``; atomic, for any number of processes at once.

    Args:
        folder: the run's.
        decides: what its ``run.json`` says that decides what is imported and called; JSON values.
        directory: see :class:`Record`.

    Raises:
        OSError: the state folder cannot be written, or lies in the run's folder.
    """
    path = _file(folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = {"folder": str(folder.resolve()), "digest": _digest(decides), "directory": directory}
    handle, beside = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        os.close(handle)
        Path(beside).write_text(json.dumps(said), encoding="utf-8")
        Path(beside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise


def recorded(folder: Path, decides: Mapping[str, Any]) -> Record | None:
    """The record of ``folder``, if there is one and ``decides`` is still what was recorded."""
    try:
        path = _file(folder)
        if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
            return None
        said = reading.parse(reading.read_bytes(path, MOST))
    except (OSError, ValueError):
        return None
    wanted = {"folder": str(folder.resolve()), "digest": _digest(decides)}
    if not isinstance(said, dict) or any(said.get(key) != value for key, value in wanted.items()):
        return None
    directory = said.get("directory")
    return Record(directory if isinstance(directory, str) else None)


def _file(folder: Path) -> Path:
    state, folder = state_folder(), folder.resolve()
    if state.is_relative_to(folder):
        raise OSError(f"{state} lies in the run's folder")
    return state / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"


def _digest(decides: Mapping[str, Any]) -> str:
    text = json.dumps(to_json(decides), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
