"""One JSON line per row in ``metrics.jsonl``, and the same numbers as TensorBoard events in ``tensorboard/``.

Every row has ``step``: environment steps per seed. A value is a number, or a list with one number per seed. NaN and
infinities are written as strings (:mod:`shoal.records.files`). Each row is flushed as it is written, so that a killed
run loses at most the line it was writing; TensorBoard may lag behind by ten seconds.
"""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from shoal.errors import InputError
from shoal.records.files import dumps, from_json, write_text

FILE = "metrics.jsonl"
_SECONDS_BETWEEN_FLUSHES = 10.0


class Log:
    """Appends rows to the log of the run in ``folder`` (made if needed); a half-written last line is dropped.

    Args:
        folder: the run's folder.
        tensorboard: also write TensorBoard events; a list is written as ``name/seed0`` …, its mean as ``name``.
    """

    def __init__(self, folder: Path, tensorboard: bool = True):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tensorboard = tensorboard
        self._events = None
        self._purge: int | None = None
        self._file = None
        _repair(self.folder / FILE)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row of numbers and lists of numbers (numpy and JAX scalars and arrays will do).

        Raises:
            InputError: it has no whole number ``step``, or a value has no JSON form.
        """
        text = dumps(row, "row")
        plain = json.loads(text)
        if type(plain.get("step")) is not int:
            raise InputError("Every row of the log needs a whole number 'step', the environment steps per seed.")
        if self._file is None:
            self._file = (self.folder / FILE).open("a", encoding="utf-8")
        self._file.write(text + "\n")
        self._file.flush()
        if self._tensorboard:
            if self._events is None:
                self._events = _Events(self.folder / "tensorboard", self._purge)
            self._events.write(plain)

    def truncate_after(self, step: int) -> None:
        """Drop every row beyond ``step``, before a run resumes from there; TensorBoard is told to hide them too."""
        self.close()
        rows = read(self.folder)
        if any(row["step"] > step for row in rows):
            write_text(self.folder / FILE, "".join(dumps(row) + "\n" for row in rows if row["step"] <= step))
        self._purge = step + 1

    def close(self) -> None:
        """Close the files; a later :meth:`write` opens them again."""
        if self._file:
            self._file.close()
        if self._events:
            self._events.close()
        self._file = self._events = None

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @staticmethod
    def read(folder: Path) -> list[dict[str, Any]]:
        """The rows of a run; see :func:`read`."""
        return read(folder)


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of the run in ``folder``, in the order written; none if there is no log yet.

    A last line without its line break is still being written, or never was finished, and is left out.

    Raises:
        InputError: another line is not a JSON object with a ``step``.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            row = from_json(json.loads(line))
            row["step"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"Line {number} of {FILE} is not a JSON object with a 'step'.") from None
        rows.append(row)
    return rows


def _repair(path: Path) -> None:
    """Cut a half-written last line off."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n") and data:
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


class _Events:
    """A TensorBoard event file, written in this thread: tensorboardX's own writer queues events in a second one.

    Its file name leaves out the machine's name, which the usual one carries.
    """

    def __init__(self, folder: Path, purge: int | None):
        from tensorboardX.proto import event_pb2, summary_pb2
        from tensorboardX.record_writer import RecordWriter

        events, summaries = cast(Any, event_pb2), cast(Any, summary_pb2)  # protobuf makes these classes at run time

        self._event, self._summary = events.Event, summaries.Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._records = RecordWriter(str(folder / f"events.out.tfevents.{time.time():.6f}.shoal"))
        self._add(file_version="brain.Event:2")
        if purge is not None:  # hides what an earlier, abandoned part of the run wrote at these steps
            self._add(step=purge, session_log=events.SessionLog(status=events.SessionLog.START))
        self._records.flush()
        self._flushed = time.monotonic()

    def write(self, row: dict[str, Any]) -> None:
        scalars = {}
        for name, value in row.items():
            numbers = [x for x in value if _is_number(x)] if isinstance(value, list) else []
            if numbers:
                scalars[name] = math.fsum(numbers) / len(numbers)
                scalars |= {f"{name}/seed{i}": x for i, x in enumerate(value) if _is_number(x)}
            elif _is_number(value) and name != "step":
                scalars[name] = value
        values = [self._summary.Value(tag=name, simple_value=x) for name, x in scalars.items()]
        self._add(step=row["step"], summary=self._summary(value=values))
        if time.monotonic() - self._flushed > _SECONDS_BETWEEN_FLUSHES:
            self._records.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._records.flush()
        self._records.close()

    def _add(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())


def _is_number(value: Any) -> bool:
    """False for None, lists, text, and the strings that stand for NaN and infinities: TensorBoard cannot plot them."""
    return isinstance(value, (int, float))
