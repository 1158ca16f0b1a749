"""A run: its folder, its configuration, and the methods to evaluate, replay and plot it."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax

from shoal import algorithms
from shoal.bounds import check
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import flags_of
from shoal.plots import curves, texts
from shoal.rollouts.recording import Workers
from shoal.rollouts.stepping import local_workers
from shoal.runs import final_evaluation
from shoal.runs.assembly import (
    SavedOpponents,
    acting,
    environment,
    made,
    opponents_of,
    saved_policy,
    scale_of_learning,
    told_of_teams,
    with_critic,
)
from shoal.runs.init_from import source_of
from shoal.runs.load import devices_before, load, seed_index
from shoal.security import links
from shoal.sides.preparation import Decision
from shoal.storage.configuration import identity
from shoal.system import notices
from shoal.system.files import written_to
from shoal.training import checks, ending, evaluation, pretraining, selection, sharding
from shoal.training.episodes import SHOWN_KEY, RecordedEpisode, draw, record
from shoal.training.evaluation import Evaluation
from shoal.training.selection import learner_of
from shoal.training.settings import CHANGEABLE, Settings
from shoal.training.trainer import Trainer
from shoal.trust.run_file import Described, check_same_spec
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner, Scale
from shoal.video import encode


class Run:
    """A run folder with its configuration.

    The environment is built when it is first needed: reading a run's files, drawing its curves and loading its policies
    neither build nor import it.
    """

    def __init__(
        self,
        folder: Path,
        algorithm: str,
        environment: str,
        env_options: dict[str, Any],
        settings: Settings,
        config: Any,
        env: AnyEnvironment | Callable[[], AnyEnvironment],
        spec: EnvSpec | None = None,
    ):
        """Create a run.

        Args:
            folder: the run's folder.
            algorithm: the algorithm's name.
            environment: the environment's name.
            env_options: options of the environment's factory.
            settings: the run's settings.
            config: the algorithm's ``Config``.
            env: the environment without the wrappers of ``settings``, or a function that builds it.
            spec: the spec of the wrapped environment if it is known without building it, with which it is compared.
        """
        self.folder, self.algorithm, self.environment = folder, algorithm, environment
        self.env_options, self.settings, self.config = env_options, settings, config
        self._given, self._spec = env, spec
        self.finished, self.by_name, self.trusted = False, True, False
        self.evaluation: Evaluation | None = None
        """The final evaluation, if this process made it."""
        self.decision: Decision | None = None
        """The algorithm's decision before training, if this process started the run."""
        self.final_score: str | None = None
        """The final evaluation as text, also if an earlier process made it."""
        self.untouched = False
        """Whether the run had finished before it was resumed, so that nothing was trained."""
        settings.check()
        check(config)

    def __repr__(self) -> str:
        return f"Run({self.algorithm!r} in {self.environment!r}, folder={str(self.folder)!r})"

    @cached_property
    def env(self) -> AnyEnvironment:
        """The environment with the wrappers of training; built on first access.

        Raises:
            InputError: it cannot be built, or differs from the environment that the run was trained in.
        """
        env = environment(given if isinstance(given := self._given, AnyEnvironment) else given(), self.settings)
        if self._spec is not None:
            what = f"{self.environment} is not the environment it was when {self.folder} was trained"
            check_same_spec(env.spec, self._spec, "pruned" in flags_of(self.config).values(), what)
        self._spec = env.spec
        return env

    @property
    def spec(self) -> EnvSpec:
        """The spec of the wrapped environment; from ``run.json`` if the run was opened."""
        return self._spec or self.env.spec

    def evaluate(self, episodes: int = 256, *, greedy: bool = True, seed: int = 0, best: bool = False) -> Evaluation:
        """Play whole episodes with each seed's last policy, or its best (``eval_every``); ``seed`` is the episodes'."""
        env, key = self.env, jax.random.key(seed)  # first: refuses to import the environment of an untrusted folder
        return evaluation.evaluate(env, self._acting(), self._learner(best), key, episodes, greedy, self._workers())

    def replay(
        self, path: str | Path | None = None, *, episodes: int = 2, greedy: bool = True, seed: int | None = None
    ) -> Path:
        """Write an animated picture of ``episodes`` episodes; ``seed`` is one of the run's seeds (None: the best)."""
        encode.check_format(Path(path or "replay.gif"))  # before anything is played
        path = written_to(path, links.own_file(self.folder, "replay.gif"))
        index = seed_index(self.settings, self.best_seed() if seed is None else seed)
        learner = jax.tree.map(lambda x: x[index], self._learner())
        return self.draw(record(self.env, self._acting(), learner, jax.random.key(SHOWN_KEY), episodes, greedy), path)

    def draw(self, played: Sequence[RecordedEpisode], path: Path) -> Path:
        """Write an animated picture of recorded episodes."""
        return draw(played, self.spec, path, f"{self.algorithm} · {self.environment}")

    def best_seed(self) -> int:
        """The seed with the highest score: of the final evaluation, if this process made it, or of 64 episodes."""
        found = None if self.settings.seeds == 1 else self.evaluation or self.evaluate(64)
        return self.settings.seed + (int(found.per_seed.argmax()) if found else 0)

    def curves(self, path: str | Path | None = None, metrics: Sequence[str] = ("return",)) -> Path:
        """Draw the learning curve with a confidence band over seeds."""
        return curves.plot(self.folder, written_to(path, links.own_file(self.folder, "curves.png")), metrics)

    def policies(self, *, seed: int | None = None, greedy: bool = True, best: bool = False) -> Policies:
        """The trained policies; see :func:`shoal.load`."""
        return load(self.folder, seed=seed, greedy=greedy, best=best)

    def summary(self) -> str:
        """A summary of the results; see :func:`shoal.plots.texts.summary`."""
        return texts.summary(self.folder, ended=self.ended)

    @property
    def at(self) -> ending.Standing:
        """How far the run is, by its newest intact checkpoint."""
        return ending.saved(self.folder)

    @property
    def last_step(self) -> int:
        """Environment steps per seed so far."""
        return self.at.update * self.settings.steps_per_update

    @property
    def ended(self) -> str:
        """Why training ended before its last step; empty if it did not."""
        return ending.reason(self.settings, self.at)

    def _acting(self) -> Algorithm:
        return acting(self.algorithm, self.spec, self.config, self.settings, self._opponents())

    def _with_critic(self) -> Algorithm:
        return with_critic(self.algorithm, self.spec, self.config, self.settings, self._opponents())

    def _opponents(self) -> SavedOpponents | None:
        return opponents_of(self.folder, self.settings, self.spec, self.trusted)

    def _learner(self, best: bool = False) -> Learner:
        return learner_of(saved_policy(self.folder, self._acting(), self.settings.seeds, self._identity(), best))

    def check(self) -> None:
        """Check a new run as :meth:`trainer` does, except for its memory and what its folder holds; nothing is written.

        Raises:
            InputError: a setting, the configuration or the environment is invalid.
        """
        layout = self._layout()
        scale = Scale(layout.num_envs, self.settings.rollout_length, self.settings.schedule_updates)
        prepare = getattr(algorithms.get(self.algorithm), "prepare", None)
        if prepare is None or prepare(self.env.spec, self.config, scale) is None:
            what, opponents = (self.algorithm, self.env.spec, self.config, self.settings), self._opponents()
            made(*what, scale_of_learning(*what, scale, opponents), opponents)
        if self.settings.init_from:
            source_of(Path(self.settings.init_from), lambda _: None)

    def trainer(
        self, progress: bool, guard: Callable[[], None] = lambda: None, kind: type[Trainer] | None = None
    ) -> Trainer:
        """The trainer of this run. ``guard`` raises if the folder is no longer the run's.

        Raises:
            InputError: a setting, the configuration or the environment is invalid.
        """
        layout = self._layout()
        scale = Scale(layout.num_envs, self.settings.rollout_length, self.settings.schedule_updates)
        module = algorithms.get(self.algorithm)
        self.decision = pretraining.decide(module, self.env, self.config, scale, self.settings.seed, self._workers())
        if self.decision:
            self.config = self.decision.config
        what, opponents = (self.algorithm, self.env.spec, self.config, self.settings), self._opponents()
        make = partial(made, *what, scale_of_learning(*what, scale, opponents), opponents)
        trainer = kind or Trainer
        return trainer(self.env, make(), self.settings, layout, self.folder, progress, make, self._identity(), guard)

    def _layout(self) -> sharding.Layout:
        """The layout over devices, after the checks of the environment and its evaluations."""
        if self.settings.devices != 1:
            sharding.one_device_per_core()
        devices = self.settings.devices or devices_before(self.folder)
        if self.settings.workers == "ray":
            if isinstance(self.env, Environment):
                raise InputError(f"{self.environment} is compiled with the update, so it cannot use Ray workers.")
            devices = 1  # the actors have the cores
        layout = sharding.plan(self.settings.seeds, self.settings.num_envs, devices)
        if isinstance(self.env, Environment):
            registry.validate(self.env)
            checks.evaluations(self.env, self.settings)
        else:
            registry.check_spec(self.env.spec)
        return layout

    def _workers(self) -> Workers:
        return Workers(local_workers(self.env, self.settings.num_workers), self.settings.worker_timeout)

    def announce(self, trainer: Trainer) -> None:
        """Print the notes and warnings of a run that starts, and keep the algorithm's decision, if any."""
        header = f"{self.algorithm} in {self.environment}, kept in {self.folder}"
        roles = checks.roles(trainer.env.spec, self.settings, self.config, trainer.layout.num_envs)
        teams = told_of_teams(self.algorithm, trainer.env.spec, self.config, self.settings)
        workers = checks.workers(trainer.env, self.settings)
        trainer.progress.tell([header, *roles, *teams, *workers, *trainer.notes], trainer.warnings)
        pretraining.keep(self.decision, self.folder, trainer.progress, trainer.guard)

    def finish(self, trainer: Trainer) -> "Run":
        """Train to the end and evaluate the policies; returns itself."""
        self.announce(trainer)
        episodes = self.settings.evaluation_episodes(self.env)
        try:
            self.finished = trainer.run() and not trainer.stop.asked
            trainer.guard()
            if self.finished and episodes:
                self.evaluation = final_evaluation.by_training(trainer, self._learner, episodes)
                self.evaluation = self.evaluation or self.evaluate(episodes)
        finally:
            trainer.close()
        if self.evaluation is not None:
            self._keep(self.evaluation, episodes, trainer.guard)
        return self

    def conclude(self, guard: Callable[[], None], continue_stopped: bool = False) -> bool:
        """Whether the run has finished. If so, repair the log, and evaluate the run unless it has been evaluated.

        Raises:
            CheckpointError: its checkpoint was saved under another configuration.
        """
        if not final_evaluation.settle(self.folder, self.settings, self._identity(), guard, continue_stopped):
            return False
        self.finished = self.untouched = True
        self.final_score = final_evaluation.read(self.folder, self.last_step, self.settings.eval_episodes)
        if self.final_score is None and self.settings.eval_episodes != 0:
            episodes = self.settings.evaluation_episodes(self.env)
            self._keep(self.evaluate(episodes), episodes, guard)
        return True

    def _keep(self, found: Evaluation, episodes: int, guard: Callable[[], None]) -> None:
        best = None
        if (self.folder / selection.FOLDER).is_dir():
            try:  # other episodes than those that selected these policies, whose scores are biased upwards
                best = self.evaluate(episodes, seed=1, best=True)
            except CheckpointError as error:
                notices.warn(str(error))
        self.evaluation = found
        guard()
        self.final_score = final_evaluation.write(self.folder, found, best, episodes, self.last_step, self.ended)

    def _identity(self) -> dict[str, Any]:
        """The configuration that its checkpoints record."""
        return identity(self.as_json(), CHANGEABLE)

    def as_json(self) -> dict[str, Any]:
        """The whole configuration, for ``run.json``."""
        names = self.algorithm, self.environment, self.env_options, self.by_name
        return Described(*names, self.settings, self.config, self.spec).as_json()
