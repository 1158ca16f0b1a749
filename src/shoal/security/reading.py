"""Safe use of untrusted files, for example of a run folder: reading them, and links out of their folder.

Reading cannot block or exhaust the memory. Symbolic links that lead out of a run folder are refused, since Shoal would
write and delete elsewhere through them.
"""

import json
import math
import os
import stat
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from shoal.errors import InputError

MIB = 2**20
_DIGITS = 320
"""More digits than a float can hold; Python refuses to read thousands of them."""
DEEPEST = 40
"""Largest nesting depth of objects and lists; Shoal's own files have about five."""


class ReadingError(ValueError):
    """A file or text cannot be read; the message is the end of a sentence that names the file."""


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The contents of a regular file; pipes, devices and sockets are errors, without blocking.

    Args:
        path: the file.
        most: largest size in bytes; None for any size.

    Raises:
        FileNotFoundError: the file does not exist.
        ReadingError: it is not a regular file, too large, or cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # without it, opening a pipe waits for a writer
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ReadingError("is not a regular file")
            if most is not None and found.st_size > most:
                raise ReadingError(f"is larger than {most // MIB} MiB")
            with open(handle, "rb", closefd=False) as file:
                return file.read() if most is None else file.read(most)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ReadingError(f"cannot be read ({error.strerror})") from None


def read_toml(path: Path, kind: str, most: int) -> dict[str, Any]:
    """The contents of a TOML file.

    Args:
        path: the file.
        kind: the kind of file, for the message.
        most: largest size in bytes.

    Raises:
        InputError: there is none, or it is not TOML; the message names the file and the line.
    """
    try:
        found = tomllib.loads(read_bytes(path, most).decode("utf-8-sig"))  # some editors begin it with a mark
        _check_integers(found)
        return found
    except FileNotFoundError:
        raise InputError(f"There is no {kind} {str(path)!r}.") from None
    except ReadingError as error:
        raise InputError(f"{path}: it {error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: it is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).rpartition(" (at ")
        raise InputError(f"{path}: {place.rstrip(')')} is not valid TOML: {what[:1].lower()}{what[1:]}.") from None
    except ValueError:  # an integer of thousands of digits
        raise InputError(f"{path}: it is not valid TOML.") from None
    except RecursionError:
        raise InputError(f"{path}: it is nested too deeply.") from None


def _check_integers(value: Any) -> None:
    """Check that floats can hold all whole numbers in tables and lists.

    Raises:
        ReadingError: one is larger.
    """
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_integers(inner)
    elif isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ReadingError(f"contains the number {_short(str(value))}, which is too large")


def parse_json(data: bytes | str, largest: float = sys.float_info.max) -> Any:
    """Parse strict JSON: UTF-8, no duplicate keys, numbers up to ``largest``.

    Raises:
        ReadingError: it is something else, or nested too deeply.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, **hooks(largest))
    except ReadingError:
        raise
    except ValueError:  # not UTF-8, not JSON, or an integer of thousands of digits
        raise ReadingError("cannot be read as JSON") from None
    except RecursionError:
        raise ReadingError("is nested too deeply") from None
    level = [found]
    for _ in range(DEEPEST):
        inner = [x.values() if isinstance(x, dict) else x for x in level if isinstance(x, dict | list)]
        level = [value for values in inner for value in values]
    if level:
        raise ReadingError("is nested too deeply")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ReadingError(f"has the key {twice!r} twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ReadingError(f"contains {name}, which is not valid JSON")


def hooks(largest: float = sys.float_info.max) -> dict[str, Any]:
    """Arguments of :func:`json.loads` that refuse numbers above ``largest``, which at most is that of floats.

    Their functions raise :class:`ReadingError`, which is a ValueError.
    """

    def checked(kind: Callable[[str], Any], text: str) -> Any:
        value = math.inf if len(text) > _DIGITS and kind is int else kind(text)
        if not abs(value) <= largest:
            raise ReadingError(f"contains the number {_short(text)}, which is too large")
        return value

    return {"parse_float": partial(checked, float), "parse_int": partial(checked, int)}


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def check_inside(folder: Path) -> None:
    """Check that no symbolic link in a folder leads out of it.

    Raises:
        InputError: one does; the message names it.
    """
    root = folder.resolve()
    for here, folders, files in os.walk(root, followlinks=False):
        for path in (Path(here) / name for name in (*folders, *files)):
            if path.is_symlink() and not _target(path).is_relative_to(root):
                raise InputError(
                    f"{path} is a symbolic link that leads out of the run's folder, and is not followed; put the file "
                    f"or folder itself in its place."
                )


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a run's folder, to be written.

    Raises:
        InputError: it is a symbolic link, since its target could be any file.
    """
    path = folder / name
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link, which is not overwritten; choose another file.")
    return path


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return Path(path.anchor)
