"""Permission to import what a study file names, where the file is only read: it may be another person's.

Running a study is a command to execute what it names. Writing its results, its report or its plan is not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from shoal import algorithms
from shoal.environments import names
from shoal.security import user_modules
from shoal.studies.combinations import Combination, combinations
from shoal.studies.study_file import StudyFile
from shoal.trust import permission
from shoal.trust.run_file import TRUST

_run: set[Path] = set()
"""The files of the studies that this process was told to run."""


def runs(study: StudyFile) -> None:
    """Note that this process was told to run a study, so that its results need no further permission."""
    _run.add(study.path.resolve())


def check_imports(study: StudyFile, trust: bool, *, builds: bool = False) -> None:
    """Check that reading a study imports no module of the user's own, unless that is permitted or done already.

    Args:
        study: the study.
        trust: whether the user trusts the file.
        builds: its environments and nets are built as well, as for a dry run.

    Raises:
        InputError: it would; the message names the module.
    """
    if trust or study.path.resolve() in _run:
        return
    for one in combinations(study):
        if what := next(_imports(one, builds), None):
            raise study.error(f"reading this study would {what}: {TRUST} (docs/security.md).")


def _imports(one: Combination, builds: bool) -> Iterator[str]:
    """What a combination would import, as the end of "it would …"."""
    algorithm, environment = one.values["algorithm"], one.values["environment"]
    modules = algorithms.own(algorithms.canonical(algorithm)) if ":" in algorithms.canonical(algorithm) else []
    modules = [module for module in modules if not algorithms.known(module)]
    if not names.built_in(environment) and not environment.startswith(tuple(names.FAMILIES)) and ":" in environment:
        modules.append(environment.partition(":")[0])
    if builds:
        modules += user_modules.named_in(one.flags)
    for module in modules:
        if module not in sys.modules and not user_modules.standard(user_modules.top(module)):
            yield f"import the module {module!r}"
    if builds and (names.built_in(environment) or environment.startswith(tuple(names.FAMILIES))):
        options = {flag.removeprefix("env."): x for flag, x in one.flags.items() if flag.startswith("env.")}
        if beyond := permission.beyond(environment, options):
            yield f"build {environment!r}, which would {beyond}"
