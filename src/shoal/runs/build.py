"""A new run from an algorithm's name, an environment and flags; nothing is compiled or written."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.config.resolve import configured, named_options
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.presets import preset_note
from shoal.runs.run import Run
from shoal.sides.opponent_options import PAST
from shoal.storage import manifest
from shoal.storage.folders import path_of
from shoal.training import checks


@dataclass(frozen=True)
class Prepared:
    """A new run that has no folder yet."""

    algorithm: str
    """The algorithm's name."""
    environment: str
    """The environment's name."""
    preset: str
    """What is said of its preset (:func:`shoal.presets.preset_note`)."""
    at: Callable[[Path], Run]
    """Folder -> the run there, whose environment is built."""


def prepared(
    algorithm: str | None,
    environment: Any,
    env: dict[str, Any] | None,
    preset: str | Path | None,
    flags: dict[str, Any],
    config: str | Path | Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Prepared:
    """Check what can be checked without building the environment; arguments are those of :func:`shoal.runs.api.train`.

    Raises:
        InputError: an argument is invalid.
    """
    if flags.get("init_from") is not None:
        flags = flags | {"init_from": _absolute(flags["init_from"])}
    if isinstance(flags.get("opponents"), str):
        flags = flags | {"opponents": _opponents(flags["opponents"])}
    found = configured(algorithm, environment, env=env, flags=flags, config=config, preset=preset, trust=trust)
    values = found.values
    if values.settings.init_from is not None:  # also from a file
        settings = override(values.settings, {"init_from": _absolute(values.settings.init_from)})
        values = replace(values, settings=settings)
    checks.rewards(values.settings, values.config)

    def at(where: Path) -> Run:
        with named_options(found):
            made = registry.make(found.environment, **found.env)
        run = Run(where, found.algorithm, found.name, found.env, values.sized_for(made.spec), values.config, made)
        algorithms.check_alone(found.given, run.spec)
        run.by_name = isinstance(found.environment, str) or registry.can_be_named(found.environment)
        return run

    return Prepared(found.algorithm, found.name, preset_note(found.algorithm, found.name), at)


def _opponents(name: str) -> str:
    """``module:make`` for a script of the user's own; folders, ``past`` and other names as they are."""
    return name if name == PAST or Path(name).is_dir() else algorithms.canonical(name)


def _absolute(run: Any) -> Any:
    """The whole path of a run's folder, which a resumed run may need in another working directory.

    ``run.json`` and the folders of checkpoints and policies stand for the run that they belong to.
    """
    folder = run.folder if isinstance(run, Run) else run
    if not isinstance(folder, str | Path):
        return folder
    path = path_of(folder).expanduser().absolute()
    inside = path.name in (manifest.FILE, "checkpoints", "policy") and (path.parent / manifest.FILE).is_file()
    return str(path.parent if inside else path)


def check_both_named(algorithm: str, environment: Any, folder: str | Path | None) -> None:
    """Refuse an algorithm without an environment, also where an earlier run's folder is to give it.

    Raises:
        InputError: ``environment`` is None.
    """
    if environment is not None:
        return
    if folder is not None and (path_of(folder) / manifest.FILE).is_file():
        raise InputError(
            f"{folder} holds a run, whose algorithm an agent that goes on with it keeps: omit {algorithm!r}."
        )
    raise InputError(f"{algorithm} needs an environment, for example 'mpe/simple_spread'.")


def check_folder(where: Path) -> None:
    """Refuse a file in the place of a run's folder, and a path in which the library of checkpoints cannot read arrays.

    Raises:
        InputError: it is one.
    """
    if os.sep != "\\" and "\\" in str(where.absolute()):
        raise InputError(
            f"Checkpoints cannot be stored below a folder with a backslash in its name: {where.absolute()}."
        )
    if where.exists() and not where.is_dir():
        raise InputError(f"{where} is a file, not a folder for a run.")
