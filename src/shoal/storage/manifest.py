"""``run.json``: a run's configuration, versions and hardware, and its comparison with a checkpoint's configuration.

It contains no names of users or machines. A file beside it has the speed of the machine, with which times on different
machines are compared.
"""

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from shoal.errors import CheckpointError, InputError, shortened
from shoal.security import reading
from shoal.system import shipped
from shoal.system.extras import requirements
from shoal.system.files import dumps, from_json, to_json, write_text
from shoal.system.machine import cores, cores_text

RUN_JSON = "run.json"
RUN_FORMAT = 9
"""Format number that :func:`write_run_json` writes, and the only one that is read. Files of format 1 lack it."""
MAX_RUN_JSON_BYTES = 16 * reading.MIB
"""Largest size in bytes of a ``run.json``."""
_KEYS = ("format", "config", "made_with")
MACHINE = ("versions", "commit", "platform", "hardware")
"""The entries of :func:`describe_machine`."""
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def describe_machine(environment: str = "") -> dict[str, Any]:
    """Versions, hardware and platform of this process, and the commit if Shoal runs from a checkout.

    Initialises JAX's devices.

    Args:
        environment: its name. The versions include those of the libraries of its family, such as MuJoCo's.
    """
    import jax

    packages = [*_PACKAGES, *requirements(environment.replace(":", "/").partition("/")[0])]
    own = {"python": platform.python_version(), "shoal": _own_version()}
    devices = Counter((device.platform, device.device_kind) for device in jax.devices())
    return {
        "versions": own | {name: _version(name) for name in packages},
        "commit": _commit(),
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": {
            "processor": _processor(),
            "cores": cores(),
            "memory_gib": _memory(),
            "devices": [{"platform": p, "kind": kind, "count": n} for (p, kind), n in devices.items()],
        },
    }


