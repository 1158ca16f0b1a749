"""Runs in a file of marl-eval's JSON format, as sources beside run folders and records of studies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError, unknown
from shoal.security import reading
from shoal.statistics import marl_eval
from shoal.statistics.marl_eval import parse
from shoal.studies.compare.sources import GREEDY, Source, printable
from shoal.studies.exchange import environment_of

MAX_RESULTS_BYTES = 2**30
"""Largest size of a file in bytes."""
RETURNS = ("return", "mean_episode_return", "episode_return")
"""What files call the score, in the order of preference."""
_SHOWN = 8


@dataclass(frozen=True)
class ResultsFile:
    """Results of others: runs by task and algorithm."""

    path: Path
    tasks: Mapping[str, Mapping[str, Mapping[str, marl_eval.Run]]]
    """``tasks[environment][algorithm][run]``, by the environment's name in Shoal."""
    renamed: frozenset[str]
    """The names of the tasks that were given other ones."""

    def algorithms(self, environments: Iterable[str]) -> list[str]:
        """The algorithms that have runs in all these environments."""
        first, *others = (self.tasks.get(one, {}) for one in environments)
        return [name for name in first if all(name in other for other in others)]


def read_results_file(path: Path, names: Mapping[str, str]) -> ResultsFile | None:
    """Read a file of results; None for anything else, such as a record, a run folder or a missing file.

    Args:
        path: the file.
        names: the environment that a task is, by the task's name; other tasks keep their names.

    Raises:
        InputError: the file is damaged, no JSON or too large, or two of its tasks are one environment.
    """
    if path.suffix != ".json":
        return None
    try:
        data = reading.read_bytes(path, MAX_RESULTS_BYTES)
    except (FileNotFoundError, reading.ReadingError):  # the reader of records tells the reason
        return None
    raw = parse(data, str(path))
    if isinstance(raw, dict) and isinstance(raw.get("format", {}), int):
        return None
    if not isinstance(raw, dict) or not raw or not all(isinstance(tasks, dict) for tasks in raw.values()):
        raise InputError(
            f"{path} is neither a record of a study nor a file of marl-eval's format, an object of environments, "
            f"their tasks, algorithms and runs."
        )
    results = marl_eval.loads(data, str(path))
    tasks: dict[str, Any] = {}
    renamed: set[str] = set()
    for env, inner in results.items():
        for task, algorithms in inner.items():
            known = environment_of(env, task)
            name = printable(names.get(known, known))
            if name in tasks:
                raise InputError(f"Two tasks of {path} would be the environment {name}.")
            tasks[name] = algorithms
            renamed |= {known} & names.keys()
    return ResultsFile(path, tasks, frozenset(renamed))


def check_names(names: Mapping[str, str], files: Iterable[ResultsFile]) -> None:
    """Check that each of ``names`` is that of a task.

    Raises:
        InputError: one is not.
    """
    every = list(files)
    for task in names:
        if not any(task in file.renamed for file in every):
            known = {task for file in every for task in file.tasks}
            raise unknown("task in the files of results named", task, known)


def environments_of(own: Iterable[Source], files: Sequence[ResultsFile]) -> list[str]:
    """The environments that are compared: those of run folders and records, otherwise the tasks that all files have.

    Raises:
        InputError: there are only files, and they have no task in common.
    """
    if environments := list(dict.fromkeys(one.environment for one in own)):
        return environments
    first, *others = files
    found = [task for task in first.tasks if all(task in other.tasks for other in others)]
    if not found:
        other = next(other for other in others if not set(first.tasks) & set(other.tasks))
        raise InputError(
            f"{first.path} has {_listed(first.tasks)}, and {other.path} {_listed(other.tasks)}, so there is no common "
            f"task (--tasks TASK=OTHER if one of them is the same under another name)."
        )
    return found


