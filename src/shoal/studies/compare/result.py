"""The result of a comparison: estimates of each method and of each pair, as text and as a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.plots import figures
from shoal.plots.texts import markdown_table, markdown_text
from shoal.statistics import Comparison, Estimate, profile, spanning
from shoal.studies.compare.curves import Curves
from shoal.studies.compare.sources import GREEDY

NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
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
        row |= {NAMES[statistic]: estimate for statistic, estimate in found.estimates.items()}
        return row | ({} if found.area is None else {f"area ({NAMES[self.statistic]})": found.area})

    def plot(self, path: str | Path) -> Path:
        """Draw sample-efficiency curves, performance profiles and probabilities of improvement in one figure.

        Raises:
            InputError: the suffix is not .png, .pdf or .svg.
            WriteError: the figure cannot be written.
        """
        name = f"{'normalised ' if self.normalised else ''}{self.metric}"
        thresholds = spanning(*self.scores.values())
        lines = self.curves and {
            method: (self.curves.places, self.curves.band(method, self.statistic)) for method in self.methods
        }
        over = "" if self.curves is None else "evaluated" if self.curves.kind == GREEDY else "in training"
        return figures.plot_comparison(
            {} if lines is None else lines,
            {method: (thresholds, profile(held, thresholds)) for method, held in self.scores.items()},
            {(pair.x, pair.y): pair.found.improvement for pair in self.pairs},
            path,
            label=f"{NAMES[self.statistic]} of {name}, {over}",
            score=f"Final {name}",
            in_steps=self.curves is None or self.curves.same_steps,
        )
