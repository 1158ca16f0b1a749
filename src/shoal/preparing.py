"""A new run from an algorithm's name, an environment and flags; nothing is compiled or written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.configs import override
from shoal.configuring import configured
from shoal.environments import registry
from shoal.errors import InputError
from shoal.records.folders import path_of
from shoal.run import Run
from shoal.training import checks


@dataclass(frozen=True)
class Prepared:
    """A new run that has no folder yet."""

    algorithm: str
    """The algorithm's name."""
    environment: str
    """The environment's name."""
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
    """Check what can be checked without building the environment; arguments are those of :func:`shoal.api.train`.

    Raises:
        InputError: an argument is invalid.
    """
    if flags.get("init_from") is not None:
        flags = flags | {"init_from": _absolute(flags["init_from"])}
    found = configured(algorithm, environment, env=env, flags=flags, config=config, preset=preset, trust=trust)
    values = found.values
    if values.settings.init_from is not None:  # also from a file
        settings = override(values.settings, {"init_from": _absolute(values.settings.init_from)})
        values = replace(values, settings=settings)
    checks.rewards(values.settings, values.config)

    def at(where: Path) -> Run:
        made = registry.make(found.environment, **found.env)
        run = Run(where, found.algorithm, found.name, found.env, values.sized_for(made.spec), values.config, made)
        algorithms.check_alone(found.given, run.spec)
        run.by_name = isinstance(found.environment, str) or registry.can_be_named(found.environment)
        return run

    return Prepared(found.algorithm, found.name, at)


def _absolute(run: Any) -> Any:
    """The whole path of a run's folder, which a resumed run may need in another working directory."""
    folder = run.folder if isinstance(run, Run) else run
    return str(path_of(folder).expanduser().absolute()) if isinstance(folder, str | Path) else folder


def check_folder(where: Path) -> None:
    """Refuse a file in the place of a run's folder.

    Raises:
        InputError: it is one.
    """
    if where.exists() and not where.is_dir():
        raise InputError(f"{where} is a file, not a folder for a run.")
