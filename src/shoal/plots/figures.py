"""Figures of :mod:`shoal.statistics`: sample efficiency, performance profiles, aggregates, probability of improvement.

Each function draws what the statistics computed, in the order given, and returns the path of the figure. Algorithms
keep their colours if they are given in the same order.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Real

from shoal.errors import InputError
from shoal.plots.style import (
    FAINT,
    INK,
    PALETTE,
    Vertical,
    check_format,
    draw_band,
    draw_line,
    dress,
    figures,
    legend,
    line_style,
    new_figure,
    save,
    set_title,
    step_unit,
)
from shoal.statistics.intervals import Estimate
from shoal.statistics.scores import Band

Line = tuple[Real[np.ndarray, " _"], Band]
"""The x coordinates of X points, and the estimates there."""


@figures()
def plot_efficiency(
    curves: Mapping[str, Line],
    path: Path | str,
    *,
    label: str = "Normalised score",
    title: str = "",
    vertical: Vertical = "linear",
) -> Path:
    """Draw sample-efficiency curves, one line with a band for each algorithm.

    Args:
        curves: (steps, band) for each algorithm; see :func:`shoal.statistics.efficiency`.
        path: the figure, .png, .pdf or .svg.
        label: of the vertical axis, for example "IQM of normalised scores".
        title: of the figure.
        vertical: the scale of the vertical axis.

    Raises:
        InputError: there is no curve, a curve has no points, the suffix is not supported, or a value or the end of a
            band is not positive and the scale is ``log``.
        WriteError: the figure cannot be written.
    """
    path, panel = _panel(curves, path, 6.4, 3.9)
    if vertical == "log":
        check_positive(curves)
    _draw_efficiency(panel, curves, label, "Environment steps per run")
    panel.set_yscale(vertical, **({"linthresh": 1.0} if vertical == "symlog" else {}))
    if vertical != "linear":
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # by default a formula
        panel.yaxis.set_minor_formatter(lambda value, _: "")
    return _finish(panel, path, title)


@figures()
def plot_profiles(
    profiles: Mapping[str, Line],
    path: Path | str,
    *,
    label: str = "Normalised score τ",
    share: str = "Share of runs with score > τ",
    title: str = "",
) -> Path:
    """Draw performance profiles, one line with a band for each algorithm; higher is better.

    Args:
        profiles: (thresholds, band) for each algorithm; see :func:`shoal.statistics.profile`.
        path: the figure, .png, .pdf or .svg.
        label: of the horizontal axis.
        share: of the vertical axis; for average scores "Share of tasks with mean score > τ".
        title: of the figure.

    Raises:
        InputError: there is no profile, a profile has no points, or the suffix is not supported.
        WriteError: the figure cannot be written.
    """
    path, panel = _panel(profiles, path, 6.4, 3.9)
    _draw_profiles(panel, profiles, label, share)
    return _finish(panel, path, title)


@figures()
def plot_estimates(
    estimates: Mapping[str, Mapping[str, Estimate]],
    path: Path | str,
    *,
    label: str = "Normalised score",
    title: str = "",
) -> Path:
    """Draw point estimates with intervals: one panel for each statistic, one row for each algorithm.

    Args:
        estimates: (point, low, high) by the statistic's name and the algorithm's; see
            :func:`shoal.statistics.estimate`. An interval with a NaN end is not drawn.
        path: the figure, .png, .pdf or .svg.
        label: below the panels.
        title: of the figure.

    Raises:
        InputError: there is no estimate, the statistics have different algorithms, or the suffix is not supported.
        WriteError: the figure cannot be written.
    """
    path = Path(path)
    check_format(path)
    if not estimates or not all(estimates.values()):
        raise InputError("A figure of estimates requires at least one statistic and one algorithm.")
    names = list(next(iter(estimates.values())))
    if any(set(row) != set(names) for row in estimates.values()):
        raise InputError("All statistics in a figure must have estimates of the same algorithms.")
    figure = new_figure(1.3 + 2.2 * max(2, len(estimates)), 1.2 + 0.32 * len(names))
    panels = figure.subplots(1, len(estimates), sharey=True, squeeze=False)[0]
    for panel, (statistic, row) in zip(panels, estimates.items(), strict=True):
        draw_rows(panel, [row[name] for name in names], [PALETTE[i % len(PALETTE)] for i in range(len(names))])
        panel.set_title(statistic, fontsize=10.5, color=INK, pad=8)
        panel.locator_params(axis="x", nbins=4)
    name_rows(panels[0], names)
    figure.supxlabel(label, fontsize=10, color=INK)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    save(figure, path)
    return path


@figures()
def plot_improvement(pairs: Mapping[tuple[str, str], Estimate], path: Path | str, *, title: str = "") -> Path:
    """Draw probabilities of improvement, P(X > Y), one row for each pair (X, Y), with a line at ½.

    Args:
        pairs: (probability, low, high) by the names of X and Y; see :func:`shoal.statistics.improvement`.
        path: the figure, .png, .pdf or .svg.
        title: of the figure.

    Raises:
        InputError: there is no pair, or the suffix is not supported.
        WriteError: the figure cannot be written.
    """
    path, panel = _panel(pairs, path, 6.0, 1.2 + 0.36 * max(1, len(pairs)))
    _draw_improvement(panel, pairs)
    return _finish(panel, path, title, lines=False)


@figures()
def plot_comparison(
    curves: Mapping[str, Line],
    profiles: Mapping[str, Line],
    pairs: Mapping[tuple[str, str], Estimate],
    path: Path | str,
    *,
    label: str,
    score: str,
    in_steps: bool = True,
) -> Path:
    """Draw up to three panels; those without data are omitted.

    Args:
        curves: (places, band) by method; may be empty. The methods have the order and colours of ``profiles``.
        profiles: (thresholds, band) by method.
        pairs: the probability of improvement by the names of X and Y; may be empty.
        path: the figure, .png, .pdf or .svg.
        label: of the curves' vertical axis.
        score: of the profiles' horizontal axis.
        in_steps: whether ``places`` are environment steps, else per cent of the steps.

    Raises:
        InputError: there is no method, or the suffix is not supported.
        WriteError: the figure cannot be written.
    """
    path = Path(path)
    check_format(path)
    if not profiles:
        raise InputError("A figure requires at least one method.")
    shown = [bool(curves), True, bool(pairs)]
    height = max(3.6, 1.2 + 0.36 * len(pairs))
    panels = iter(new_figure(4.6 * sum(shown), height).subplots(1, sum(shown), squeeze=False)[0])
    if curves:
        panel = next(panels)
        _draw_efficiency(panel, curves, label, "Environment steps per seed" if in_steps else None)
        legend(panel)
    panel = next(panels)
    _draw_profiles(panel, profiles, f"{score} τ", "Share of runs with score > τ")
    if not curves:
        legend(panel)
    if pairs:
        _draw_improvement(next(panels), pairs)
    save(panel.figure, path)
    return path


def check_positive(curves: Mapping[str, Line]) -> None:
    """Check that all points and bands can be drawn on a logarithmic axis.

    Raises:
        InputError: a value is not positive.
    """
    for name, (_, band) in curves.items():
        known = np.concatenate([np.asarray(part)[np.isfinite(part)] for part in band])
        if known.size and known.min() <= 0:
            raise InputError(
                f"a logarithmic axis requires positive values, but {name!r} with its band reaches {known.min():.3g}; "
                f"use symlog, which is linear between -1 and 1."
            )


def _panel(drawn: Mapping[Any, Any], path: Path | str, width: float, height: float) -> tuple[Path, Any]:
    path = Path(path)
    check_format(path)
    if not drawn:
        raise InputError("A figure requires at least one algorithm.")
    return path, new_figure(width, height).subplots()


def _draw_efficiency(panel: Any, curves: Mapping[str, Line], label: str, steps: str | None) -> None:
    """Curves over environment steps, which ``steps`` names, or over the share of the steps in per cent."""
    unit, word = step_unit(max(float(np.max(places)) for places, _ in curves.values())) if steps else (1.0, "")
    draw_lines(panel, {name: (np.asarray(places) / unit, band) for name, (places, band) in curves.items()})
    panel.margins(x=0.0, y=0.06)
    panel.set_xlabel(f"{steps}{word}" if steps else "Share of the steps (%)", color=INK)
    panel.set_ylabel(label, color=INK)


def _draw_profiles(panel: Any, profiles: Mapping[str, Line], label: str, share: str) -> None:
    """Performance profiles; the share at a threshold holds until the next one."""
    draw_lines(panel, profiles, stairs=True)
    panel.margins(x=0.0)
    panel.set_ylim(-0.02, 1.02)
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panel.set_xlabel(label, color=INK)
    panel.set_ylabel(share, color=INK)


def _draw_improvement(panel: Any, pairs: Mapping[tuple[str, str], Estimate]) -> None:
    """A row for each pair, and a line at ½."""
    panel.axvline(0.5, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    draw_rows(panel, list(pairs.values()), [PALETTE[0]] * len(pairs))
    name_rows(panel, [f"{x} > {y}" for x, y in pairs])
    panel.set_xlim(-0.02, 1.02)
    panel.set_xticks([0, 0.25, 0.5, 0.75, 1])
    panel.set_xlabel("Probability of improvement, P(X > Y)", color=INK)


def draw_lines(panel: Any, lines: Mapping[str, Line], stairs: bool = False) -> None:
    """A line with a band for each method; ``stairs`` draws step functions, constant until the next x."""
    dress(panel)
    drawstyle, step = ("steps-post", {"step": "post"}) if stairs else ("default", {})
    for i, (name, (places, band)) in enumerate(lines.items()):
        if not len(places) == len(band.point) > 0:
            raise InputError(f"The line of {name!r} has {len(places)} x coordinates, but {len(band.point)} values.")
        style = line_style(i)
        draw_band(panel, places, band.low, band.high, style, **step)
        draw_line(panel, places, band.point, style, name, drawstyle=drawstyle)


def draw_rows(panel: Any, estimates: Sequence[Estimate], colours: Sequence[str]) -> None:
    """A dot and its interval in each row, from the top."""
    dress(panel, grid="x")
    for y, ((point, low, high), colour) in enumerate(zip(estimates, colours, strict=True)):
        if math.isfinite(low) and math.isfinite(high):
            panel.plot([low, high], [y, y], color=colour, alpha=0.4, linewidth=6, solid_capstyle="butt", zorder=2)
        panel.plot([point], [y], marker="o", markersize=6, color=colour, markeredgecolor="white", zorder=3)
    panel.set_ylim(len(estimates) - 0.4, -0.6)
    panel.margins(x=0.08)
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="y", length=0)


def name_rows(panel: Any, names: Sequence[str]) -> None:
    """Names to the left of the rows of :func:`draw_rows`."""
    panel.set_yticks(range(len(names)), names, fontsize=9.5)


def _finish(panel: Any, path: Path, title: str, lines: bool = True) -> Path:
    if lines:
        legend(panel)
    if title:
        set_title(panel, title)
    save(panel.figure, path)
    return path
