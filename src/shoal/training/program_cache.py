"""Compiled programs on disk, so that a repeated command starts without compilation."""

import contextlib
import hashlib
import os
import platform
import stat
import warnings
from pathlib import Path

import filelock
import jax
from jaxlib import version

from shoal.system import machine, notices

VARIABLE = "SHOAL_CACHE"
"""Environment variable: the folder of compiled programs, or ``off``."""

MAX_CACHE_BYTES = 2**31
"""Bytes on disk; beyond that the least recently used programs are deleted."""

QUICK = 0.2
"""Programs that compile in fewer seconds are not stored."""

_ENTRY, _COMPLETE = "-cache", "-atime"
"""Endings of the names of a program's file and of the file that JAX writes after it."""


def use() -> None:
    """Store what this process compiles, and load what an earlier process stored.

    Has no effect if ``SHOAL_CACHE=off``, if JAX has a cache already (``JAX_COMPILATION_CACHE_DIR``), or if the folder
    cannot be used. A folder that others can write is not used, which a warning says, since entries are machine code.
    Several processes may share the folder: JAX locks it. An entry that JAX cannot load is compiled
    again, without a message.
    """
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
    jax.config.update("jax_compilation_cache_dir", str(here))
    jax.config.update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", QUICK)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")


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
