"""Check of symbolic links that lead out of a run folder, through which training would write and delete elsewhere."""

import os
from pathlib import Path

from shoal.errors import InputError


def check_inside(folder: Path) -> None:
    """Check that no symbolic link in a folder leads out of it.

    Raises:
        InputError: one does; the message names it.
    """
    root = folder.resolve()
    for here, folders, files in os.walk(root, followlinks=False):
        for path in (Path(here) / name for name in (*folders, *files)):
            if path.is_symlink() and not _target(path).is_relative_to(root):
                raise InputError(
                    f"{path} is a symbolic link that leads out of a run's folder that is not known to be of your own "
                    f"training; say --trust (trust=True in Python) to have it written through."
                )


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return Path(path.anchor)
