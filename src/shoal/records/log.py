"""One JSON line per row in ``metrics.jsonl``, and the same numbers as TensorBoard events in ``tensorboard/``.

Every row has ``step``: environment steps per seed. A value is a number, or a list with one number per seed. NaN and
infinities are written as strings (:mod:`shoal.records.files`). Each row is on the file when :meth:`Log.write` returns,
so that a killed run loses at most the row it was writing; TensorBoard may lag behind by ten seconds.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal import notices
from shoal.errors import InputError
from shoal.notices import Warn
from shoal.records import rows
from shoal.records.files import append, dumps, write_bytes
from shoal.records.rows import Row, Rows
from shoal.records.step_folders import newest_file
from shoal.records.tensorboard import Events

FILE = "metrics.jsonl"

KEPT = 2**25
"""Bytes of the newest rows that every checkpoint keeps. The 500 rows of a run by default have less than a million."""


class Log:
    """Appends rows to the log of the run in ``folder``, which must exist. Nothing is read or written before that.

    Args:
        folder: the run's folder.
        tensorboard: also write TensorBoard events; a list is written as ``name/seed0`` …, its mean as ``name``.
        warn: receives one sentence where the file turns out to be damaged while it is written to.
        guard: called before anything is written; raises where the folder is not the run's any more.
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
        self._rows: deque[Row] = deque()
        """The newest rows, :data:`KEPT` bytes at most."""
        self._bytes = 0
        """Of these."""
        self._size = 0
        """What the file has, if nobody else changed it."""
        self.count = 0
        """Rows so far, also those that are not in memory any more."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row of numbers and lists of numbers (numpy and JAX scalars and arrays will do).

        Raises:
            InputError: it has no whole number ``step``, or a value has no JSON form.
            WriteError: the disk is full.
        """
        text = dumps(row, "row")
        plain = json.loads(text)
        if type(plain.get("step")) is not int:
            raise InputError("Every row of the log needs a whole number 'step', the environment steps per seed.")
        self.mend()  # calls the guard
        line = f"{text}\n".encode()
        append(self.folder / FILE, line)
        self._size += len(line)
        self._hold([Row(plain["step"], line, plain)])
        self.count += 1
        if self._tensorboard:
            if self._events is None:
                self._events = Events(self.folder / "tensorboard", self._purge)
            self._events.write(plain)

    def kept(self) -> bytes:
        """The newest rows, for a checkpoint to keep."""
        return b"".join(row.line for row in self._rows)

    def mend(self) -> None:
        """Write the file anew where something else has changed its length, or it is gone.

        Raises:
            WriteError: the disk is full.
        """
        self.guard()
        path = self.folder / FILE
        if (path.stat().st_size if path.exists() else 0) != self._size:
            self._mend(rows.read(path), self.count)

    def resume(self, step: int, kept: bytes = b"", count: int = 0) -> None:
        """Go on after ``step``: drop every row beyond it, and mend the others from what its checkpoint kept of them.

        TensorBoard is told to hide what came later as well.

        Args:
            step: the checkpoint's.
            kept: what :meth:`kept` gave then.
            count: what :attr:`count` was then; 0 where nothing is known of it.

        Raises:
            WriteError: the disk is full.
        """
        self.guard()
        self._events, self._purge = None, step + 1
        self._rows, self._bytes = deque(), 0
        self._hold(rows.unpack(kept))
        found = rows.read(self.folder / FILE)
        self._mend(found._replace(rows=[row for row in found.rows if row.step <= step]), count)

    def _mend(self, found: Rows, count: int) -> None:
        path, merged = self.folder / FILE, rows.merge(found, self._rows)
        data = b"".join(row.line for row in merged.rows)
        if path.is_symlink() or not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write_bytes(path, data)
        if damage := merged.damage(FILE):
            self.warn(damage)
        if len(merged.rows) < count:
            self.warn(f"{count - len(merged.rows)} of {count} rows of {FILE} are lost, and no checkpoint has them.")
        self._size, self.count = len(data), len(merged.rows)
        if not self._rows:
            self._hold(merged.rows)

    def _hold(self, newest: list[Row]) -> None:
        self._rows.extend(row._replace(values={}) for row in newest)
        self._bytes += sum(len(row.line) for row in newest)
        while self._bytes > KEPT:
            self._bytes -= len(self._rows.popleft().line)

    def close(self) -> None:
        """Write what TensorBoard has not got yet; a later :meth:`write` goes on.

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
            if kind is None:  # else the exception under way says what happened first
                raise

    @staticmethod
    def read(folder: Path) -> list[dict[str, Any]]:
        """The rows of a run; see :func:`read`."""
        return read(folder)


def read(folder: Path, warn: Warn = notices.warn) -> list[dict[str, Any]]:
    """The rows of the run in ``folder``, by ascending step; none if there is no log yet.

    Damaged lines are left out, and rows that the newest checkpoint keeps are taken from there where the file lacks
    them; ``warn`` receives one sentence about that. A last line without its line break is still being written.
    """
    folder = Path(folder)
    kept = newest_file(folder / "checkpoints", FILE) or b""  # before the log, which is never behind it
    found = rows.merge(rows.read(folder / FILE), rows.unpack(kept))
    if damage := found.damage(f"{FILE} of {folder.resolve().name!r}"):
        warn(damage)
    return [row.values for row in found.rows]
