"""The public face: train, resume, open and compare runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from shoal import algorithms
from shoal.configs import check_names, options_from_json, override, spec_to_json
from shoal.environments import registry
from shoal.errors import InputError
from shoal.loading import load
from shoal.opening import keep, keep_resumed, open_run, permit_training
from shoal.presets import preset
from shoal.presets.sizes import sizes_for
from shoal.records import curves, manifest
from shoal.records.files import written_to
from shoal.records.folders import check_free, in_new_folder, new_folder, path_of
from shoal.records.lock import hold
from shoal.run import Run
from shoal.training import crossplay as playing
from shoal.training.crossplay import CrossPlay
from shoal.training.settings import CHANGEABLE, Settings
from shoal.types import Algorithm

__all__ = ["CrossPlay", "Run", "compare", "crossplay", "load", "new_folder", "open_run", "resume", "train"]


def train(
    algorithm: str,
    environment: Any,
    *,
    env: dict[str, Any] | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    **flags: Any,
) -> Run:
    """Train ``algorithm`` in ``environment`` and return the finished run.

    Args:
        algorithm: a name from ``shoal list algorithms``, or one for each side of the environment, as ``mappo+ippo``. In
            an environment of one agent ``ppo``, ``dqn``, ``a2c``, ``ddpg`` and ``td3`` are names too
            (:data:`shoal.algorithms.ALONE`).
        environment: a name from ``shoal list environments``, ``package.module:factory`` of your own, that factory
            itself (a PettingZoo class, for example), or an :class:`Environment`, on the device or the host. What is not
            a name, :func:`resume` and :func:`open_run` need again.
        env: options of the environment's factory, for example ``{"num_agents": 5}``.
        folder: where the run is kept; by default a new folder under ``runs/``.
        progress: show the live line.
        flags: any field of :class:`~shoal.training.settings.Settings` (``steps=3e6, seeds=4``) or of the algorithm's
            ``Config`` (``learning_rate=1e-3``, ``hidden=(128, 128)``); others come from the preset, then from defaults.
            Without a preset, ``num_envs`` and ``rollout_length`` follow from the length of an episode
            (:func:`shoal.presets.sizes.sizes_for`).
            Of several sides, ``learning_rate`` is for all and ``side1_learning_rate`` for one.

    Raises:
        InputError: something cannot work as asked; raised before anything compiles. Later, where the disk is full or
            the folder is deleted (:class:`WriteError`, :class:`CheckpointError`, :class:`FolderError`).
        NonFiniteError: a metric became NaN or infinite; the last good checkpoint stands.
    """
    name, said = registry.called(environment), algorithm
    algorithm = algorithms.canonical(said)
    module = algorithms.get(algorithm)
    settings, config = Settings(), module.Config()
    check_names(flags, settings, config)
    tuned = preset(algorithm, name)
    settings, config = (override(override(x, tuned), flags) for x in (settings, config))

    def start(where: Path) -> Run:
        if where.exists() and not where.is_dir():
            raise InputError(f"{where} is a file, not a folder for a run.")
        with hold(where) as lock:  # a folder that is made here is removed again where bad input is raised
            check_free(where)
            made = registry.make(environment, **(env or {}))
            sizes = sizes_for(min(made.spec.horizon, settings.wrapping.time_limit or made.spec.horizon))
            sized = override(settings, {size: x for size, x in sizes.items() if size not in {**tuned, **flags}})
            run = Run(where, algorithm, name, env or {}, sized, config, made)
            algorithms.check_alone(said, run.spec)
            run.by_name = isinstance(environment, str) or registry.can_be_named(environment)
            trainer = run.trainer(progress, lock.check)
            lock.check()
            keep(run)
            return run.finish(trainer)

    return in_new_folder(algorithm, name, start) if folder is None else start(path_of(folder))


def resume(
    folder: str | Path, *, environment: Any = None, trust: bool = False, progress: bool = True, **flags: Any
) -> Run:
    """Continue the run in ``folder`` from its newest sound checkpoint, bit for bit as if it had never stopped.

    A run that ended before its first checkpoint begins at the beginning. One that has finished is not trained, nor
    compiled, and :attr:`Run.untouched` says so.

    Args:
        folder: a run folder.
        environment: what a run was trained in that was not trained in a name.
        trust: see :func:`open_run`.
        progress: show the live line.
        flags: ``steps`` to train longer (schedules stretch to the new length), ``devices`` on another machine, or how
            often to save and how to judge, or where environments are stepped; anything else would make it another run.

    Raises:
        InputError: the folder holds no run, another process trains in it, a flag would change what is being trained,
            or there are fewer devices.
        CheckpointError: no checkpoint is sound.
    """
    where = path_of(folder)
    manifest.read(where)  # before a lock is made in what is not the folder of a run
    with hold(where) as lock:
        return _resume(where, environment, trust, progress, flags, lock.check)


def _resume(
    folder: Path, environment: Any, trust: bool, progress: bool, flags: dict[str, Any], guard: Callable[[], None]
) -> Run:
    run = open_run(folder, environment, trust=trust)
    wrong = sorted(set(flags) - CHANGEABLE)
    if wrong:
        raise InputError(f"{wrong[0]} cannot change in a resumed run; only {', '.join(sorted(CHANGEABLE))} can.")
    permit_training(run, trust, flags)
    run.settings = override(run.settings, flags)
    run.settings.check()
    if environment is not None:
        _ = run.env  # raises where it is not what the run was trained in, also of one that has finished
    if run.conclude(guard):
        if flags:
            guard()
            keep_resumed(run, permitted=False)  # nothing had to be built
        return run
    trainer = run.trainer(progress, guard)
    trainer.restore()
    guard()
    keep_resumed(run, permitted=trust or environment is None)
    return run.finish(trainer)


def compare(
    runs: Sequence[Run | str | Path], path: str | Path = "compare.png", metrics: Sequence[str] = ("return",)
) -> Path:
    """Draw the learning curves of several runs in one picture."""
    path = written_to(path, Path("compare.png"))
    return curves.plot([run.folder if isinstance(run, Run) else Path(run) for run in runs], path, metrics)


def crossplay(
    runs: Sequence[Run | str | Path],
    *,
    side: Sequence[str | int] = (),
    episodes: int = 128,
    greedy: bool = True,
    seed: int = 0,
    environment: Any = None,
    trust: bool = False,
) -> CrossPlay:
    """Let the policies of several runs play against each other, or with each other where they earn together.

    Each run plays side 1 against each run on side 2, every seed of one against every seed of the other.

    Args:
        runs: runs or their folders, all trained in the same environment.
        side: the agents of side 1, by name or index; all others are side 2. By default role 0 against all other roles,
            and where there is one role the first half of the agents (rounded down) with the rest.
        episodes: whole episodes for each pair of seeds.
        greedy: act by the mode rather than by sampling.
        seed: draws the starts of the episodes, the same for every entry of the matrix.
        environment: what the runs of folders were trained in, if not in a name.
        trust: see :func:`open_run`.

    Raises:
        InputError: a folder holds no run, environments differ, or a side would be empty.
        CheckpointError: no saved policy of a run is sound.
    """
    if not runs:
        raise InputError("Cross-play needs at least one run.")
    opened = [run if isinstance(run, Run) else open_run(run, environment, trust=trust) for run in runs]
    env = opened[0].env  # before anything else is asked of it: it is not imported for the folder of somebody else
    for run in opened[1:]:
        _check_same_environment(opened[0], run)
    chosen = playing.first_side(opened[0].spec, side)
    made: dict[Any, Algorithm] = {}  # equal configurations act by one program
    players = []
    for run in opened:
        algorithm = made.setdefault((run.algorithm, run.config, run.settings.rollout_length), run._acting())
        players.append(playing.Player(run.folder.resolve().name, run.algorithm, algorithm, run._learner()))
    workers = opened[0].settings.num_workers
    return playing.play(env, players, chosen, jax.random.key(seed), episodes, greedy, workers)


def _check_same_environment(one: Run, other: Run) -> None:
    """Refuse two runs whose returns mean different things. Builds no environment.

    What a state holds (``EnvSpec.novel``) matters to each run's own critic, metrics are only reported, and
    the interface is for deployed policies: all three may differ.
    """
    named = one.by_name and other.by_name
    said = [
        ({"environment": run.environment} if named else {})
        | spec_to_json(replace(run.spec, novel=None, metrics=(), interface=""))
        for run in (one, other)
    ]
    if named and one.environment == other.environment:
        known = registry.options_of(one.environment)
        defaults = {name: option.default for name, option in known.items() if option.default is not option.empty}
        said = [
            spec | defaults | options_from_json(run.env_options, known)
            for spec, run in zip(said, (one, other), strict=True)
        ]
    for name in said[0] | said[1]:
        here, there = (x.get(name, "missing") for x in said)
        if here != there and name != "metrics":  # which change nothing of what is played
            raise InputError(
                f"{other.folder} and {one.folder} were trained in different environments: {name} is {there!r} in the "
                f"one and {here!r} in the other."
            )
