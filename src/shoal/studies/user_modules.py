"""The user's modules that a study uses: whether they may be imported, and whether they have changed since."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from shoal import algorithms
from shoal.environments import names
from shoal.options.flags import flags_of
from shoal.security import user_modules
from shoal.studies.combinations import Combination, combinations
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile
from shoal.system.shipped import page
from shoal.trust import permission
from shoal.trust.run_file import TRUST

# Changes since runs were recorded.


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


def module_digests(cell: Cell, *, imported: bool = False) -> dict[str, str]:
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


def changed_modules(cells: Sequence[Cell], records: Mapping[str, Record]) -> tuple[Changed, ...]:
    """The modules that have changed since runs were recorded; records without digests are not
    compared.

    Args:
        cells: the runs.
        records: their records by the cells' names; runs without one are ignored.
    """
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell.name in records and (before := records[cell.name].sources):
            for module, digest in module_digests(cell).items():
                if before.get(module, digest) != digest:
                    found.setdefault(module, []).append(cell.name)
    return tuple(Changed(module, tuple(names)) for module, names in found.items())


# Permission to import what a study file names, where the file is only read: it may be another person's. Running a study
# is a command to execute what it names. Writing its results, its report or its plan is not.


_permitted: set[Path] = set()
"""The files of the studies that this process was told to run."""


def permit_imports(study: StudyFile) -> None:
    """Note that this process was told to run a study, so that its results need no further permission."""
    _permitted.add(study.path.resolve())


def check_imports(study: StudyFile, trust: bool, *, builds: bool = False) -> None:
    """Check that reading a study imports no module of the user's own, unless that is permitted or done already.

    Args:
        study: the study.
        trust: whether the user trusts the file.
        builds: its environments and nets are built as well, as for a dry run.

    Raises:
        InputError: it would; the message names the module.
    """
    if trust or study.path.resolve() in _permitted:
        return
    found = chain.from_iterable(_imports_of(one, builds) for one in combinations(study))
    if what := next(chain(found, _imports_of_ranges(study) if builds else ()), None):
        raise study.error(f"reading this study would {what}: {TRUST} ({page('docs/security.md')}).")


def _imports_of(one: Combination, builds: bool) -> Iterator[str]:
    """What a combination would import or call, as the end of "it would …"."""
    algorithm, environment = one.values["algorithm"], one.values["environment"]
    modules = algorithms.own(algorithms.canonical(algorithm)) if ":" in algorithms.canonical(algorithm) else []
    of_family = names.built_in(environment) or environment.startswith(tuple(names.FAMILIES))
    named = [] if of_family or ":" not in environment else [environment.partition(":")[0]]
    yield from _imports([*modules, *named, *(user_modules.named_in(one.flags) if builds else ())])
    if builds and named and not permission.makes_environments(environment):
        yield f"call {environment!r}, which is not declared to return an environment"
    if builds and of_family:
        options = {flag.removeprefix("env."): x for flag, x in one.flags.items() if flag.startswith("env.")}
        if beyond := permission.beyond(environment, options):
            yield f"build {environment!r}, which would {beyond}"


def _imports_of_ranges(study: StudyFile) -> Iterator[str]:
    """What the values would import that a search tries, as the end of "it would …"."""
    for table in study.tuning.ranges if study.tuning else ():
        for flag, span in table.ranges.items():
            yield from _imports(user_modules.named_in(*({flag: value} for value in span.values)))


def _imports(modules: Sequence[str]) -> Iterator[str]:
    """The imports of those modules that this process has not imported as the user's own."""
    for module in modules:
        if not user_modules.standard(user_modules.top(module)) and not user_modules.is_imported(module):
            yield f"import the module {module!r}"
