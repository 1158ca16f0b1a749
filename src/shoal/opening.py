"""Opening of run folders, which may be untrusted: what may be imported and called, and what is written."""

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

_FLAG = "say --trust (trust=True in Python) if you trust its author"


def open_run(folder: str | Path, environment: Any = None, *, trust: bool = False) -> Run:
    """Open an existing run, to evaluate, replay or plot it.

    The environment is built when it is first needed, for example by :meth:`Run.evaluate`, which raises
    :class:`InputError` if it cannot be built, has changed, or is not imported for an untrusted folder.

    Args:
        folder: a run folder.
        environment: the environment, if the run was not trained in a name.
        trust: import the environment that the folder names even if it is neither Shoal's nor an extra's and the folder
            is not of your own training (docs/security.md).

    Raises:
        InputError: the folder holds no run.
    """
    saved = described(Path(folder))

    def build() -> AnyEnvironment:
        if isinstance(environment, AnyEnvironment):
            return registry.make(environment, **saved.env)
        if environment is None and not saved.by_name:
            raise InputError(
                f"{folder} was trained in an Environment object, not in a name: give that environment again."
            )
        if environment is None:
            _permit(Path(folder), saved, trust)
        factory = saved.environment if environment is None else environment
        run.env_options = options_from_json(saved.env, registry.options_of(factory))
        return registry.make(factory, **run.env_options)

    names = saved.algorithm, saved.environment, saved.env
    run = Run(Path(folder), *names, saved.settings, saved.config, build, saved.spec)
    run.by_name = saved.by_name
    return run


def permit_training(run: Run, trust: bool, flags: dict[str, Any]) -> None:
    """Check that training in an untrusted folder does not write or connect elsewhere.

    Args:
        run: the opened run.
        trust: whether the user trusts the folder.
        flags: the settings that the user gives for resuming.

    Raises:
        InputError: a symbolic link leads out of the folder, or its settings use a Ray cluster.
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
    """Write ``run.json``, and record that the user's own training wrote it."""
    manifest.write(run.folder, run.as_json())
    remember(run)


def keep_resumed(run: Run, permitted: bool) -> None:
    """Write ``run.json`` of a resumed run.

    Args:
        run: the run, whose settings may have changed.
        permitted: whether the user trusts the folder, or its environment was built without trust. Otherwise an
            untrusted folder remains untrusted.
    """
    record = _recorded(run.folder, described(run.folder))
    manifest.write(run.folder, run.as_json())
    if permitted:
        remember(run)
    elif record is not None:
        _record(run, record.directory)


def remember(run: Run) -> None:
    """Record a run's folder as one of the user's own training; warns if that fails."""
    module = permission.own_module(run.environment) if run.by_name else None
    _record(run, own_modules.folder_of(module) if module else None)


def _record(run: Run, directory: str | None) -> None:
    module = permission.own_module(run.environment) if run.by_name else None
    try:
        own_runs.record(run.folder, _decides(described(run.folder)), directory)
    except OSError as error:
        if module is not None:
            notices.warn(f"That you trained {run.folder} cannot be recorded, so opening it will need --trust: {error}.")


def _permit(folder: Path, saved: Described, trust: bool) -> None:
    """Check that the environment that a folder names may be built.

    Raises:
        InputError: the folder is untrusted and its environment would import modules that are neither Shoal's nor an
            extra's; or the name is not that of an environment.
    """
    if (record := _recorded(folder, saved)) is not None and not trust:
        own_modules.instead(record.directory)
        return
    if trust:
        permission.check_factory(saved.environment)
    elif beyond := permission.beyond(saved.environment, saved.env):
        raise InputError(
            f"{folder} is not known to be of your own training, and its environment {saved.environment!r} would "
            f"{beyond}: {_FLAG}."
        )
    else:
        own_modules.instead(None)


def _recorded(folder: Path, saved: Described) -> own_runs.Record | None:
    return own_runs.recorded(folder, _decides(saved))


def _decides(saved: Described) -> dict[str, Any]:
    """The entries that determine which modules are imported, what is called, and which machines are connected to."""
    names = {"environment": saved.environment, "env": saved.env, "by_name": saved.by_name}
    return names | {"workers": saved.settings.workers, "address": saved.settings.address}
