"""Trials grouped by structure, and trained in parallel in one compiled program, like seeds.

Trials of one structure differ only in traced hyper-parameters.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from shoal import algorithms
from shoal.bounds import check_bounds
from shoal.environments import registry
from shoal.environments.starts import with_starts
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import flags_of, override
from shoal.rollouts import fused
from shoal.runs.build import Built, build, wrapped_environment
from shoal.storage.checkpoint import Checkpoints, to_host
from shoal.studies.keys import key, label
from shoal.studies.plan import Cell
from shoal.studies.record import rounded_numbers
from shoal.studies.tuning.file import Rung
from shoal.studies.tuning.methods import SETTINGS, Method
from shoal.system.files import make_folder
from shoal.training import checks, ending, feed, memory, pretraining, sharding
from shoal.training.evaluation import first_episodes, sampled_is_better
from shoal.training.program import Program, TrainState, compile_program, placed_state
from shoal.training.progress import Progress
from shoal.training.settings import Settings
from shoal.training.stopping import Stop, ready, wait
from shoal.training.traced import traceable, with_values
from shoal.training.trainer import CALL_SECONDS, CAPACITY, Pace
from shoal.types import Algorithm, Environment, Scale

Trial = dict[str, Any]
"""The values of one trial, by flag."""
WHOLE: Trial = {"eval_every": None, "stop_at": None, "time_budget": None}
"""Settings by which every trial trains all steps of its rungs, without evaluations in between."""


@dataclass(frozen=True)
class Structure:
    """Trials that share a compiled program."""

    fixed: Trial
    """Values of structural hyper-parameters."""
    trials: tuple[int, ...]

    @property
    def name(self) -> str:
        """For messages, for example ``hidden 64 64``; empty if nothing is structural."""
        return ", ".join(f"{flag} {label(value)}" for flag, value in self.fixed.items())


def sorted_by_structure(trials: Mapping[int, Trial], traced: Sequence[str]) -> list[Structure]:
    """The structures of trials, in the order of their first trials.

    A hyper-parameter that can be traced is structural in a trial in which it is not a number, for example None.
    """
    found: dict[Any, tuple[Trial, list[int]]] = {}
    for number, values in trials.items():
        fixed = {flag: x for flag, x in values.items() if flag not in traced or not isinstance(x, float)}
        absent = tuple(flag for flag in traced if flag not in values)  # a flag for all sides, in the default trial
        place = tuple((flag, key(x)) for flag, x in fixed.items()), absent
        found.setdefault(place, (fixed, []))[1].append(number)
    return [Structure(fixed, tuple(numbers)) for fixed, numbers in found.values()]


class Setting:
    """An environment in which trials of a method are made, with the configuration before values are drawn."""

    def __init__(self, method: Method, cell: Cell):
        """Build the environment.

        Raises:
            InputError: the environment cannot be built, or the algorithm prepares its networks before training, which
                trials in one program cannot.
        """
        self.method, self.cell = method, cell
        self.algorithm = algorithms.canonical(cell.algorithm)
        found = cell.merged()
        self.settings, self.config = found.settings, found.config
        if self.settings.devices != 1:
            sharding.one_device_per_core()
        built = registry.make(cell.environment, **cell.env)
        self.settings = found.sized_for(built.spec)
        self.env = env = wrapped_environment(built, self.settings)
        algorithms.check_alone(cell.algorithm, env.spec)
        if not isinstance(env, Environment):
            return
        registry.validate(env)
        scale = Scale(self.settings.num_envs, self.settings.rollout_length, 1)
        if pretraining.preparation(algorithms.get(self.algorithm), env.spec, self.config, scale) is not None:
            raise InputError(
                f"{cell.algorithm} chooses its networks before training, which is not possible for trials in one "
                f"program."
            )

    @property
    def hosted(self) -> bool:
        """Whether worker processes step the environment, so that trials cannot share a program."""
        return not isinstance(self.env, Environment)

    @cached_property
    def default(self) -> Trial:
        """The values of the tuned flags without tuning; a flag for all sides has none."""
        known = flags_of(self.settings) | flags_of(self.config)
        return {flag: known[flag] for flag in self.method.ranges if flag in known}

    @cached_property
    def traced(self) -> list[str]:
        """The tuned flags that can be arrays; none where trials are runs of their own.

        Raises:
            InputError: the algorithm cannot be made, also without tuned values.
        """
        if self.hosted:
            return []
        numbers = {
            flag: float(found[0])
            for flag, span in self.method.ranges.items()
            if flag not in SETTINGS  # which have their effect where the algorithm is built, not in it
            and (found := [x for x in span.values or (span.low,) if isinstance(x, float)])
        }
        plain = Instance(self, {})
        plain.make({})
        assert isinstance(self.env, Environment)
        return traceable(plain.make, self.env, (plain.settings.num_envs, plain.settings.rollout_length), numbers)


class Instance:
    """A setting with the values of one structure."""

    def __init__(self, setting: Setting, fixed: Trial):
        """Apply the values.

        Raises:
            InputError: a value is invalid, or a rung is shorter than an update.
        """
        self.setting, self.env, self.fixed = setting, setting.env, fixed
        method = setting.method
        settings, self.config = (override(x, fixed) for x in (setting.settings, setting.config))
        last, tuning = method.rungs[-1].steps, method.tuning
        settings = override(settings, {"seeds": tuning.seeds, "seed": tuning.seed, "steps": last} | WHOLE)
        settings.check()
        for name in ("init_from", "schedule_steps"):
            if getattr(settings, name) is not None:
                raise InputError(
                    f"{name} is not supported in tuning, where every trial starts from the beginning and "
                    f"its schedules span its steps."
                )
        self.updates = whole_updates(method.rungs, settings.steps_per_update)
        """At each rung, the updates since the start of a trial."""
        self.settings: Settings = override(settings, {"steps": self.updates[-1] * settings.steps_per_update})

    def make(self, values: Any) -> Algorithm:
        """The algorithm with values of traced hyper-parameters, whose schedules end with a whole trial."""
        return self.built.make(override(self.config, values))

    @cached_property
    def built(self) -> Built:
        """A whole trial, as a run of one seed on one device.

        Raises:
            InputError: the configuration is invalid, or there is no update before the first rung.
        """
        one = override(self.settings, {"seeds": 1, "devices": 1})
        built = build(self.setting.algorithm, self.env, self.config, one)
        waiting = feed.updates_before_learning(built.algorithm.replay, one.num_envs, one.rollout_length)
        if waiting >= self.updates[0]:
            reason = checks.reason_of_filling(feed.wanted(built.algorithm.replay), one.num_envs)
            raise InputError(
                f"the first rung has no update: its {self.updates[0] * one.steps_per_update:,} steps only fill the "
                f"replay buffer ({reason}); lower that, or raise steps or lower rungs in [tuning]."
            )
        return built

    def check(self, trials: Iterable[Trial]) -> None:
        """Check the whole configurations of trials; nothing is traced.

        Raises:
            InputError: one is invalid. The message names its values.
        """
        try:
            built = self.built
        except InputError as error:
            raise (_impossible(self.fixed, error) if self.fixed else error) from None
        for values in trials:
            try:
                config = override(self.config, values)
                check_bounds(config)
                checks.check_rewards(self.settings, config)
                built.make(config)
            except InputError as error:
                raise _impossible(values, error) from None


def _impossible(values: Trial, error: InputError) -> InputError:
    said = ", ".join(f"{flag} {label(value)}" for flag, value in values.items())
    return InputError(f"A trial with {said} is invalid: {error}")


def whole_updates(rungs: Sequence[Rung], per_update: int) -> tuple[int, ...]:
    """The whole updates of ``per_update`` steps that fit into each rung.

    Raises:
        InputError: the first rung has none, or two rungs have the same number.
    """
    found = tuple(rung.steps // per_update for rung in rungs)
    if found[0] < 1 or len(set(found)) < len(found):
        raise InputError(
            f"The rungs at {', '.join(str(rung.steps) for rung in rungs)} steps are too short for updates of "
            f"{per_update} steps (num_envs times rollout_length); raise steps or lower rungs in [tuning]."
        )
    return found


TrialScores = dict[int, list[float | int] | None]
"""By trial, the mean score of each seed; None if it diverged."""


class Population:
    """Trains the remaining trials from rung to rung. The state at the end of a rung is saved on disk.

    Entries are trials × seeds, with the seeds of a trial next to each other. They are padded with copies of the first
    entry to a multiple of the number of devices: every device has equally many, and environments are not sharded.
    """

    def __init__(self, instance: Instance, traced: Sequence[str], folder: Path):
        """Prepare; nothing is compiled.

        Args:
            instance: the setting with the structure's values.
            traced: flags of the traced hyper-parameters.
            folder: of the checkpoints.
        """
        self.instance, self.traced = instance, traced
        assert isinstance(instance.env, Environment)
        self.settings, self.env, self.tuning = instance.settings, instance.env, instance.setting.method.tuning
        self.checkpoints = Checkpoints(folder, keep=1)
        self.sound: Bool[np.ndarray, " S"] = np.ones(0, bool)
        """Entries without NaN or infinity so far."""
        self.update = 0
        self.seconds = 0.0
        """Of training, in this process, without compilation."""

    def check(self, trials: Mapping[int, Trial]) -> None:
        """Check that ``trials`` fit in memory together; nothing is compiled.

        Raises:
            InputError: they do not.
        """
        self._program(trials)

    def rung(self, number: int, trials: Mapping[int, Trial], progress: bool, stop: Stop) -> TrialScores | None:
        """Train ``trials`` to a rung and evaluate them; None if a signal stopped it, in which case the state is saved.

        Args:
            number: number of the rung, from 0.
            trials: their values; all of them reached the rung before.
            progress: show a progress line.
            stop: whether to stop.

        Raises:
            InputError: the trials do not fit in memory.
            CheckpointError: the state at the end of the rung before is missing or damaged, or the stored one is of a
                later rung.
        """
        target, last = self.instance.updates[number], number == len(self.instance.updates) - 1
        program, layout, values = self._program(trials)
        with stop.at_once():  # the stored state suffices to continue
            state = self._state(trials, target, program, layout, values)
        shown = Progress(target * self.settings.steps_per_update, len(trials) * self.tuning.seeds, progress)
        try:
            if self.update < target and not self._train(program, state, trials, target, shown, stop, keep=not last):
                return None
        finally:
            shown.close()
        return self._evaluate(self._now, trials, number)

    def _program(self, trials: Mapping[int, Trial]) -> tuple[Program, sharding.Layout, dict[str, Array]]:
        settings, seeds = self.settings, self.tuning.seeds
        count = min(settings.devices or jax.local_device_count(), len(trials) * seeds)
        entries = -(-len(trials) * seeds // count) * count
        layout = sharding.plan_layout(entries, settings.num_envs, count)
        columns = {flag: np.array([one[flag] for one in trials.values()], np.float32) for flag in self.traced}
        filled = {flag: _filled(np.repeat(x, seeds), entries) for flag, x in columns.items()}
        default = {flag: float(x[0]) for flag, x in columns.items()}
        self.algorithm = with_values(self.instance.make, default) if columns else self.instance.make({})
        capacity = min(CAPACITY, self.instance.updates[-1])
        env = with_starts(self.env, settings.num_starts)
        program = compile_program(env, self.algorithm, layout, settings.rollout_length, capacity)
        given = (filled,) if columns else ()
        size = entries, settings.num_envs, settings.rollout_length, program.feed.sample_bytes * layout.seeds
        memory.check_run(self.env.spec, program.template(*given).learner, *size, layout.mesh.devices)
        if feed.wanted(self.algorithm.replay):
            checks.check_buffers(program.feed, layout, entries)
        memory.check_episode_memory(self.env.spec, entries, self.tuning.episodes, self.env.spec.horizon, "episodes")
        return program, layout, filled

    def _state(
        self,
        trials: Mapping[int, Trial],
        target: int,
        program: Program,
        layout: sharding.Layout,
        values: dict[str, Array],
    ) -> TrainState:
        """The newest stored state, restricted to these trials; new trials are initialised."""
        seeds, entries = self.tuning.seeds, layout.seeds * layout.mesh.shape[sharding.SEED_SHARDS]
        given = (values,) if self.traced else ()
        template = program.template(*given)
        if self.checkpoints.latest() is None:
            numbers = np.tile(self.settings.seed + np.arange(seeds), len(trials))
            keys = jax.vmap(jax.random.key)(jnp.asarray(_filled(numbers, entries)))
            self.update, self.sound = 0, np.ones(entries, bool)
            self._now = program.init(*jax.device_put((keys, *given), layout.named(layout.learner)))
            return self._now
        meta = self.checkpoints.load_meta()
        if not set(trials) <= set(meta["trials"]):
            raise trained_further(self.checkpoints.folder)
        places = [meta["trials"].index(trial) * seeds + i for trial in trials for i in range(seeds)]
        chosen = np.asarray(_filled(np.asarray(places), entries))
        rows = None if chosen.tolist() == list(range(meta["entries"])) else chosen
        state, meta, self.update = self.checkpoints.restore(template, rows=rows)
        if self.update > target:
            raise trained_further(self.checkpoints.folder)
        self.sound = np.asarray(meta["sound"], bool)[chosen]
        self._now = placed_state(state, layout)
        return self._now

    def _train(
        self,
        program: Program,
        state: TrainState,
        trials: Mapping[int, Trial],
        target: int,
        progress: Progress,
        stop: Stop,
        keep: bool,
    ) -> bool:
        """Train to ``target`` updates; returns False if a signal stopped it before."""
        entries, per_update, began = len(self.sound), None, time.monotonic()
        settings, steps = self.settings, self.settings.steps_per_update
        filling = feed.updates_before_learning(self.algorithm.replay, settings.num_envs, settings.rollout_length)
        with stop.at_once():
            advance = program.start(state)
        progress.say(
            f"Compiled for {len(trials)} trials × {self.tuning.seeds} seeds in {time.monotonic() - began:.1f} s."
        )
        pace = Pace(settings.checkpoint_seconds)
        while self.update < target and not stop.asked:
            n = ending.call_size(settings, ending.Standing(self.update), per_update, CALL_SECONDS, filling)
            n = min(n, target - self.update, program.capacity)
            began = time.monotonic()
            state, (metrics, _) = advance(state, np.int32(n))
            for values in jax.tree.leaves(ready(metrics)):
                self.sound &= np.isfinite(np.asarray(values)[:n]).all(0)
            spent = time.monotonic() - began
            self.update, self.seconds, self._now = self.update + n, self.seconds + spent, state
            per_update = spent / n
            progress.update(self.update * steps, None, n * steps * entries / max(spent, 1e-9))
            if pace.due() and self.update < target:
                with pace.saving():
                    self._save(trials)
        for leaf in to_host(state.learner):
            self.sound &= np.isfinite(leaf).reshape(entries, -1).all(1)
        if keep or self.update < target:
            self._save(trials)
        return self.update >= target

    def _save(self, trials: Mapping[int, Trial]) -> None:
        make_folder(self.checkpoints.folder.parent)
        meta = {"trials": list(trials), "entries": len(self.sound), "sound": self.sound.tolist()}
        self.checkpoints.save(self.update, self._now, meta)

    def _evaluate(self, state: TrainState, trials: Mapping[int, Trial], number: int) -> TrialScores:
        """Episodes, the same for every trial, but new ones at every rung, since they select the trials."""
        seeds, episodes, entries = self.tuning.seeds, self.tuning.episodes, len(self.sound)
        key = jax.random.fold_in(jax.random.key(self.tuning.evaluation_seed), number)
        keys = jax.random.split(key, seeds)[_filled(np.tile(np.arange(seeds), len(trials)), entries)]
        carry = self.algorithm.initial_carry(episodes)
        learner = state.learner._replace(critic=(), optimiser=(), statistics=())

        def played(greedy: bool) -> np.ndarray:
            """The scores [entries, episodes]."""
            episode = first_episodes(self.env, self.algorithm.act, carry, episodes, greedy)
            compiled = wait(jax.jit(jax.vmap(episode, axis_name=fused.SEEDS)).lower(learner, keys).compile)
            return self.env.spec.scores(np.asarray(ready(compiled(learner, keys))[0]))

        both = self.tuning.greedy is None and self.algorithm.stochastic
        scores = played(self.tuning.greedy is not False)
        sampled = played(False) if both else scores
        found: TrialScores = {}
        for i, trial in enumerate(trials):
            own = slice(i * seeds, (i + 1) * seeds)
            chosen = sampled if both and sampled_is_better(scores[own], sampled[own]) else scores
            means = chosen[own].mean(1)
            sound = self.sound[own].all() and all(map(math.isfinite, means))
            found[trial] = rounded_numbers(means) if sound else None
        return found


def trained_further(folder: Path) -> CheckpointError:
    """The error of stored states that are of a later rung than the scores of their search."""
    return CheckpointError(
        f"{folder} has trained further than the scores in the search's file; delete that folder to train its trials "
        f"again."
    )


def _filled(values: np.ndarray, entries: int) -> Any:
    """``values`` padded with copies of the first one."""
    return np.concatenate([values, np.repeat(values[:1], entries - len(values))])
