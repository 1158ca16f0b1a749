"""Trials grouped by structure: those of one structure differ only in traced hyper-parameters, and share a program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal import algorithms
from shoal.bounds import check
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.flags import flags_of, override
from shoal.runs.build import Built, build, environment
from shoal.studies.entries import key, label
from shoal.studies.plan import Cell
from shoal.studies.tuning.halving import Rung
from shoal.studies.tuning.methods import Method
from shoal.training import checks, feed, pretraining, sharding
from shoal.training.settings import Settings
from shoal.training.traced import traceable
from shoal.types import Algorithm, Environment, Scale

Trial = dict[str, Any]
"""The values of one trial, by flag."""


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
            InputError: the environment cannot be built, is stepped by worker processes, or the algorithm prepares its
                networks before training.
        """
        self.method, self.cell = method, cell
        self.algorithm = algorithms.canonical(cell.algorithm)
        found = cell.merged()
        self.settings, self.config = found.settings, found.config
        if self.settings.devices != 1:
            sharding.one_device_per_core()
        built = registry.make(cell.environment, **cell.env)
        self.settings = found.sized_for(built.spec)
        env = environment(built, self.settings)
        if not isinstance(env, Environment):
            raise InputError(
                f"{cell.environment} is stepped by worker processes, but trials are trained in one compiled program; "
                f"write the values to try as axes of [grid] instead."
            )
        registry.validate(env)
        self.env = env
        algorithms.check_alone(cell.algorithm, env.spec)
        scale = Scale(self.settings.num_envs, self.settings.rollout_length, 1)
        if pretraining.preparation(algorithms.get(self.algorithm), env.spec, self.config, scale) is not None:
            raise InputError(
                f"{cell.algorithm} chooses its networks before training, which is not possible for trials in one "
                f"program."
            )

    @cached_property
    def default(self) -> Trial:
        """The values of the tuned flags without tuning; a flag for all sides has none."""
        known = flags_of(self.settings) | flags_of(self.config)
        return {flag: known[flag] for flag in self.method.ranges if flag in known}

    @cached_property
    def traced(self) -> list[str]:
        """The tuned flags that can be arrays.

        Raises:
            InputError: the algorithm cannot be made, also without tuned values.
        """
        numbers = {
            flag: float(found[0])
            for flag, span in self.method.ranges.items()
            if (found := [x for x in span.values or (span.low,) if isinstance(x, float)])
        }
        plain = Instance(self, {})
        plain.make({})
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
        settings = override(settings, {"seeds": tuning.seeds, "seed": tuning.seed, "steps": last, "eval_every": None})
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
            raise InputError(
                f"learning_starts is above the {self.updates[0] * one.steps_per_update} steps of the first rung, "
                f"which has no update then; lower it, or raise steps or lower rungs in [tuning]."
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
                check(config)
                checks.rewards(self.settings, config)
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
