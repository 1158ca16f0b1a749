"""Opening a run folder, which may be anybody's: what it may have imported and called, and what is written into it."""

from pathlib import Path
from typing import Any

from shoal import notices
from shoal.configs import options_from_json
from shoal.environments import own_modules, permission, registry
from shoal.errors import InputError
from shoal.records import links, manifest, own_runs
from shoal.run import Run
from shoal.run_file import Described, described
from shoal.types import AnyEnvironment

_FLAG = "say --trust (trust=True in Python) if you trust whoever made it"


def open_run(folder: str | Path, environment: Any = None, *, trust: bool = False) -> Run:
    """A run that was trained before, to evaluate, replay or plot.

    The environment is built when it is first needed, by :meth:`Run.evaluate` for example, which may therefore raise
    :class:`InputError`: it cannot be built, is not what it was, or is not imported for the folder of somebody else.

    Args:
        folder: a run folder.
        environment: what a run was trained in that was not trained in a name.
        trust: import the environment that the folder names even where it is neither Shoal's nor an extra's, and the
            folder is not of your own training (docs/security.md).

    Raises:
        InputError: the folder holds no run.
    """
    said = described(Path(folder))

    def build() -> AnyEnvironment:
        if isinstance(environment, AnyEnvironment):
            return registry.make(environment, **said.env)
        if environment is None and not said.by_name:
            raise InputError(
                f"{folder} was trained in an Environment object, not in a name: give that environment again."
            )
        if environment is None:
            _permit(Path(folder), said, trust)
        factory = said.environment if environment is None else environment
        run.env_options = options_from_json(said.env, registry.options_of(factory))
        return registry.make(factory, **run.env_options)

    run = Run(Path(folder), said.algorithm, said.environment, said.env, said.settings, said.config, build, said.spec)
    run.by_name = said.by_name
    return run


def permit_training(run: Run, trust: bool, flags: dict[str, Any]) -> None:
    """Refuse to go on training in a folder of somebody else that could make it write or connect elsewhere.

    Args:
        run: as it was opened.
        trust: whether the user trusts the folder.
        flags: the settings that the user gives for the rest of the training.

    Raises:
        InputError: a link leads out of the folder, or its settings name a cluster.
    """
    if trust or _recorded(run.folder, described(run.folder)) is not None:
        return
    links.check_inside(run.folder)
    if run.settings.workers == "ray" and "workers" not in flags:
        raise InputError(
            f"{run.folder} is not known to be of your own training, and would use a Ray cluster: {_FLAG}, or give "
            f"workers yourself."
        )


def keep(run: Run) -> None:
    """Write ``run.json``, and remember that the user's own training wrote it."""
    manifest.write(run.folder, run.as_json())
    remember(run)


def keep_resumed(run: Run, permitted: bool) -> None:
    """Write ``run.json`` of a run that was resumed.

    Args:
        run: its settings may have changed.
        permitted: whether the user trusts the folder, or the environment that it names was built without that. If not,
            the folder of somebody else remains one.
    """
    record = _recorded(run.folder, described(run.folder))
    manifest.write(run.folder, run.as_json())
    if permitted:
        remember(run)
    elif record is not None:
        _record(run, record.directory)


def remember(run: Run) -> None:
    """Record a run's folder as one of the user's own training; where that fails, a warning says so."""
    module = permission.own_module(run.environment) if run.by_name else None
    _record(run, own_modules.folder_of(module) if module else None)


def _record(run: Run, directory: str | None) -> None:
    module = permission.own_module(run.environment) if run.by_name else None
    try:
        own_runs.record(run.folder, _decides(described(run.folder)), directory)
    except OSError as error:
        if module is not None:
            notices.warn(f"That you trained {run.folder} cannot be recorded, so opening it will need --trust: {error}.")


def _permit(folder: Path, said: Described, trust: bool) -> None:
    """Refuse what building the environment that a folder names must not do.

    Raises:
        InputError: the folder is somebody else's and its environment would import what is neither Shoal's nor an
            extra's; or what it names is no environment.
    """
    if (record := _recorded(folder, said)) is not None and not trust:
        own_modules.instead(record.directory)
        return
    if trust:
        permission.check_factory(said.environment)
    elif beyond := permission.beyond(said.environment, said.env):
        raise InputError(
            f"{folder} is not known to be of your own training, and its environment {said.environment!r} would "
            f"{beyond}: {_FLAG}."
        )
    else:
        own_modules.instead(None)


def _recorded(folder: Path, said: Described) -> own_runs.Record | None:
    return own_runs.recorded(folder, _decides(said))


def _decides(said: Described) -> dict[str, Any]:
    """What decides which modules are imported, what is called, and which machines are connected to."""
    names = {"environment": said.environment, "env": said.env, "by_name": said.by_name}
    return names | {"workers": said.settings.workers, "address": said.settings.address}
