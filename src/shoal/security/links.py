"""Checks of symbolic links that lead out of a run folder, through which Shoal would write and delete elsewhere."""

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
                    f"{path} is a symbolic link that leads out of the run's folder, and nothing is written or deleted "
                    f"through it; put the file or folder itself in its place."
                )


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a run's folder, to be written.

    Raises:
        InputError: it is a symbolic link, since its target could be any file.
    """
    path = folder / name
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link, which is not overwritten; choose another file.")
    return path


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return Path(path.anchor)
