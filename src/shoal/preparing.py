"""A new run from an algorithm's name, an environment and flags; nothing is compiled or written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal import algorithms, preset_files
from shoal.configs import check_names, override
from shoal.environments import registry
from shoal.errors import InputError
from shoal.presets import preset as preset_of
from shoal.presets.sizes import sizes_for
from shoal.records.folders import path_of
from shoal.run import Run
from shoal.training import checks
from shoal.training.settings import Settings


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
    algorithm: str, environment: Any, env: dict[str, Any] | None, preset: str | Path | None, flags: dict[str, Any]
) -> Prepared:
    """Check what can be checked without building the environment; arguments are those of :func:`shoal.api.train`.

    Raises:
        InputError: an argument is invalid.
    """
    name, given = registry.called(environment), algorithm
    algorithm = algorithms.canonical(given)
    module = algorithms.get(algorithm)
    settings, config = Settings(), module.Config()
    flags = (preset_files.read(preset, algorithm) if preset is not None else {}) | flags
    check_names(flags, settings, config)
    if flags.get("init_from") is not None:
        flags = flags | {"init_from": _absolute(flags["init_from"])}
    tuned = preset_of(algorithm, name)
    check_names(tuned, settings, config, of=f"the preset of {algorithm} for {name}")
    settings, config = (override(override(x, tuned), flags) for x in (settings, config))
    checks.rewards(settings, config)

    def at(where: Path) -> Run:
        made = registry.make(environment, **(env or {}))
        sizes = sizes_for(min(made.spec.horizon, settings.wrapping.time_limit or made.spec.horizon))
        sized = override(settings, {size: x for size, x in sizes.items() if size not in {**tuned, **flags}})
        run = Run(where, algorithm, name, env or {}, sized, config, made)
        algorithms.check_alone(given, run.spec)
        run.by_name = isinstance(environment, str) or registry.can_be_named(environment)
        return run

    return Prepared(algorithm, name, at)


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
