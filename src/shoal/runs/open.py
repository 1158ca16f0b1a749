"""Opening of run folders, which may be untrusted: what may be imported and called, and what is written."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.flags import flags_of, options_from_json
from shoal.runs import behaviour
from shoal.runs.build import OPPONENTS, folder_of_opponents
from shoal.runs.run import Run
from shoal.security import reading, user_modules
from shoal.sides.opponents import PAST
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.zoo import located
from shoal.system import notices
from shoal.system.files import reason, write_bytes
from shoal.training import ending
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.trust import permission, provenance
from shoal.trust.run_file import TRUST, config_of_run, decides, described_run, made_of, own_record, why_not_own
from shoal.types import AnyEnvironment


def open_run(folder: str | Path, environment: Any = None, *, trust: bool = False) -> Run:
    """Open an existing run, to evaluate, replay or plot it.

    The environment is built when it is first needed, for example by :meth:`Run.evaluate`, which raises
    :class:`InputError` if it cannot be built, has changed, or is not imported for an untrusted folder.

    Args:
        folder: a run folder, or ``zoo/NAME`` (docs/zoo.md).
        environment: the environment, if the run was not trained in a name.
        trust: import the environment and the algorithm that the folder names even if they are neither Shoal's nor an
            extra's and the folder is not of your own training, and hand its options to an ``environment`` that is given
            even if they may name a file or a module (docs/security.md).

    Raises:
        InputError: the folder holds no run, or its algorithm is not imported for an untrusted folder.
    """
    where = located(folder)
    saved = described_run(where, trust)

    def build() -> AnyEnvironment:
        if isinstance(environment, AnyEnvironment):
            return registry.make(environment, **saved.env)
        if environment is None and not saved.by_name:
            raise InputError(
                f"{folder} was trained in an Environment object, which has no name: pass that environment again."
            )
        permission.permit(where, saved.as_json(), trust, environment)
        if environment is None:
            module = permission.own_module(saved.environment)
            user_modules.tell_of_changes(where, made_of(where), [module] if module else [])
        factory = saved.environment if environment is None else environment
        run.env_options = options_from_json(saved.env, registry.options_of(factory))
        return registry.make(factory, **run.env_options)

    names = saved.algorithm, saved.environment, saved.env
    run = Run(where, *names, saved.settings, saved.config, build, saved.spec)
    run.by_name, run.trusted = saved.by_name, trust
    return run


def permit_training(run: Run, trust: bool, flags: dict[str, Any]) -> None:
    """Check that training in a folder does not write elsewhere, and in an untrusted one does not connect elsewhere.

    Args:
        run: the opened run.
        trust: whether the user trusts the folder.
        flags: the settings that the user gives for resuming.

    Raises:
        InputError: a symbolic link leads out of the folder, even if it is trusted; or an untrusted folder's settings
            use a Ray cluster or have the address of one, or it would start from another run.
    """
    reading.check_inside(run.folder)
    if trust or own_record(run.folder, config_of_run(run.folder)) is not None:
        return
    why = why_not_own(run.folder, config_of_run(run.folder))
    if run.settings.init_from and Checkpoints(run.folder / "checkpoints").latest() is None:
        raise InputError(f"{run.folder} {why}, and would start from {run.settings.init_from}: {TRUST}.")
    joins = run.settings.workers == "ray" and "workers" not in flags
    if joins or (run.settings.address is not None and "address" not in flags):
        raise InputError(
            f"{run.folder} {why}, and would use a Ray cluster: {TRUST}, or give workers and address yourself."
        )


def keep_run_json(run: Run) -> None:
    """Write a copy of the opponents and ``run.json``, and record that the user's own training wrote them.

    Raises:
        InputError: the opponents' folder cannot be copied; nothing is written then.
    """
    _keep_opponents(run)
    _write(run, _behaviour(run))
    remember(run)


@contextlib.contextmanager
def keeping(run: Run, trainer: Trainer) -> Iterator[None]:
    """Keep a new run that is trained inside the block; nothing remains of it if a callback refuses its start, or if it
    fails before anything of its training is written."""
    with discarded_on_failure(run, trainer.guard, lambda: trainer.hooks.refused):
        keep_run_json(run)
        yield


@contextlib.contextmanager
def discarded_on_failure(
    run: Run, guard: Callable[[], None], refused: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Remove what a new run writes before training if an exception ends the block before anything else is written.

    Args:
        run: the run. One that its folder holds already is kept.
        guard: raises if the folder is no longer the run's.
        refused: whether what else is written may remain.
    """

    def names() -> set[str]:
        return {path.name for path in run.folder.iterdir()}

    before = names()
    try:
        yield
    except Exception:
        with contextlib.suppress(InputError, OSError):  # the first error is raised
            guard()
            written = names() - before
            at_start = {manifest.RUN_JSON, provenance.MARK_FILE, OPPONENTS}
            if manifest.RUN_JSON in written and (refused() or written <= at_start):
                (run.folder / manifest.RUN_JSON).unlink()
                (run.folder / provenance.MARK_FILE).unlink(missing_ok=True)
                if run.settings.opponent_options.opponents not in (None, PAST):
                    shutil.rmtree(run.folder / OPPONENTS, ignore_errors=True)
        raise


