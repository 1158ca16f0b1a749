"""Charts as data for ``assets/charts.js``, and intervals as tables with bars.

A chart of lines is a JSON object:

* ``x``, ``y``: names of the axes; ``percent``: values are fractions, shown in per cent; ``vertical``: ``linear``,
  ``log`` or ``symlog``; ``stairs``: a step function, constant until the next x;
* ``lines``: for each line its ``name``, the coordinates ``x`` [X], ``mean`` [X], ``low`` and ``high`` [X] or empty, and
  ``seeds``, a list of [X] with ``names``, which the reader can show. Unknown values are null.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.plots.texts import estimate_text
from shoal.reporting.markup import Html, table, tag
from shoal.statistics.intervals import Estimate, band
from shoal.statistics.scores import Band

DIGITS = 5
"""Significant digits of a value in a chart."""
SEEDS = 12
"""Largest number of single seeds that are kept for a line."""
MANY = 8
"""With more seeds, an interval takes a thousand times as long, so there are fewer points."""


class Drawn(NamedTuple):
    """A chart with its title and note."""

    chart: dict[str, Any]
    title: str
    """Empty where the section's heading is the title."""
    note: str
    """Empty where the section has the note."""


def points_for(seeds: int) -> int:
    """Largest number of points of a curve of a run with this number of seeds."""
    return 200 if seeds <= MANY else 60


def thinned(
    steps: Float[np.ndarray, " X"], values: Float[np.ndarray, "X seeds"], most: int
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "P seeds"]]:
    """At most ``most`` points: means of consecutive known values, at the step of the last of them."""
    if len(steps) <= most:
        return steps, values
    groups = np.array_split(np.arange(len(steps)), most)
    with np.errstate(invalid="ignore"):
        means = [
            np.where(np.isfinite(values[g]), values[g], 0.0).sum(0) / np.isfinite(values[g]).sum(0) for g in groups
        ]
    return steps[[group[-1] for group in groups]], np.stack(means)


def curve(
    name: str, steps: Float[np.ndarray, " X"], values: Float[np.ndarray, "X seeds"], first: int
) -> dict[str, Any]:
    """A line of a run: the mean over seeds with its interval, and single seeds.

    Args:
        name: of the line.
        steps: environment steps per seed.
        values: of each seed, NaN where unknown.
        first: the run's first seed; the others follow.
    """
    steps, values = thinned(steps, values, points_for(values.shape[1]))
    mean, low, high = band(values)
    return line(name, steps, Band(mean, low, high), values, first)


def line(
    name: str,
    places: Float[np.ndarray, " X"],
    estimate: Band,
    seeds: Float[np.ndarray, "X seeds"] | None = None,
    first: int | None = None,
) -> dict[str, Any]:
    """A line with its band.

    Args:
        name: of the line.
        places: x coordinates, ascending.
        estimate: the line and its band; a band of NaN is not drawn.
        seeds: values of single seeds, of which the first :data:`SEEDS` are kept; None or one seed: none are drawn.
        first: the number of the first seed; None if the numbers are unknown.
    """
    several = seeds is not None and seeds.shape[1] > 1
    kept = seeds.T[:SEEDS] if several and seeds is not None else []
    numbers = range(1, 1 + len(kept)) if first is None else range(first, first + len(kept))
    banded = np.isfinite(estimate.low).any() and (seeds is None or several)
    return {
        "name": name,
        "x": rounded(places, 9),
        "mean": rounded(estimate.point),
        "low": rounded(estimate.low) if banded else [],
        "high": rounded(estimate.high) if banded else [],
        "seeds": [rounded(one) for one in kept],
        "names": [f"seed {number}" for number in numbers],
    }


def rounded(values: Float[np.ndarray, " X"], digits: int = DIGITS) -> list[float | int | None]:
    """Numbers for JSON, with this number of significant digits; None where not finite."""
    return [_rounded(float(value), digits) for value in values]


def _rounded(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def lines_chart(
    lines: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    percent: bool = False,
    vertical: str = "linear",
    stairs: bool = False,
) -> dict[str, Any]:
    """A line chart; its form is described in the module's docstring."""
    return {"x": x, "y": y, "percent": percent, "vertical": vertical, "stairs": stairs, "lines": list(lines)}


def chart_element(number: int, drawn: Drawn) -> Html:
    """The element of chart ``number``, with its note, and its title or else the name of its vertical axis."""
    title = tag("h3", drawn.title) if drawn.title else tag("p", drawn.chart["y"], class_="axis")
    note = tag("figcaption", drawn.note) if drawn.note else None
    return tag("figure", title, tag("div", class_="chart", data_chart=number), note, class_="charted")


def estimates_table(
    estimates: Mapping[str, Estimate],
    caption: str,
    *,
    seeds: Mapping[str, Sequence[float]] | None = None,
    head: str = "",
    span: tuple[float, float] | None = None,
    mark: float | None = None,
) -> Html:
    """A table of estimates and intervals, as numbers and as bars on one scale.

    Args:
        estimates: (value, low, high) by name; an interval with a NaN end has no bar.
        caption: of the table, with the kind of interval.
        seeds: single values by name, shown as small marks.
        head: the heading of the column of names.
        span: the ends of the scale; None for the range of all values.
        mark: a value that is marked with a line, for example one half.
    """
    seeds = seeds or {}
    every = [x for name, one in estimates.items() for x in (*one, *seeds.get(name, ())) if math.isfinite(x)]
    low, high = span or (min(every, default=0.0), max(every, default=1.0))
    if not high > low:
        low, high = low - 1.0, high + 1.0
    ends = tag("span", tag("span", _short(low)), tag("span", _short(high)), class_="ends")

    def at(value: float) -> str:
        return f"{min(max(20 + 960 * (value - low) / (high - low), 0), 1000):.1f}"

    rows = [
        {
            head: name,
            "interval": _bar(estimate, seeds.get(name, ()), at, mark),
            "value": tag("span", _text(estimate), class_="value"),
        }
        for name, estimate in estimates.items()
    ]
    return table(rows, caption, class_="bars", heads={"interval": ends})


def _bar(estimate: Estimate, seeds: Sequence[float], at: Any, mark: float | None) -> Html:
    value, low, high = estimate
    parts = []
    if mark is not None:
        parts.append(_stroke("mark", at(mark), 0, at(mark), 20))
    if math.isfinite(low) and math.isfinite(high):
        parts.append(_stroke("span", at(low), 10, at(high), 10))
    parts += [_stroke("seed", at(x), 4, at(x), 16) for x in seeds if math.isfinite(x)]
    if math.isfinite(value):
        parts.append(_stroke("point", at(value), 10, at(value), 10))  # a dot, since its ends are round
    return tag("svg", *parts, viewBox="0 0 1000 20", preserveAspectRatio="none", class_="bar", aria_hidden="true")


def _stroke(kind: str, x1: str, y1: int, x2: str, y2: int) -> Html:
    return tag("line", class_=kind, x1=x1, y1=y1, x2=x2, y2=y2, vector_effect="non-scaling-stroke")


def _text(estimate: Estimate) -> str:
    return estimate_text(estimate) if math.isfinite(estimate[0]) else "–"


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
