"""Processes that tests start, by way of others too: who there is, and whether they are gone. Reads Linux's /proc."""

import time
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """Processes that come from this one."""
    parent = {int(stat.parent.name): fields[1] for stat in Path("/proc").glob("[0-9]*/stat") if (fields := _said(stat))}
    found, size = {pid}, 0
    while size < len(found):
        size = len(found)
        found |= {child for child, of in parent.items() if int(of) in found}
    return found - {pid}


def left(pids: set[int], seconds: float = 10.0) -> set[int]:
    """Those that still run after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pids = {pid for pid in pids if (fields := _said(Path(f"/proc/{pid}/stat"))) and fields[0] != "Z"}
        if not pids:
            break
        time.sleep(0.05)
    return pids


def _said(stat: Path) -> list[str]:
    """State, parent and so on; nothing of a process that is gone."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
