"""Charts of :mod:`shoal.plots.charts` in a page: lines as data for ``assets/charts.js``, estimates as tables with bars.

A panel of lines is a JSON object:

* ``x``, ``y``: titles of the axes; ``percent``, ``vertical``, ``stairs``: see :class:`~shoal.plots.charts.Lines`;
* ``marks``: names and values of horizontal lines;
* ``lines``: for each line its ``name``, the coordinates ``x`` [X], ``mean`` [X], ``low`` and ``high`` [X] or empty,
  ``seeds``, a list of [X], which the reader can show, and ``colour``, the number of its colour, if that is not its
  place in the list. Unknown values are null.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.plots.charts import Estimates, Line, Lines, capitalised
from shoal.plots.texts import estimate_texts
from shoal.reporting.page import Html, html_table, tag
from shoal.statistics.intervals import Estimate

DIGITS = 5
"""Significant digits of a value in a chart, and of the range of its values: large ones that differ little have more."""
SEEDS = 12
"""Largest number of single seeds that are kept for a line."""
MANY = 8
"""With more seeds, an interval takes a thousand times as long, so there are fewer points."""


class Drawn(NamedTuple):
    """A chart with its title and note."""

    chart: Lines
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


def lines_data(panel: Lines) -> dict[str, Any]:
    """A panel of lines; its form is described in the module's docstring."""
    every = np.concatenate(
        [np.ravel(part) for line in panel.lines for part in (*line.band, line.seeds) if part is not None]
    )
    known = every[np.isfinite(every)]
    span = float(np.ptp(known)) if known.size else 0.0
    lines = [_line_data(line, span) for line in panel.lines]
    marks = [[name, _rounded(value, DIGITS)] for name, value in panel.marks.items() if math.isfinite(value)]
    said = {"x": panel.x, "y": panel.y, "percent": panel.percent, "vertical": panel.vertical, "stairs": panel.stairs}
    return said | {"lines": lines, "marks": marks}


def _line_data(line: Line, span: float) -> dict[str, Any]:
    """A line with the first :data:`SEEDS` of its seeds; none if it has only one. ``span`` is the chart's range."""
    kept = line.seeds.T[:SEEDS] if line.seeds is not None and line.seeds.shape[1] > 1 else []
    banded = (line.band.low < line.band.high).any()
    colour = {} if line.colour is None else {"colour": line.colour}
    return colour | {
        "name": line.name,
        "x": chart_numbers(line.x, 9),
        "mean": chart_numbers(line.band.point, span=span),
        "low": chart_numbers(line.band.low, span=span) if banded else [],
        "high": chart_numbers(line.band.high, span=span) if banded else [],
        "seeds": [chart_numbers(one, span=span) for one in kept],
    }


def chart_numbers(
    values: Float[np.ndarray, " X"], digits: int = DIGITS, *, span: float = 0.0
) -> list[float | int | None]:
    """Numbers for JSON, with this number of significant digits, also of a ``span`` above 0; None where not finite."""
    return [_rounded(float(value), digits, span) for value in values]


def _rounded(value: float, digits: int, span: float = 0.0) -> float | int | None:
    if not math.isfinite(value):
        return None
    if 0.0 < span < abs(value):
        digits = min(digits + math.floor(math.log10(abs(value))) - math.floor(math.log10(span)), 17)
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def chart_element(number: int, drawn: Drawn) -> Html:
    """The element of chart ``number``, with its note, and its title or else the name of its vertical axis."""
    title = tag("h3", drawn.title) if drawn.title else tag("p", drawn.chart.y, class_="axis")
    note = tag("figcaption", drawn.note) if drawn.note else None
    return tag("figure", title, tag("div", class_="chart", data_chart=number), note, class_="charted")


def estimates_table(panel: Estimates) -> Html:
    """A table of estimates and intervals, as numbers and as bars on one scale."""
    title = f"{capitalised(panel.title)}: " if panel.title else ""
    every = [x for one in panel.rows.values() for x in one if math.isfinite(x)]
    low, high = panel.span or (min(every, default=0.0), max(every, default=1.0))
    if not high > low:
        beside = max(1.0, 1e-3 * abs(low))  # 1 is nothing beside a large number
        low, high = low - beside, high + beside
    ends = tag("span", tag("span", _short(low)), tag("span", _short(high)), class_="ends")

    def at(value: float) -> str:
        return f"{min(max(20 + 960 * (value - low) / (high - low), 0), 1000):.1f}"

    texts = estimate_texts([*panel.rows.values()])
    rows = [
        {
            "": name,
            "interval": bar(estimate, at, panel.mark),
            "value": tag("span", text, class_="value"),
        }
        for (name, estimate), text in zip(panel.rows.items(), texts, strict=True)
    ]
    return html_table(rows, title + panel.x, class_="bars", heads={"interval": ends})


def bar(estimate: Estimate, at: Callable[[float], str], mark: float | None) -> Html:
    """An estimate as a dot in a bar from the low to the high end.

    Args:
        estimate: what is drawn; unknown ends and values are left out.
        at: value -> its place, from 0 at the left to 1000 at the right.
        mark: a value with a vertical line; None for none.
    """
    value, low, high = estimate
    parts = []
    if mark is not None:
        parts.append(_stroke("mark", at(mark), 0, at(mark), 20))
    if math.isfinite(low) and math.isfinite(high):
        parts.append(_stroke("span", at(low), 10, at(high), 10))
    if math.isfinite(value):
        parts.append(_stroke("point", at(value), 10, at(value), 10))  # a dot, since its ends are round
    return tag("svg", *parts, viewBox="0 0 1000 20", preserveAspectRatio="none", class_="bar", aria_hidden="true")


def _stroke(kind: str, x1: str, y1: int, x2: str, y2: int) -> Html:
    return tag("line", class_=kind, x1=x1, y1=y1, x2=x2, y2=y2, vector_effect="non-scaling-stroke")


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
