"""A run as its folder describes it, with the methods to evaluate, replay and plot it.

Training is in :mod:`shoal.runs.api`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal import algorithms
from shoal.bounds import check_bounds
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.export.files import Format, check_path
from shoal.options.convert import convert_value
from shoal.options.flags import flags_of
from shoal.plots import curves, figures, texts
from shoal.rollouts.host import Workers
from shoal.runs.build import (
    SavedOpponents,
    acting_algorithm,
    opponents_of,
    saved_policy,
    with_critic,
    wrapped_environment,
)
from shoal.runs.load import load, seed_index
from shoal.security import user_modules
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import acts_greedily, final_scores
from shoal.storage.manifest import identity
from shoal.storage.zoo import output_of
from shoal.system.files import written_to
from shoal.system.forks import check_not_forked
from shoal.training import ending, evaluation
from shoal.training.episodes import SHOWN_KEY, RecordedEpisode, draw_episodes, record_episodes
from shoal.training.evaluation import Evaluation, learner_of, workers_of
from shoal.training.program_cache import key_of
from shoal.training.settings import CHANGEABLE, Settings
from shoal.training.sharding import Layout, one_device_per_core
from shoal.trust.run_file import Described, check_same_spec
from shoal.types import Algorithm, AnyEnvironment, Decision, EnvSpec, Learner
from shoal.video import animation, encode


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
        check_bounds(config)

    def __repr__(self) -> str:
        return f"Run({self.algorithm!r} in {self.environment!r}, folder={str(self.folder)!r})"

    @cached_property
    def env(self) -> AnyEnvironment:
        """The environment with the wrappers of training; built on first access.

        Raises:
            InputError: it cannot be built, or differs from the environment that the run was trained in.
        """
        check_not_forked()
        if self.settings.devices != 1:
            one_device_per_core()  # first, since some libraries of environments start JAX
        self._given = given if isinstance(given := self._given, AnyEnvironment) else given()
        env = wrapped_environment(self._given, self.settings)
        if self._spec is not None:
            what = f"{self.environment} is not the environment it was when {self.folder} was trained"
            check_same_spec(env.spec, self._spec, "pruned" in flags_of(self.config).values(), what)
        self._spec = env.spec
        return env

    @property
    def unwrapped_env(self) -> AnyEnvironment:
        """The environment without the wrappers of training, whose observations deployed policies take.

        Raises:
            InputError: as :attr:`env`.
        """
        _ = self.env  # builds it
        assert isinstance(self._given, AnyEnvironment)
        return self._given

    @property
    def spec(self) -> EnvSpec:
        """The spec of the wrapped environment; from ``run.json`` if the run was opened."""
        return self._spec or self.env.spec

    def evaluate(
        self, episodes: float | int = 256, *, greedy: bool | None = None, seed: int = 0, best: bool = False
    ) -> Evaluation:
        """Play whole episodes with each seed's last policy, or its best (``eval_every``); ``seed`` is the episodes'.

        With ``greedy`` None, stochastic policies play them in both modes (:attr:`Evaluation.other`), and the result is
        in the mode of the run's final evaluation, or without one in the better mode.

        Raises:
            InputError: ``episodes`` or ``seed`` is no whole number, ``episodes`` is below 1, ``greedy`` is no boolean,
                the environment cannot be built, or the episodes do not fit in memory.
            CheckpointError: there is no intact policy.
            GameError: a host environment raised.
        """
        episodes, greedy = evaluation.check_episodes(episodes), evaluation.check_mode(greedy)
        found = self._evaluated(episodes, greedy, seed, best)
        recorded = acts_greedily(self.folder, self.settings.steps_per_update, best) if greedy is None else None
        return found if recorded is None else found.in_mode(recorded)

    def _evaluated(
        self,
        episodes: int,
        greedy: bool | None = None,
        seed: int = 0,
        best: bool = False,
        num_envs: int | None = None,
    ) -> Evaluation:
        """:meth:`evaluate` in the better mode, whatever is recorded."""
        env = self.env  # first: refuses to import the environment of an untrusted folder
        key = jax.random.key(convert_value("seed", seed, int))
        workers = self._workers()
        return evaluation.evaluate(env, self._acting(), self._learner(best), key, episodes, greedy, workers, num_envs)

    def replay(
        self,
        path: str | Path | None = None,
        *,
        episodes: float | int = 2,
        greedy: bool | None = None,
        seed: int | None = None,
    ) -> Path:
        """Write an animated picture of ``episodes`` episodes; ``seed`` is one of the run's seeds (None: the best).

        Raises:
            InputError: ``episodes`` is no whole number or below 1, ``greedy`` is no boolean, the run does not have the
                seed, the file has another suffix, or the environment cannot be built.
            CheckpointError: there is no intact policy.
            GameError: a host environment raised.
        """
        episodes, greedy = evaluation.check_episodes(episodes), evaluation.check_mode(greedy)
        encode.check_format(Path(path or "replay.gif"))  # before anything is played
        greedy = self.acts_greedily if greedy is None else greedy
        path = written_to(path, output_of(self.folder, "replay.gif"), encode.check_format)
        index = seed_index(self.settings, self.best_seed() if seed is None else seed)
        learner = jax.tree.map(lambda x: x[index], self._learner())
        return self.draw(
            record_episodes(self.env, self._acting(), learner, jax.random.key(SHOWN_KEY), episodes, greedy), path
        )

    def draw(self, played: Sequence[RecordedEpisode], path: Path, most: int = animation.MAX_FRAMES) -> Path:
        """Write an animated picture of recorded episodes, each of at most ``most`` frames."""
        return draw_episodes(played, self.env, path, f"{self.algorithm} · {self.environment}", most)

    def best_seed(self) -> int:
        """The seed with the highest score: of the final evaluation, or without one of 64 episodes."""
        if self.settings.seeds == 1:
            return self.settings.seed
        scores = final_scores(self.folder, self.settings.steps_per_update, self.settings.seeds)
        if scores is None:
            scores = self.evaluate(64, greedy=self.acts_greedily).per_seed
        return self.settings.seed + int(scores.argmax())

    def curves(self, path: str | Path | None = None, metrics: Sequence[str] = ("return",)) -> Path:
        """Draw the learning curve with a confidence band over seeds."""
        path = written_to(path, output_of(self.folder, "curves.png"), figures.check_format)
        return curves.plot(self.folder, path, metrics)

    @property
    def acts_greedily(self) -> bool:
        """Whether the last policies act greedily by default: as the final evaluation recorded; True without one."""
        return acts_greedily(self.folder, self.settings.steps_per_update) is not False

    def policies(
        self, *, seed: int | None = None, greedy: bool | None = None, best: bool = False, sample_seed: int = 0
    ) -> Policies:
        """The trained policies; see :func:`shoal.load`."""
        return load(self.folder, seed=seed, greedy=greedy, best=best, trust=self.trusted, sample_seed=sample_seed)

    def export(
        self,
        path: str | Path | None = None,
        *,
        format: Format = "onnx",
        best: bool = False,
        seed: int | None = None,
        agent: str | int | np.integer | None = None,
    ) -> Path:
        """Write the trained policies to a file that other programs run (docs/export.md).

        Args:
            path: of the model; by default ``policy.onnx`` or ``policy.stablehlo`` in the run's folder.
            format: see :meth:`shoal.deploy.Policies.export`.
            best: the policy with the best evaluation during training (``eval_every``) instead of the last one.
            seed: one of the run's seeds; None for the first.
            agent: see :meth:`shoal.deploy.Policies.export`.

        Returns:
            The path.

        Raises:
            InputError, WriteError: see :func:`shoal.load` and :meth:`shoal.deploy.Policies.export`.
        """
        path = written_to(path, output_of(self.folder, f"policy.{format}"), partial(check_path, form=format))
        return self.policies(seed=seed, best=best).export(path, format=format, agent=agent)

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
    def policies_step(self) -> int | None:
        """Environment steps per seed after which the last policies were saved; None if there are none."""
        update = Checkpoints(self.folder / "policy").latest()
        return None if update is None else update * self.settings.steps_per_update

    @property
    def ended(self) -> str:
        """Why training ended before its last step; empty if it did not."""
        return ending.reason(self.settings, self.at)

    def _acting(self) -> Algorithm:
        return acting_algorithm(self.algorithm, self.spec, self.config, self.settings, self._opponents())

    def _with_critic(self) -> Algorithm:
        return with_critic(self.algorithm, self.spec, self.config, self.settings, self._opponents())

    def _opponents(self) -> SavedOpponents | None:
        return opponents_of(self.folder, self.settings, self.spec, self.trusted)

    def _learner(self, best: bool = False) -> Learner:
        return learner_of(saved_policy(self.folder, self._acting(), self.settings.seeds, self._identity(), best))

    def _workers(self) -> Workers:
        return workers_of(self.env, self.settings)

    def _identity(self) -> dict[str, Any]:
        """The configuration that its checkpoints record."""
        return identity(self.as_json(), CHANGEABLE)

    def _environment_key(self) -> str:
        """The key of what its environment alone determines; empty if that depends on modules of the user's own or of
        other libraries, or on saved policies of opponents."""
        known = registry.built_in(self.environment) or self.environment.startswith("skirmish/")
        if not (known and self.by_name) or self.settings.opponent_options.opponents is not None:
            return ""
        return key_of(self.environment, self.env_options, flags_of(self.settings.wrapping), self.as_json()["spec"])

    def _program_key(self, layout: Layout) -> str:
        """The key of its compiled programs; empty if they depend on more than the configuration, or on other
        processes."""
        environment, config, settings = self._environment_key(), flags_of(self.config), flags_of(self.settings)
        own = algorithms.own(self.algorithm) or user_modules.named_in(config)
        if own or not environment or layout.mesh.is_multi_process:
            return ""
        without = {"seed", "seeds", *CHANGEABLE} - {"steps", "schedule_steps"}
        settings = {name: value for name, value in settings.items() if name not in without}
        sizes = dict(layout.mesh.shape), layout.seeds, layout.num_envs
        return key_of(environment, self.algorithm, config, settings, sizes)

    def as_json(self) -> dict[str, Any]:
        """The whole configuration, for ``run.json``."""
        names = self.algorithm, self.environment, self.env_options, self.by_name
        return Described(*names, self.settings, self.config, self.spec).as_json()
