"""Trials grouped by structure: those of one structure differ only in traced hyper-parameters, and share a program.

An algorithm is made from its configuration inside the traced functions, with arrays in place of numbers
(:func:`with_values`); the arrays travel in the learner's policy, so that acting, evaluating and checkpoints have them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal import algorithms
from shoal.bounds import check
from shoal.environments import registry
from shoal.errors import InputError
from shoal.options.flags import flags_of, override
from shoal.rollouts import fused
from shoal.runs.assembly import environment, made
from shoal.studies.entries import key, label
from shoal.studies.plan import Cell
from shoal.studies.tuning.halving import Rung
from shoal.studies.tuning.methods import Method
from shoal.training import checks, feed, sharding
from shoal.training import feed as feeds
from shoal.training.program import trajectory_shape
from shoal.training.settings import Settings
from shoal.types import Algorithm, Environment, Learner, Metrics, PyTree, Scale, Step

# Hyper-parameters as traced arrays: one compiled program trains trials with different values of them.


Values = dict[str, Float[Array, ""]]
Make = Callable[[Mapping[str, Any]], Algorithm]
"""Values of some hyper-parameters, numbers or arrays -> the algorithm with them."""


class TriedPolicy(NamedTuple):
    """The policy of a trial."""

    policy: PyTree
    """The policy of the algorithm."""
    values: Values
    """The values of the traced hyper-parameters."""


def with_values(make: Make, defaults: Mapping[str, float]) -> Algorithm:
    """An algorithm whose learner holds the values of hyper-parameters.

    Its ``init`` takes them as a second argument; without it, they are ``defaults``.

    Args:
        make: makes the algorithm.
        defaults: a value for each traced hyper-parameter.
    """
    constant = {name: jnp.float32(value) for name, value in defaults.items()}
    outer = make(constant)  # arrays, as in the program: a term with coefficient 0 must be kept for other trials

    def init(key: PRNGKeyArray, values: Values | None = None) -> Learner:
        values = constant if values is None else values
        learner = make(values).init(key)
        return learner._replace(policy=TriedPolicy(learner.policy, values))

    def act(learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool) -> Any:
        policy, values = learner.policy
        return make(values).act(learner._replace(policy=policy), carry, step, key, greedy)

    def update(learner: Learner, experience: Any, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        policy, values = learner.policy
        after, metrics = make(values).update(learner._replace(policy=policy), experience, key)
        return after._replace(policy=TriedPolicy(after.policy, values)), metrics

    return outer._replace(init=init, act=act, update=update, inspect=None)  # trials are not recorded


def traceable(make: Make, env: Environment, sizes: tuple[int, int], candidates: Mapping[str, float]) -> list[str]:
    """Those of ``candidates`` that can be arrays, found by tracing a rollout and an update with them.

    Args:
        make: makes the algorithm.
        env: the environment.
        sizes: E and T of the run.
        candidates: a value for each hyper-parameter.
    """
    if not candidates or traces(make, env, sizes, candidates):
        return list(candidates)
    found = {name: value for name, value in candidates.items() if traces(make, env, sizes, {name: value})}
    return list(found) if not found or traces(make, env, sizes, found) else []


def traces(make: Make, env: Environment, sizes: tuple[int, int], values: Mapping[str, float]) -> bool:
    """Whether an algorithm can be made, act and be updated while all these hyper-parameters are arrays."""
    num_envs, length = sizes

    def probe(values: Values) -> Any:
        algorithm = make(values)
        rollout = fused.make(env, num_envs, length)
        feed = feeds.make(algorithm.replay, trajectory_shape(algorithm, rollout, num_envs), num_envs, 1)
        key = jax.random.key(0)
        learner = algorithm.init(key)
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        _, trajectory, _ = rollout.collect(algorithm.act, learner, state, key)
        fed = feed.put(feed.init(), trajectory)
        after, _ = algorithm.update(learner, feed.take(fed, trajectory, key), key)
        return learner, after

    try:
        before, after = jax.eval_shape(probe, {name: jnp.float32(value) for name, value in values.items()})
    except Exception:  # many types: a Python branch on the value, a shape, an option that must be a constant
        return False
    return jax.tree.map(jnp.shape, before) == jax.tree.map(jnp.shape, after)


# Structures.


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
        prepare = getattr(algorithms.get(self.algorithm), "prepare", None)
        scale = Scale(self.settings.num_envs, self.settings.rollout_length, 1)
        if prepare is not None and prepare(env.spec, self.config, scale) is not None:
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
        made = Instance(self, {})
        made.make({})
        return traceable(made.make, self.env, (made.settings.num_envs, made.settings.rollout_length), numbers)


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
        self.settings: Settings = settings
        settings.check()
        for name in ("init_from", "schedule_steps"):
            if getattr(settings, name) is not None:
                raise InputError(
                    f"{name} is not supported in tuning, where every trial starts from the beginning and "
                    f"its schedules span its steps."
                )
        self.updates = whole_updates(method.rungs, settings.steps_per_update)
        """At each rung, the updates since the start of a trial."""

    def make(self, values: Any) -> Algorithm:
        """The algorithm with values of traced hyper-parameters, whose schedules end with a whole trial."""
        return self.made(override(self.config, values), self.scale)

    @cached_property
    def scale(self) -> Scale:
        """The sizes of a whole trial, without updates before the replay buffers can be sampled.

        Raises:
            InputError: there is no update before the first rung.
        """
        settings = self.settings
        scale = Scale(settings.num_envs, settings.rollout_length, self.updates[-1])
        replay = self.made(self.config, scale).replay
        waiting = feed.updates_before_learning(replay, settings.num_envs, settings.rollout_length)
        if waiting >= self.updates[0]:
            raise InputError(
                f"learning_starts is above the {self.updates[0] * settings.steps_per_update} steps of the first rung, "
                f"which has no update then; lower it, or raise steps or lower rungs in [tuning]."
            )
        return scale._replace(num_updates=max(1, scale.num_updates - waiting))

    @cached_property
    def made(self) -> Any:
        """(configuration, scale) -> the algorithm."""
        return partial(_made, self.setting.algorithm, self.env.spec, self.settings)

    def check(self, trials: Iterable[Trial]) -> None:
        """Check the whole configurations of trials; nothing is traced.

        Raises:
            InputError: one is invalid. The message names its values.
        """
        try:
            scale = self.scale
        except InputError as error:
            raise (_impossible(self.fixed, error) if self.fixed else error) from None
        for values in trials:
            try:
                config = override(self.config, values)
                check(config)
                checks.rewards(self.settings, config)
                self.made(config, scale)
            except InputError as error:
                raise _impossible(values, error) from None


def _impossible(values: Trial, error: InputError) -> InputError:
    said = ", ".join(f"{flag} {label(value)}" for flag, value in values.items())
    return InputError(f"A trial with {said} is invalid: {error}")


def _made(name: str, spec: Any, settings: Settings, config: Any, scale: Scale) -> Algorithm:
    return made(name, spec, config, settings, scale)


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