@contextlib.contextmanager
def copied_opponents(run: Run) -> Iterator[None]:
    """Copy the opponents of a new run that is built from the copy inside the block, since theirs may train meanwhile;
    the copy is removed if it cannot be built."""
    run._opponents()  # refuses them by the name that the user gave
    _keep_opponents(run)
    try:
        yield
    except BaseException:
        if not (run.folder / manifest.RUN_JSON).exists():  # otherwise the run is kept, and needs them
            shutil.rmtree(run.folder / OPPONENTS, ignore_errors=True)
        raise


def _keep_opponents(run: Run) -> None:
    """Copy the policies that a run plays against into its folder, so that it does not depend on theirs."""
    name, copy = run.settings.opponent_options.opponents, run.folder / OPPONENTS
    if (
        name is None
        or name == PAST
        or (copy / manifest.RUN_JSON).exists()
        or (source := folder_of_opponents(name)) is None
    ):
        return
    reading.check_inside(source)
    try:
        for part in ("policy", OPPONENTS):
            if (source / part).is_dir():
                shutil.copytree(source / part, copy / part, dirs_exist_ok=True)
        shutil.copy(source / manifest.RUN_JSON, copy / manifest.RUN_JSON)  # last, since the copy is complete with it
    except OSError as error:
        shutil.rmtree(copy, ignore_errors=True)
        raise InputError(
            f"The opponents in {source} cannot be copied into the run's folder: {reason(error)}."
        ) from None
    record_copy(source, copy)


def record_copy(source: Path, copy: Path) -> None:
    """Record the copy of a run of the user's own, and in it that of the run's opponents, as the user's own."""
    entries = config_of_run(source)
    if (record := own_record(source, entries)) is not None:
        _record_folder(copy, entries, record)
    if (source / OPPONENTS / manifest.RUN_JSON).is_file():
        record_copy(source / OPPONENTS, copy / OPPONENTS)


_BESIDE_TRAINING = frozenset({"checkpoint_seconds", "keep", "tensorboard", "eval_episodes", "worker_timeout"})
"""Settings that do not say how a run was trained."""
_ENDS = frozenset({"steps", "stop_at", "time_budget"})
"""Settings that say where a run ends."""


def keep_changed(run: Run, before: Settings) -> None:
    """Write ``run.json`` of a resumed run in which nothing was left to train; what it was made with stays.

    Settings with which it would have been trained differently stay too, and are named in a sentence. The end of a run
    changes only if it ends where it is because of that.

    Args:
        run: the run with its changed settings.
        before: its settings in ``run.json``.
    """
    known = _BESIDE_TRAINING if ending.ended(before, run.at) else _BESIDE_TRAINING | _ENDS
    changed = {name for name, value in vars(run.settings).items() if value != getattr(before, name)}
    if ignored := sorted(changed - known):
        notices.warn(f"Not recorded, since nothing was trained: {', '.join(ignored)}.")
        run.settings = replace(run.settings, **{name: getattr(before, name) for name in ignored})
    if not changed & known:
        return
    record = own_record(run.folder, config_of_run(run.folder))
    manifest.write_run_json(run.folder, run.as_json(), made_with=manifest.read_run_json(run.folder)["made_with"])
    if record is not None:
        _record(run, record)


