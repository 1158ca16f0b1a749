"""The figure of a comparison: sample efficiency, performance profiles and probability of improvement."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shoal.errors import InputError
from shoal.plots.figures import Line, draw_lines, draw_rows, name_rows
from shoal.plots.style import FAINT, INK, PALETTE, check_format, figures, legend, new_figure, save, step_unit
from shoal.statistics.intervals import Estimate


@figures()
def plot(
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
        unit, word = step_unit(max(float(np.max(places)) for places, _ in curves.values())) if in_steps else (1.0, "")
        draw_lines(panel, {name: (np.asarray(places) / unit, band) for name, (places, band) in curves.items()})
        panel.margins(x=0.0, y=0.06)
        panel.set_xlabel(f"Environment steps per seed{word}" if in_steps else "Share of the steps (%)", color=INK)
        panel.set_ylabel(label, color=INK)
        legend(panel)
    panel = next(panels)
    draw_lines(panel, profiles, stairs=True)
    panel.margins(x=0.0)
    panel.set_ylim(-0.02, 1.02)
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panel.set_xlabel(f"{score} τ", color=INK)
    panel.set_ylabel("Share of runs with score > τ", color=INK)
    if not curves:
        legend(panel)
    if pairs:
        panel = next(panels)
        panel.axvline(0.5, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        draw_rows(panel, list(pairs.values()), [PALETTE[0]] * len(pairs))
        name_rows(panel, [f"{x} > {y}" for x, y in pairs])
        panel.set_xlim(-0.02, 1.02)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1])
        panel.set_xlabel("Probability of improvement, P(X > Y)", color=INK)
    save(panel.figure, path)
    return path
