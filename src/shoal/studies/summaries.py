"""Statistics of a run's final episodes for the tables of a study, by the name that ``statistic`` has in the file."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.statistics.intervals import Estimate, interval, interval_text
from shoal.training.evaluation import known_mean

Episodes = Float[np.ndarray, "seeds episodes"]


class Statistic(NamedTuple):
    """A number with its interval, from the final episodes of one run or of two."""

    title: str
    """For the page, for example ``mean``."""
    estimate: Callable[[Episodes], Estimate | None]
    """[seeds, episodes] -> (value, low, high); None if no value is known."""
    difference: Callable[[Episodes, Episodes], Estimate | None]
    """(a run's, the baseline's) -> (value, low, high) of the difference."""
    interval: Callable[[int], str]
    """Number of seeds -> what the brackets are, for example ``95% interval over 5 seeds``."""


def _samples(values: Episodes) -> np.ndarray:
    """Means of the seeds, or the episodes if there is one seed; unknown values are left out."""
    samples = known_mean(values, axis=1) if len(values) > 1 else values[0]
    return samples[np.isfinite(samples)]


def _mean(values: Episodes) -> Estimate | None:
    samples = _samples(values)
    return interval(samples) if samples.size else None


def _difference(values: Episodes, baseline: Episodes) -> Estimate | None:
    here, there = _samples(values), _samples(baseline)
    return interval(here, -there) if here.size and there.size else None


def _interval(seeds: int) -> str:
    return f"{interval_text(seeds)} over {seeds} seeds" if seeds > 1 else "95% interval over the episodes of 1 seed"


STATISTICS = {"mean": Statistic("mean", _mean, _difference, _interval)}
"""Statistics by name."""
