"""One JSON line per row in ``metrics.jsonl``, and the same numbers as TensorBoard events in ``tensorboard/``.

Every row has ``step``, the environment steps per seed. A value is a number, or a list with one number per seed. NaN and
infinities are written as strings (:mod:`shoal.system.files`). :meth:`Log.write` does not buffer, so that a killed run
loses at most one row; TensorBoard events may lag behind by ten seconds.

A row is one JSON object per line with an ascending ``step``. Other lines and rows out of order are left out, and values
above :data:`~shoal.statistics.scores.MAX_FLOAT32` are None. Every checkpoint holds a copy of the newest rows (all of
them, unless they exceed :data:`MAX_KEPT_BYTES`) under its checksum; where the copy and the file differ, the copy is
used. A run that resumes from a checkpoint moves the rows after it to ``metrics.dropped.jsonl`` when it writes again.
"""

import bisect
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.statistics.scores import MAX_FLOAT32
from shoal.storage.step_folders import newest_file
from shoal.storage.tensorboard import Events
from shoal.system import notices
from shoal.system.files import append, dumps, from_json, write_bytes
from shoal.system.notices import Warn

# The rows of ``metrics.jsonl``: tolerant reading of a damaged file, and repair from a checkpoint's copy.


MAX_LINE_BYTES = 2**26
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


def read_rows(path: Path) -> LogRows:
    """The rows of a file; empty if it does not exist.

    A last line without a line break is incomplete and not counted as dropped.
    """
    return parse_rows(_lines(path))


def unpack(data: bytes) -> list[LogRow]:
    """The rows of intact text."""
    return parse_rows([line + b"\n" for line in data.split(b"\n")[:-1]]).rows


def parse_rows(lines: Iterable[bytes]) -> LogRows:
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
    if len(line) > MAX_LINE_BYTES:
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
    return value if abs(value) <= MAX_FLOAT32 else None


def _int(text: str) -> int | None:
    """A whole number; None above the largest score, also of more digits than Python reads."""
    return int(text) if _float(text) is not None else None


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, truncated after :data:`MAX_LINE_BYTES` bytes; empty if it is not a regular file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            while not line.endswith(b"\n") and len(line) > MAX_LINE_BYTES and (more := file.readline(MAX_LINE_BYTES)):
                line = line[: MAX_LINE_BYTES + 1] + more[-1:]
            yield line


def _ends_with(path: Path, data: bytes) -> bool:
    """Whether a file is a regular one that ends with ``data``."""
    if not path.is_file() or path.stat().st_size < len(data):
        return False
    with path.open("rb") as file:
        file.seek(-len(data), os.SEEK_END)
        return file.read() == data


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# The log of a run.


LOG_FILE = "metrics.jsonl"
DROPPED_FILE = "metrics.dropped.jsonl"
"""Rows after the checkpoint from which a run was resumed, in the order in which they were set aside."""

MAX_KEPT_BYTES = 2**25
"""Largest number of bytes of log rows in a checkpoint, the newest ones. The default 500 rows have less than 10⁶."""


