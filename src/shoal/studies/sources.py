"""The user's modules that runs of a study use, and whether their files have changed since a run was recorded."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal import algorithms
from shoal.options.flags import flags_of
from shoal.security import user_modules
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.trust import permission


class Changed(NamedTuple):
    """A module whose file has changed since runs were recorded."""

    module: str
    runs: tuple[str, ...]
    """The names of their cells, at least one."""

    @property
    def sentence(self) -> str:
        """The module, and how many records are of its former version."""
        count = "1 run was recorded" if len(self.runs) == 1 else f"{len(self.runs)} runs were recorded"
        return f"The module {self.module!r} has changed since {count}."


def digests(cell: Cell, *, imported: bool = False) -> dict[str, str]:
    """A digest of the file of each of the user's modules that defines a run's algorithm, networks, environment or
    opponents; modules without a file are omitted. Files that such a module imports are not included.

    Args:
        cell: the run.
        imported: return the digests that the files had when this process imported them.
    """
    found = cell.merged()
    environment = permission.own_module(cell.environment)
    modules = [
        *algorithms.own(algorithms.canonical(cell.algorithm)),
        *user_modules.named_in(flags_of(found.config), flags_of(found.settings)),
        *([environment] if environment else []),
    ]
    return user_modules.digests(modules, imported=imported)


def changed(cells: Sequence[Cell], records: Mapping[str, Record]) -> tuple[Changed, ...]:
    """The modules that have changed since runs were recorded; records without digests, of earlier formats, are not
    compared.

    Args:
        cells: the runs.
        records: their records by the cells' names; runs without one are ignored.
    """
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell.name in records and (before := records[cell.name].sources):
            for module, digest in digests(cell).items():
                if before.get(module, digest) != digest:
                    found.setdefault(module, []).append(cell.name)
    return tuple(Changed(module, tuple(names)) for module, names in found.items())
