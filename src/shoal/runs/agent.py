"""An agent (one or a whole team) that is trained in parts, and evaluated and asked for actions in between."""

import contextlib
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import jax

from shoal.config.resolve import configured
from shoal.deploy import Policies, check_given
from shoal.errors import InputError, shortened
from shoal.game import HostEnvironment
from shoal.options.convert import convert_value
from shoal.options.flags import override
from shoal.runs.api import announce, check_folder, new_run, trainer_of
from shoal.runs.final_evaluation import write_evaluation
from shoal.runs.init_from import check_source, start_from
from shoal.runs.open import (
    copied_opponents,
    discarded_on_failure,
    keep_resumed,
    keep_run_json,
    open_run,
    permit_training,
    record_copy,
)
from shoal.runs.run import Run
from shoal.sides.opponents import PAST
from shoal.sides.sides import MAX_SIDES
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import check_free, path_of
from shoal.storage.lock import LOCK_FILE as LOCK
from shoal.storage.lock import Lock, hold
from shoal.storage.zoo import check_trainable
from shoal.system.files import remove, writing
from shoal.training import ending, feed
from shoal.training.callbacks import Given, Hooks, accepted, with_callbacks
from shoal.training.evaluation import Evaluation, Evaluator, check_episodes, check_mode
from shoal.training.settings import CHANGEABLE, Settings
from shoal.training.sharding import one_device_per_core
from shoal.training.trainer import Continued
from shoal.trust.run_file import config_of_run
from shoal.types import PyTree
from shoal.video.encode import Picture

_LIMITS = frozenset({"stop_at", "time_budget"})
"""Settings that end a run before its last step; nothing that is compiled depends on them."""
_SHARED = CHANGEABLE - {"steps", "devices", "workers", "num_workers", "worker_timeout", "address"}
"""Settings that an agent takes over where another process has changed them. It counts steps itself, and each process
has its own means of computing."""


def agent(
    algorithm: str | None = None,
    environment: Any = None,
    *,
    folder: str | Path | None = None,
    env: dict[str, Any] | None = None,
    progress: bool = True,
    preset: str | Path | None = None,
    trust: bool = False,
    **flags: Any,
) -> "Agent":
    """An agent to be trained by :meth:`Agent.train`, again and again.

    Everything that it learns is kept in a run folder, which all commands accept. Schedules (of learning rates,
    exploration, and so on) span ``steps`` environment steps per seed, and keep their last values after them.

    Args:
        algorithm: as in :func:`shoal.train`. Without it, the agent goes on with the run in ``folder``.
        environment: as in :func:`shoal.train`; for an earlier run only if that was not trained in a name.
        folder: the run's folder; by default a new one in the system's folder for temporary files, which Shoal does not
            delete. :meth:`Agent.save` copies it.
        env: options of the environment's factory.
        progress: show the progress line.
        preset: a preset file.
        trust: see :func:`shoal.open_run`; also for the folder of opponents.
        flags: as in :func:`shoal.train`; for an earlier run only its limits, ``stop_at`` and ``time_budget``.

    Raises:
        InputError: an argument is invalid, or the folder is in use.
    """
    if algorithm is None:
        if folder is None:
            raise InputError("An agent needs an algorithm and an environment, or the folder of an earlier run.")
        if env or preset is not None or not flags.keys() <= _LIMITS:
            raise InputError(
                f"An earlier run keeps its values, so an agent that continues it takes no flags but "
                f"{' and '.join(sorted(_LIMITS))}."
            )
        return _opened(path_of(folder), environment, trust, progress, flags)
    _check_both_named(algorithm, environment, folder)
    found = configured(algorithm, environment, env=env, flags=flags, preset=preset, trust=trust)
    where = _temporary_folder() if folder is None else path_of(folder)
    check_folder(where)
    check_free(where, "give only the folder to continue it")
    run = new_run(found, where)
    run.settings = replace(run.settings, schedule_steps=run.settings.schedule_steps or run.settings.steps)
    if run.settings.opponent_options.opponents == PAST:
        run.settings = _with_fixed_pool(run)
    return Agent(run, progress, keep_run_json, private=folder is None)


