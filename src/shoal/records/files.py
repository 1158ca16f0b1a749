"""Files that survive a crash: written beside their place, flushed to the disk, then renamed into it.

JSON has no NaN and no infinity. Shoal writes them as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``
(which Python's ``float`` and JavaScript's ``Number`` both read), and reads those strings back as floats.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any, where: str = "value") -> Any:
    """``value`` in JSON's own types; arrays become lists, dataclasses and NamedTuples become objects.

    Raises:
        InputError: a value has no JSON form; the message names where it stands.
    """
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict(), where)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, (list, tuple)):
        return [to_json(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__array__"):
        return to_json(np.asarray(value).tolist(), where)
    raise InputError(f"{where} is a {type(value).__name__}, which has no JSON form.")


def from_json(value: Any) -> Any:
    """The inverse of :func:`to_json` for the special floats; objects stay dicts and lists stay lists."""
    if isinstance(value, dict):
        return {k: from_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_json(v) for v in value]
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def dumps(value: Any, where: str = "value", indent: int | None = None) -> str:
    """Strictly valid JSON text of ``value``; see :func:`to_json`."""
    return json.dumps(to_json(value, where), indent=indent, ensure_ascii=False, allow_nan=False)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` atomically: after a crash it holds the old text or the new, never a mixture."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    sync(beside)
    beside.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush one file, or one folder's list of names, to the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder under ``folder``, and ``folder`` itself."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def digests(folder: Path, but: str = "") -> dict[str, str]:
    """The SHA-256 of every file under ``folder`` except ``but``, by its path relative to ``folder``."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name != but:
            with path.open("rb") as stream:
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
