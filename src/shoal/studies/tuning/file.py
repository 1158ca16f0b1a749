"""The part ``[tuning]`` of a study file: how hyper-parameters are searched, by successive halving. Does not import JAX.

Source: Jamieson and Talwalkar 2016, Non-stochastic Best Arm Identification and Hyperparameter Optimization, figure 3:
n trials start, and at each rung the best 1/η of them continue for η times as many steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from shoal.bounds import LARGEST_INT
from shoal.errors import InputError, unknown
from shoal.studies.keys import Keys, key

Scores = Sequence[Sequence[float | int] | None]
"""Of one trial at one rung, in every environment: the score of each seed, or None if it diverged there."""


class Rung(NamedTuple):
    """A point at which trials are compared."""

    steps: int
    """Environment steps that each seed of a trial has had in each environment, from its start."""
    trials: int
    """Trials that reach it."""


def rungs(trials: int, steps: int, count: int, eta: int) -> tuple[Rung, ...]:
    """The rungs of one round: ``trials // eta**k`` trials reach ``steps // eta**(count - 1 - k)`` steps, at rung k."""
    return tuple(Rung(steps // eta ** (count - 1 - k), trials // eta**k) for k in range(count))


def cost(plan: Sequence[Rung]) -> int:
    """Environment steps of one round with one seed and one environment: trials continue and do not start again."""
    before = (0, *(rung.steps for rung in plan))
    return sum(rung.trials * (rung.steps - start) for rung, start in zip(plan, before, strict=False))


def affordable(budget: float | int, steps: int, count: int, eta: int) -> int:
    """The largest number of trials whose :func:`cost` is at most ``budget``."""
    few, many = 0, max(1, int(budget * eta ** (count - 1) // max(steps, 1)) + 1)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if cost(rungs(middle, steps, count, eta)) <= budget else (few, middle)
    return few


def ranked(scores: Mapping[int, Scores]) -> list[int]:
    """Trials from the best to the worst.

    In each environment trials are ranked by their mean over seeds, and the ranks are averaged over environments, whose
    scores may have different scales. Few trials in two environments often have equal averages: these are ordered by
    the mean of their scores, scaled in each environment to 0 for the worst and 1 for the best trial, and what is still
    equal by the order of drawing. Trials that diverged anywhere are last.
    """
    sound = [trial for trial in sorted(scores) if all(one is not None for one in scores[trial])]
    if not sound:
        return sorted(scores)
    means = np.array([[np.mean(one) for one in scores[trial]] for trial in sound], np.float64)  # pyright: ignore
    places = stats.rankdata(-means, axis=0).mean(1)
    spread = np.ptp(means, axis=0)
    scaled = ((means - means.min(0)) / np.where(spread > 0, spread, 1)).mean(1)
    order = [sound[i] for i in np.lexsort((-scaled, places))]
    return order + [trial for trial in sorted(scores) if trial not in set(sound)]


SEED, EVALUATION_SEED = 10_000, 2_000_000
"""Defaults of the first seed of trials, and of the seed of their evaluations: far from those of reported runs."""
SEARCHES = ("random", "optuna")
_KEYS = ("trials", "budget", "rungs", "eta", "steps", "rounds", "seeds", "seed", "episodes", "evaluation_seed", "draw")
_KEYS += ("search", "environments", "separately", "default", "ranges")
_RANGE = ("low", "high", "log", "values")


@dataclass(frozen=True)
class Range:
    """The values that are tried of one flag: an interval, or a list of values."""

    low: float | int = 0.0
    high: float | int = 0.0
    log: bool = False
    """Draw uniformly in the logarithm."""
    values: tuple = ()
    """If not empty, the values to choose from instead of the interval."""


@dataclass(frozen=True)
class Ranges:
    """A table of ranges, for the runs that have the values in ``where``."""

    title: str
    """For messages."""
    where: dict[str, Any]
    ranges: dict[str, Range]


@dataclass(frozen=True)
class Tuning:
    """The search of hyper-parameters, the same for every method of a study."""

    trials: int | None
    """Trials that start in each round of a method; None where ``budget`` determines their number."""
    budget: float | None
    """Environment steps of training of a method, over all trials, seeds, environments and rounds."""
    rungs: int
    """Points at which trials are compared, the last one included."""
    eta: int
    """At each rung the best 1/η continue, for η times as many steps."""
    steps: float | None
    """Environment steps of each seed of a trial that reaches the end; None for those of the runs."""
    rounds: int
    """Rounds of successive halving, one after the other."""
    seeds: int
    """Seeds of each trial."""
    seed: int
    """The first of these seeds."""
    episodes: int
    """Episodes of each seed, in each environment, at each rung."""
    evaluation_seed: int
    """Seed of these episodes."""
    draw: int
    """Seed of the values that are drawn."""
    search: Literal["random", "optuna"]
    """The search method."""
    environments: tuple[str, ...] | None
    """Environments in which trials are made; None for those of the runs."""
    separately: bool
    """Whether every environment has a search and a winner of its own."""
    default: bool
    """Whether the first trial has the values that the runs have without tuning."""
    ranges: tuple[Ranges, ...]
    greedy: bool | None = True
    """How the policies of trials act, as in ``[evaluation]``: greedy, sampled, or each trial in its better mode."""

    def plan(self, steps: int, environments: int) -> tuple[Rung, ...]:
        """The rungs of each round of a method, whose whole trials have ``steps`` steps."""
        trials = self.trials
        if trials is None:
            assert self.budget is not None
            share = self.budget / (self.seeds * environments * self.rounds)
            trials = affordable(share, steps, self.rungs, self.eta)
        return rungs(trials, steps, self.rungs, self.eta)

    def cost(self, rungs: tuple[Rung, ...], environments: int) -> int:
        """Environment steps of a method, over all trials, seeds, environments and rounds."""
        return cost(rungs) * self.seeds * environments * self.rounds


def tuning(part: Keys) -> Tuning:
    """Read ``[tuning]``.

    Raises:
        InputError: a key is unknown or has a value of the wrong type or out of range. The message names file and key.
    """
    trials = part.count("trials", 0, 1, 100_000) if "trials" in part.left else None
    budget, steps = part.number("budget", None), part.number("steps", None)
    search = part.text("search", "random")
    if search not in SEARCHES:
        raise InputError(f"{part.file}: [tuning] search: {unknown('search', search, SEARCHES)}")
    environments = part.texts("environments", "an environment")
    found = Tuning(
        trials,
        budget,
        part.count("rungs", 3, 1, 20),
        part.count("eta", 3, 2, 100),
        steps,
        part.count("rounds", 1, 1, 1000),
        part.count("seeds", 3, 1, 65_536),
        part.count("seed", SEED, 0, LARGEST_INT),
        part.count("episodes", 64, 1, 1_000_000),
        part.count("evaluation_seed", EVALUATION_SEED, 0, LARGEST_INT),
        part.count("draw", 0, 0, LARGEST_INT),
        search,  # pyright: ignore[reportArgumentType]
        environments,
        part.take("separately", "true or false", (bool,), False),
        part.take("default", "true or false", (bool,), True),
        _tables(part),
    )
    part.end(_KEYS)
    if trials is not None and budget is not None:
        part.refuse("budget", "and trials determine each other; set only one of them.")
    if trials is None and budget is None:
        part.refuse("trials", "is missing; set it to the number of trials that start in each method, or set budget.")
    for name, value in (("budget", budget), ("steps", steps)):
        if value is not None and not 1 <= value <= 1e15:
            part.refuse(name, f"must be at least 1 and at most 1e15, not {value:g}.")
    needed = found.eta ** (found.rungs - 1)
    if trials is not None and trials < needed:
        text = f"so that one reaches the last of {found.rungs} rungs with eta {found.eta}, not {trials}."
        part.refuse("trials", f"must be at least {needed}, {text}")
    if search == "optuna" and found.rounds < 2:
        part.refuse("rounds", "must be at least 2 where search is optuna, which proposes the first round at random.")
    if found.seed + found.seeds - 1 > LARGEST_INT:
        part.refuse("seed", f"and {found.seeds} seeds exceed the largest seed, {LARGEST_INT}.")
    return found


def _tables(part: Keys) -> tuple[Ranges, ...]:
    found = part.left.get("ranges")
    if found is None:
        part.refuse("ranges", "is missing; set the values to try, for example gamma = { low = 0.9, high = 0.99 }.")
    if isinstance(found, list):
        tables = [(one.title, one) for one in part.tables("ranges")]
    else:
        tables = [(part.name("ranges"), part.table("ranges"))]
    return tuple(_ranges(title, one) for title, one in tables)


def _ranges(title: str, part: Keys) -> Ranges:
    title = title.replace("[[ranges]]", "[[tuning.ranges]]").replace("[tuning] ranges", "[tuning.ranges]")
    part.title = title
    where = part.table("where").flags()
    env = part.left.pop("env", None)
    if env is not None or any(flag.startswith("env.") for flag in part.left):
        part.refuse("env", "cannot be tuned, since it changes the environment and not the method.")
    ranges = {flag: _range(part.table(flag)) for flag in list(part.left)}
    if not ranges:
        part.refuse("", "has no flag to tune.")
    return Ranges(title, where, ranges)


def _range(part: Keys) -> Range:
    values = part.take("values", "a list of values", (list,), None)
    if values is not None:
        choices = Keys(part.file, part.title, {"values": values}).flags()["values"]
        if not choices:
            part.refuse("values", "is an empty list.")
        if len({key(one) for one in choices}) < len(choices):
            part.refuse("values", "has a value twice.")
        part.end(("values",))
        return Range(values=choices)
    low = part.take("low", "a number (or set values)", (int, float))
    high = part.take("high", "a number", (int, float))
    log = part.take("log", "true or false", (bool,), False)
    part.end(_RANGE)
    if not abs(low) < float("inf") or not abs(high) < float("inf"):
        part.refuse("", "must have finite bounds.")
    if not low < high:
        part.refuse("high", f"must be above low, but {high:g} is not above {low:g}.")
    if log and low <= 0:
        part.refuse("low", f"must be above 0 where log is true, not {low:g}.")
    return Range(low, high, log)
