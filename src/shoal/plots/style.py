"""Colours, axes and file formats of all figures."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import InputError
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


def legend(axes: Any, **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 9, "labelcolor": INK, "loc": "best", "handlelength": 1.6, **options})


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
