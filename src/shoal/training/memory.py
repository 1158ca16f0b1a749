"""What a replay buffer takes and what there is: said, and refused, before anything is allocated."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.errors import InputError

SHARE = 0.8
"""Most of an accelerator's free memory that replay buffers may take: roll-outs and gradients need the rest."""

COPIES = 1
"""How often the computer's own memory holds the buffers once more while a checkpoint is written or read: leaf by leaf,
but the writer needs nearly twice the size of each, and the largest ones make up most of a buffer."""


def free(device: Any) -> int | None:
    """Bytes that are free where ``device`` keeps its arrays; None where nobody says."""
    if device.platform == "cpu":
        try:
            lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None


def check(per_device: int, devices: np.ndarray, moments: int, seeds: int) -> str:
    """One sentence on the memory that replay takes.

    Args:
        per_device: bytes on each device.
        devices: those that the run uses, an array of any shape; CPU devices share one memory.
        moments: capacity of one seed's buffer.
        seeds: how many buffers there are.

    Raises:
        InputError: it is more than :data:`SHARE` of what is free on an accelerator, or the computer's own memory
            cannot hold the buffers that lie there and :data:`COPIES` more of each, which a checkpoint needs.
    """
    shared, total = devices.flat[0].platform == "cpu", per_device * devices.size
    needed, there = total if shared else per_device, free(devices.flat[0])
    of = f"{seeds} seeds' replay buffers" if seeds > 1 else "The replay buffer"
    where = "" if shared or devices.size == 1 else " on each device"
    if not shared and there is not None and needed > SHARE * there:
        raise InputError(
            f"{of} of {moments:,} moments would take {_size(needed)}{where}, and {_size(there)} are free; lower "
            f"buffer_size or seeds."
        )
    host, saving = there if shared else free(jax.devices("cpu")[0]), total * (COPIES + shared)
    if host is not None and saving > host:
        raise InputError(
            f"{of} of {moments:,} moments would take {_size(needed)}{where}, and a checkpoint {_size(saving)} of the "
            f"computer's memory while it is written, of which {_size(host)} are free; lower buffer_size or seeds."
        )
    said = "" if there is None else f" of {_size(there)} free"
    return f"{of} of {moments:,} moments {'take' if seeds > 1 else 'takes'} {_size(needed)}{said}{where}."


def _size(count: int) -> str:
    """Bytes as a reader takes them in."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
