"""Draws charts as pictures with Matplotlib: colours, axes and file formats of all figures, and their panels.

Algorithms keep their colours if they are given in the same order.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.plots.charts import Estimates, Line, Lines, Panel
from shoal.security import isolation
from shoal.system.files import write_bytes

# Okabe and Ito's palette: its hues differ also for people with common forms of colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, FAINT, GRID, AXIS = "#262626", "#707070", "#E6E6E6", "#B0B0B0"
_DASHES = ("-", "--", "-.", ":")
_UNITS = ((1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))


def line_style(i: int) -> dict[str, Any]:
    """Colour and dashes of line ``i``; 28 lines differ."""
    return {"color": PALETTE[i % len(PALETTE)], "linestyle": _DASHES[i // len(PALETTE) % len(_DASHES)]}


def check_format(path: Path) -> None:
    """Check the suffix of a figure.

    Raises:
        InputError: it is not .png, .pdf or .svg.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"The name of a figure must end in .png, .pdf or .svg, not {path.name!r}.")


@contextmanager
def figures() -> Iterator[None]:
    """Draw in this context, or in a function that it decorates: without LaTeX and formulas, so that a ``$`` in a name
    is drawn as it is, and without a ``matplotlibrc`` of the working directory. matplotlib is imported nowhere else;
    what a program has set in it before remains.
    """
    with isolation.packaged_settings():
        from matplotlib import rc_context

    with rc_context({"text.usetex": False, "text.parse_math": False}):  # LaTeX executes commands
        yield


def new_figure(width: float, height: float) -> Any:
    """A white figure of that size in inches, without pyplot's global state."""
    with isolation.packaged_settings():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, height), dpi=200, layout=margins, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Any, grid: str = "y") -> None:
    """Grid lines, spines and ticks of a panel."""
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(AXIS)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=9)


def set_title(axes: Any, title: str) -> None:
    """A title above the left end of a panel."""
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=10)


def legend(place: Any, **options: Any) -> None:
    """A legend without a frame, of axes or of a figure."""
    place.legend(**{"frameon": False, "fontsize": 9, "labelcolor": INK, "loc": "best", "handlelength": 1.6, **options})


_FEW = 5
"""Largest number of lines whose legend stands inside the axes."""
_SWATCH, _LETTER = 0.6, 0.07
"""Width in inches of a legend's entry without its text, and of a character."""


def legend_of_lines(every: Sequence[Any], figure: Any, panel: float) -> None:
    """A legend inside each of these axes, or one below all axes for many lines or for names wider than three quarters
    of a ``panel``'s width in inches; the figure becomes higher for it."""
    found = [axes.get_legend_handles_labels() for axes in every]
    longest = max((len(label) for _, labels in found for label in labels), default=0)
    if max(len(labels) for _, labels in found) <= _FEW and _SWATCH + _LETTER * longest <= 0.75 * panel:
        for axes in every:
            legend(axes)
        return
    lines = {place: one for handles, labels in found for place, one in zip(enumerate(labels), handles, strict=True)}
    width, height = figure.get_size_inches()
    texts = [_wrapped(label, int((width - _SWATCH) / _LETTER)) for _, label in lines]
    rows = [text.split("\n") for text in texts]
    columns = max(1, int(width / (_SWATCH + _LETTER * max(len(part) for row in rows for part in row))))
    figure.set_size_inches(width, height + 0.2 * math.ceil(sum(map(len, rows)) / columns))
    legend(figure, handles=[*lines.values()], labels=texts, loc="outside lower left", ncols=columns)


def _wrapped(text: str, characters: int) -> str:
    """``text`` in lines of at most that many characters."""
    return text if len(text) <= characters else textwrap.fill(text, characters)


def step_unit(longest: float) -> tuple[float, str]:
    """The unit of an axis of steps up to ``longest``, and its name in brackets."""
    for unit, word in _UNITS:
        if longest >= unit:
            return unit, f" ({word})"
    return 1.0, ""


