"""The result of a comparison: estimates of each method and of each pair, as text and as a figure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.plots import charts, figures
from shoal.plots.charts import PER_SEED, Panel
from shoal.plots.texts import markdown_table, markdown_text
from shoal.statistics import Band, Comparison, Estimate, Scores, area, efficiency, profile, spanning
from shoal.studies.compare.sources import GREEDY, TRAINING, Curve, Methods

# Curves of several methods at common steps: sample efficiency, and the area under each run's curve.


POINTS = 50
"""Number of common steps where the steps of runs differ."""


class Curves(NamedTuple):
    """The curves of all methods."""

    kind: str
    """Of evaluations during training, or of the episodes of training."""
    steps: dict[str, Float[np.ndarray, " _"]]
    """The common steps [X] by environment, up to the end of the shortest run; X is the same for all environments."""
    values: dict[str, dict[str, Float[np.ndarray, "_ _"]]]
    """[X, seeds] by method and environment; linearly interpolated where a run has no score at a common step."""

    @property
    def same_steps(self) -> bool:
        """Whether all environments have the same steps."""
        first, *others = self.steps.values()
        return all(np.array_equal(first, other) for other in others)

    @property
    def places(self) -> Float[np.ndarray, " _"]:
        """The horizontal axis: steps, or per cent of each environment's last one if they differ."""
        first = next(iter(self.steps.values()))
        return first if self.same_steps else np.linspace(0.0, 100.0, len(first))

    def band(self, method: str, statistic: str) -> Band:
        """The aggregate over runs and environments at each step; see :func:`shoal.statistics.efficiency`."""
        return efficiency(self.values[method], statistic)

    def areas(self, method: str) -> Scores:
        """The area under each run's curve by environment; see :func:`shoal.statistics.area`."""
        return {task: area(self.steps[task], values) for task, values in self.values[method].items()}


def curves_of(methods: Methods) -> Curves | str:
    """The curves of all methods, or one sentence why there are none.

    Those of evaluations are taken if all runs have them, else those of the episodes of training.
    """
    every = [one for tasks in methods.values() for runs in tasks.values() for one in runs]
    kind = next((kind for kind in (GREEDY, TRAINING) if all(kind in one.curves for one in every)), None)
    if kind is None:
        lacking = next(one for one in every if TRAINING not in one.curves)
        if GREEDY in lacking.curves:
            other = next(one for one in every if GREEDY not in one.curves)
            return f"There are no curves and areas, since {lacking.path} has evaluations alone, and {other.path} none."
        return f"There are no curves and areas, since {lacking.path} has no scores of training."
    held = {
        name: {task: [one.curves[kind] for one in runs] for task, runs in tasks.items()}
        for name, tasks in methods.items()
    }
    environments = list(next(iter(methods.values())))
    together = {task: [curve for tasks in held.values() for curve in tasks[task]] for task in environments}
    for task, some in together.items():
        if not all(len(steps) for steps, _ in some) or max(s[0] for s, _ in some) > min(s[-1] for s, _ in some):
            return f"There are no curves and areas, since the runs in {task} have no scores at common steps."
    alike = len({tuple(steps) for some in together.values() for steps, _ in some}) == 1
    grids = {task: some[0][0] if alike else _grid(some) for task, some in together.items()}
    values = {
        name: {
            task: np.concatenate([_at(grids[task], curve) for curve in tasks[task]], axis=1) for task in environments
        }
        for name, tasks in held.items()
    }
    return Curves(kind, grids, values)


def _grid(curves: Iterable[Curve]) -> Float[np.ndarray, " _"]:
    """Common steps: from the latest first one to the earliest last one."""
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    return np.linspace(first, last, POINTS) if first < last else np.array([first])


def _at(grid: Float[np.ndarray, " _"], curve: Curve) -> Float[np.ndarray, "_ _"]:
    """A curve at other steps."""
    steps, values = curve
    return values if np.array_equal(grid, steps) else np.stack([np.interp(grid, steps, one) for one in values.T], 1)


