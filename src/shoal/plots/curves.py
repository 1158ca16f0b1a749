"""Learning curves: the mean over seeds with a confidence band, for one or several runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError, unknown
from shoal.options.convert import items_of
from shoal.plots import figures
from shoal.plots.charts import Line, learning_curves
from shoal.plots.figures import check_format
from shoal.statistics.intervals import band, interval_text
from shoal.statistics.scores import Band
from shoal.storage.folders import distinct_names
from shoal.storage.log import read_log


def series(folder: Path, metric: str) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "X seeds"]]:
    """(steps, values) of one metric of the run in ``folder``; rows without the metric are left out.

    Null values, for example of a seed in which no episode ended, are NaN.

    Raises:
        InputError: the run has no log, no row has the metric, or its number of seeds changes.
    """
    return series_of(read_log(folder), metric, Path(folder).name)


def series_of(
    rows: Sequence[Mapping[str, Any]], metric: str, name: str
) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "X seeds"]]:
    """:func:`series` of the rows of a log; ``name`` is the run's, for messages."""
    if not rows:
        raise InputError(f"The run {name!r} has no log.")
    found = [(row["step"], np.atleast_1d(np.asarray(row[metric], np.float64))) for row in rows if _numeric(row, metric)]
    if not found:
        known = {column for row in rows for column in row if column != "step" and _numeric(row, column)}
        raise unknown(f"metric in the log of {name!r} named", metric, known)
    if len({values.shape for _, values in found}) > 1:
        raise InputError(f"The number of seeds of {metric!r} changes within the log of {name!r}.")
    return np.array([step for step, _ in found], np.float64), np.stack([values for _, values in found])


def plot(
    folders: Path | str | Sequence[Path | str],
    path: Path | str | None = None,
    metrics: Sequence[str] = ("return",),
    *,
    lines: Mapping[str, float | int] | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    confidence: float = 0.95,
) -> Path:
    """Draw learning curves: one panel per metric, one line per run, against environment steps per seed.

    With several seeds the line is their mean and the band is :func:`~shoal.statistics.intervals.band`. With one seed
    the thin line is the raw log and the bold one a centred moving average; the legend states its width.

    Args:
        folders: one run's folder or several.
        path: the picture, PNG, PDF or SVG by its suffix; by default ``curves.png`` in the run's folder, or next to
            the folder of the first of several runs.
        metrics: columns of the log.
        lines: reference values, drawn as labelled horizontal lines in the first panel.
        names: names of the runs in the legend; by default their folders' names, with as much of the path before them as
            tells them apart.
        title: by default the run's name.
        confidence: confidence level of the band.

    Returns:
        The path of the picture.

    Raises:
        InputError: a run has no log or lacks a metric, or the suffix is not supported.
        WriteError: the picture cannot be written.
    """
    runs = [Path(folder) for folder in items_of("folders", folders, (str, Path))]
    metrics = items_of("metrics", metrics, str)
    if not runs or not metrics:
        raise InputError("A figure requires at least one run and one metric.")
    names = items_of("names", names, str) if names is not None else distinct_names([run.resolve() for run in runs])
    if len(names) != len(runs):
        raise InputError(f"There are {len(runs)} runs and {len(names)} names for them.")
    path = Path(path) if path is not None else (runs[0] if len(runs) == 1 else runs[0].parent) / "curves.png"
    check_format(path)
    data = []
    for run, name in zip(runs, names, strict=True):
        rows, label = read_log(run), f"{name}: " if len(runs) > 1 else ""
        several = any(isinstance(value, list) and len(value) > 1 for row in rows for value in row.values())
        alone = f"{label}{'one value for all seeds' if several else '1 seed'}"
        data.append([_line(label, alone, *series_of(rows, metric, run.name), confidence) for metric in metrics])
    panels = [
        learning_curves(drawn, metric, None if i else lines)
        for i, (metric, drawn) in enumerate(zip(metrics, zip(*data, strict=True), strict=True))
    ]
    return figures.draw_stacked(panels, path, title or (names[0] if len(runs) == 1 else ""))


def _line(name: str, alone: str, steps: np.ndarray, values: np.ndarray, confidence: float) -> Line:
    """The line of values [rows, seeds]; ``alone`` is its label where they have one column."""
    seeds = values.shape[1]
    if seeds > 1:
        label = f"{name}mean of {seeds} seeds, {interval_text(seeds, confidence)}"
        return Line(label, steps, Band(*band(values, confidence)))
    width = 1 + 2 * (len(steps) // 80)
    unknown_ends = np.full(len(steps), np.nan)
    average = Band(_moving_average(values[:, 0], width), unknown_ends, unknown_ends)
    if width == 1:
        return Line(alone, steps, average)
    return Line(f"{alone}, average of {width} rows", steps, average, raw=values[:, 0])


def _moving_average(values: np.ndarray, width: int) -> np.ndarray:
    """Centred moving average, with shorter windows at the ends. NaN values are left out."""
    kernel, there = np.ones(width), np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.convolve(np.where(there, values, 0.0), kernel, "same") / np.convolve(there, kernel, "same")


def _numeric(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(name)
    given = [x for x in (value if isinstance(value, list) else [value]) if x is not None]
    return bool(given) and all(isinstance(x, (int, float)) for x in given)
