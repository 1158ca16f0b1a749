"""Records as results in the JSON format of marl-eval, which other tools read (Gorsane et al. 2022)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.statistics.marl_eval import Evaluation, Run
from shoal.studies.combinations import axes_of
from shoal.studies.keys import label
from shoal.studies.plan import Cell
from shoal.studies.record import Record

METRIC = "return"
"""The name of the score in the format."""
NO_FAMILY = "shoal"
"""The environment in the format for a name without a family."""


def to_marl_eval(
    cells: Sequence[Cell], records: Mapping[str, Record]
) -> dict[str, dict[str, dict[str, dict[str, Run]]]]:
    """``results[environment][task][algorithm][run]`` of the recorded runs; a run is a seed.

    ``mpe/simple_spread`` is the task ``simple_spread`` of the environment ``mpe``; options of the environment are part
    of the task's name, and all other axes that differ between runs but ``seed`` part of the algorithm's. Evaluations
    are the greedy ones during training where the study has ``eval_every``, otherwise points of the learning curve.
    Absolute metrics are the final episodes of the best policy where there is one, otherwise of the last.

    Args:
        cells: runs of a study.
        records: those that exist, by the cells' names.

    Raises:
        InputError: two runs of a task would have one name, or of one name the same seed.
    """
    several = {axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1}
    results: dict[str, dict[str, dict[str, dict[str, Run]]]] = {}
    named: dict[tuple[str, str, str], list[Any]] = {}
    for cell in cells:
        if (record := records.get(cell.name)) is None:
            continue
        family, _, task = cell.environment.rpartition("/")
        others = [
            axis
            for axis in cell.values
            if axis in several and axis not in ("algorithm", "environment", "seed") and not axis.startswith("env.")
        ]
        task += options_text(record.run["env"])
        name = " ".join([cell.algorithm, *(_plain(axis, cell.values[axis]) for axis in others)]).replace(",", "")
        first = record.run["settings"].get("seed", 0)
        there = results.setdefault(family or NO_FAMILY, {}).setdefault(task, {})
        values = [cell.values[axis] for axis in others]
        if named.setdefault((family, task, name), values) != values:
            raise InputError(
                f"marl-eval reads no commas in names, and without them two runs in {cell.environment} would be "
                f"{name!r}; give the variants names that differ in more."
            )
        runs = {f"seed_{first + seed}": _run(record, seed) for seed in range(record.seeds)}
        if twice := next((one for one in runs if one in there.get(name, {})), None):
            raise InputError(
                f"Two runs of {name!r} in {cell.environment} have {twice.replace('_', ' ')}; in marl-eval's format "
                f"each has seeds of its own."
            )
        there.setdefault(name, {}).update(runs)
    return results


def options_text(options: Mapping[str, Any]) -> str:
    """Options of an environment as the end of its name, for example ``" horizon=10"``."""
    return "".join(f" {option}={label(value)}" for option, value in sorted(options.items()))


def environment_of(env: str, task: str) -> str:
    """Shoal's name of a task in the format; ``simple_spread`` of ``mpe`` is ``mpe/simple_spread``."""
    return task if env == NO_FAMILY else f"{env}/{task}"


def _plain(axis: str, value: Any) -> str:
    return label(value) if axis == "variant" else f"{axis}={label(value)}"


def _run(record: Record, seed: int) -> Run:
    source = record.evaluations or {name: record.curve[name] for name in ("step", "score")}
    names = [name for name in source if name != "step"]
    evaluations = []
    for i, step in enumerate(source["step"]):
        values = {METRIC if name == "score" else name: source[name][i][seed] for name in names}
        known = {name: (float(value),) for name, value in values.items() if value is not None}
        if known:
            evaluations.append(Evaluation(int(step), known))
    final = record.evaluation.get("best", record.evaluation)
    episodes = {METRIC: final["scores"][seed]} | {name: each[seed] for name, each in final["metrics"].items()}
    absolute = {name: tuple(float(x) for x in values if x is not None) for name, values in episodes.items()}
    return Run(tuple(evaluations), {name: values for name, values in absolute.items() if np.size(values)})
