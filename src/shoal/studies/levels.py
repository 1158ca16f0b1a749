"""Levels: what teams that do not learn score in the tasks of a study, from the records of the studies that its file
names with ``levels``. They are rows of tables and horizontal lines in curves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shoal.environments.registry import options_of
from shoal.studies.keys import frozen, key
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record
from shoal.studies.state import former_records, records_folder, records_of_cells, stale_records
from shoal.studies.study_file import StudyFile, path_of_levels, read_study
from shoal.studies.user_modules import check_imports

NOTHING, RANDOM = "doing nothing", "random play"
_SCRIPTS = {"random": RANDOM, "stop": NOTHING, "heuristic": "SMAC's script"}
"""The levels that scripts of skirmish stand for; other scripts are none."""

Task = tuple[str, frozenset[tuple[str, Any]], tuple[Any, ...]]
"""An environment, its options that differ from their defaults, and settings that change what a score is."""


@dataclass(frozen=True)
class Level:
    """What one team scores in one task."""

    cell: Cell
    record: Record
    stale: bool
    """As the runs of tables (:func:`shoal.studies.state.stale_records`)."""


Levels = Mapping[str, Mapping[Task, Level]]
"""By the level's name, for example ``random play``, and by task."""
NO_LEVELS: Levels = MappingProxyType({})


def task_of(cell: Cell) -> Task:
    """The task of a run."""
    known, settings = options_of(cell.environment), cell.merged().settings
    options = {name: x for name, x in cell.env.items() if name not in known or known[name].default != x}
    wrapping = settings.wrapping
    changes = (wrapping.time_limit, wrapping.reward_scale, wrapping.action_mask, settings.opponent_options.opponents)
    return cell.environment, frozenset((name, key(frozen(x))) for name, x in options.items()), changes


def level_name(cell: Cell) -> str | None:
    """The name of the level that a run measures; None if its team learns or plays another script."""
    if cell.algorithm == "scripted":
        return _SCRIPTS.get(cell.merged().config.script)
    return {"random": RANDOM, "constant": NOTHING}.get(cell.algorithm)


def studies_of_levels(study: StudyFile) -> list[StudyFile]:
    """The studies that a study's file names with ``levels``.

    Raises:
        InputError: one is invalid.
    """
    return [read_study(path_of_levels(study.path, name)) for name in study.levels]


def levels_of(study: StudyFile, records: str | Path | None = None, *, trust: bool = False) -> Levels:
    """The levels in the records of the studies that a study's file names; of two of one task the first study's. Of a
    study that measures a level of one task several times there is none.

    Args:
        study: the study.
        records: a folder of records, see :func:`shoal.study`; studies that it lacks have their own.
        trust: import modules of the user's own that those studies name.

    Raises:
        InputError: a study is invalid, a record is damaged, or it names a module that is not
            imported without ``trust``.
    """
    found: dict[str, dict[Task, Level]] = {}
    for other in studies_of_levels(study):
        check_imports(other, trust)
        there = records is not None and records_folder(other, records).is_dir()
        measured: dict[tuple[str, Task], list[Level]] = {}
        for level in _measured(other, records_folder(other, records if there else None)):
            if (title := level_name(level.cell)) is not None:
                measured.setdefault((title, task_of(level.cell)), []).append(level)
        for (title, task), levels in measured.items():
            if len(levels) == 1:
                found.setdefault(title, {}).setdefault(task, levels[0])
    return found


def _measured(study: StudyFile, where: Path) -> Iterable[Level]:
    """The recorded runs of a study, without curves: what is learned in them says nothing."""
    cells = plan(study, Path())
    records = records_of_cells(where, cells)
    records |= former_records(where, cells, records)
    stale = stale_records(cells, records)
    return [
        Level(cell, replace(records[cell.name], curve={}, evaluations={}), cell.name in stale)
        for cell in cells
        if cell.name in records
    ]


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
