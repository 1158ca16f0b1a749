"""Limits that Linux sets to a group of processes, such as a container or a batch job: time on cores, and memory.

Version 2 of control groups has one tree of folders, version 1 one for each resource. The limits of all folders above
the process' own count too; what cannot be read is no limit.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

OWN = Path("/proc/self/cgroup")
"""Names the folders of this process, relative to :data:`ROOT`."""
ROOT = Path("/sys/fs/cgroup")


def core_quota() -> int | None:
    """Cores whose time this process and those beside it in its group may use, rounded up; None without a limit."""
    found = []
    for folder in _folders("cpu"):
        quota, period = (*_numbers(folder / "cpu.max"), None, None)[:2]
        if quota is None:
            quota, period = (_number(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        if quota and period and quota > 0 and period > 0:  # without a limit -1 in version 1
            found.append(math.ceil(quota / period))
    return min(found, default=None)


def free_memory() -> int | None:
    """Bytes that this process and those beside it in its group may still use; None without a limit."""
    found = []
    for folder in _folders("memory"):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if used is None:
            limit, used = (_number(folder / f"memory.{name}_in_bytes") for name in ("limit", "usage"))
        if limit is None or used is None:
            continue
        counts = {name: count for name, _, count in (line.rpartition(" ") for line in _lines(folder / "memory.stat"))}
        files = counts.get("total_inactive_file") or counts.get("inactive_file") or ""  # copies of files, which can go
        found.append(max(0, limit - used + (int(files) if files.isdecimal() else 0)))
    return min(found, default=None)


def _folders(resource: str) -> Iterator[Path]:
    """The folders with limits of a resource, from the process' own up to the root."""
    for line in _lines(OWN):
        names, _, path = line.partition(":")[2].partition(":")
        if names and resource not in names.split(","):  # version 2 has no names
            continue
        root = ROOT / resource if names else ROOT
        own = root / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _numbers(path: Path) -> list[int | None]:
    """The words of a file's first line as numbers; None for others, such as ``max``."""
    words = (_lines(path) or [""])[0].split()
    return [int(word) if re.fullmatch("-?[0-9]{1,30}", word) else None for word in words]


def _number(path: Path) -> int | None:
    return (*_numbers(path), None)[0]
