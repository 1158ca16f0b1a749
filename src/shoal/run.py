"""A run folder, with everything needed to look at what the team learned."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal import algorithms
from shoal.algorithms.normalisation import normalise_rewards
from shoal.algorithms.preparation import Decision
from shoal.configs import flags_of, override, spec_from_json, spec_to_json
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.environments.wrappers import wrap
from shoal.errors import CheckpointError, InputError
from shoal.game import HostEnvironment
from shoal.records import curves, manifest, replay, report
from shoal.records.checkpoint import Checkpoints
from shoal.records.files import dumps, write_text
from shoal.rollouts.stepping import importable
from shoal.training import evaluation, pretraining, sharding
from shoal.training.evaluation import Evaluation
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner, PyTree, Scale


class Run:
    """A run folder, with everything needed to look at what the team learned."""

    def __init__(
        self,
        folder: Path,
        algorithm: str,
        environment: str,
        env_options: dict[str, Any],
        settings: Settings,
        config: Any,
        env: AnyEnvironment,
    ):
        self.folder, self.algorithm, self.environment = folder, algorithm, environment
        self.env_options, self.settings, self.config = env_options, settings, config
        self.env: AnyEnvironment = wrap(env, settings.wrapping)
        self.finished, self.by_name = False, True
        self.evaluation: Evaluation | None = None
        """The judgement at the end of training, where this process trained it."""
        self.decision: Decision | None = None
        """What the algorithm decided by experience before training, where this process began it."""
        settings.check()

    def __repr__(self) -> str:
        return f"Run({self.algorithm!r} in {self.environment!r}, folder={str(self.folder)!r})"

    def evaluate(self, episodes: int = 256, *, greedy: bool = True, seed: int = 0) -> Evaluation:
        """Play whole episodes with every seed's policy; ``seed`` draws the starts, not the policies."""
        key = jax.random.key(seed)
        return evaluation.evaluate(self.env, self._acting(), self._learner(), key, episodes, greedy, self._workers())

    def replay(
        self, path: str | Path | None = None, *, episodes: int = 2, greedy: bool = True, seed: int | None = None
    ) -> Path:
        """Write an animated picture of ``episodes`` episodes; ``seed`` is one of the run's (None: the best)."""
        path = Path(path or self.folder / "replay.gif")
        replay.check_format(path)  # before anything is played
        choose = seed is None and self.settings.seeds > 1
        judged = (self.evaluation or self.evaluate(64)) if choose else None
        index = int(judged.per_seed.argmax()) if judged else _seed_index(self.settings, seed)
        learner = jax.tree.map(lambda x: x[index], self._learner())
        played = evaluation.record(self.env, self._acting(), learner, jax.random.key(1000), episodes, greedy)
        spec, drawn = self.env.spec, all(episode.frames for episode in played)
        frames = [frame for episode in played for frame in episode.frames or ()] if drawn else None
        rewards = [np.pad(e.rewards, ((drawn, 0), (0, 0))) for e in played]
        first = np.concatenate([np.arange(len(r)) == 0 for r in rewards])
        return replay.animate(
            frames,
            np.concatenate(rewards),
            path,
            title=f"{self.algorithm} · {self.environment}",
            actions=np.concatenate([e.actions for e in played]),
            first=first,
            score=spec.score,
            names=spec.agents,
        )

    def curves(self, path: str | Path | None = None, metrics: Sequence[str] = ("return",)) -> Path:
        """Draw the learning curve with a confidence band over seeds."""
        return curves.plot(self.folder, path or self.folder / "curves.png", metrics)

    def policies(self, *, seed: int | None = None, greedy: bool = True) -> Policies:
        """What :func:`load` gives."""
        return load(self.folder, seed=seed, greedy=greedy)

    def summary(self) -> str:
        """A few lines on what the run reached."""
        return report.summary(self.folder)

    def _acting(self) -> Algorithm:
        return _acting(self.algorithm, self.env.spec, self.config, self.settings)

    def _learner(self) -> Learner:
        policy = _saved_policy(self.folder, self._acting(), self.settings.seeds)
        return Learner(policy, (), (), (), jnp.zeros(self.settings.seeds, jnp.int32))

    def trainer(self, progress: bool) -> Trainer:
        """What will train this run.

        Raises:
            InputError: something cannot work as asked.
        """
        if self.settings.devices != 1:
            sharding.one_device_per_core()
        devices = self.settings.devices or _devices_before(self.folder)
        if self.settings.workers == "ray":
            if isinstance(self.env, Environment):
                raise InputError(f"{self.environment} is compiled with the update, so it has no use for Ray's workers.")
            devices = 1  # the actors have the cores
        layout = sharding.plan(self.settings.seeds, self.settings.num_envs, devices)
        if isinstance(self.env, Environment):
            registry.validate(self.env)
        scale = Scale(layout.num_envs, self.settings.rollout_length, self.settings.num_updates)
        module = algorithms.get(self.algorithm)
        self.decision = pretraining.decide(module, self.env, self.config, scale, self.settings.seed, self._workers())
        if self.decision:
            self.config = self.decision.config
        make = partial(_made, self.algorithm, self.env.spec, self.config, self.settings, scale)
        return Trainer(self.env, make(), self.settings, layout, self.folder, progress, make)

    def _workers(self) -> int | None:
        """Worker processes on this machine; 0 for what only Ray can send to another process."""
        there = not isinstance(self.env, HostEnvironment) or importable(self.env.make) is not None
        return self.settings.num_workers if there else 0

    def finish(self, trainer: Trainer) -> "Run":
        """Train to the end and judge what came out; returns itself."""
        trainer.progress.say(f"{self.algorithm} in {self.environment}, kept in {self.folder}")
        for sentence in trainer.notes:
            trainer.progress.say(sentence)
        for sentence in trainer.warnings:
            trainer.progress.warn(sentence)
        if self.decision:
            trainer.progress.say(self.decision.said)
            write_text(self.folder / "preparation.json", dumps(self.decision.report, "preparation", indent=1) + "\n")
        episodes = self.settings.judged_by(self.env)
        try:
            self.finished = trainer.run()
            if self.finished and episodes:
                self.evaluation = self._judge(trainer, episodes)
        finally:
            trainer.close()
        if self.evaluation is not None:
            said = self.evaluation.as_json()
            said |= {"episodes": episodes, "greedy": True, "step": trainer.step}
            write_text(self.folder / "evaluation.json", dumps(said, "evaluation", indent=1) + "\n")
        return self

    def _judge(self, trainer: Trainer, episodes: int) -> Evaluation:
        """Evaluate what was just trained, by the worker processes that are there already."""
        play = trainer.program.play
        if play is None:
            return self.evaluate(episodes)
        trainer.progress.say(f"Judging by {episodes} greedy episodes of each seed.")
        played = play(self._learner(), jax.random.key(0), episodes, True)
        return self.evaluate(episodes) if played is None else evaluation.judged(self.env.spec, *played)

    def as_json(self) -> dict[str, Any]:
        """The whole configuration, as ``run.json`` keeps it."""
        return {
            "algorithm": self.algorithm,
            "environment": self.environment,
            "env": self.env_options,
            "by_name": self.by_name,
            "settings": flags_of(self.settings),
            "config": flags_of(self.config),
            "spec": spec_to_json(self.env.spec),
        }


