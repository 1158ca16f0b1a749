"""TensorBoard event files.

TensorBoard's own writers are not used, since they queue events in a thread, keep the file open, and put the machine's
name into the file name.
"""

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from shoal.system.files import append, writing

SECONDS_BETWEEN_FLUSHES = 10.0


class Events:
    """One event file in ``folder``, which is created if needed (its parent is not). The file is not kept open."""

    def __init__(self, folder: Path, purge: int | None):
        """Create the file.

        Args:
            folder: the run's ``tensorboard``.
            purge: hides events of earlier files at this step and later, which resuming has replaced.

        Raises:
            WriteError: it cannot be written.
        """
        from tensorboardX.proto import event_pb2, summary_pb2
        from tensorboardX.record_writer import masked_crc32c

        events, summaries = cast(Any, event_pb2), cast(Any, summary_pb2)  # protobuf makes these classes at run time

        self._event, self._summary, self._checksum = events.Event, summaries.Summary, masked_crc32c
        self._pending: list[bytes] = []
        with writing(folder.name):
            folder.mkdir(exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.6f}.shoal"
        self._add(file_version="brain.Event:2")
        if purge is not None:
            self._add(step=purge, session_log=events.SessionLog(status=events.SessionLog.START))
        self.flush()

    def write(self, row: dict[str, Any]) -> None:
        """Add a row's numbers; a list is written as ``name/seed0`` … and its mean as ``name``.

        Raises:
            WriteError: the disk is full.
        """
        values = [self._summary.Value(tag=name, simple_value=x) for name, x in scalars(row).items()]
        self._add(step=row["step"], summary=self._summary(value=values))
        if time.monotonic() - self._flushed > SECONDS_BETWEEN_FLUSHES:
            self.flush()

    def flush(self) -> None:
        """Write the pending events; events that cannot be written are dropped.

        Raises:
            WriteError: the disk is full.
        """
        self._flushed = time.monotonic()
        data, self._pending = b"".join(self._pending), []
        if data:
            append(self._path, data)

    def _add(self, **fields: Any) -> None:
        data = self._event(wall_time=time.time(), **fields).SerializeToString()
        head = struct.pack("<Q", len(data))
        sums = (struct.pack("<I", self._checksum(part)) for part in (head, data))
        self._pending += [head, next(sums), data, next(sums)]


def scalars(row: Mapping[str, Any]) -> dict[str, float | int]:
    """A row's numbers by name; of a list over seeds the mean of the known ones, and each as ``name/seed0`` …; without
    ``step``."""
    found: dict[str, float | int] = {}
    for name, value in row.items():
        numbers = [x for x in value if _is_number(x)] if isinstance(value, list) else []
        if numbers:
            found[name] = math.fsum(numbers) / len(numbers)
            found |= {f"{name}/seed{i}": x for i, x in enumerate(value) if _is_number(x)}
        elif isinstance(value, int | float) and name != "step":
            found[name] = value
    return found


def _is_number(value: Any) -> bool:
    """Whether TensorBoard can plot a value: not None, a list, text, or a string for NaN or infinity."""
    return isinstance(value, (int, float))
