"""Configuration files: what to train, as TOML or as the ``run.json`` of a run, for ``shoal train --config FILE``.

    algorithm = "mappo"
    environment = "mpe/simple_spread"

    [env]
    num_agents = 5

    [flags]
    steps = 3e6
    learning_rate = 0.001

Every key may be missing. Preset files have the same form, without an environment: tuned flags of one algorithm with
their source, for ``shoal train --preset FILE``. Reading one executes nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from shoal import algorithms
from shoal.errors import InputError, shortened, unknown
from shoal.options.convert import Anything, from_toml
from shoal.options.flags import ONE_CALL, leaves
from shoal.security import reading
from shoal.storage import manifest
from shoal.storage.zoo import located
from shoal.system.files import make_folder, write_text
from shoal.system.notices import escaped_as_unicode
from shoal.training.settings import Settings
from shoal.trust import run_file

MAX_TOML_BYTES = 2**20
"""Largest size in bytes of a TOML file."""
KEYS = ("algorithm", "environment", "env", "flags")
OF_PRESETS = ("environments", "source")
"""Keys without effect on a run: where a preset was found, and how."""


class ConfigFile(NamedTuple):
    """What a configuration file holds; the values of flags and options are not checked."""

    name: str
    """The file, for messages."""
    algorithm: str | None = None
    environment: str | None = None
    env: Mapping[str, Any] = {}
    """Options of the environment's factory, as TOML or JSON has them."""
    flags: Mapping[str, Any] = {}
    """Fields of the settings and of the algorithm's ``Config``, as TOML or JSON has them."""
    run: Path | None = None
    """The run's folder, whose contents need not be of the user's own; None for a file in TOML."""


def read_config(given: str | Path | Mapping[str, Any]) -> ConfigFile:
    """Read a configuration.

    Args:
        given: a TOML file, a run's folder or its ``run.json``, or a mapping with the keys of a TOML file.

    Raises:
        InputError: there is no such file, it is damaged, or has an unknown key. The message names the file and the key.
    """
    if isinstance(given, Mapping):
        return _checked("config", given)
    if not isinstance(given, str | PathLike):
        raise InputError(f"config must be the name of a file or a mapping, not {shortened(given)}.")
    path = located(given)
    if not str(given):
        raise InputError("The name of the configuration file is empty.")
    if path.is_dir() or path.name == manifest.RUN_JSON:
        folder = path if path.is_dir() else path.parent
        entries = run_file.config_of_run(folder)
        environment = entries["environment"] if entries["by_name"] else None
        flags = entries["settings"] | entries["config"]
        return ConfigFile(
            str(folder / manifest.RUN_JSON), entries["algorithm"], environment, entries["env"], flags, folder
        )
    return _checked(str(path), reading.read_toml(path, "configuration file", MAX_TOML_BYTES))


def _checked(name: str, found: Mapping[str, Any]) -> ConfigFile:
    for key in found:
        if key in ONE_CALL:
            raise _of_one_call(name, key)
        if key not in (*KEYS, *OF_PRESETS):
            text = str(unknown("key", str(key), (*KEYS, *OF_PRESETS)))
            raise InputError(f"{name}: {text} Flags are set in [flags], options of the environment in [env].")
    for key in ("algorithm", "environment"):
        if not isinstance(found.get(key, ""), str):
            raise InputError(f"{name}: {key} must be a string, not {shortened(found[key])}.")
    env, flags = found.get("env", {}), found.get("flags", {})
    for key, table in (("env", env), ("flags", flags)):
        if not isinstance(table, Mapping) or not all(isinstance(option, str) for option in table):
            raise InputError(f"{name}: {key} must be a table of names and values, not {shortened(table)}.")
    if given := next((flag for flag in flags if flag in ONE_CALL), None):
        raise _of_one_call(name, given)
    return ConfigFile(name, found.get("algorithm"), found.get("environment"), env, flags)


def typed_flags(flags: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Flags of a TOML file as Python values, by their types in runs of ``algorithm``; they are not checked."""
    hints: dict[str, Any] = {}
    for leaf in (leaf for part in (Settings(), algorithms.get(algorithm).Config()) for leaf in leaves(part)):
        for name in (leaf.name, leaf.plain):
            hints[name] = hints.get(name, leaf.hint) | leaf.hint
    return {flag: from_toml(value, hints.get(flag, Anything)) for flag, value in flags.items()}


def _of_one_call(name: str, key: str) -> InputError:
    return InputError(
        f"{name}: {key} belongs to one call, not to a configuration: give it as --{key.replace('_', '-')}."
    )


def to_toml(value: Any) -> str:
    """A value as TOML; None, which TOML lacks, is the text "None" (:func:`shoal.options.convert.becomes_none`).

    Raises:
        InputError: it has no such form.
    """
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return f"{{{', '.join(f'{key_to_toml(key)} = {to_toml(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if (value is None or isinstance(value, str | Path)) and text.encode("utf-8", "replace").decode("utf-8") == text:
        return escaped_as_unicode(json.dumps(text, ensure_ascii=False))
    raise InputError(f"{shortened(value)} cannot be written in a TOML file.")


def key_to_toml(key: str) -> str:
    """A key as TOML, in quotes where it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else to_toml(key)


def read_preset(path: Path | str, algorithm: str) -> dict[str, Any]:
    """The flags of a preset file for ``algorithm``.

    Raises:
        InputError: there is no such file, it is damaged, or it is of another algorithm.
    """
    found = read_config(path)
    if found.run is not None or found.environment is not None or found.env:
        raise InputError(f"{found.name} is a configuration file, not a preset; pass it with --config (config=…).")
    if not found.flags:
        raise InputError(f"{path} needs a table [flags], for example with gamma = 0.99.")
    theirs = found.algorithm and algorithms.canonical(found.algorithm)  # None without one
    if theirs != algorithms.canonical(algorithm):
        raise InputError(f"{path} is a preset of {shortened(found.algorithm)}, not of {algorithm}.")
    return typed_flags(found.flags, algorithm)


def write_preset(
    path: Path, algorithm: str, environments: Sequence[str], flags: Mapping[str, Any], source: str
) -> None:
    """Write a preset file atomically; its folder is created if needed.

    Raises:
        WriteError: it cannot be written.
    """
    head = {"algorithm": algorithms.canonical(algorithm), "environments": list(environments), "source": source}
    lines = [f"{key} = {to_toml(value)}" for key, value in head.items()]
    lines += ["", "[flags]", *(f"{flag} = {to_toml(value)}" for flag, value in flags.items())]
    make_folder(path.parent)
    write_text(path, "\n".join(lines) + "\n")
