"""Which folder a run is kept in: its name, and what must not stand there when it begins."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from shoal.errors import FolderTakenError, InputError
from shoal.records import log, manifest

T = TypeVar("T")


def path_of(folder: str | Path) -> Path:
    """The path of a run's folder, which an empty name is not: it would be the working directory.

    Raises:
        InputError: the name is empty.
    """
    if not str(folder):
        raise InputError("The name of the run's folder is empty.")
    return Path(folder)


def check_free(folder: Path) -> None:
    """Refuse to begin a run where there is one, or what is left of one: its checkpoints would be removed.

    Raises:
        FolderTakenError: the folder holds a run, or a part of one.
    """
    if (folder / manifest.FILE).exists():
        raise FolderTakenError(f"{folder} already holds a run; resume that one, or choose another folder.")
    for name in ("checkpoints", "policy", log.FILE):
        if (folder / name).exists():
            raise FolderTakenError(
                f"{folder} holds {name} of a run, but no {manifest.FILE} to resume it by; choose another folder."
            )


def in_new_folder(algorithm: str, environment: str, start: Callable[[Path], T]) -> T:
    """What ``start`` gives for a new folder. Of runs that begin in the same second each gets one of its own."""
    while True:
        try:
            return start(new_folder(algorithm, environment))
        except FolderTakenError:
            continue


def new_folder(algorithm: str, environment: str) -> Path:
    """A folder under ``runs/`` that does not exist yet; it is not made."""
    stem = f"{algorithm}-{environment.replace('/', '-').replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, i = Path("runs") / stem, 2
    while folder.exists():
        folder, i = Path("runs") / f"{stem}-{i}", i + 1
    return folder
