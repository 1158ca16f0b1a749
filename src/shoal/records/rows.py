"""The rows of ``metrics.jsonl``: read whatever became of the file, and mended from what a checkpoint keeps of them.

A row is one JSON object on a line, with ``step``, and steps ascend. A line that is not one is left out, and so are rows
that are out of order. Every checkpoint holds a copy of the newest rows at its time (all of them, unless they exceed
:data:`~shoal.records.log.KEPT`), which its checksum protects: where that copy and the file differ, the copy is right.
"""

import bisect
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.records.files import from_json

LONGEST = 2**26
"""Bytes of the longest line that is read; the row of a thousand seeds has about a million."""


class Row(NamedTuple):
    """A row and its line, which is kept to the byte."""

    step: int
    line: bytes
    values: dict[str, Any]


class Rows(NamedTuple):
    """What a log says."""

    rows: list[Row]
    mended: int = 0
    """How many of them come from a checkpoint, since the file lacks them or has something else in their place."""
    dropped: int = 0
    """Lines of the file that were left out."""

    def damage(self, name: str) -> str:
        """One sentence on what was wrong with the log called ``name``; empty where nothing was."""
        parts = []
        if self.mended:
            parts.append(f"{_count(self.mended, 'row')} {'is' if self.mended == 1 else 'are'} mended")
        if self.dropped:
            parts.append(f"{_count(self.dropped, 'line')} {'is' if self.dropped == 1 else 'are'} left out")
        return f"{name} is damaged: {' and '.join(parts)}." if parts else ""


def read(path: Path) -> Rows:
    """The rows in a file; none where there is no such file.

    A last line without its line break is still being written, or never was finished, and is not counted as dropped.
    """
    return parse(_lines(path))


def unpack(data: bytes) -> list[Row]:
    """The rows of a text that is known to be sound."""
    return parse([line + b"\n" for line in data.split(b"\n")[:-1]]).rows


def parse(lines: Iterable[bytes]) -> Rows:
    """The rows that lines hold; lines that end without a line break are left out."""
    found, damaged = [], 0
    for line in lines:
        row = _row(line) if line.endswith(b"\n") else None
        if row is not None:
            found.append(row)
        elif line.endswith(b"\n"):
            damaged += 1
    kept = _ascending(found)
    return Rows(kept, dropped=damaged + len(found) - len(kept))


def merge(found: Rows, kept: Sequence[Row]) -> Rows:
    """``found`` with the rows that a checkpoint keeps in their place."""
    if not kept:
        return found
    first, last, known = kept[0].step, kept[-1].step, {row.line for row in kept}
    there = [row.line for row in found.rows if first <= row.step <= last]
    rows = [row for row in found.rows if row.step < first] + [*kept] + [row for row in found.rows if row.step > last]
    same = len(known.intersection(there))
    return Rows(rows, len(kept) - same, found.dropped + len(there) - same)


def _ascending(rows: list[Row]) -> list[Row]:
    """The longest part of ``rows`` whose steps ascend, so that one wrong step does not take those after it along."""
    ends: list[int] = []  # the smallest step at which an ascending part of each length can end
    at: list[int] = []
    for row in rows:
        at.append(bisect.bisect_left(ends, row.step))
        ends[at[-1] : at[-1] + 1] = [row.step]
    chosen, length, after = [], len(ends), None
    for row, place in zip(reversed(rows), reversed(at), strict=True):
        if place == length - 1 and (after is None or row.step < after):
            chosen.append(row)
            length, after = length - 1, row.step
    return chosen[::-1]


def _row(line: bytes) -> Row | None:
    if len(line) > LONGEST:
        return None
    try:
        values = from_json(json.loads(line.decode()))
    except (ValueError, RecursionError):
        return None
    step = values.get("step") if isinstance(values, dict) else None
    return Row(step, line, values) if type(step) is int and step >= 0 else None


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, one of more than :data:`LONGEST` bytes cut; nothing of what is not a file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST + 1):
            while not line.endswith(b"\n") and len(line) > LONGEST and (more := file.readline(LONGEST)):
                line = line[: LONGEST + 1] + more[-1:]
            yield line


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
