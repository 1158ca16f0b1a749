"""Checks the runs of a study with their environments, before the first one starts."""

from collections.abc import Sequence

import numpy as np

from shoal import algorithms
from shoal.environments import registry
from shoal.errors import InputError, unknown
from shoal.runs.assembly import made
from shoal.runs.run import Run
from shoal.studies.combinations import matches
from shoal.studies.plan import Cell
from shoal.studies.study_file import TRAINING, StudyFile
from shoal.training import checks, sharding
from shoal.types import AnyEnvironment, Environment, EnvSpec, Scale

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
    """Check one cell as :meth:`shoal.runs.run.Run.trainer` does, and return the spec of its wrapped environment."""
    name = algorithms.canonical(cell.algorithm)
    found = cell.merged()
    same = repr((cell.environment, sorted(cell.env.items())))
    if same not in environments:
        environments[same] = registry.make(cell.environment, **cell.env)
    env = environments[same]
    settings, config = found.sized_for(env.spec), found.config
    checks.rewards(settings, config)
    run = Run(cell.folder, name, cell.environment, cell.env, settings, config, env)
    algorithms.check_alone(cell.algorithm, run.spec)
    wrapped = run.env
    if isinstance(wrapped, Environment):
        if settings.workers == "ray":
            raise InputError(f"{cell.environment} is compiled with the update, so it cannot use Ray workers.")
        registry.validate(wrapped)
    else:
        registry.check_spec(wrapped.spec)
    layout = sharding.plan(settings.seeds, settings.num_envs, 1 if settings.workers == "ray" else settings.devices)
    scale = Scale(layout.num_envs, settings.rollout_length, settings.num_updates)
    prepare = getattr(algorithms.get(name), "prepare", None)
    if prepare is None or prepare(run.spec, config, scale) is None:
        made(name, run.spec, config, settings, scale)
    return run.spec
