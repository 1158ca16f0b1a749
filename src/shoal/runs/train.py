"""Training of a run: a new run from a configuration, the trainer of a run, and training to the end."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from shoal import algorithms
from shoal.config.resolve import Configured, named_options
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs import final_evaluation
from shoal.runs.build import build, check_build, told_of_teams
from shoal.runs.init_from import source_of
from shoal.runs.load import devices_before
from shoal.runs.run import Run
from shoal.storage import manifest
from shoal.storage.folders import path_of
from shoal.training import checks, pretraining
from shoal.training.sharding import one_device_per_core
from shoal.training.trainer import Trainer


def new_run(found: Configured, folder: Path) -> Run:
    """A run that is not trained yet, whose environment is built; nothing is compiled or written.

    Args:
        found: what it trains.
        folder: its folder.

    Raises:
        InputError: the environment cannot be built, or a value is invalid.
    """
    values = found.values
    checks.check_rewards(values.settings, values.config)
    with named_options(found):
        env = registry.make(found.environment, **found.env)
    settings = values.sized_for(env.spec)
    if settings.init_from is not None:
        settings = override(settings, {"init_from": _absolute(settings.init_from)})
    run = Run(folder, found.algorithm, found.name, found.env, settings, values.config, env)
    algorithms.check_alone(found.given, run.spec)
    run.by_name = isinstance(found.environment, str) or registry.can_be_named(found.environment)
    return run


def _absolute(folder: str) -> str:
    """The whole path of a run's folder, which a resumed run may need in another working directory.

    ``run.json`` and the folders of checkpoints and policies stand for the run that they belong to.
    """
    path = path_of(folder).expanduser().absolute()
    inside = path.name in (manifest.RUN_JSON, "checkpoints", "policy") and (path.parent / manifest.RUN_JSON).is_file()
    return str(path.parent if inside else path)


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


def check_new_run(run: Run) -> None:
    """Check a new run as :func:`trainer_of` does, except for its memory and what its folder holds; nothing is written.

    Raises:
        InputError: a setting, the configuration or the environment is invalid.
    """
    if run.settings.devices != 1:
        one_device_per_core()
    check_build(run.algorithm, run.env, run.config, run.settings, opponents=run._opponents())
    if run.settings.init_from:
        source_of(Path(run.settings.init_from), lambda _: None)


def trainer_of(
    run: Run, progress: bool, guard: Callable[[], None] = lambda: None, kind: type[Trainer] | None = None
) -> Trainer:
    """The trainer of a run; nothing is compiled or written.

    Args:
        run: the run. Its ``config`` becomes that of the algorithm's decision, if it makes one before training.
        progress: whether progress is shown.
        guard: raises if the folder is no longer the run's.
        kind: the class; None for :class:`Trainer`.

    Raises:
        InputError: a setting, the configuration or the environment is invalid.
    """
    if run.settings.devices != 1:
        one_device_per_core()
    what, devices = (run.algorithm, run.env, run.config, run.settings), devices_before(run.folder)
    built = build(*what, opponents=run._opponents(), devices=devices)
    run.config, run.decision = built.config, built.decision
    remake = partial(built.make, built.config)
    where = run.folder, progress, remake, run._identity(), guard
    return (kind or Trainer)(built.env, built.algorithm, run.settings, built.layout, *where)


def announce(run: Run, trainer: Trainer) -> None:
    """Print the notes and warnings of a run that starts, and keep the algorithm's decision, if any."""
    header = f"{run.algorithm} in {run.environment}, kept in {run.folder}"
    roles = checks.notes_on_roles(trainer.env.spec, run.settings, run.config, trainer.layout.num_envs)
    teams = told_of_teams(run.algorithm, trainer.env.spec, run.config, run.settings)
    workers = checks.notes_on_workers(trainer.env, run.settings)
    trainer.progress.tell([header, *roles, *teams, *workers, *trainer.notes], trainer.warnings)
    pretraining.keep_decision(run.decision, run.folder, trainer.progress, trainer.guard)


def train_to_end(run: Run, trainer: Trainer) -> None:
    """Train to the end and evaluate the policies."""
    announce(run, trainer)
    episodes = run.settings.evaluation_episodes(run.env)
    try:
        run.finished = trainer.run() and not trainer.stop.asked
        trainer.guard()
        if run.finished and episodes:
            run.evaluation = final_evaluation.by_training(trainer, run._learner, episodes)
            run.evaluation = run.evaluation or run.evaluate(episodes)
    finally:
        trainer.close()
    if run.evaluation is not None:
        final_evaluation.keep_evaluation(run, run.evaluation, episodes, trainer.guard)