def save(figure: Any, path: Path) -> None:
    """Replace ``path`` by the figure.

    Raises:
        WriteError: it cannot be written.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of names in scripts that the font lacks
        figure.savefig(buffer, format=path.suffix[1:])
    write_bytes(path, buffer.getvalue())


_REFERENCE = {"color": FAINT, "linewidth": 1.0, "linestyle": (0, (4, 3)), "zorder": 1}


@figures()
def draw(panels: Sequence[Panel], path: Path | str, title: str = "") -> Path:
    """Draw panels beside each other; those of estimates with titles share their rows and the title of their axis.

    Args:
        panels: see :mod:`shoal.plots.charts`.
        path: the figure, .png, .pdf or .svg.
        title: of the figure.

    Returns:
        ``path``.

    Raises:
        InputError: there is no panel, or the suffix is not supported.
        WriteError: the figure cannot be written.
    """
    path = Path(path)
    check_format(path)
    if not panels:
        raise InputError("A figure requires at least one panel.")
    titled = [panel for panel in panels if isinstance(panel, Estimates) and panel.title]
    figure = _statistics(titled, title) if len(titled) == len(panels) else _beside(panels, title)
    save(figure, path)
    return path


@figures()
def draw_stacked(panels: Sequence[Lines], path: Path | str, title: str = "") -> Path:
    """Draw panels of lines below each other, over the same x.

    Raises:
        WriteError: the figure cannot be written.
    """
    path = Path(path)
    figure = new_figure(7.2, 1.0 + 3.1 * len(panels))
    every = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    word = _draw_lines(every, panels, 0.08)
    names = [[line.name for line in panel.lines] for panel in panels]
    told = [axes for i, axes in enumerate(every) if i == 0 or names[i] != names[0]]
    legend_of_lines(told, figure, 7.2)
    for axes, panel in zip(every, panels, strict=True):
        _draw_marks(axes, panel.marks)
    every[-1].set_xlabel(panels[-1].x + word, color=INK)
    set_title(every[0], _wrapped(title, 60))
    save(figure, path)
    return path


def _beside(panels: Sequence[Panel], title: str) -> Any:
    spaces = [_space(panel, 0.36) for panel in panels if isinstance(panel, Estimates)]
    rows = max((high for _, high in spaces), default=0)
    panel_width = 4.6 if len(panels) > 1 else 6.0 if rows else 6.4
    height = 1.2 + rows if rows else 3.9
    width = panel_width * len(panels) + sum(wide for wide, _ in spaces)
    figure = new_figure(width, max(3.6, height) if len(panels) > 1 else height)
    every = list(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True))
    lined = [(axes, panel) for axes, panel in every if isinstance(panel, Lines)]
    for axes, panel in lined:
        word = _draw_lines([axes], [panel], 0.06)
        _draw_marks(axes, panel.marks)
        axes.set_xlabel(panel.x + word, color=INK)
    if lined:
        legend_of_lines([lined[0][0]], figure, panel_width)
    for axes, panel in every:
        if isinstance(panel, Estimates):
            _draw_rows(axes, panel, [PALETTE[0]] * len(panel.rows))
            _name_rows(axes, panel)
            axes.set_xlabel(panel.x, color=INK)
    if title:
        set_title(every[0][0], title)
    return figure


def _statistics(panels: Sequence[Estimates], title: str) -> Any:
    names = list(panels[0].rows)
    wide, high = _space(panels[0], 0.32)
    figure = new_figure(1.3 + 2.2 * max(2, len(panels)) + wide, 1.2 + high)
    every = list(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0])
    for axes, panel in zip(every, panels, strict=True):
        _draw_rows(axes, panel, [PALETTE[i % len(PALETTE)] for i in range(len(names))])
        axes.set_title(panel.title, fontsize=10.5, color=INK, pad=8)
        axes.locator_params(axis="x", nbins=4)
    _name_rows(every[0], panels[0])
    figure.supxlabel(panels[0].x, fontsize=10, color=INK)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    return figure


def _draw_lines(every: Sequence[Any], panels: Sequence[Lines], margin: float) -> str:
    """Draw panels whose x have one unit; returns the unit of their steps, to follow the title of the axis."""
    steps = [float(np.max(line.x)) for panel in panels for line in panel.lines if panel.steps]
    unit, word = step_unit(max(steps)) if steps else (1.0, "")
    for axes, panel in zip(every, panels, strict=True):
        dress(axes)
        for i, line in enumerate(panel.lines):
            style = line_style(i if line.colour is None else line.colour)
            _draw_line(axes, line, np.asarray(line.x) / unit, style, panel.stairs)
        if panel.percent:
            axes.margins(x=0.0)
            axes.set_ylim(-0.02, 1.02)
            unit_of_ticks = "" if panel.y.endswith("(%)") else " %"
            axes.yaxis.set_major_formatter(lambda value, _, unit=unit_of_ticks: f"{100 * value:.0f}{unit}")
        else:
            axes.margins(x=0.0, y=margin)
        axes.set_ylabel(panel.y, color=INK)
        if panel.vertical != "linear":
            axes.set_yscale(panel.vertical, **({"linthresh": 1.0} if panel.vertical == "symlog" else {}))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # by default a formula
            axes.yaxis.set_minor_formatter(lambda value, _: "")
    return word


def _draw_line(axes: Any, line: Line, x: np.ndarray, style: Mapping[str, Any], stairs: bool) -> None:
    """A line with its band. Fewer than three points are also drawn as dots, and so are points between unknown ones,
    since a line of one is invisible."""
    drawstyle, step = ("steps-post", {"step": "post"}) if stairs else ("default", {})
    colour = style["color"]
    if np.isfinite(line.band.low).any():
        axes.fill_between(x, line.band.low, line.band.high, color=colour, alpha=0.18, linewidth=0, **step)
    if line.raw is not None:
        axes.plot(x, line.raw, color=colour, linewidth=0.7, alpha=0.35)
    known = np.pad(np.isfinite(line.band.point), 1)
    dots = np.flatnonzero((len(x) < 3) | known[1:-1] & ~known[:-2] & ~known[2:]).tolist()
    marker = {"marker": "o", "markersize": 4, "markevery": dots} if dots else {}
    axes.plot(x, line.band.point, linewidth=1.8, label=line.name, drawstyle=drawstyle, **style, **marker)


def _draw_marks(axes: Any, marks: Mapping[str, float | int]) -> None:
    """Horizontal lines with their names to the right, which do not overlap."""
    for value in marks.values():
        axes.axhline(value, **_REFERENCE)
    axes.autoscale_view()
    place, free = axes.transScale + axes.transLimits, -np.inf  # to shares of the height, whatever the axis' scale
    for name, value in sorted(marks.items(), key=lambda item: item[1]):
        free = max(float(place.transform((0.0, value))[1]), free)
        axes.annotate(f" {name}", (1.0, free), xycoords="axes fraction", fontsize=8.5, color=FAINT, va="center")
        free += 0.05


def _draw_rows(axes: Any, panel: Estimates, colours: Sequence[str]) -> None:
    """A dot and its interval in each row, from the top."""
    if panel.mark is not None:
        axes.axvline(panel.mark, **_REFERENCE)
    dress(axes, grid="x")
    for y, ((point, low, high), colour) in enumerate(zip(panel.rows.values(), colours, strict=True)):
        if math.isfinite(low) and math.isfinite(high):
            axes.plot([low, high], [y, y], color=colour, alpha=0.4, linewidth=6, solid_capstyle="butt", zorder=2)
        axes.plot([point], [y], marker="o", markersize=6, color=colour, markeredgecolor="white", zorder=3)
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if panel.span is not None:
        low, high = panel.span
        axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
        axes.set_xticks(np.linspace(low, high, 5).tolist())


def _name_rows(axes: Any, panel: Estimates) -> None:
    axes.set_yticks(range(len(panel.rows)), _row_names(panel), fontsize=9.5)


def _row_names(panel: Estimates) -> list[str]:
    """The names of rows, in lines of at most 60 characters; a long name of a pair is broken after its sign."""
    texts = [name.replace(" > ", " >\n") if len(name) > 40 else name for name in panel.rows]
    return ["\n".join(_wrapped(part, 60) for part in text.split("\n")) for text in texts]


def _space(panel: Estimates, row: float) -> tuple[float, float]:
    """Inches that the names of rows need beyond 16 characters, and of the height of all rows, each at least ``row``."""
    names = [name.split("\n") for name in _row_names(panel)]
    longest = max(len(part) for name in names for part in name)
    return 0.075 * max(0, longest - 16), max(row, 0.08 + 0.16 * max(map(len, names))) * len(names)
