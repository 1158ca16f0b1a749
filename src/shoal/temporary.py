"""Temporary files beside the files that they replace. A folder may come from somebody else and hold any names."""

import os
import secrets
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def create_beside(path: Path) -> Path:
    """Create an empty file of a random name in the folder of ``path``, with its suffix; returns its path.

    A fixed name could already be that of a pipe, which blocks whoever opens it, or of a link to another file.

    Raises:
        OSError: it cannot be created.
    """
    found = path.with_name(f".{secrets.token_hex(8)}.tmp{path.suffix}")
    os.close(os.open(found, _FLAGS, 0o666))
    return found
