"""``run.json``: the whole configuration of a run and what it ran on. Nothing in it names a person or a machine."""

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.records.files import dumps, from_json, write_text

FILE = "run.json"
_PACKAGES = ("shoal", "jax", "jaxlib", "flax", "optax", "numpy")


def describe() -> dict[str, Any]:
    """What this process runs on: versions, hardware, platform, and the commit where Shoal runs from a checkout.

    Starts JAX's devices if they have not been used yet.
    """
    import jax

    devices = Counter((device.platform, device.device_kind) for device in jax.local_devices())
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": {
            "processor": _processor(),
            "cores": _cores(),
            "memory_gib": _memory(),
            "devices": [{"platform": p, "kind": kind, "count": n} for (p, kind), n in devices.items()],
        },
    }


def write(folder: Path, config: dict[str, Any]) -> None:
    """Write ``run.json`` with ``config`` as it is given (it may hold dataclasses) and :func:`describe`; atomic.

    Raises:
        InputError: a value of ``config`` has no JSON form; the message names it.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder) / FILE, dumps({"config": config, "made_with": describe()}, "run", indent=2) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """What :func:`write` wrote: ``config`` and ``made_with``. Tuples come back as lists.

    Raises:
        InputError: there is no readable ``run.json``.
    """
    try:
        found = from_json(json.loads((Path(folder) / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"There is no {FILE} in {str(folder)!r}, so it is not the folder of a run.") from None
    except (ValueError, OSError):
        raise InputError(f"{FILE} in {str(folder)!r} cannot be read as JSON.") from None
    if not isinstance(found, dict) or "config" not in found:
        raise InputError(f"{FILE} in {str(folder)!r} holds no configuration.")
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit, with ``+`` where files were changed. None unless the repository around this file is Shoal's own."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    if not (root / ".git").exists() or root / "src" / "shoal" != package:
        return None
    try:
        git = ["git", "-C", str(root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _processor() -> str:
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int | None:
    """Cores that this process may use, which in a container or a batch job are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
