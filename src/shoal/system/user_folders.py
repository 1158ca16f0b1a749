"""The user's folders of state and caches, by the XDG Base Directory Specification.

Relative paths in the environment are ignored, as the specification says: they would lead into the working directory,
which may hold somebody else's files.
"""

import os
from pathlib import Path


def state() -> Path:
    """``$XDG_STATE_HOME``, or ``~/.local/state``.

    Raises:
        OSError: there is no home folder.
    """
    return _given("XDG_STATE_HOME") or home() / ".local" / "state"


def cache() -> Path:
    """``$XDG_CACHE_HOME``, or ``~/.cache``.

    Raises:
        OSError: there is no home folder.
    """
    return _given("XDG_CACHE_HOME") or home() / ".cache"


def home() -> Path:
    """``$HOME`` if it is absolute, else the user's entry in the password database.

    Raises:
        OSError: neither is an absolute path.
    """
    found = _given("USERPROFILE" if os.name == "nt" else "HOME") or _of_the_system()
    if found is None:
        raise OSError("there is no home folder")
    return found


def _given(variable: str) -> Path | None:
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _of_the_system() -> Path | None:
    try:
        import pwd  # not on Windows

        path = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        return None
    return path if path.is_absolute() else None
