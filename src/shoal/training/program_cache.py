"""Compiled programs on disk, so that a repeated command starts without compilation.

JAX stores each program by its code, which it must trace for that. The programs of training are stored a second time, by
what determines their code (:func:`key_of`), and a repeated command does not trace them either. A program that JAX has
loaded from its own store cannot be stored again (jaxlib 0.10 then loses functions of it), so it stays there alone.
"""

import contextlib
import hashlib
import os
import pickle
import platform
import stat
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import filelock
import jax
from jax.experimental import serialize_executable
from jaxlib import version

from shoal.system import machine, notices
from shoal.system.files import dumps
from shoal.training.stopping import begin

VARIABLE = "SHOAL_CACHE"
"""Environment variable: the folder of compiled programs, or ``off``."""

MAX_CACHE_BYTES = 2**31
"""Bytes on disk; beyond that the least recently used programs are deleted."""

QUICK = 0.2
"""Programs that compile in fewer seconds are not stored."""

_ENTRY, _COMPLETE = "-cache", "-atime"
"""Endings of the names of a program's file and of the file that JAX writes after it."""

_folder: Path | None = None
"""Where programs are stored by :func:`compiled`; None if they are not."""
_loads = 0
"""How many programs JAX has loaded."""


def use() -> None:
    """Store what this process compiles, and load what an earlier process stored.

    Has no effect if ``SHOAL_CACHE=off``, if JAX has a cache already (``JAX_COMPILATION_CACHE_DIR``), or if the folder
    cannot be used. A folder that others can write is not used, which a warning says, since entries are machine code.
    Several processes may share the folder: JAX locks it. An entry that JAX cannot load is compiled
    again, without a message.
    """
    global _folder
    known = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if known or os.environ.get(VARIABLE) == "off":
        return
    try:
        here = folder()
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := _of_others(here):
            notices.warn(
                f"Compiled programs are not stored in {here}, since {why}; choose another folder by {VARIABLE}."
            )
            return
        if not os.access(here, os.W_OK):
            return
        _drop_incomplete(here)
    except OSError:
        return
    if _folder is None:
        jax.monitoring.register_event_listener(_count)
    _folder = here
    jax.config.update("jax_compilation_cache_dir", str(here))
    jax.config.update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", QUICK)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


def _count(event: str, **_: Any) -> None:
    global _loads
    _loads += event == "/jax/compilation_cache/cache_hits"


def folder() -> Path:
    """``$SHOAL_CACHE``, ``$XDG_CACHE_HOME/shoal`` or ``~/.cache/shoal``, with a folder for each jaxlib and processor.

    A relative ``$SHOAL_CACHE`` is ignored, as those of :mod:`shoal.system.machine` are.

    Raises:
        OSError: there is no home folder.
    """
    named = Path(os.environ.get(VARIABLE, ""))
    if named.parts[:1] == ("~",):
        named = machine.home_folder().joinpath(*named.parts[1:])
    base = named if named.is_absolute() else machine.cache_folder() / "shoal"
    return base / f"{version.__version__}-{_processor()}"


def _of_others(here: Path) -> str:
    """Who else can write a folder, as text; empty if nobody can."""
    status = here.stat()
    if not hasattr(os, "getuid"):
        return ""
    if status.st_uid != os.getuid():
        return "it belongs to another user"
    return "other users can write it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def _processor() -> str:
    """A digest of the instructions that programs are compiled for: home folders are shared between machines."""
    known = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        known += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def _drop_incomplete(here: Path) -> None:
    """Delete the entries of processes that were killed while they wrote."""
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(here / ".lockfile", timeout=0):
        for path in here.glob(f"*{_ENTRY}"):
            if not path.with_name(path.name.removesuffix(_ENTRY) + _COMPLETE).exists():
                path.unlink(missing_ok=True)


# Programs by what determines their code.


def key_of(*what: Any) -> str:
    """A key of the programs that ``what``, of JSON values, the sources of Shoal, the versions of the packages that they
    use and the settings of JAX determine; empty if programs are not stored."""
    if _folder is None:
        return ""
    read = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        read.update(path.read_bytes())
    versions = [platform.python_version(), *map(metadata.version, ("jax", "jaxlib", "flax", "optax", "numpy"))]
    of_jax = sorted((name, repr(value)) for name, value in jax.config.values.items())
    flags = sorted(item for item in os.environ.items() if item[0].startswith(("XLA_", "JAX_")))
    devices = [device.device_kind for device in jax.devices()]
    read.update(dumps([what, versions, of_jax, flags, devices], "the key of a program").encode())
    return read.hexdigest()


def compiled(key: str, devices: Sequence[Any], lower: Callable[[], Any]) -> Callable[[], Any]:
    """Begin to load a program, or to compile it and store it; returns a function that waits for it.

    Args:
        key: the program's; nothing is loaded or stored if it is empty.
        devices: those that run it.
        lower: traces it, in the calling thread.
    """

    def anew() -> Callable[[], Any]:
        lowered = lower()
        return begin(lambda: _compiled(key, lowered))

    path = _path(key)
    if path is None or not path.exists():
        return anew()
    loaded = begin(lambda: stored(key, devices))
    return lambda: loaded() or anew()()


def stored(key: str, devices: Sequence[Any]) -> Any:
    """The stored program of a key; None if there is none. One that cannot be loaded is deleted."""
    if (data := kept(key)) is None:
        return None
    try:
        return serialize_executable.deserialize_and_load(*pickle.loads(data), execution_devices=devices)
    except Exception:  # whatever damaged bytes cause
        with contextlib.suppress(OSError):
            _path(key).unlink()  # type: ignore[union-attr]
        return None


def _compiled(key: str, lowered: Any) -> Any:
    """The compiled program, which is stored if that is possible."""
    before = _loads
    program = lowered.compile()
    if key and _loads == before:
        with contextlib.suppress(Exception):  # without it the next command is slower, and otherwise the same
            keep(key, pickle.dumps(serialize_executable.serialize(program)))
    return program


def kept(key: str) -> bytes | None:
    """What :func:`keep` stored; None if there is nothing."""
    path = _path(key)
    try:
        data = path.read_bytes() if path else None
    except OSError:
        return None
    if path and data is not None:
        _mark_used(path)
    return data


def keep(key: str, data: bytes) -> None:
    """Store ``data``, as far as programs are stored and the folder can be written."""
    if path := _path(key):
        lock = filelock.FileLock(path.with_name(".lockfile"), timeout=10)
        with contextlib.suppress(OSError, filelock.Timeout), lock:
            path.write_bytes(data)
            _mark_used(path)


def _path(key: str) -> Path | None:
    return _folder / f"shoal-{key}{_ENTRY}" if key and _folder else None


def _mark_used(path: Path) -> None:
    """Write when an entry was used last, as JAX does, which deletes the oldest."""
    with contextlib.suppress(OSError):
        path.with_name(path.name.removesuffix(_ENTRY) + _COMPLETE).write_bytes(time.time_ns().to_bytes(8, "little"))
