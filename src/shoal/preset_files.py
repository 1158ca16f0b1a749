"""Preset files: tuned flags of one algorithm as TOML, with their source, for ``shoal train --preset FILE``.

    algorithm = "qmix"
    environments = ["mpe/simple_reference"]
    source = "shoal tune: the best of 27 trials …"

    [flags]
    learning_rate = 0.001

Reading one executes nothing.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.errors import InputError, shortened, unknown
from shoal.records import reading
from shoal.records.files import make_folder, write_text

LARGEST = 2**20
"""Largest size in bytes."""
_KEYS = ("algorithm", "environments", "source", "flags")


def read(path: Path | str, algorithm: str) -> dict[str, Any]:
    """The flags of a preset file for ``algorithm``.

    Raises:
        InputError: there is no such file, it is damaged, or it is of another algorithm.
    """
    try:
        found = tomllib.loads(reading.read_bytes(Path(path), LARGEST).decode("utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no preset file {str(path)!r}.") from None
    except reading.ReadingError as error:
        raise InputError(f"The preset file {path} {error}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise InputError(f"The preset file {path} is not valid TOML.") from None
    for key in found:
        if key not in _KEYS:
            raise InputError(f"{path}: {unknown('key', key, _KEYS)}")
    flags = found.get("flags")
    if not isinstance(flags, dict) or not flags:
        raise InputError(f"{path} needs a table [flags], for example with gamma = 0.99.")
    if found.get("algorithm") != algorithms.canonical(algorithm):
        raise InputError(f"{path} is a preset of {shortened(found.get('algorithm'))}, not of {algorithm}.")
    for flag, value in flags.items():
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(one, bool | int | float | str) for one in each):
            raise InputError(
                f"{path}: {flag} cannot be {shortened(value)}; it is a number, a text, true, false or a list."
            )
    return {flag: None if x == "None" else tuple(x) if isinstance(x, list) else x for flag, x in flags.items()}


def write(path: Path, algorithm: str, environments: Sequence[str], flags: Mapping[str, Any], source: str) -> None:
    """Write a preset file atomically; its folder is created if needed.

    Raises:
        WriteError: it cannot be written.
    """
    head = {"algorithm": algorithms.canonical(algorithm), "environments": list(environments), "source": source}
    lines = [f"{key} = {_toml(value)}" for key, value in head.items()]
    lines += ["", "[flags]", *(f"{flag} = {_toml(value)}" for flag, value in flags.items())]
    make_folder(path.parent)
    write_text(path, "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    """A value as TOML; None, which TOML lacks, is the text "None" as in study files."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if value is None or isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)