class Log:
    """Appends rows to the log of the run in ``folder``, which must exist. The constructor reads and writes nothing.

    Args:
        folder: the run's folder.
        tensorboard: also write TensorBoard events; a list is written as ``name/seed0`` …, its mean as ``name``.
        warn: called with one sentence if the file is found damaged.
        guard: called before every write; raises if the folder is no longer the run's.
    """

    def __init__(
        self,
        folder: Path,
        tensorboard: bool = True,
        warn: Warn = notices.warn,
        guard: Callable[[], None] = lambda: None,
    ):
        self.folder, self.warn, self.guard = Path(folder), warn, guard
        self._tensorboard = tensorboard
        self._events: Events | None = None
        self._purge: int | None = None
        self._rows: deque[LogRow] = deque()
        """The newest rows, at most :data:`MAX_KEPT_BYTES` bytes."""
        self._bytes = 0
        """Bytes of ``_rows``."""
        self._size = 0
        """Expected size of the file in bytes."""
        self._resumed: tuple[int, int] | None = None
        """(step, count) of the checkpoint from which the run resumes, until :meth:`repair` has cut the file there."""
        self.count = 0
        """Number of rows in the log."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row of numbers and lists of numbers (also NumPy and JAX scalars and arrays).

        Raises:
            InputError: ``step`` is missing or not an integer, or a value has no JSON form.
            WriteError: the disk is full.
        """
        text = dumps(row, "row")
        plain = json.loads(text)
        if type(plain.get("step")) is not int:
            raise InputError("Every row of the log requires an integer 'step', the environment steps per seed.")
        self.repair()  # calls the guard
        line = f"{text}\n".encode()
        append(self.folder / LOG_FILE, line)
        self._size += len(line)
        self._hold([LogRow(plain["step"], line, plain)])
        self.count += 1
        if self._tensorboard:
            if self._events is None:
                self._events = Events(self.folder / "tensorboard", self._purge)
            self._events.write(plain)

    def kept(self) -> bytes:
        """The newest rows, to be stored in a checkpoint."""
        return b"".join(row.line for row in self._rows)

    def repair(self) -> None:
        """Rewrite the file if something else changed its size or removed it.

        The first call after :meth:`resume` moves rows after the checkpoint to :data:`DROPPED_FILE`, says so, and
        repairs the others from the checkpoint.

        Raises:
            WriteError: the disk is full.
        """
        self.guard()
        path = self.folder / LOG_FILE
        if self._resumed is not None:
            self._cut(*self._resumed)
            self._resumed = None
        elif (path.stat().st_size if path.exists() else 0) != self._size:
            self._repair(read_rows(path), self.count)

    def resume(self, step: int, kept: bytes = b"", count: int = 0) -> None:
        """Continue after ``step``. Files stay as they are until the next row, or until :meth:`repair`.

        TensorBoard hides later events from the next row on.

        Args:
            step: the checkpoint's.
            kept: the value of :meth:`kept` in the checkpoint.
            count: the value of :attr:`count` in the checkpoint; 0 if unknown.
        """
        self._events, self._purge, self._resumed = None, step + 1, (step, count)
        self._rows, self._bytes = deque(), 0
        self._hold(unpack(kept))

    def _cut(self, step: int, count: int) -> None:
        """Set the rows after ``step`` aside, and repair the others."""
        found = read_rows(self.folder / LOG_FILE)
        later = [row for row in found.rows if row.step > step]
        data, aside = b"".join(row.line for row in later), self.folder / DROPPED_FILE
        if later and not _ends_with(aside, data):  # unless a crash came before the file was cut
            append(aside, data)
        self._repair(found._replace(rows=[row for row in found.rows if row.step <= step]), count)
        if later:
            verb, them = ("is", "it") if len(later) == 1 else ("are", "them")
            self.warn(
                f"{_count(len(later), 'row')} after step {step:,} {verb} set aside in {DROPPED_FILE}; training from "
                f"there repeats {them}."
            )

    def _repair(self, found: LogRows, count: int) -> None:
        path, merged = self.folder / LOG_FILE, merge(found, self._rows)
        data = b"".join(row.line for row in merged.rows)
        if path.is_symlink() or not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write_bytes(path, data)
        if damage := merged.damage(LOG_FILE):
            self.warn(damage)
        if len(merged.rows) < count:
            self.warn(f"{count - len(merged.rows)} of {count} rows of {LOG_FILE} are missing, also in the checkpoint.")
        self._size, self.count = len(data), len(merged.rows)
        if not self._rows:
            self._hold(merged.rows)

    def _hold(self, newest: list[LogRow]) -> None:
        self._rows.extend(row._replace(values={}) for row in newest)
        self._bytes += sum(len(row.line) for row in newest)
        while self._bytes > MAX_KEPT_BYTES:
            self._bytes -= len(self._rows.popleft().line)

    def flush(self) -> None:
        """Write the TensorBoard events that wait: a checkpoint follows, and a resumed run does not make them again.

        Raises:
            WriteError: the disk is full.
        """
        if self._events:
            self.guard()
            self._events.flush()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            self.flush()
        except InputError:
            if kind is None:  # otherwise the first exception is the one to report
                raise

    @staticmethod
    def read(folder: Path) -> list[dict[str, Any]]:
        """The rows of a run; see :func:`read_log`."""
        return read_log(folder)


def read_log(folder: Path, warn: Warn = notices.warn) -> list[dict[str, Any]]:
    """The rows of the run in ``folder``, by ascending step; empty if there is no log yet.

    Damaged lines are left out, and missing rows are taken from the newest checkpoint; ``warn`` is called with one
    sentence about that. A last line without a line break is still being written, and ignored.
    """
    folder = Path(folder)
    kept = newest_file(folder / "checkpoints", LOG_FILE) or b""  # read before the log, which is never behind it
    found = merge(read_rows(folder / LOG_FILE), unpack(kept))
    if damage := found.damage(f"{LOG_FILE} of {folder.resolve().name!r}"):
        warn(damage)
    return [row.values for row in found.rows]


def or_none(values: np.ndarray) -> list[float | None]:
    """The values as a row has them: None where one is not finite."""
    return [float(x) if math.isfinite(x) else None for x in values]