def sources_of(
    file: ResultsFile, environments: Sequence[str], metric: str, file_metric: str | None, label: str
) -> tuple[list[Source], list[str]]:
    """A source for each algorithm and environment of a file, and what to know of them, one sentence each.

    Scores are the absolute metrics where all runs have them, otherwise those of the last step at which all runs of an
    algorithm in an environment were evaluated.

    Args:
        file: the file.
        environments: those that are compared. Other tasks are left out, and so are algorithms that lack one of them.
        metric: as :func:`shoal.studies.compare.sources.read_source`.
        file_metric: its name in the file; None for ``metric``, or one of :data:`RETURNS` for ``return``.
        label: of the file, in the methods' names.

    Raises:
        InputError: no algorithm has runs in all environments, or the metric is missing.
    """
    algorithms = file.algorithms(environments)
    if not algorithms:
        raise _unfitting(file, environments)
    runs = {(name, task): file.tasks[task][name] for name in algorithms for task in environments}
    every = [run for some in runs.values() for run in some.values()]
    column = _column(file, every, metric, file_metric)
    absolute = all(column in run.absolute for run in every)
    sources = [
        _source(file, name, task, some, column, absolute, f"{name} ({label})") for (name, task), some in runs.items()
    ]
    best = (
        "absolute metrics: in this format of the best policy of each run, in Shoal's files without eval_every of the "
        "last"
    )
    kind = best if absolute else "of the last evaluation of each run"
    renamed = "" if column == metric else f" {printable(column)}"
    notes = [f"The scores{renamed} of {file.path} are {kind}."]
    if tasks := [task for task in file.tasks if task not in environments]:
        notes.append(f"Tasks of {file.path} without other runs are left out: {_listed(tasks)}.")
    others = dict.fromkeys(name for task in environments for name in file.tasks.get(task, {}) if name not in algorithms)
    if others:
        notes.append(f"Algorithms of {file.path} that lack an environment are left out: {_listed(others)}.")
    return sources, notes


def _column(file: ResultsFile, runs: Sequence[marl_eval.Run], metric: str, file_metric: str | None) -> str:
    """The name of the metric in the file."""
    known = dict.fromkeys(
        name for run in runs for metrics in (run.absolute, *(e.metrics for e in run.evaluations)) for name in metrics
    )
    if file_metric is not None:
        if file_metric not in known:
            raise unknown(f"metric in {file.path} named", file_metric, map(printable, known))
        return file_metric
    column = next((name for name in (RETURNS if metric == "return" else (metric,)) if name in known), None)
    if column is None:
        raise InputError(
            f"There is no metric in {file.path} named {metric!r}; it has {_listed(known) or 'none'}, of which "
            f"--file-metric NAME chooses one."
        )
    return column


def _source(
    file: ResultsFile,
    name: str,
    environment: str,
    runs: Mapping[str, marl_eval.Run],
    column: str,
    absolute: bool,
    algorithm: str,
) -> Source:
    single = {"": {environment: {name: runs}}}
    curves = {}
    try:
        curves[GREEDY] = marl_eval.curves(single, "", name, column)[environment]
    except InputError:
        if not absolute:
            raise InputError(
                f"The runs of {printable(name)} in {printable(environment)} of {file.path} have {printable(column)} at "
                f"no common step."
            ) from None
    steps = [e.steps for run in runs.values() for e in run.evaluations]
    if absolute:
        step, scores = max(steps, default=None), marl_eval.absolute(single, "", name, column)[environment]
    else:
        step, scores = int(curves[GREEDY][0][-1]), np.array(curves[GREEDY][1][-1])
    return Source(
        path=file.path,
        name=printable(name),
        algorithm=printable(algorithm),
        environment=environment,
        flags={},
        axes={},
        seeds=tuple(map(printable, runs)),
        step=step,
        greedy=None,
        scores=scores,
        curves=curves,
    )


def _unfitting(file: ResultsFile, environments: Sequence[str]) -> InputError:
    missing = next((task for task in environments if task not in file.tasks), None)
    if missing is None:
        return InputError(f"No algorithm in {file.path} has runs in all of {_listed(environments)}.")
    return InputError(
        f"{file.path} has no runs in {missing}, in which others are compared; it has {_listed(file.tasks)} (--tasks "
        f"'TASK={missing}' if one of them is the same under another name)."
    )


def _listed(names: Iterable[str]) -> str:
    """Some names as text."""
    every = [printable(name) for name in names]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
