"""Charts as data: panels of lines or of estimates, with their axes, bands and reference lines.

What a chart says is decided here, once. Two renderers draw it: :mod:`shoal.plots.figures` as a picture, and
:mod:`shoal.reporting.charts` for a page. This module imports no Matplotlib.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Real

from shoal.errors import InputError
from shoal.statistics.intervals import Estimate, band
from shoal.statistics.scores import Band

SHARES = {"won": "win rate", "lost": "loss rate"}
"""Metrics from 0 to 1 that are shown in per cent, and what texts call them."""
Vertical = Literal["linear", "log", "symlog"]
"""Scale of a vertical axis. ``symlog`` is linear between −1 and 1 and logarithmic beyond, for values of any sign."""
Points = tuple[Real[np.ndarray, " _"], Band]
"""The x coordinates of X points, and the estimates there."""
PER_SEED = "Environment steps per seed"
_LONGEST = 80
"""Largest number of characters of a metric's title."""


@dataclass(frozen=True)
class Line:
    """A line with its band.

    Raises:
        InputError: there are no points, or the numbers of coordinates and of values differ.
    """

    name: str
    """For the legend."""
    x: Real[np.ndarray, " X"]
    """Ascending."""
    band: Band
    """The line and the ends of its band, which is not drawn where it is NaN."""
    seeds: Float[np.ndarray, "X seeds"] | None = None
    """Values of single seeds, which a page shows on request."""
    raw: Float[np.ndarray, " X"] | None = None
    """The values of which the line is a moving average, drawn as a thin line."""
    colour: int | None = None
    """The number of its colour, where that is not its place among the lines of its panel."""

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.band.point) > 0:
            raise InputError(
                f"The line of {self.name!r} has {len(self.x)} x coordinates, but {len(self.band.point)} values."
            )


@dataclass(frozen=True)
class Lines:
    """A panel of lines.

    Raises:
        InputError: there is no line, or a value or the end of a band is not positive and the scale is ``log``.
    """

    lines: Sequence[Line]
    x: str
    """Title of the horizontal axis."""
    y: str
    """Title of the vertical axis."""
    steps: bool = False
    """Whether ``x`` counts environment steps, which a picture writes in thousands, millions or billions."""
    percent: bool = False
    """Whether values are fractions, which are written in per cent."""
    vertical: Vertical = "linear"
    stairs: bool = False
    """Whether a value holds until the next x."""
    marks: Mapping[str, float | int] = field(default_factory=dict)
    """Reference values, drawn as labelled horizontal lines."""

    def __post_init__(self) -> None:
        if not self.lines:
            raise InputError("A figure requires at least one algorithm.")
        for line in self.lines if self.vertical == "log" else ():
            known = np.concatenate([np.asarray(part)[np.isfinite(part)] for part in line.band])
            if known.size and known.min() <= 0:
                raise InputError(
                    f"a logarithmic axis requires positive values, but {line.name!r} with its band reaches "
                    f"{known.min():.3g}; use symlog, which is linear between -1 and 1."
                )


@dataclass(frozen=True)
class Estimates:
    """A panel of point estimates with intervals, one in each row.

    Raises:
        InputError: there is no estimate.
    """

    rows: Mapping[str, Estimate]
    """By name. An interval with a NaN end is not drawn."""
    x: str
    """Title of the axis of values."""
    title: str = ""
    """Of the panel, for example a statistic. Panels with titles are drawn beside each other, with the same rows."""
    span: tuple[float, float] | None = None
    """The ends of the axis; None for the range of all values."""
    mark: float | None = None
    """A value that is marked with a line."""

    def __post_init__(self) -> None:
        if not self.rows:
            raise InputError("A figure requires at least one algorithm.")


Panel = Lines | Estimates


def metric_words(metric: str) -> str:
    """A metric within a sentence, for example ``win rate``."""
    return SHARES.get(metric, metric)


def capitalised(text: str) -> str:
    """Text with its first letter in upper case, as it is otherwise."""
    return text[:1].upper() + text[1:]