def _with_fixed_pool(run: Run) -> Settings:
    """The settings with ``past_every`` set to that of a run which is trained at once, since parts have other ends."""
    settings, options = run.settings, run.settings.opponent_options
    replay = run._with_critic().replay
    waiting = feed.updates_before_learning(replay, settings.num_envs, settings.rollout_length)
    every = options.every(settings.num_updates - waiting)
    return replace(settings, opponent_options=replace(options, past_every=every))


def _temporary_folder() -> Path:
    """The path of a new folder in the system's one for temporary files; nothing is created before there is a run."""
    return Path(tempfile.gettempdir()) / f"shoal-{secrets.token_hex(8)}" / "run"


def _opened(folder: Path, environment: Any, trust: bool, progress: bool, limits: dict[str, Any]) -> "Agent":
    """An agent that goes on with an earlier run, with these limits in place of the run's."""
    check_trainable(folder)
    manifest.read_run_json(folder)
    run = open_run(folder, environment, trust=trust)
    permit_training(run, trust, {})
    opened = Agent(run, progress, lambda run: keep_resumed(run, permitted=trust or environment is None))
    run.settings = replace(run.settings, schedule_steps=run.settings.schedule_steps or run.settings.steps)
    run.settings = override(run.settings, limits)
    run.settings.check()
    _ = run.env  # raises if it cannot be built
    if run.settings.opponent_options.opponents == PAST:
        run.settings = _with_fixed_pool(run)
    return opened


def _check_both_named(algorithm: str, environment: Any, folder: str | Path | None) -> None:
    """Refuse an algorithm without an environment, also where an earlier run's folder is to give it.

    Raises:
        InputError: ``environment`` is None.
    """
    if environment is not None:
        return
    if folder is not None and (path_of(folder) / manifest.RUN_JSON).is_file():
        raise InputError(
            f"{folder} holds a run, whose algorithm an agent that goes on with it keeps: omit {algorithm!r}."
        )
    raise InputError(f"{algorithm} needs an environment, for example 'mpe/simple_spread'.")


