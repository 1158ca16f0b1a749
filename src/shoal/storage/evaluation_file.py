"""``evaluation.json``: the final evaluation of a run, read without JAX; its contents are not checked."""

from pathlib import Path
from typing import Any

from shoal.security import reading
from shoal.statistics.scores import MAX_FLOAT32
from shoal.system.files import from_json

FILE = "evaluation.json"
MOST = 16 * reading.MIB
"""Largest size in bytes."""


def read(folder: Path) -> dict[str, Any] | None:
    """The contents; None if there is no such file or it is damaged."""
    try:
        found = from_json(reading.parse(reading.read_bytes(folder / FILE, MOST), MAX_FLOAT32))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