def scaled_curves(curves: Curves, bounds: Mapping[str, tuple[float, float]]) -> Curves:
    """Normalised curves: the worst score of an environment becomes 0, the best 1."""
    values = {
        name: {task: (x - bounds[task][0]) / (bounds[task][1] - bounds[task][0]) for task, x in tasks.items()}
        for name, tasks in curves.values.items()
    }
    return curves._replace(values=values)


# The result.


STATISTIC_NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
"""The statistics as tables name them."""


class MethodSummary(NamedTuple):
    """Estimates of one method over its seeds and environments, each (value, low, high)."""

    seeds: dict[str, int]
    """Number of seeds by environment."""
    estimates: dict[str, Estimate]
    """By statistic: "mean", "median", "iqm", and "optimality_gap" if the best scores are known."""
    area: Estimate | None
    """Of the area under each run's curve, by the comparison's statistic; None without curves."""


class Pair(NamedTuple):
    """Two methods."""

    x: str
    y: str
    found: Comparison
    """The difference of means X − Y, and the probability that a run of X exceeds one of Y."""


@dataclass(frozen=True)
class RunComparison:
    """Methods compared by the scores of their runs."""

    metric: str
    statistic: str
    """Of the curves and of the area under them."""
    normalised: bool
    environments: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Float[np.ndarray, " seeds"]]]
    """The final score of each seed by method and environment."""
    methods: Mapping[str, MethodSummary]
    pairs: tuple[Pair, ...]
    curves: Curves | None
    notes: tuple[str, ...]
    """What to know when reading the numbers, one sentence each."""

    def __str__(self) -> str:
        """A table of the methods, a table of the pairs, and notes."""
        normalised = "normalised " if self.normalised else ""
        head = f"Final {normalised}{self.metric} in {', '.join(self.environments)}"
        parts = [head, markdown_table([self._row(name) for name in self.methods])]
        if self.pairs:
            rows = [
                {
                    "X": pair.x,
                    "Y": pair.y,
                    "P(X > Y)": pair.found.improvement,
                    "X − Y": pair.found.difference,
                }
                for pair in self.pairs
            ]
            parts.append(markdown_table(rows))
        return markdown_text("\n".join([*(part.rstrip("\n") + "\n" for part in parts), *self.notes]))

    def _row(self, name: str) -> dict[str, object]:
        found = self.methods[name]
        counts = sorted(set(found.seeds.values()))
        seeds = counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        row: dict[str, object] = {"method": name, "seeds": seeds}
        row |= {STATISTIC_NAMES[statistic]: estimate for statistic, estimate in found.estimates.items()}
        return row | ({} if found.area is None else {f"area ({STATISTIC_NAMES[self.statistic]})": found.area})

    def plot(self, path: str | Path) -> Path:
        """Draw sample-efficiency curves, performance profiles and probabilities of improvement in one figure.

        Raises:
            InputError: the suffix is not .png, .pdf or .svg.
            WriteError: the figure cannot be written.
        """
        name = f"{'normalised ' if self.normalised else ''}{self.metric}"
        panels: list[Panel] = []
        if self.curves is not None:
            lines = {method: (self.curves.places, self.curves.band(method, self.statistic)) for method in self.methods}
            when = "evaluated" if self.curves.kind == GREEDY else "in training"
            label = f"{STATISTIC_NAMES[self.statistic]} of {name}, {when}"
            panels.append(charts.efficiency(lines, label, steps=PER_SEED if self.curves.same_steps else None))
        thresholds = spanning(*self.scores.values())
        profiles = {method: (thresholds, profile(held, thresholds)) for method, held in self.scores.items()}
        panels.append(charts.profiles(profiles, f"Final {name} τ"))
        if self.pairs:
            panels.append(charts.improvement({(pair.x, pair.y): pair.found.improvement for pair in self.pairs}))
        return figures.draw(panels, path)
