"""The figures of a study's results page, drawn from its records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError, WriteError
from shoal.records import figures
from shoal.studies.charts import Chart, charts_of
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile


class Drawn(NamedTuple):
    """A figure in its file."""

    title: str
    note: str
    """What it shows."""


def draw_figures(
    study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record], folder: Path
) -> dict[str, Drawn]:
    """Draw the figures of a study into ``folder``; returns them by file name.

    Raises:
        InputError: a value cannot be drawn on the figure's vertical axis.
        WriteError: a figure cannot be written.
    """
    found = {}
    for chart in charts_of(study, cells, records):
        path = folder / f"{chart.name}.png"
        try:
            _draw(chart, path)
        except WriteError:
            raise
        except InputError as error:
            raise study.error(f"[[figures]] {chart.number}: {error}") from None
        found[path.name] = Drawn(chart.title, chart.note)
    return found


def _draw(chart: Chart, path: Path) -> None:
    if chart.kind == "curves":
        figures.plot_efficiency(chart.lines, path, label=chart.label, vertical=chart.vertical)
    elif chart.kind == "profiles":
        figures.plot_profiles(chart.lines, path, label=chart.label)
    elif chart.kind == "estimates":
        figures.plot_estimates(chart.panels, path, label=chart.label)
    else:
        figures.plot_improvement(chart.pairs, path)