def write_run_json(
    folder: Path,
    config: dict[str, Any],
    own_modules: Mapping[str, str] | None = None,
    behaviour: Mapping[str, int] | None = None,
    made_with: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Write ``run.json`` atomically, with ``config`` (which may hold dataclasses) and :func:`describe_machine`.

    Args:
        folder: the run's.
        config: the run's configuration.
        own_modules: digests of the user's own modules that the run uses, by their names.
        behaviour: versions of what its algorithm and its environment compute (:mod:`shoal.runs.behaviour`).
        made_with: the whole entry, in place of this machine's and of the two before, where nothing is trained here.
        before: the entry of a run that is resumed. Machines, versions and commits of before that differ from those of
            now are kept under ``earlier``, the oldest first.

    Raises:
        InputError: a value of ``config`` has no JSON form; the message names it.
        WriteError: the disk is full, or the folder does not exist.
    """
    made = dict(made_with or describe_machine(str(config.get("environment", ""))))
    if own_modules:
        made["own_modules"] = dict(own_modules)
    if behaviour is not None:
        made["behaviour"] = dict(behaviour)
    if before is not None:
        was = [*earlier_machines(before), {name: before.get(name) for name in MACHINE}]
        now = to_json({name: made.get(name) for name in MACHINE}, "run")
        if earlier := [one for i, one in enumerate(was) if one != now and one not in was[:i]]:
            made["earlier"] = earlier
    entries = {"format": RUN_FORMAT, "config": config, "made_with": made}
    write_text(Path(folder) / RUN_JSON, dumps(entries, "run", indent=2) + "\n")


def earlier_machines(made_with: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The machines, versions and commits with which a run was trained before it was resumed with others."""
    found = made_with.get("earlier")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def read_run_json(folder: Path) -> dict[str, Any]:
    """The contents of ``run.json``: ``format``, and the objects ``config`` and ``made_with``. Tuples become lists.

    Raises:
        InputError: ``folder`` is a file, there is no readable ``run.json``, its format is another, or its keys differ
            from these.
    """
    where, folder = f"{RUN_JSON} in {str(folder)!r}", Path(folder)
    if os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        own = f": give the folder, {str(folder.parent)!r}" if folder.name == RUN_JSON else ""
        raise InputError(f"{str(folder)!r} is a file, not the folder of a run{own}.")
    try:
        found = from_json(reading.parse_json(reading.read_bytes(folder / RUN_JSON, MAX_RUN_JSON_BYTES)))
    except FileNotFoundError:
        raise InputError(f"There is no {RUN_JSON} in {str(folder)!r}, so it is not the folder of a run.") from None
    except (reading.ReadingError, ValueError) as error:
        raise InputError(f"{where} {error}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{where} is not a JSON object.")
    version = found.get("format", 1)
    if type(version) is not int or version < 1:
        raise InputError(f"{where} has an unknown format: {shortened(version)}.")
    if version > RUN_FORMAT:
        raise InputError(f"{where} has format {version}, of a newer version of Shoal; this one reads {RUN_FORMAT}.")
    if version < RUN_FORMAT:
        raise InputError(f"{where} has format {version}, of a version of Shoal before 0.2.0; train the run again.")
    for key in found:
        if key not in _KEYS:
            raise InputError(f"{where} has the unknown key {shortened(key)}; known: {', '.join(_KEYS)}.")
    for key in ("config", "made_with"):
        if not isinstance(found.get(key), dict):
            raise InputError(f"{where} contains no {'configuration' if key == 'config' else repr(key)}.")
    return {"format": version} | found


def hardware(folder: Path) -> str:
    """The run's hardware as one line for the summary; empty if ``run.json`` does not hold it.

    Raises:
        InputError: see :func:`read_run_json`.
    """
    found = read_run_json(folder)["made_with"].get("hardware")
    found = found if isinstance(found, dict) else {}
    devices = found.get("devices")
    names = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    text = f"{found.get('processor')}, {cores_text(found.get('cores'))}; devices: "
    text += ", ".join(f"{device.get('count')} × {device.get('kind')}" for device in names)
    return "".join(x for x in text if x.isprintable())[:200] if found else ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _own_version() -> str:
    """Shoal's version. Its root is not imported here, since its names come from layers above."""
    return sys.modules["shoal"].__version__


def _commit() -> str | None:
    """The commit, with ``+`` if the package was changed; None if this file is not in Shoal's own repository."""
    root = shipped.checkout()
    if root is None or not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "--", "src", "pyproject.toml"],
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


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def identity(config: Mapping[str, Any], but: Collection[str]) -> dict[str, Any]:
    """The configuration that a checkpoint records, as JSON.

    Args:
        config: the entry ``config`` of ``run.json``.
        but: names of settings that may change when the run is resumed.
    """
    # A newer version of an environment may have other metrics, or a more complete description.
    free = [
        "by_name",
        "spec.metrics",
        "spec.novel",
        "spec.interface",
        "spec.scored",
        "spec.rivals",
        "spec.turns",
        "spec.targets",
        *sorted(f"settings.{name}" for name in but),
    ]
    return {"format": RUN_FORMAT, "config": to_json(config, "run"), "free": free}


LATER = {
    "baseline_from": "return",
    "explore_in_evaluation": False,
    "limit_terminates": False,
    "noise_final": None,
    "noise_fraction": 1.0,
    "num_starts": None,
    "random_start": False,
    "sequence_start": "anywhere",
    "stored_state": False,
}
"""Settings, and options of algorithms, that this format has gained: what a run did that lacks them."""


