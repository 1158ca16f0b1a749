"""Flags that differ between compared rows of a study's tables beyond the axes, since presets and ``[[overrides]]`` give
algorithms and environments values of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.options.flags import flags_of
from shoal.studies.aggregation import Place, entries_of, place
from shoal.studies.entries import label
from shoal.studies.page_tables import Rows, head
from shoal.studies.plan import Cell
from shoal.studies.presented import Table
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile
from shoal.system.files import to_json

WITHOUT_EFFECT = frozenset(
    {
        "address",
        "block",
        "checkpoint_seconds",
        "curve_episodes",
        "devices",
        "eval_episodes",
        "eval_every",
        "keep",
        "num_workers",
        "rows",
        "tensorboard",
        "worker_timeout",
        "workers",
    }
)
"""Flags that do not change what the last policy learns."""
_LONGEST = 60
_LISTED = 4
"""If more rows have the most frequent value, they are not listed."""


def differing(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> Rows:
    """A line for each flag that differs between rows of a table although neither the grid nor the rows' variants set
    it: the flag, its values with the rows that have them, and where they are compared. A flag that not all of the rows'
    algorithms have is compared between those that have it.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; the flags of other runs are those that they would have today.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    flags = {cell.name: _flags(cell, records.get(cell.name)) for cell in cells}
    for table in study.tables or (Table(),):
        entries = entries_of(study, table, cells, records)
        compared: dict[Place, list[tuple[str, Cell]]] = {}
        for line in entries.grid.values():
            for each in line.values():
                for cell in each:
                    name = " ".join(label(cell.values[axis]) for axis in entries.rows)
                    compared.setdefault(place(cell, (*entries.columns, *entries.over)), []).append((name, cell))
        for rows in compared.values():
            where = head(rows[0][1], (*entries.columns, *entries.over))
            for flag in dict.fromkeys(flag for _, cell in rows for flag in flags[cell.name]):
                if said := _said(study, flag, rows, flags):
                    places = lines.setdefault((flag, said), [])
                    places += [where] if where not in places else []
    return [
        {"flag": flag, "values": said} | ({"compared in": "; ".join(places)} if any(places) else {})
        for (flag, said), places in sorted(lines.items())
    ]


def _flags(cell: Cell, record: Record | None) -> dict[str, Any]:
    if record is not None:
        found = record.run["settings"] | record.run["config"]
    else:
        merged = cell.merged()
        found = to_json(flags_of(merged.settings) | flags_of(merged.config))
        found = {flag: value for flag, value in found.items() if flag not in merged.sized}
    return {flag: value for flag, value in found.items() if flag not in WITHOUT_EFFECT}


def _said(
    study: StudyFile, flag: str, rows: Sequence[tuple[str, Cell]], flags: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """The values of a flag with the rows that have them; None if the axes explain every difference."""
    if flag in study.grid:
        return None
    values: dict[str, list[str]] = {}
    unexplained = set()
    for name, cell in rows:
        if flag in flags[cell.name]:
            text = label(flags[cell.name][flag])
            text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
            values.setdefault(text, []).append(name)
            if flag not in study.variants.get(str(cell.values.get("variant")), {}):
                unexplained.add(text)
    if len(unexplained) < 2:
        return None
    most = max(values, key=lambda text: len(values[text]))
    if len(values[most]) > _LISTED:
        values[most] = ["the others"]
        values[most] = values.pop(most)  # the last
    return "; ".join(f"{text}: {' · '.join(names)}" for text, names in values.items())
