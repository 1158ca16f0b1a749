"""The rows of ``metrics.jsonl``: tolerant reading of a damaged file, and repair from a checkpoint's copy.

A row is one JSON object per line with an ascending ``step``. Other lines and rows out of order are left out, and values
above :data:`~shoal.statistics.scores.LARGEST` are None. Every
checkpoint holds a copy of the newest rows (all of them, unless they exceed :data:`~shoal.records.log.KEPT`) under its
checksum; where the copy and the file differ, the copy is used.
"""

import bisect
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.records.files import from_json
from shoal.statistics.scores import LARGEST

LONGEST = 2**26
"""Largest length of a line in bytes; the row of a thousand seeds has about 10⁶."""


class LogRow(NamedTuple):
    """A row with its original line."""

    step: int
    line: bytes
    values: dict[str, Any]


class LogRows(NamedTuple):
    """The rows of a log and its damage."""

    rows: list[LogRow]
    restored: int = 0
    """Number of rows taken from a checkpoint because the file lacks them or differs."""
    dropped: int = 0
    """Number of lines of the file that were left out."""

    def damage(self, name: str) -> str:
        """One sentence on the damage of the log ``name``; empty if there is none."""
        parts = []
        if self.restored:
            parts.append(f"{_count(self.restored, 'row')} {'is' if self.restored == 1 else 'are'} restored")
        if self.dropped:
            parts.append(f"{_count(self.dropped, 'line')} {'is' if self.dropped == 1 else 'are'} left out")
        return f"{name} is damaged: {' and '.join(parts)}." if parts else ""


def read(path: Path) -> LogRows:
    """The rows of a file; empty if it does not exist.

    A last line without a line break is incomplete and not counted as dropped.
    """
    return parse(_lines(path))


def unpack(data: bytes) -> list[LogRow]:
    """The rows of intact text."""
    return parse([line + b"\n" for line in data.split(b"\n")[:-1]]).rows


def parse(lines: Iterable[bytes]) -> LogRows:
    """The rows of lines; lines without a line break are left out."""
    found, damaged = [], 0
    for line in lines:
        row = _row(line) if line.endswith(b"\n") else None
        if row is not None:
            found.append(row)
        elif line.endswith(b"\n"):
            damaged += 1
    kept = _ascending(found)
    return LogRows(kept, dropped=damaged + len(found) - len(kept))


def merge(found: LogRows, kept: Sequence[LogRow]) -> LogRows:
    """``found`` with the rows of a checkpoint, ``kept``, in place of the rows in their range of steps."""
    if not kept:
        return found
    first, last, known = kept[0].step, kept[-1].step, {row.line for row in kept}
    there = [row.line for row in found.rows if first <= row.step <= last]
    rows = [row for row in found.rows if row.step < first] + [*kept] + [row for row in found.rows if row.step > last]
    same = len(known.intersection(there))
    return LogRows(rows, len(kept) - same, found.dropped + len(there) - same)


def _ascending(rows: list[LogRow]) -> list[LogRow]:
    """The longest subsequence of ``rows`` with ascending steps, so that one wrong step does not drop later rows."""
    ends: list[int] = []  # the smallest last step of an ascending subsequence of each length
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


def _row(line: bytes) -> LogRow | None:
    if len(line) > LONGEST:
        return None
    try:
        values = from_json(json.loads(line.decode(), parse_float=_float, parse_int=_int))
    except (ValueError, RecursionError):
        return None
    step = values.get("step") if isinstance(values, dict) else None
    return LogRow(step, line, values) if type(step) is int and step >= 0 else None


def _float(text: str) -> float | None:
    """A number; None above the largest score."""
    value = float(text)
    return value if abs(value) <= LARGEST else None


def _int(text: str) -> int | None:
    """A whole number; None above the largest score, also of more digits than Python reads."""
    return int(text) if _float(text) is not None else None


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, truncated after :data:`LONGEST` bytes; empty if it is not a regular file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST + 1):
            while not line.endswith(b"\n") and len(line) > LONGEST and (more := file.readline(LONGEST)):
                line = line[: LONGEST + 1] + more[-1:]
            yield line


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