def with_later(entries: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The entries, with those of :data:`LATER` that are known but missing; also those of a side (``side1_…``)."""
    names = {flag: re.sub(r"^side\d_", "", flag) for flag in known}
    later = {flag: LATER[name] for flag, name in names.items() if name in LATER}
    for flag, name in names.items():
        if name == "baseline_from" and entries.get(flag.removesuffix("_from")) in ("counterfactual", "optimal"):
            later[flag] = "q"  # without such a baseline the option has no effect
    return later | dict(entries)


def check_same(recorded: Any, here: Mapping[str, Any], step: int) -> None:
    """Compare a checkpoint's configuration with its run's, both made by :func:`identity`.

    Args:
        recorded: the checkpoint's configuration.
        here: the run's configuration.
        step: the checkpoint's.

    Raises:
        CheckpointError: they differ; the message names the first key that does.
    """
    config = recorded.get("config") if isinstance(recorded, dict) else None
    if not isinstance(config, dict) or recorded.get("format") != RUN_FORMAT:
        raise CheckpointError(f"The checkpoint of step {step} does not contain the run's configuration.")
    before, now = _flat(config), _flat(here["config"])
    for part in ("settings", "config"):
        known = [key.removeprefix(f"{part}.") for key in now if key.startswith(f"{part}.")]
        had = {key.removeprefix(f"{part}."): x for key, x in before.items() if key.startswith(f"{part}.")}
        before |= {f"{part}.{flag}": x for flag, x in with_later(had, known).items()}
    undescribed = set() if before.get("spec.parts") else {"spec.parts"}  # widths are compared
    if ":" in here["config"]["algorithm"]:  # the user's own, whose Config may have gained fields since
        undescribed |= {key for key in now.keys() - before.keys() if key.startswith("config.")}
    if before.get("settings.past_every") is None:  # an agent that goes on with the run sets what it was
        undescribed.add("settings.past_every")
    for key in before | now:
        if key in here["free"] or key in undescribed:
            continue
        old, new = (dumps(found[key]) if key in found else "missing" for found in (before, now))
        if old != new:
            raise CheckpointError(
                f"run.json has changed since the checkpoint of step {step} was saved: {key} is {new[:80]} and "
                f"was {old[:80]}."
            )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of nested objects by path, for example ``settings.seeds``."""
    if not isinstance(value, dict):
        return {prefix: value}
    found = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


# The speed of this machine as the rate of a matrix product.


MATRIX_SIZE = 2048
"""Rows and columns of the matrices."""
SPEED_FILE = "product_rate.json"
"""In a run's folder: the rate of the machine that the run was trained on."""


@cache
def product_rate() -> float:
    """FLOP/s of a 2048³ float32 product on one JAX device, median of nine; measured once per process."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (MATRIX_SIZE, MATRIX_SIZE), jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    jax.block_until_ready(product(a))
    times = []
    for _ in range(9):
        began = time.perf_counter()
        jax.block_until_ready(product(a))
        times.append(time.perf_counter() - began)
    return 2 * MATRIX_SIZE**3 / sorted(times)[4]


def rate_of(folder: Path, hardware: Any) -> float | None:
    """:func:`product_rate` of the machine of the run in ``folder``, in FLOP/s; None if this is another machine.

    The first call measures the rate and saves it in the folder, so that later calls return the same number; it is not
    saved if the folder cannot be written, or is one of the zoo.

    Args:
        folder: the run's.
        hardware: the machine in its ``run.json``.
    """
    if (known := _kept(folder, hardware)) is not None:
        return known
    if _machine(hardware) != _machine(describe_machine()["hardware"]):
        return None
    rate = float(f"{product_rate():.4g}")
    if not shipped.in_zoo(folder):
        with contextlib.suppress(InputError):
            path = reading.own_file(folder, SPEED_FILE)
            write_text(path, dumps({"hardware": hardware, "flops": rate}, "product rate", indent=1) + "\n")
    return rate


def _machine(hardware: Any) -> Any:
    """Hardware without the number of CPU devices, into which each process divides the cores; unchecked as it is."""
    if not isinstance(hardware, dict) or not isinstance(devices := hardware.get("devices"), list):
        return hardware
    cpus = ({"platform": "cpu"} if isinstance(x, dict) and x.get("platform") == "cpu" else x for x in devices)
    return hardware | {"devices": list(cpus)}


def _kept(folder: Path, hardware: Any) -> float | None:
    try:
        found = reading.parse_json(reading.read_bytes(folder / SPEED_FILE, reading.MIB))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("hardware") != hardware:
        return None
    rate = found.get("flops")
    return rate if isinstance(rate, float) and rate > 0 else None
