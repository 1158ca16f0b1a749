"""Levels: what teams that do not learn score in the tasks of a study, from the records of the studies that its file
names with ``levels``. They are rows of tables and horizontal lines in curves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shoal.studies.keys import key
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record
from shoal.studies.state import former_records, recorded_in, records_of_cells, stale_records
from shoal.studies.study_file import StudyFile, path_of_levels, read_study
from shoal.studies.user_modules import check_imports

NOTHING, RANDOM = "doing nothing", "random play"
_SCRIPTS = {"random": RANDOM, "stop": NOTHING, "heuristic": "SMAC's script"}
"""The levels that scripts of skirmish stand for; other scripts are none."""

Task = tuple[str, frozenset[tuple[str, Any]]]
"""An environment and its options."""


@dataclass(frozen=True)
class Level:
    """What one team scores in one task."""

    cell: Cell
    record: Record
    stale: bool
    """As the runs of tables (:func:`shoal.studies.state.stale_records`)."""


Levels = Mapping[str, Mapping[Task, Level]]
"""By the level's name, for example ``random play``, and by task."""
NONE: Levels = MappingProxyType({})


def task_of(cell: Cell) -> Task:
    """The environment of a run, with its options."""
    return cell.environment, frozenset((name, key(value)) for name, value in cell.env.items())


def level_name(cell: Cell) -> str | None:
    """The name of the level that a run measures; None if its team learns or plays another script."""
    if cell.algorithm == "scripted":
        return _SCRIPTS.get(cell.merged().config.script)
    return {"random": RANDOM, "constant": NOTHING}.get(cell.algorithm)


def levels_of(study: StudyFile, *, trust: bool = False) -> Levels:
    """The levels in the records of the studies that a study's file names; of two of one task the first study's.

    Args:
        study: the study.
        trust: import modules of the user's own that those studies name.

    Raises:
        InputError: a study is invalid, a record is damaged, or it names a module that is not
            imported without ``trust``.
    """
    found: dict[str, dict[Task, Level]] = {}
    for name in study.levels:
        other = read_study(path_of_levels(study.path, name))
        check_imports(other, trust)
        for level in _measured(other):
            if (title := level_name(level.cell)) is not None:
                found.setdefault(title, {}).setdefault(task_of(level.cell), level)
    return found


def _measured(study: StudyFile) -> Iterable[Level]:
    where, cells = recorded_in(study, None), plan(study, Path())
    records = records_of_cells(where, cells)
    records |= former_records(where, cells, records)
    stale = stale_records(cells, records)
    return [Level(cell, records[cell.name], cell.name in stale) for cell in cells if cell.name in records]


def level_cell(level: Level, title: str, like: Cell, axes: Sequence[str]) -> Cell:
    """The run of a level as an entry of a table.

    Args:
        level: the level.
        title: its name, the value of the first of ``axes``; others are empty.
        like: a run of the same task in the table.
        axes: the row's axes that do not belong to the task.
    """
    values = like.values | dict.fromkeys(axes, "") | {axes[0]: title}
    return replace(level.cell, study=like.study, values=values, name=f"{title}: {level.cell.name}")
