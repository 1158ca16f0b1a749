"""The public functions: train, resume and open runs, draw their curves, and cross-play; and how a run is trained."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

from shoal import algorithms
from shoal.config.resolve import Configured, configured, named_options
from shoal.environments import registry
from shoal.environments.wrappers import Wrapping
from shoal.errors import CallbackError, GameError, InputError, NonFiniteError
from shoal.options.convert import convert_value, items_of
from shoal.options.flags import SPEC_WORDS, flags_of, games_to_json, options_from_json, override
from shoal.plots.curves import plot
from shoal.plots.figures import check_format
from shoal.presets import preset_note
from shoal.runs import final_evaluation
from shoal.runs.build import build, check_build, check_hosts, told_of_teams
from shoal.runs.init_from import check_source, source_of, start_from
from shoal.runs.load import devices_before, past_selves
from shoal.runs.open import (
    copied_opponents,
    keep_changed,
    keeping,
    keeping_resumed,
    open_run,
    permit_training,
    remember_trusted,
)
from shoal.runs.run import Run
from shoal.sides.opponents import PAST
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import check_free, in_new_folder, new_folder, path_of
from shoal.storage.lock import hold
from shoal.storage.zoo import check_trainable, located, name_of, shown
from shoal.system import shipped
from shoal.system.files import written_to
from shoal.system.forks import check_not_forked
from shoal.training import checks, ending, feed, hosts, pretraining
from shoal.training import crossplay as playing
from shoal.training.callbacks import Callback, Given, accepted, with_callbacks
from shoal.training.crossplay import CrossPlay
from shoal.training.evaluation import check_episodes, check_mode
from shoal.training.follower import follow
from shoal.training.settings import CHANGEABLE, Settings
from shoal.training.sharding import one_device_per_core, plan_layout
from shoal.training.trainer import Trainer
from shoal.types import Algorithm, AnyEnvironment

__all__ = ["CrossPlay", "Run", "crossplay", "curves", "new_folder", "open_run", "resume", "train"]


def train(
    algorithm: str | None = None,
    environment: Any = None,
    *,
    env: dict[str, Any] | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | Path | None = None,
    trust: bool = False,
    callbacks: Sequence[Given] = (),
    **flags: Any,
) -> Run:
    """Train ``algorithm`` in ``environment`` and return the finished run.

    Args:
        algorithm: a name from ``shoal list algorithms``; ``my_idea`` or ``package.my_idea``, a module of your own with
            a ``Config`` and a ``make``; or one for each side of the environment, as ``mappo+ippo``. In an environment
            of one agent, ``ppo``, ``dqn``, ``a2c``, ``ddpg``, ``td3`` and ``sac`` are accepted too
            (:data:`shoal.algorithms.ALONE`).
        environment: a name from ``shoal list environments``, ``package.module:factory``, that factory itself (for
            example a PettingZoo class), or an :class:`Environment` or :class:`HostEnvironment`. If it is not a name,
            :func:`resume` and :func:`open_run` need it again.
        env: options of the environment's factory, for example ``{"num_agents": 5}``.
        folder: the run's folder; by default a new folder under ``runs/``.
        progress: show the progress line.
        config: a configuration file in TOML, a run's folder or its ``run.json``, or a dictionary with the keys of a
            file (docs/configuration.md). It may name the algorithm and the environment; what is given here takes
            precedence over its values, and these over those of presets.
        preset: a preset file (:mod:`shoal.config.config_files`), for example one that :func:`shoal.tune` wrote; its
            values take precedence over those of the preset that belongs to Shoal.
        trust: import what the ``run.json`` of ``config`` or of the folder ``opponents`` names even if it is neither
            Shoal's nor an extra's and the run is not of your own training (docs/security.md).
        callbacks: your own code that is called during training (:class:`shoal.Callback`), or functions
            (context, metrics) that are called for each row of the log; see docs/hooks.md.
        flags: fields of :class:`~shoal.training.settings.Settings` (``steps=3e6, seeds=4``) or of the algorithm's
            ``Config`` (``learning_rate=1e-3``, ``hidden=(128, 128)``); ``init_from`` and ``opponents`` may also be a
            path or a :class:`Run`. Other fields come from the preset, then from defaults; without a preset,
            ``num_envs`` and ``rollout_length`` are derived from the length of an episode
            (:func:`shoal.presets.sizes_for`). With several sides, ``learning_rate`` applies to all and
            ``side1_learning_rate`` to one.

    Raises:
        InputError: an argument is invalid; raised before anything compiles. Later, if the disk is full or the folder is
            deleted (:class:`WriteError`, :class:`CheckpointError`, :class:`FolderError`).
        NonFiniteError: a metric became NaN or infinite; the last good checkpoint is kept.
        CallbackError: a callback raised; the run is saved if it has started.
        KeyboardInterrupt, Terminated (a SystemExit): Ctrl-C, or SIGTERM and SIGHUP; the run is saved.
    """
    found = configured(algorithm, environment, env=env, flags=flags, config=config, preset=preset, trust=trust)
    return train_configured(found, folder, progress, callbacks)


def train_configured(
    found: Configured, folder: str | Path | None = None, progress: bool = True, callbacks: Sequence[Given] = ()
) -> Run:
    """Train what :func:`shoal.config.resolve.configured` found; other arguments and exceptions are those of
    :func:`train`."""
    check_not_forked()
    hooks = accepted(callbacks)

    def start(where: Path) -> Run:
        check_folder(where)
        with hold(where) as lock:  # a folder that was created here is removed again on bad input
            check_free(where)
            run = new_run(found, where)
            check_source(run.settings)
            with copied_opponents(run):
                trainer = trainer_of(run, progress, lock.check)
                trainer.notes.append(preset_note(found.algorithm, found.name))
                if run.settings.init_from:
                    start_from(trainer, Path(run.settings.init_from))
            lock.check()
            with keeping(run, trainer):
                return _trained(run, trainer, hooks)

    return in_new_folder(found.algorithm, found.name, start) if folder is None else start(path_of(folder))


def resume(
    folder: str | Path,
    *,
    environment: Any = None,
    trust: bool = False,
    progress: bool = True,
    callbacks: Sequence[Given] = (),
    continue_stopped: bool = False,
    **flags: Any,
) -> Run:
    """Continue the run in ``folder`` from its newest intact checkpoint, bit for bit as if it had never stopped.

    A run without a checkpoint starts from the beginning. A finished run is neither compiled nor trained, and its
    :attr:`Run.untouched` is True.

    Args:
        folder: a run folder.
        environment: the environment, if the run was not trained in a name.
        trust: see :func:`open_run`.
        progress: show the progress line.
        callbacks: see :func:`train`. They are not stored with the run; those of a run that has finished are not called.
        continue_stopped: go on where a callback stopped the run, which has finished otherwise.
        flags: the settings in :data:`~shoal.training.settings.CHANGEABLE`, for example ``steps`` to train longer
            (schedules stretch to the new length, unless ``schedule_steps`` sets theirs).

    Raises:
        InputError: the folder holds no run, another process trains in it, a flag cannot change, or there are fewer
            devices than before.
        CheckpointError: no checkpoint is intact.
        CallbackError: a callback raised; the run is saved.
        KeyboardInterrupt, Terminated: as for :func:`train`.
    """
    check_not_forked()
    hooks = accepted(callbacks)
    where = path_of(folder)
    check_trainable(where)
    manifest.read_run_json(where)  # before a lock file is created in a folder that holds no run
    with hold(where) as lock:
        run, trainer = _restored(where, environment, trust, progress, flags, lock.check, continue_stopped)
        if trainer is None:
            if crew := hosts.crew():
                crew.dismiss()
            return run
        with keeping_resumed(run, trainer, permitted=trust or environment is None):
            return _trained(run, trainer, hooks)


def _trained(run: Run, trainer: Trainer, hooks: Sequence[Callback]) -> Run:
    """Train to the end; the run is not returned if a signal stopped it, since its caller would use it as trained."""
    with with_callbacks(run, trainer, hooks):
        train_to_end(run, trainer)
    if trainer.stop.asked:
        sentence = f"Stopped at step {trainer.step:,}; shoal.resume({str(run.folder)!r}) continues the run."
        raise trainer.stop.exception(sentence)
    return run


def _restored(
    folder: Path,
    environment: Any,
    trust: bool,
    progress: bool,
    flags: dict[str, Any],
    guard: Callable[[], None],
    continue_stopped: bool,
) -> tuple[Run, Trainer | None]:
    """A run with its restored trainer, which has written nothing; None if it has finished."""
    run = open_run(folder, environment, trust=trust)
    wrong = sorted(set(flags) - CHANGEABLE)
    if wrong:
        raise InputError(
            f"{wrong[0]} cannot change in a resumed run; a new run that starts from it may have another value "
            f"(--init-from {folder}). What can change: {', '.join(sorted(CHANGEABLE))}."
        )
    permit_training(run, trust, flags)
    before, run.settings = run.settings, override(run.settings, flags)
    run.settings.check()
    if run.settings.devices is not None and "devices" in flags:
        _check_devices(run)
    if environment is not None:
        _ = run.env  # raises if it is another environment, also for a finished run
    if final_evaluation.conclude(run, before, guard, continue_stopped):
        if flags:
            guard()
            keep_changed(run, before)  # the environment was not built
        if trust:
            guard()
            remember_trusted(run)
        return run, None
    trainer = trainer_of(run, progress, guard)
    if run.settings.init_from and trainer.checkpoints.latest() is None:
        start_from(trainer, Path(run.settings.init_from))
    trainer.restore(continue_stopped)
    if note := checks.note_on_schedules(before, run.settings, run.config):
        trainer.notes.append(note)
    return run, trainer


def _check_devices(run: Run) -> None:
    """Check the number of devices that the user gives for resuming, also where nothing is left to train.

    Raises:
        InputError: the run was trained on another number of devices, or there are too few.
    """
    settings, checkpoints = run.settings, Checkpoints(run.folder / "checkpoints")
    if settings.workers == "ray" or checkpoints.latest() is None:
        return
    if settings.devices != 1:
        one_device_per_core()
    plan_layout(settings.seeds, settings.num_envs, settings.devices).check_same(checkpoints.load_meta()["shards"])


# One run on several hosts (``shoal train --hosts``).


def check_new_on_hosts(found: Configured) -> None:
    """Check what :func:`train_configured` would train on several hosts; nothing is compiled or written.

    Raises:
        InputError: it cannot be cut over their devices, or is invalid.
    """
    run = new_run(found, Path("runs"))
    check_hosts(run.algorithm, run.env, run.config, run.settings)


def check_resumed_on_hosts(run: Run, settings: Settings) -> None:
    """Check an opened run with its changed settings as :func:`check_new_on_hosts` does.

    Raises:
        InputError: it cannot be cut over devices of several hosts, or is invalid.
    """
    settings.check()
    check_hosts(run.algorithm, run.env, run.config, settings)


def follow_new(found: Configured) -> None:
    """Take part in a new run, which another process leads."""
    _follow(new_run(found, Path(os.devnull)))


def follow_resumed(folder: str | Path, trust: bool, flags: dict[str, Any]) -> None:
    """Take part in a resumed run, which another process leads."""
    run = open_run(folder, trust=trust)
    run.settings = override(run.settings, flags)
    _follow(run)


def _follow(run: Run) -> None:
    crew = hosts.crew()
    assert crew is not None
    follow(trainer_of(run, False), crew)


# What both call.


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
    env = environment_of(found)
    settings = values.sized_for(env.spec)
    if settings.init_from is not None:
        settings = override(settings, {"init_from": _absolute(settings.init_from)})
    run = Run(folder, found.algorithm, found.name, found.env, settings, values.config, env)
    algorithms.check_alone(found.given, run.spec)
    run.by_name = isinstance(found.environment, str) or registry.can_be_named(found.environment)
    run.trusted = found.trust
    return run


def environment_of(found: Configured) -> AnyEnvironment:
    """The environment, without the wrappers of training.

    Raises:
        InputError: it cannot be built.
    """
    if found.values.settings.devices != 1:
        one_device_per_core()  # first, since some libraries of environments start JAX
    with named_options(found):
        return registry.make(found.environment, **found.env)


def _absolute(folder: str) -> str:
    """The whole path of a run's folder, which a resumed run may need in another working directory.

    ``run.json`` and the folders of checkpoints and policies stand for the run that they belong to.
    """
    if shipped.in_zoo(located(path_of(folder))):
        return folder
    path = path_of(folder).absolute()
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
    where = run.folder, progress, remake, run._identity(), guard, run._program_key(built.layout)
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
    episodes, done = run.settings.evaluation_episodes(run.env), trainer.update
    try:
        run.finished = trainer.run() and not trainer.stop.asked
        if run.finished and trainer.update == done:
            trainer.progress.warn(ending.sentence(run.settings, trainer.at))
        trainer.part()
        trainer.guard()
        if run.finished and episodes:
            run.evaluation = final_evaluation.by_training(trainer, run._learner, episodes)
            run.evaluation = run.evaluation or run._evaluated(episodes)
    except (InputError, GameError, CallbackError, NonFiniteError):
        trainer.part()
        raise
    finally:
        trainer.close()
    if run.evaluation is not None:
        final_evaluation.keep_evaluation(run, run.evaluation, episodes, trainer.guard)


# Several runs together.


def curves(
    runs: Run | str | Path | Sequence[Run | str | Path],
    path: str | Path | None = None,
    metrics: Sequence[str] = ("return",),
) -> Path:
    """Draw the learning curves of several runs in one figure, by default ``compare.png``; returns its path."""
    path = written_to(path, Path("compare.png"), check_format)
    given = items_of("runs", runs, (Run, str, Path))
    return plot([run.folder if isinstance(run, Run) else path_of(run) for run in given], path, metrics)


_OF_TRAINING = CHANGEABLE | {"seed", "seeds", "num_envs", "rows", "init_from", "normalise_rewards", "reward_clip"}
"""Settings that do not change how the policies of a run act."""


def crossplay(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *,
    side: int | Sequence[str | int] = (),
    episodes: float | int = 128,
    greedy: bool | None = None,
    seed: int = 0,
    environment: Any = None,
    trust: bool = False,
    past: bool = False,
) -> CrossPlay:
    """Cross-play: let the policies of several runs play on two sides of their environment.

    Each run plays side 1 with each run on side 2, every seed of one with every seed of the other.

    Args:
        runs: runs or their folders, all trained in the same environment.
        side: the agents of side 1, by name or index; all others are side 2. By default side 1 is role 0, or the first
            half of the agents (rounded down) if there is only one role.
        episodes: whole episodes for each pair of seeds.
        greedy: act by the mode of the policy rather than by sampling; None for what each run's final evaluation found
            better (:attr:`Run.acts_greedily`).
        seed: seed of the episodes, the same for every entry of the matrix.
        environment: the environment, if the runs were not trained in a name.
        trust: see :func:`open_run`.
        past: before each run that has past selves (``opponents="past"``) they play too, the oldest first.

    Raises:
        InputError: a folder holds no run, no run has past selves, environments or what wrappers show of them differ,
            a side would be empty, ``greedy`` is no boolean, or ``episodes`` or ``seed`` no whole number.
        CheckpointError: a run has no intact policy.
    """
    runs = items_of("runs", runs, (Run, str, Path))
    if not runs:
        raise InputError("Cross-play needs at least one run.")
    greedy, seed, episodes = check_mode(greedy), convert_value("seed", seed, int), check_episodes(episodes)
    opened = [run if isinstance(run, Run) else open_run(run, environment, trust=trust) for run in runs]
    return crossplay_opened(opened, side=side, episodes=episodes, greedy=greedy, seed=seed, past=past)


def crossplay_opened(
    opened: Sequence[Run],
    *,
    side: int | Sequence[str | int],
    episodes: int,
    greedy: bool | Sequence[bool] | None,
    seed: int,
    past: bool = False,
) -> CrossPlay:
    """:func:`crossplay` of runs that are open; ``greedy`` may also hold the mode of each."""
    env = opened[0].env  # first, since it refuses to import the environment of an untrusted folder
    for run in opened[1:]:
        here, there = (one.settings.wrapping for one in (run, opened[0]))
        check_same_observing(shown(run.folder), here, shown(opened[0].folder), there)
        check_same_environment(opened[0], run)
    selves = [past and run.settings.opponent_options.opponents == PAST for run in opened]
    if past and not any(selves):
        some = ", ".join(shown(run.folder) for run in opened)
        raise InputError(
            f"{some} {'were' if opened[1:] else 'was'} not trained against past selves (--opponents past)."
        )
    chosen = playing.first_side(opened[0].spec, side)
    given = list(greedy) if isinstance(greedy, Sequence) else [greedy] * len(opened)
    made: dict[Any, Algorithm] = {}  # runs that act by equal algorithms share a compiled program
    players = []
    for run, has_past, mode in zip(opened, selves, given, strict=True):
        alike = {name: value for name, value in flags_of(run.settings).items() if name not in _OF_TRAINING}
        frozen = run.folder if run.settings.opponent_options.opponents not in (None, PAST) else None  # with its own
        algorithm = made.setdefault((run.algorithm, run.config, repr(alike), frozen), run._acting())
        name, greedily = name_of(run.folder), run.acts_greedily if mode is None else mode
        trained = str(run.folder.resolve())
        pool = past_selves(run.folder, run._acting(), run.settings, run._identity()) if has_past else {}
        sizes = run.settings.num_envs, run.settings.rollout_length
        waiting = feed.updates_before_learning(run._with_critic().replay, *sizes) if has_past else 0
        for updates, learner in pool.items():
            step = (updates + waiting if updates else 0) * run.settings.steps_per_update
            title = f"{name} after {step:,} steps"
            players.append(playing.Player(title, run.algorithm, algorithm, learner, greedily, trained))
        players.append(playing.Player(name, run.algorithm, algorithm, run._learner(), greedily, trained))
    return playing.play_matches(env, players, chosen, jax.random.key(seed), episodes, None, opened[0]._workers())


def check_same_observing(name: str, wrapping: Wrapping, other_name: str, other: Wrapping) -> None:
    """Check that wrappers show two runs of these names the same of their environment, and rewards in the same unit.

    Raises:
        InputError: they do not; the message names the first difference.
    """
    here, there = (vars(replace(one.observing, reward_scale=one.reward_scale)) for one in (wrapping, other))
    for option in (option for option in here if here[option] != there[option]):
        raise InputError(
            f"{name} was trained with {option} {here[option]} and {other_name} with {there[option]}, so their policies "
            f"cannot play together."
        )


# Whether two runs were trained in the same environment.


def check_same_environment(one: Run, other: Run) -> None:
    """Check that two runs have the same environment, without building it.

    What :func:`shoal.options.flags.games_to_json` leaves out may differ.

    Raises:
        InputError: they have not; the message names the first difference.
    """
    named = one.by_name and other.by_name
    games = zip((one, other), games_to_json(one.spec, other.spec), strict=True)
    descriptions = [({"environment": run.environment} if named else {}) | game for run, game in games]
    if named and one.environment == other.environment:
        known = registry.options_of(one.environment)
        defaults = {name: option.default for name, option in known.items() if option.default is not option.empty}
        descriptions = [
            spec | defaults | options_from_json(run.env_options, known)
            for spec, run in zip(descriptions, (one, other), strict=True)
        ]
    for name in descriptions[0] | descriptions[1]:
        here, there = (x.get(name, "missing") for x in descriptions)
        if here != there and name != "metrics":  # the option metrics does not change the game
            both, verb = f"{shown(other.folder)} and {shown(one.folder)}", "are" if name in SPEC_WORDS else "is"
            raise InputError(
                f"{both} were trained in different environments: {SPEC_WORDS.get(name, name)} {verb} {there!r} in the "
                f"one and {here!r} in the other."
            )
