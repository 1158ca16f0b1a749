"""The entries of tables and figures: the runs of each entry, and their samples, normalised if requested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.statistics.intervals import Estimate, scaled
from shoal.studies.combinations import axes_of, axes_of_table, matches
from shoal.studies.entries import key
from shoal.studies.plan import Cell
from shoal.studies.presented import Level, Scaling, Table
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile
from shoal.studies.summaries import STATISTICS, Samples, Statistic, metric_name, unit_of

Place = tuple
"""Values of some axes, hashable."""


@dataclass(frozen=True)
class Entries:
    """The runs that a table or figure shows."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: tuple[str, ...]
    """Axes of the tasks in an entry."""
    grid: dict[Place, dict[Place, list[Cell]]]
    """By the values of the row axes and of the column axes; several runs are tasks."""
    heads: dict[Place, Cell]
    """A run of each column."""
    scaling: Scaling
    levels: dict[str, tuple[float, float]]
    """The worst and best score of each run, by the cell's name."""
    records: Mapping[str, Record]
    metric: str

    @property
    def unit(self) -> float:
        """The factor by which shown values are multiplied; 1 for normalised values."""
        return unit_of(self.metric) if self.scaling == "raw" else 1.0

    @property
    def name(self) -> str:
        """The metric in a sentence, with its unit."""
        return metric_name(self.metric, self.unit)

    @property
    def tasks(self) -> int:
        """The largest number of tasks in an entry."""
        return max(len(cells) for line in self.grid.values() for cells in line.values())

    @property
    def seeds(self) -> list[int]:
        """The numbers of seeds of the recorded runs."""
        cells = [cell for line in self.grid.values() for found in line.values() for cell in found]
        return sorted({self.records[cell.name].seeds for cell in cells if cell.name in self.records})

    def complete(self, cells: Sequence[Cell]) -> bool:
        """Whether all runs of an entry are recorded."""
        return all(cell.name in self.records for cell in cells)

    def samples(self, cells: Sequence[Cell], statistic: Statistic) -> list[Samples] | None:
        """The samples of an entry's tasks; None if a run has no value."""
        found = []
        for cell in cells:
            samples = statistic.samples(self.records[cell.name], self.metric)
            if samples is None:
                return None
            if cell.name in self.levels and statistic.scales:
                worst, best = self.levels[cell.name]
                samples = (samples - worst) / (best - worst)
            found.append(samples)
        return found

    def estimate(self, cells: Sequence[Cell], statistic: Statistic) -> Estimate | None:
        """The statistic of a complete entry, in the unit shown; None if a value is unknown."""
        samples = self.samples(cells, statistic)
        if samples is None or statistic.estimate is None:
            return None
        return scaled(statistic.estimate(samples), self.unit)

    def difference(self, cells: Sequence[Cell], baseline: Sequence[Cell], statistic: Statistic) -> Estimate | None:
        """The difference of two complete entries, in the unit shown, or their comparison; None if a value is unknown or
        tasks differ."""
        paired = {place(cell, self.over): cell for cell in baseline}
        tasks = [place(cell, self.over) for cell in cells]
        if len(paired) != len(tasks) or not all(task in paired for task in tasks):
            return None
        here, there = self.samples(cells, statistic), self.samples([paired[task] for task in tasks], statistic)
        if here is None or there is None:
            return None
        found = statistic.difference(here, there)
        return found if statistic.estimate is None else scaled(found, self.unit)


def entries_of(study: StudyFile, table: Table, cells: Sequence[Cell], records: Mapping[str, Record]) -> Entries:
    """The entries of a table or figure.

    Args:
        study: the study.
        table: the table or figure.
        cells: all runs of the study.
        records: those that exist, by the cells' names.
    """
    known = axes_of([cell.values for cell in cells])
    shown = [cell for cell in cells if matches(cell.values, table.where)]
    rows, columns = axes_of_table(table, known)
    grid: dict[Place, dict[Place, list[Cell]]] = {}
    for cell in shown:
        grid.setdefault(place(cell, rows), {}).setdefault(place(cell, columns), []).append(cell)
    heads = {place(cell, columns): cell for cell in shown}
    scaling = scaling_of(study, table, shown)
    levels = _levels(study, table, scaling, shown, columns, records)
    return Entries(rows, columns, table.over, grid, heads, scaling, levels, records, table.metric)


def place(cell: Cell, axes: Sequence[str]) -> Place:
    """The values of these axes, hashable."""
    return tuple(key(cell.values[axis]) for axis in axes)


def level_of(study: StudyFile, values: Mapping[str, Any]) -> Level | None:
    """The known worst and best score of a run."""
    return next((level for level in study.scales if matches(values, level.where)), None)


def scaling_of(study: StudyFile, table: Table, shown: Sequence[Cell]) -> Scaling:
    """How the scores of a table's runs are normalised."""
    if table.scale is not None:
        return table.scale
    if len({place(cell, table.over) for cell in shown}) < 2:
        return "raw"
    return "known" if all(level_of(study, cell.values) for cell in shown) else "observed"


def _levels(
    study: StudyFile,
    table: Table,
    scaling: Scaling,
    shown: Sequence[Cell],
    columns: tuple[str, ...],
    records: Mapping[str, Record],
) -> dict[str, tuple[float, float]]:
    if scaling == "raw":
        return {}
    if scaling == "known":
        found = {cell.name: level_of(study, cell.values) for cell in shown}
        return {name: (level.worst, level.best) for name, level in found.items() if level}
    tasks: dict[Place, list[Cell]] = {}
    for cell in shown:
        tasks.setdefault(place(cell, (*columns, *table.over)), []).append(cell)
    levels = {}
    for cells in tasks.values():
        every = [STATISTICS["mean"].samples(records[cell.name], table.metric) for cell in cells if cell.name in records]
        together = np.concatenate([samples for samples in every if samples is not None] or [np.zeros(1)])
        low, high = float(together.min()), float(together.max())
        levels |= {cell.name: (low, high if high > low else low + 1.0) for cell in cells}
    return levels
