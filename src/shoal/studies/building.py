"""Checks the runs of a study with their environments, before the first one starts."""

from collections.abc import Sequence

import numpy as np

from shoal import algorithms
from shoal.bounds import check
from shoal.environments import registry
from shoal.errors import InputError, unknown
from shoal.runs.build import check_build, environment
from shoal.studies.combinations import matches
from shoal.studies.plan import Cell
from shoal.studies.study_file import TRAINING, StudyFile
from shoal.training import checks, sharding
from shoal.types import AnyEnvironment, EnvSpec

_ALWAYS = ("score", "length")


def check_built(study: StudyFile, cells: Sequence[Cell]) -> None:
    """Build the environment of every cell and make its algorithm; nothing is compiled.

    Raises:
        InputError: an environment cannot be built, an algorithm does not support its environment, or no environment has
            the metric of a table. The message names the file and the run.
    """
    if any(cell.flags.get("devices") != 1 for cell in cells):
        sharding.one_device_per_core()  # before JAX starts its devices
    environments: dict[str, AnyEnvironment] = {}
    specs = []
    for cell in cells:
        try:
            specs.append(_check(cell, environments))
        except InputError as error:
            raise study.error(f"{cell.title}: {error}") from None
    named = [(f"[[{one.part}]] {one.number}", one.metric, one.where) for one in (*study.tables, *study.figures)]
    named += [(f"[[references]] {one.number}", one.metric, one.where) for one in study.references]
    named += [("[primary]", study.primary.metric, {})] if study.primary is not None else []
    for title, metric, where in named:
        if metric.startswith(TRAINING):
            kept = tuple(f"{TRAINING}{name}" for name in ("score", *study.curves))
            if metric not in kept:
                raise study.error(f"{title}: {unknown('metric in [record] metrics named', metric, kept)}")
            continue
        shown = [spec for cell, spec in zip(cells, specs, strict=True) if matches(cell.values, where)]
        known = {name for spec in shown for name in (*spec.metrics, *spec.role_returns(np.zeros(spec.num_agents)))}
        if shown and metric not in (*_ALWAYS, *known):
            raise study.error(f"{title}: {unknown('metric', metric, (*_ALWAYS, *known))}")


def _check(cell: Cell, environments: dict[str, AnyEnvironment]) -> EnvSpec:
    """Check one cell as training does, and return the spec of its wrapped environment."""
    found = cell.merged()
    same = repr((cell.environment, sorted(cell.env.items())))
    if same not in environments:
        environments[same] = registry.make(cell.environment, **cell.env)
    built = environments[same]
    settings, config = found.sized_for(built.spec), found.config
    checks.rewards(settings, config)
    settings.check()
    check(config)
    env = environment(built, settings)
    algorithms.check_alone(cell.algorithm, env.spec)
    check_build(algorithms.canonical(cell.algorithm), env, config, settings)
    return env.spec
