"""Digests of the files of the user's own modules, which tell whether one has changed since a run was made."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal import notices, own_modules

_told: set[tuple[str, str, str]] = set()
"""Folder, module and digest of the notices of this process."""


def digests(modules: Iterable[str], *, imported: bool = False) -> dict[str, str]:
    """A digest of each module's file; modules without a file are omitted, and the files that they import do not count.

    Args:
        modules: their names; none of them is imported.
        imported: give the digests that the files had when this process imported them.
    """
    each = {module: own_modules.source(module, imported=imported) for module in modules}
    return {module: digest for module, digest in each.items() if digest is not None}


def tell_of_changes(folder: Path, before: Any, modules: Iterable[str]) -> None:
    """Warn once of each module that has changed since a run was trained, since its parameters may not fit it.

    Compared is the file as this process has imported it, if it has, since that is what the process uses.

    Args:
        folder: the run's.
        before: the digests that its ``run.json`` holds; runs of earlier versions have none.
        modules: the modules that it uses.
    """
    if not isinstance(before, Mapping):
        return
    for module, digest in digests(modules, imported=True).items():
        key = (str(folder), module, digest)
        if before.get(module, digest) != digest and key not in _told:
            _told.add(key)
            notices.warn(
                f"The module {module!r} has changed since {folder} was trained; the run now uses the new version."
            )
