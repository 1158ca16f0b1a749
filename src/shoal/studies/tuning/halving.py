"""Successive halving: the number of trials at each step, their cost, and which trials continue. No JAX.

Source: Jamieson and Talwalkar 2016, Non-stochastic Best Arm Identification and Hyperparameter Optimization, figure 3:
n trials start, and at each rung the best 1/η of them continue for η times as many steps.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

Scores = Sequence[Sequence[float] | None]
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
    scores may have different scales. Trials that diverged anywhere are last; ties are broken by the order of drawing.
    """
    sound = [trial for trial in sorted(scores) if all(one is not None for one in scores[trial])]
    means = np.array([[np.mean(one) for one in scores[trial]] for trial in sound], np.float64)  # pyright: ignore
    places = stats.rankdata(-means, axis=0).mean(1) if sound else np.zeros(0)
    order = [sound[i] for i in np.argsort(places, kind="stable")]
    return order + [trial for trial in sorted(scores) if trial not in set(sound)]