def read_configuration(folder: Path) -> tuple[dict[str, Any], Settings, Any]:
    """What ``run.json`` says of a run: all of it, the settings, and the algorithm's ``Config``.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` lacks something.
    """
    said = manifest.read(folder)["config"]
    missing = [key for key in ("algorithm", "environment", "env", "settings", "config", "spec") if key not in said]
    if missing:
        raise InputError(f"{folder / 'run.json'} does not describe a run: it lacks {', '.join(missing)}.")
    config = override(algorithms.get(said["algorithm"]).Config(), said["config"])
    return said, override(Settings(), said["settings"]), config


def load(folder: str | Path, *, seed: int | None = None, greedy: bool = True) -> Policies:
    """The trained policies of a run, to act with; the environment itself is not needed.

    Args:
        folder: a run folder.
        seed: which of the run's seeds; None for the first.
        greedy: act by the mode rather than by sampling.

    Raises:
        InputError: the folder holds no run or the run has no such seed.
        CheckpointError: no saved policy is sound.
    """
    said, settings, config = read_configuration(Path(folder))
    spec = spec_from_json(said["spec"])
    algorithm = _acting(said["algorithm"], spec, config, settings)
    policy = _saved_policy(Path(folder), algorithm, settings.seeds)
    one = jax.tree.map(lambda x: x[_seed_index(settings, seed)], policy)
    return Policies(spec, algorithm, one, greedy=greedy, wrapping=settings.wrapping)


def _made(name: str, spec: EnvSpec, config: Any, settings: Settings, scale: Scale) -> Algorithm:
    """The algorithm as it trains, also in another process."""
    algorithm = algorithms.get(name).make(spec, config, scale)
    if not settings.normalise_rewards:
        return algorithm
    gamma = max(value for flag, value in flags_of(config).items() if flag.endswith("gamma"))  # of several sides
    return normalise_rewards(algorithm, spec, gamma, settings.reward_clip)


def _acting(name: str, spec: EnvSpec, config: Any, settings: Settings) -> Algorithm:
    """The algorithm for acting alone: no batch will be cut, so none needs to divide."""
    return _made(name, spec, override(config, {"minibatches": 1}), settings, Scale(1, settings.rollout_length, 1))


def _saved_policy(folder: Path, algorithm: Any, seeds: int) -> PyTree:
    keys = jax.random.split(jax.random.key(0), seeds)
    template = jax.eval_shape(jax.vmap(algorithm.init), keys).policy
    if not (folder / "policy").exists():
        raise CheckpointError(f"{folder} holds no trained policy yet.")
    return Checkpoints(folder / "policy").restore(template)[0]


def _seed_index(settings: Settings, seed: int | None) -> int:
    index = 0 if seed is None else seed - settings.seed
    if not 0 <= index < settings.seeds:
        last = settings.seed + settings.seeds - 1
        raise InputError(f"The run has no seed {seed}; its seeds are {settings.seed} to {last}.")
    return index


def _devices_before(folder: Path) -> int | None:
    """How many of the devices here a run began on, which a machine with more must not exceed; None for a new run."""
    checkpoints = Checkpoints(folder / "checkpoints")
    if checkpoints.latest() is None:
        return None
    return min(math.prod(checkpoints.load_meta()["shards"].values()), jax.local_device_count())