@contextlib.contextmanager
def keeping_resumed(run: Run, trainer: Trainer, permitted: bool) -> Iterator[None]:
    """Keep a resumed run that is trained inside the block, as :func:`keep_resumed` does, before its callbacks start.

    If one of them does not start, the files are again as they were. Callbacks read ``run.json`` when they start.
    """
    trainer.guard()
    record = own_record(run.folder, config_of_run(run.folder))
    paths = [run.folder / name for name in (manifest.RUN_JSON, provenance.MARK_FILE)]
    before = [path.read_bytes() if path.is_file() else None for path in paths]
    keep_resumed(run, permitted)
    try:
        yield
    except BaseException:
        if not trainer.hooks.started:
            with contextlib.suppress(InputError):  # the disk is full, or the folder is gone: the first error is raised
                trainer.guard()
                for path, data in zip(paths, before, strict=True):
                    path.unlink(missing_ok=True) if data is None else write_bytes(path, data)
                if record is not None:
                    _record(run, record)
        raise


def keep_resumed(run: Run, permitted: bool) -> None:
    """Write ``run.json`` of a resumed run; warns if its algorithm or environment computes other numbers than before.

    Args:
        run: the run, whose settings may have changed.
        permitted: whether the user trusts the folder, or its environment was built without trust. Otherwise an
            untrusted folder remains untrusted.
    """
    record = own_record(run.folder, config_of_run(run.folder))
    made = manifest.read_run_json(run.folder)["made_with"]
    before = behaviour.kept(made)
    if changes := behaviour.changes(before or {}, run.algorithm, run.environment, _flags(run)):
        notices.warn(f"{run.folder} continues with other numbers than it began with: {'; '.join(changes)}.")
    _write(run, behaviour.oldest(before, _behaviour(run)), made)
    if permitted:
        remember(run)
    elif record is not None:
        _record(run, record)


def _write(run: Run, versions: dict[str, int], before: dict[str, Any] | None = None) -> None:
    modules = user_modules.digests(_own_modules(run), imported=True)
    manifest.write_run_json(run.folder, run.as_json(), modules, versions, before=before)


def _behaviour(run: Run) -> dict[str, int]:
    """Today's behaviour versions of what a run consists of."""
    return behaviour.versions(run.algorithm, run.environment, _flags(run))


def _flags(run: Run) -> dict[str, Any]:
    return flags_of(run.settings) | flags_of(run.config)


def remember(run: Run) -> None:
    """Record a run's folder as one of the user's own training; warns if that fails.

    If the user trusts the run, the copy of its opponents is recorded too.
    """
    folders = {module: user_modules.folder_of(module) for module in _own_modules(run)}
    directory = next(filter(None, folders.values()), None)
    modules = user_modules.with_imports(folders, directory) if directory else {}
    _record(run, provenance.OwnRecord(directory, tuple(modules.items())))
    if run.trusted and (run.folder / OPPONENTS / manifest.RUN_JSON).is_file():
        remember(open_run(run.folder / OPPONENTS, trust=True))


def remember_trusted(run: Run) -> None:
    """:func:`remember` a finished run that the user trusts, unless its folder is recorded already."""
    if own_record(run.folder, config_of_run(run.folder)) is None:
        _ = run._acting(), run.by_name and run.env  # imports the user's own modules, so that their folder is known
        remember(run)


def _own_modules(run: Run) -> list[str]:
    """Modules of the user's own that define a run's environment, algorithm, networks and opponents."""
    module = permission.own_module(run.environment) if run.by_name else None
    return [
        *([module] if module else []),
        *algorithms.own(run.algorithm),
        *user_modules.named_in(flags_of(run.config), flags_of(run.settings)),
    ]


def _record(run: Run, record: provenance.OwnRecord) -> None:
    try:
        provenance.record_folder(run.folder, decides(config_of_run(run.folder)), record.directory, dict(record.modules))
    except OSError as error:
        if _own_modules(run):
            notices.warn(
                f"The record that you trained {run.folder} cannot be written, so opening it will need --trust: {error}."
            )


def _record_folder(folder: Path, entries: dict[str, Any], record: provenance.OwnRecord) -> None:
    with contextlib.suppress(OSError):  # opening the folder then needs --trust
        provenance.record_folder(folder, decides(entries), record.directory, dict(record.modules))