class Agent:
    """See :func:`agent`. With ``with``, or by :meth:`close`, it stops the worker processes of a host environment."""

    def __init__(self, run: Run, progress: bool, keep: Callable[[Run], None], private: bool = False):
        """Create an agent; nothing is compiled or written.

        Args:
            run: the run that it trains.
            progress: whether progress is shown.
            keep: writes the run's ``run.json``.
            private: no other user may read the folder in which the run's is created.
        """
        self.run, self._parts = run, _Parts(run, progress, keep, private)
        self._evaluator: Evaluator | None = None
        self._asked: bool | None = None
        self._policies: Policies | None = None
        self._greedy = True
        """The mode of the newest evaluation, in which :meth:`act` acts by default."""
        self._evaluated: tuple[int | None, Evaluation, int] | None = None
        """The newest evaluation in both modes: of the policies after which update, and episodes per seed."""
        self._acting: int | None = None
        """The update of the policies that act; None before the first action."""

    def __repr__(self) -> str:
        run = self.run
        return f"Agent({run.algorithm!r} in {run.environment!r}, {self.steps:,} steps, folder={str(run.folder)!r})"

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.run.folder

    @property
    def steps(self) -> int:
        """Environment steps per seed so far."""
        return ending.saved(self.folder).update * self.run.settings.steps_per_update

    def train(self, steps: float | int, *, callbacks: Sequence[Given] = ()) -> "Agent":
        """Train for ``steps`` more environment steps per seed, rounded up to whole updates; returns itself.

        Training goes on exactly where it stopped: with the same total it gives the same bits, in however many parts
        (host environments start new episodes after :meth:`close`). Only the first call compiles. Ctrl-C stops at the
        end of an update, saves it and raises; the agent can be used afterwards. ``callbacks`` are those of this part
        (:func:`shoal.train`); where one stops it, the next part goes on from there.

        Raises:
            InputError: ``steps`` is below 1 or an argument of the agent is invalid; or another process trains there.
            CheckpointError: the folder has policies, but no checkpoint.
            NonFiniteError: a metric became NaN or infinite; the last good checkpoint is kept.
            GameError: a host environment raised; what was learned is saved.
            CallbackError: a callback raised; what was learned is saved.
            KeyboardInterrupt: Ctrl-C; what was learned is saved.
            Terminated: SIGTERM or SIGHUP; what was learned is saved. It is a SystemExit, so that the program ends.
        """
        self._parts.train(steps, callbacks)
        return self

    def evaluate(self, episodes: float | int | None = None, *, greedy: bool | None = None, seed: int = 0) -> Evaluation:
        """Play whole episodes with each seed's policy, also before any training.

        Args:
            episodes: their number per seed; None for 256 on the device and 32 on the host.
            greedy: act by the mode of the policy rather than by sampling; None for both modes of a stochastic policy,
                of which the better one becomes that of :meth:`act`.
            seed: seed of the episodes.

        Raises:
            InputError: ``episodes`` or ``seed`` is no whole number, ``episodes`` is below 1, ``greedy`` is no boolean,
                or the episodes do not fit in memory.
            GameError: a host environment raised.
        """
        greedy, seed = check_mode(greedy), convert_value("seed", seed, int)
        episodes = None if episodes is None else check_episodes(episodes)
        self._parts.begin()
        if episodes is None:
            episodes = replace(self.run.settings, eval_episodes=None).evaluation_episodes(self.run.env)
        kept = self._evaluator
        if kept is None or (kept.episodes, self._asked) != (episodes, greedy):
            self._end_evaluations()
            self._evaluator = Evaluator(self.run.env, self.run._acting(), episodes, greedy, self.run._workers())
            self._asked = greedy
        assert self._evaluator is not None
        found = self._evaluator(self.run._learner(), jax.random.key(seed))
        if greedy is None:
            self._greedy = found.greedy
            self._evaluated = self._parts.saved, found, episodes
        return found

    def act(self, observations: Any, legal: Any = None, *, greedy: bool | None = None, **given: Any) -> Any:
        """One action per agent by the policies of the first seed, in the form of the observations.

        Args:
            observations: as in :meth:`shoal.deploy.Policies.act`.
            legal: masks of legal actions; None for those in the observations and infos, or for all actions.
            greedy: act by the mode of the policy rather than by sampling; None for the mode that the newest
                :meth:`evaluate` found better, and greedily before any.
            given: further arguments of :meth:`shoal.deploy.Policies.act`: ``alive``, ``state``, ``infos``, ``turn``.

        Raises:
            InputError: an observation is missing, has the wrong shape, or holds NaN or infinity.
        """
        if self._policies is None:  # refused before anything compiles
            check_given(self._made(()), observations, legal, **given)
        policies = self._newest()
        policies.greedy = self._greedy if greedy is None else greedy
        return policies.act(observations, legal, **given)

    def reset(self) -> None:
        """Start a new episode for :meth:`act`: reset recurrent state, stacked frames and last actions."""
        if self._policies is not None:
            self._policies.reset()

    def _newest(self) -> Policies:
        """The policies of the first seed as trained so far, compiled once."""
        self._parts.begin()
        update = self._parts.saved
        if self._policies is None or update != self._acting:
            policy = jax.tree.map(lambda x: x[0], self.run._learner().policy)
            if self._policies is None:
                self._policies = self._made(policy)
            self._policies.replace(policy)
            self._acting = update
        return self._policies

    def _made(self, policy: PyTree) -> Policies:
        run = self.run
        title = f"{run.algorithm} in {run.environment}"
        return Policies(run.spec, run._acting(), policy, wrapping=run.settings.wrapping, title=title)

    def replay(
        self,
        path: str | Path | None = None,
        *,
        episodes: float | int = 2,
        greedy: bool | None = None,
        seed: int | None = None,
    ) -> Picture:
        """Write an animated picture of episodes, by default to ``replay.gif`` in the folder; notebooks show it."""
        self._parts.begin()
        greedy = self._greedy if greedy is None else greedy
        return Picture(self.run.replay(path, episodes=episodes, greedy=greedy, seed=seed))

    def curves(self, path: str | Path | None = None, metrics: Sequence[str] = ("return",)) -> Picture:
        """Draw the learning curve, by default to ``curves.png`` in the folder; notebooks show it.

        Raises:
            InputError: nothing has been trained, or no episode has ended.
        """
        return Picture(self.run.curves(path, metrics))

    def save(self, folder: str | Path) -> Path:
        """Copy the run's folder, with all that has been learned; the agent stays where it is.

        If :meth:`evaluate` played the newest policies in both modes, the copy has its ``evaluation.json``, so that they
        act there as here.

        Raises:
            InputError: ``folder`` lies in the run's, or holds a run already, or a file or folder of a name that the
                run's has.
            WriteError: the disk is full, or ``folder`` cannot be written; nothing of the copy remains.
        """
        where = path_of(folder)
        if where.resolve().is_relative_to(self.folder.resolve()):
            raise InputError(f"{where} lies in the folder of the run itself; choose another folder.")
        check_folder(where)
        check_free(where)
        self._parts.begin()
        if held := sorted(path.name for path in self.folder.iterdir() if (where / path.name).exists()):
            raise InputError(f"{where / held[0]} exists already and would be replaced; choose another folder.")
        made, work, moved = not where.exists(), where / f".unfinished-{os.getpid()}", list[Path]()
        try:
            with writing(str(where)):
                with hold(self.folder):
                    ignored = shutil.ignore_patterns(LOCK, ".unfinished-*")
                    shutil.copytree(self.folder, work, ignore=ignored)
                if self._evaluated is not None and self._evaluated[0] == self._parts.saved:
                    _, found, episodes = self._evaluated
                    write_evaluation(work, found, None, episodes, self.steps)
                for path in sorted(work.iterdir(), key=lambda path: path.name == manifest.RUN_JSON):  # last
                    moved.append(path.rename(where / path.name))
                work.rmdir()
        except BaseException:
            for path in (work, *moved, *([where] if made else [])):
                with contextlib.suppress(OSError):
                    remove(path)
            raise
        record_copy(self.folder, where)
        return where

    def close(self) -> None:
        """Stop worker processes; the agent can still be used, and compiles again."""
        self._parts.close()
        self._end_evaluations()

    def _end_evaluations(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None


# A run that is trained in parts, with one trainer as far as possible.


class _Parts:
    """Trains one run in parts. Schedules span ``Settings.schedule_steps``, so that no part changes the program."""

    def __init__(self, run: Run, progress: bool, keep: Callable[[Run], None], private: bool):
        """Prepare; nothing is compiled or written. Arguments are those of :class:`Agent`."""
        self.run, self._progress, self._write, self._private = run, progress, keep, private
        self._recorded = run.settings
        """The settings in ``run.json`` when it was last read or written here."""
        self._trainer: Continued | None = None
        self._lock: Lock | None = None
        if run.settings.devices != 1:
            one_device_per_core()  # before an evaluation starts JAX: a run continues only on as many devices as it had

    @property
    def saved(self) -> int | None:
        """The update of the newest policies; None if there are none."""
        return Checkpoints(self.run.folder / "policy").latest()

    def begin(self) -> None:
        """Initialise and save the policies, unless there are some; the update is not compiled."""
        if self.saved is None:
            with self._training() as trainer:
                trainer.begin()

    def train(self, steps: float | int, callbacks: Sequence[Given] = ()) -> None:
        """Train for ``steps`` more environment steps per seed; see :meth:`Agent.train`."""
        if not isinstance(steps, Real) or not 1 <= steps < math.inf:
            raise InputError(f"steps must be at least 1 and finite, not {shortened(steps)}.")
        hooks = accepted(callbacks)
        with self._training() as trainer:
            settings, done = self.run.settings, trainer.update
            updates = done - int(-steps // settings.steps_per_update)
            settings = replace(settings, steps=float(updates * settings.steps_per_update))
            settings.check()
            trainer.at = trainer.at._replace(stopped="")
            trainer.until(settings)
            if not trainer.ended:  # by a limit of the run; otherwise nothing is trained, and run.json stays as it is
                self.run.settings = settings
                beyond = settings.steps - done * settings.steps_per_update - float(steps)
                trainer.at = trainer.at._replace(beyond=trainer.at.beyond + beyond)  # checkpoints keep it
                self._warn_of_schedule(trainer)
                self._keep()
            with with_callbacks(self.run, trainer, hooks):
                finished = self.run.finished = trainer.run()
            if hooks:  # which have closed the trainer
                trainer.hooks = Hooks()
                if isinstance(self.run.env, HostEnvironment):
                    self.close()
            if finished and trainer.update == done:
                trainer.progress.warn(self._how_to_go_on(settings, trainer.at))
        if trainer.stop.asked:  # also during the last update: the program must not go on to the next part
            raise trainer.stop.exception(f"Stopped at step {trainer.step:,}; train() goes on from there.")

    def _how_to_go_on(self, settings: Settings, at: ending.Standing) -> str:
        """The message for a part in which a limit of the run left nothing to train."""
        given = "" if self.run.by_name else ", environment=..."
        without = "".join(f", {name}=None" for name in sorted(_LIMITS.intersection(ending.more(settings, at))))
        return (
            f"Nothing was trained: this run has ended {ending.reason(settings, at)}; "
            f"shoal.agent(folder={str(self.run.folder)!r}{given}{without}) goes on with it."
        )

    def _warn_of_schedule(self, trainer: Continued) -> None:
        settings, config = self.run.settings, self.run.config
        asked = settings.steps - trainer.at.beyond
        sides = [getattr(config, f"side{i}", None) for i in range(1, MAX_SIDES + 1)]
        ended = [f" of side {i}" for i, one in enumerate(sides, 1) if getattr(one, "lr_final", None) == 0]
        if getattr(config, "lr_final", None) == 0:
            ended = [""]
        if asked <= (settings.schedule_steps or 0) or not ended:
            return
        end, whose = settings.schedule_updates * settings.steps_per_update, " and".join(ended)
        trainer.progress.warn(
            f"The learning rate{whose} is 0 from step {end:,} on (lr_final is 0), so training beyond it changes no "
            f"parameter{whose}. Create a new agent with lr_final above 0 or more steps; "
            f"init_from={str(self.run.folder)!r} starts it with these policies."
        )

    @contextmanager
    def _training(self) -> Iterator[Continued]:
        """The trainer, where the run stands, while no other process may train in the folder.

        After an exception it is built again, since its state may be that of an unfinished update.
        """
        with hold(self.run.folder) as lock:
            self._lock = lock
            if self._private:
                self.run.folder.parent.chmod(0o700)
            try:
                with discarded_on_failure(self.run, self._guard):
                    newest = Checkpoints(self.run.folder / "checkpoints").latest()
                    self._take_over()
                    if self._trainer is None:
                        self._trainer = self._made(newest)
                    elif newest not in (None, self._trainer.update):  # somebody else has trained on
                        self._trainer.until(self._reaching(newest))
                        self._trainer.restore()
                    yield self._trainer
            except BaseException:
                self.close()
                raise
            finally:
                self._lock = None

    def _keep(self) -> None:
        self._write(self.run)
        self._recorded = self.run.settings

    def _take_over(self) -> None:
        """Take over settings that somebody else, such as :func:`shoal.resume`, has changed in ``run.json``.

        A trainer is made again unless only limits have changed.
        """
        if not (self.run.folder / manifest.RUN_JSON).is_file():  # a new run
            return
        before, there = self._recorded, config_of_run(self.run.folder)["settings"]
        self._recorded = override(before, {name: there[name] for name in _SHARED | {"steps"}}, lone=False)
        now = {name: getattr(self._recorded, name) for name in _SHARED}
        changed = {name: value for name, value in now.items() if value != getattr(before, name)}
        if "schedule_steps" in changed:
            changed["schedule_steps"] = self._recorded.schedule_steps or self._recorded.steps
        self.run.settings = replace(self.run.settings, **changed)
        if not changed.keys() <= _LIMITS:
            self.close()

    def _made(self, newest: int | None) -> Continued:
        """A trainer of the run, restored from its newest checkpoint."""
        if newest is None:
            check_source(self.run.settings)
        self.run.settings = self._reaching(newest or 0)
        with copied_opponents(self.run) if newest is None else contextlib.nullcontext():
            trainer = trainer_of(self.run, self._progress, self._guard, Continued)
            assert isinstance(trainer, Continued)
            try:
                if newest is not None:
                    trainer.restore()
                else:
                    trainer.check_untrained()
                    if self.run.settings.init_from:
                        start_from(trainer, Path(self.run.settings.init_from))
                self._keep()
                announce(self.run, trainer)
            except BaseException:
                trainer.close()
                raise
        return trainer

    def _reaching(self, update: int) -> Settings:
        """The run's settings, with at least so many updates."""
        settings = self.run.settings
        return replace(settings, steps=float(max(settings.num_updates, update) * settings.steps_per_update))

    def _guard(self) -> None:
        assert self._lock is not None
        self._lock.check()

    def close(self) -> None:
        """Stop worker processes; the next part compiles again."""
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None