def metric_title(metric: str) -> str:
    """A column of the log as the title of an axis; shares have their unit."""
    text = f"{SHARES[metric]} (%)" if metric in SHARES else metric.replace("_", " ").replace("/", ": ")
    return capitalised(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def seeds_line(name: str, steps: Real[np.ndarray, " X"], values: Float[np.ndarray, "X seeds"]) -> Line:
    """The mean over seeds with its interval, :func:`~shoal.statistics.intervals.band`."""
    return Line(name, steps, Band(*band(values)), values)


def learning_curves(lines: Sequence[Line], metric: str, marks: Mapping[str, float | int] | None = None) -> Lines:
    """A metric of the log over environment steps per seed."""
    return Lines(lines, PER_SEED, metric_title(metric), steps=True, percent=metric in SHARES, marks=marks or {})


def efficiency(
    curves: Mapping[str, Points],
    label: str = "Normalised score",
    *,
    steps: str | None = PER_SEED,
    vertical: Vertical = "linear",
    seeds: Mapping[str, Float[np.ndarray, "X seeds"]] | None = None,
    marks: Mapping[str, float] | None = None,
) -> Lines:
    """Sample-efficiency curves, one line with a band for each algorithm.

    Args:
        curves: (steps, band) for each algorithm; see :func:`shoal.statistics.efficiency`.
        label: of the vertical axis, for example "IQM of normalised scores".
        steps: title of the horizontal axis; None if the x coordinates are per cent of the steps instead.
        vertical: the scale of the vertical axis.
        seeds: single seeds by algorithm, where they are known.
        marks: values of horizontal lines by their names.

    Raises:
        InputError: there is no curve, a curve has no points, or a value or the end of a band is not positive and the
            scale is ``log``.
    """
    lines = [Line(name, *points, (seeds or {}).get(name)) for name, points in curves.items()]
    x = steps or "Share of the steps (%)"
    return Lines(lines, x, label, steps=steps is not None, vertical=vertical, marks=marks or {})


def profiles(
    profiles: Mapping[str, Points],
    label: str = "Normalised score τ",
    *,
    share: str = "Share of runs with score > τ",
) -> Lines:
    """Performance profiles, one line with a band for each algorithm; higher is better.

    Args:
        profiles: (thresholds, band) for each algorithm; see :func:`shoal.statistics.profile`.
        label: of the horizontal axis.
        share: of the vertical axis; for average scores "Share of tasks with mean score > τ".

    Raises:
        InputError: there is no profile, or a profile has no points.
    """
    lines = [Line(name, *points) for name, points in profiles.items()]
    return Lines(lines, label, share, percent=True, stairs=True)


def estimates(statistics: Mapping[str, Mapping[str, Estimate]], label: str = "Normalised score") -> list[Estimates]:
    """A panel of estimates for each statistic, one row for each algorithm.

    Args:
        statistics: (point, low, high) by the statistic's name and the algorithm's; see
            :func:`shoal.statistics.estimate`.
        label: of the axis of values.

    Raises:
        InputError: there is no estimate, or the statistics have different algorithms.
    """
    if not statistics or not all(statistics.values()):
        raise InputError("A figure of estimates requires at least one statistic and one algorithm.")
    names = list(next(iter(statistics.values())))
    if any(set(rows) != set(names) for rows in statistics.values()):
        raise InputError("All statistics in a figure must have estimates of the same algorithms.")
    return [Estimates({name: rows[name] for name in names}, label, title) for title, rows in statistics.items()]


def improvement(pairs: Mapping[tuple[str, str], Estimate]) -> Estimates:
    """Probabilities of improvement, P(X > Y), one row for each pair (X, Y), with a line at ½.

    Args:
        pairs: (probability, low, high) by the names of X and Y; see :func:`shoal.statistics.improvement`.

    Raises:
        InputError: there is no pair.
    """
    rows = {f"{x} > {y}": found for (x, y), found in pairs.items()}
    return Estimates(rows, "Probability of improvement, P(X > Y)", span=(0.0, 1.0), mark=0.5)
