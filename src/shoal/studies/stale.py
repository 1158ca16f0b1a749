"""Stale records: made with other behaviour versions or other resolved options than their runs would have today."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.algorithms import canonical
from shoal.options.flags import flags_of
from shoal.runs import behaviour
from shoal.studies.entries import key
from shoal.studies.plan import Cell
from shoal.studies.record import Record, readable
from shoal.system.files import to_json

MARK = "†"
"""Behind values of stale records on pages."""


def stale(cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, str]:
    """Why records are stale, by the cells' names: clauses without a full stop; records that are not stale are omitted.

    Args:
        cells: runs of a study.
        records: records by the cells' names, also those of :func:`former`.
    """
    found = {}
    for cell in cells:
        if (record := records.get(cell.name)) is None:
            continue
        run = record.run
        reasons = behaviour.changes(
            record.behaviour, run["algorithm"], run["environment"], run["settings"] | run["config"]
        )
        if difference := cell.difference(run):
            reasons.append(difference.replace(" there and ", " in the record and ").replace(" in the study", " today"))
        if reasons:
            found[cell.name] = "; ".join(reasons)
    return found


def sentences(found: Mapping[str, str], cells: Sequence[Cell]) -> list[str]:
    """A sentence for each reason why records are stale, with the runs that it concerns."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.name in found:
            groups.setdefault(found[cell.name], []).append(cell)
    said = []
    for reason, each in groups.items():
        which = "All runs are" if len(each) == len(cells) else f"{each[0].title} is"
        if 1 < len(each) < len(cells):
            which = f"{len(each)} of {len(cells)} runs, the first of them {each[0].title}, are"
        said.append(f"{which} stale: {reason}.")
    return said


def former(folder: Path, cells: Iterable[Cell], records: Mapping[str, Record]) -> dict[str, Record]:
    """Records of runs without a current one that differ from them only in what presets and defaults say, by the cells'
    names: a preset or a default has changed since. They have the values of the run's axes and all flags and options
    that the study's file sets. Damaged files are ignored.

    Args:
        folder: the records of the study.
        cells: runs of the study.
        records: the current records, by the cells' names.
    """
    left = [cell for cell in cells if cell.name not in records]
    held = readable(folder) if left else []
    used = {id(record) for record in records.values()}
    found = {}
    for cell in left:
        same = (record for record in held if id(record) not in used and _of(cell, record))
        if (record := next(same, None)) is not None:
            found[cell.name] = record
    return found


def _of(cell: Cell, record: Record) -> bool:
    """Whether a record has a run's axes, evaluation, options and the flags that the study's file sets."""
    run, merged = record.run, cell.merged()
    if {axis: key(_tuple(x)) for axis, x in record.cell.items()} != {axis: key(x) for axis, x in cell.values.items()}:
        return False
    if any(record.evaluation[name] != value for name, value in vars(cell.evaluation).items()):
        return False
    named = (canonical(cell.algorithm), cell.environment, to_json(cell.env))
    if named != (run["algorithm"], run["environment"], run["env"]):
        return False
    now, was = flags_of(merged.settings) | flags_of(merged.config), run["settings"] | run["config"]
    return all(to_json(now[flag]) == was.get(flag) for flag in cell.flags if flag in now and flag not in merged.sized)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
