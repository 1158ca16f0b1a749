"""One JSON line per row in ``metrics.jsonl``, and the same numbers as TensorBoard events in ``tensorboard/``.

Every row has ``step``, the environment steps per seed. A value is a number, or a list with one number per seed. NaN and
infinities are written as strings (:mod:`shoal.records.files`). :meth:`Log.write` does not buffer, so that a killed run
loses at most one row; TensorBoard events may lag behind by ten seconds.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal import notices
from shoal.errors import InputError
from shoal.notices import Warn
from shoal.records import log_rows
from shoal.records.files import append, dumps, write_bytes
from shoal.records.log_rows import LogRow, LogRows
from shoal.records.step_folders import newest_file
from shoal.records.tensorboard import Events

FILE = "metrics.jsonl"

KEPT = 2**25
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
        """The newest rows, at most :data:`KEPT` bytes."""
        self._bytes = 0
        """Bytes of ``_rows``."""
        self._size = 0
        """Expected size of the file in bytes."""
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
        append(self.folder / FILE, line)
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

        Raises:
            WriteError: the disk is full.
        """
        self.guard()
        path = self.folder / FILE
        if (path.stat().st_size if path.exists() else 0) != self._size:
            self._repair(log_rows.read(path), self.count)

    def resume(self, step: int, kept: bytes = b"", count: int = 0) -> None:
        """Continue after ``step``: drop later rows, also in TensorBoard, and repair the others from the checkpoint.

        Args:
            step: the checkpoint's.
            kept: the value of :meth:`kept` in the checkpoint.
            count: the value of :attr:`count` in the checkpoint; 0 if unknown.

        Raises:
            WriteError: the disk is full.
        """
        self.guard()
        self._events, self._purge = None, step + 1
        self._rows, self._bytes = deque(), 0
        self._hold(log_rows.unpack(kept))
        found = log_rows.read(self.folder / FILE)
        self._repair(found._replace(rows=[row for row in found.rows if row.step <= step]), count)

    def _repair(self, found: LogRows, count: int) -> None:
        path, merged = self.folder / FILE, log_rows.merge(found, self._rows)
        data = b"".join(row.line for row in merged.rows)
        if path.is_symlink() or not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write_bytes(path, data)
        if damage := merged.damage(FILE):
            self.warn(damage)
        if len(merged.rows) < count:
            self.warn(f"{count - len(merged.rows)} of {count} rows of {FILE} are missing, also in the checkpoint.")
        self._size, self.count = len(data), len(merged.rows)
        if not self._rows:
            self._hold(merged.rows)

    def _hold(self, newest: list[LogRow]) -> None:
        self._rows.extend(row._replace(values={}) for row in newest)
        self._bytes += sum(len(row.line) for row in newest)
        while self._bytes > KEPT:
            self._bytes -= len(self._rows.popleft().line)

    def close(self) -> None:
        """Flush the TensorBoard events; a later :meth:`write` is allowed.

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
            self.close()
        except InputError:
            if kind is None:  # otherwise the first exception is the one to report
                raise

    @staticmethod
    def read(folder: Path) -> list[dict[str, Any]]:
        """The rows of a run; see :func:`read`."""
        return read(folder)


def read(folder: Path, warn: Warn = notices.warn) -> list[dict[str, Any]]:
    """The rows of the run in ``folder``, by ascending step; empty if there is no log yet.

    Damaged lines are left out, and missing rows are taken from the newest checkpoint; ``warn`` is called with one
    sentence about that. A last line without a line break is still being written, and ignored.
    """
    folder = Path(folder)
    kept = newest_file(folder / "checkpoints", FILE) or b""  # read before the log, which is never behind it
    found = log_rows.merge(log_rows.read(folder / FILE), log_rows.unpack(kept))
    if damage := found.damage(f"{FILE} of {folder.resolve().name!r}"):
        warn(damage)
    return [row.values for row in found.rows]
