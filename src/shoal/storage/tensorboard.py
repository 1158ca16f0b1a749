"""TensorBoard event files.

The writers of other packages are not used, since they queue events in a thread, keep the file open, and put the
machine's name into the file name. A file holds records (TFRecord), each a message ``Event`` of TensorFlow's
``event.proto`` in the encoding of Protocol Buffers. Of its fields these are written: wall_time = 1, step = 2,
file_version = 3, summary = 5 with value = 1 (tag = 1, simple_value = 2), and session_log = 7 with status = 1.
"""

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.system.files import append, writing

SECONDS_BETWEEN_FLUSHES = 10.0
START = 1
"""Of a session log's status: TensorBoard hides earlier events at this step and later."""


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
        self._pending: list[bytes] = []
        with writing(folder.name):
            folder.mkdir(exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.6f}.shoal"
        self._add(_text(3, b"brain.Event:2"))
        if purge is not None:
            self._add(_whole(2, purge) + _text(7, _whole(1, START)))
        self.flush()

    def write(self, row: dict[str, Any]) -> None:
        """Add a row's numbers; a list is written as ``name/seed0`` … and its mean as ``name``.

        Raises:
            WriteError: the disk is full.
        """
        values = (_text(1, _text(1, name.encode()) + _single(2, x)) for name, x in scalars(row).items())
        self._add(_whole(2, row["step"]) + _text(5, b"".join(values)))
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

    def _add(self, fields: bytes) -> None:
        data = b"\x09" + struct.pack("<d", time.time()) + fields
        head = struct.pack("<Q", len(data))
        self._pending += [head, _checksum(head), data, _checksum(data)]


# Protocol Buffers: a field is its number and the kind of its value, then the value.


def _whole(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value)


def _single(number: int, value: float | int) -> bytes:
    try:
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    except OverflowError:
        return bytes([number << 3 | 5]) + struct.pack("<f", math.copysign(math.inf, value))


def _text(number: int, value: bytes) -> bytes:
    """A text or a message inside a message."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
        table.append(value)
    return tuple(table)


_CRC = _table()
"""Of CRC-32C (Castagnoli), RFC 3720."""


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord does."""
    crc = 2**32 - 1
    for byte in data:
        crc = crc >> 8 ^ _CRC[crc & 255 ^ byte]
    crc ^= 2**32 - 1
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 2**32 - 1)


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
