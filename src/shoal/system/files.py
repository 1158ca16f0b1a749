"""Atomic writes: a temporary file is written, flushed to the disk, and renamed.

All files of a run except the arrays of checkpoints are written by this module, so that every failure is a WriteError.

JSON has no NaN and no infinity. They are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``
(which Python's ``float`` and JavaScript's ``Number`` both read), and read back as floats.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError, WriteError

# Temporary files beside the files that they replace. A folder may come from somebody else and hold any names.


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def create_beside(path: Path) -> Path:
    """Create an empty file of a random name in the folder of ``path``, with its suffix; returns its path.

    A fixed name could already be that of a pipe, which blocks whoever opens it, or of a link to another file.

    Raises:
        OSError: it cannot be created.
    """
    found = path.with_name(f".{secrets.token_hex(8)}.tmp{path.suffix}")
    os.close(os.open(found, _FLAGS, 0o666))
    return found


_PLAIN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags for appending: opening fails on symbolic links, and on pipes without a reader instead of blocking."""

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any, where: str = "value") -> Any:
    """``value`` in JSON types; arrays become lists, dataclasses and NamedTuples become objects.

    Raises:
        InputError: a value has no JSON form; the message names its path.
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
    """Inverse of :func:`to_json` for the special floats; objects stay dicts and lists stay lists."""
    if isinstance(value, dict):
        return {k: from_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_json(v) for v in value]
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def dumps(value: Any, where: str = "value", indent: int | None = None) -> str:
    """Strictly valid JSON text of ``value``; see :func:`to_json`."""
    return json.dumps(to_json(value, where), indent=indent, ensure_ascii=False, allow_nan=False)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Convert an OSError into a WriteError that names ``what``.

    Raises:
        WriteError: ``what`` cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(f"{what} cannot be written: {reason(error)}.") from error


def reason(error: OSError) -> Any:
    """Why a file or, by :mod:`shutil`, a folder cannot be written or copied."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return error.args[0][0][2]  # the first of (source, copy, reason)
    return error.strerror or error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path (of the same suffix) to write to; at the end it atomically replaces ``path``.

    After a crash ``path`` has its old or its new contents. The folder must exist: a deleted folder is not recreated.

    Raises:
        WriteError: writing failed; the temporary file is removed.
    """
    with writing(path.name):
        temporary = create_beside(path)
    try:
        with writing(path.name):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` atomically.

    Raises:
        WriteError: writing failed.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` atomically by text in UTF-8.

    Raises:
        WriteError: writing failed.
    """
    write_bytes(path, text.encode())


def append(path: Path, data: bytes) -> None:
    """Append ``data`` to ``path`` (created if needed) unbuffered; on failure the file is truncated to its old size.

    Raises:
        WriteError: writing failed.
    """
    with writing(path.name):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _PLAIN, 0o666)
        try:
            before, left = os.fstat(handle).st_size, memoryview(data)
            try:
                while left:
                    left = left[os.write(handle, left) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Delete a file, a folder with its contents, or a symbolic link (not its target)."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents.

    Raises:
        WriteError: it cannot be created, or a file has its name.
    """
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or a folder's directory entries, to the disk."""
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


def file_digests(folder: Path, but: str = "") -> dict[str, str]:
    """The SHA-256 of every file under ``folder`` except ``but``, by path relative to ``folder``.

    Raises:
        OSError: something is neither a regular file nor a folder; opening a pipe would block.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if not path.is_file():
            raise OSError(f"{name} is neither a file nor a folder")
        if name != but:
            with path.open("rb") as stream:
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def with_home(path: str | os.PathLike[str]) -> Path:
    """A path whose first part, if it is ``~`` or ``~USER``, is that user's home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # there is no such user
        return Path(path)


def written_to(
    chosen: str | os.PathLike[str] | None, default: Path, check: Callable[[Path], None] | None = None
) -> Path:
    """The path ``chosen`` by the user, whose folder is created if needed, or ``default``, whose folder is not.

    ``check`` refuses a path, such as one with another suffix, before its folder is created.

    Raises:
        WriteError: the folder cannot be created.
    """
    path = default if chosen is None else with_home(chosen)
    if check is not None:
        check(path)
    if chosen is not None:
        make_folder(path.parent)
    return path
