"""The machine and its user: cores that this process may use, and folders of state and caches. No JAX."""

import os
import re
from pathlib import Path

from shoal.system.control_groups import core_quota

# Cores.


CORES_VARIABLE = "SHOAL_CORES"
"""Environment variable: the largest number of cores to use, for a process that shares a machine with others."""


def cores() -> int:
    """Cores that this process may use: fewer than the machine's in a container, a batch job, or a task of a cluster."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = min(here, core_quota() or here)
    limit = os.environ.get(CORES_VARIABLE, "")
    return min(here, int(limit)) if re.fullmatch("0*[1-9][0-9]{0,8}", limit) else here


def cores_text(count: object) -> str:
    """A number of cores with its noun; a recorded one may be of any type."""
    return f"{count} {'core' if count == 1 else 'cores'}"


# The user's folders, by the XDG Base Directory Specification. Relative paths in the environment are ignored, as the
# specification says: they would lead into the working directory, which may hold somebody else's files.


def state_folder() -> Path:
    """``$XDG_STATE_HOME``, or ``~/.local/state``.

    Raises:
        OSError: there is no home folder.
    """
    return _given("XDG_STATE_HOME") or home_folder() / ".local" / "state"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME``, or ``~/.cache``.

    Raises:
        OSError: there is no home folder.
    """
    return _given("XDG_CACHE_HOME") or home_folder() / ".cache"


def home_folder() -> Path:
    """``$HOME`` if it is absolute, else the user's entry in the password database.

    Raises:
        OSError: neither is an absolute path.
    """
    found = _given("USERPROFILE" if os.name == "nt" else "HOME") or _home_of_user()
    if found is None:
        raise OSError("there is no home folder")
    return found


def _given(variable: str) -> Path | None:
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _home_of_user() -> Path | None:
    try:
        import pwd  # not on Windows

        path = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        return None
    return path if path.is_absolute() else None
