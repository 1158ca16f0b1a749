"""The JSON format of marl-eval, in which results of cooperative multi-agent RL are published.

    {environment: {task: {algorithm: {run: {
        "step_0": {"step_count": 10000, "elapsed_time": 12.5, metric: [number, ...], ...},
        ...
        "absolute_metrics": {metric: [number, ...], ...}}}}}}

A list holds one number for each evaluation episode, or their mean alone. ``step_count`` is in environment steps,
``elapsed_time`` (optional) in seconds. Absolute metrics are those of the best policy of the run on ten times as many
fresh episodes. marl-eval's own pictures need the same tasks, runs, steps and metrics for all algorithms, and absolute
metrics in each run; this module reads and writes files without them too.

Source: Gorsane et al. 2022, Towards a Standardised Performance Evaluation Protocol for Cooperative MARL (NeurIPS),
section 5; the README of https://github.com/instadeepai/marl-eval.
"""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError, WriteError, shortened, unknown
from shoal.statistics.scores import MAX_FLOAT32
from shoal.system.files import create_beside

# Checks of the values in a file of :mod:`shoal.statistics.marl_eval`. Messages name the place in the file.


def parse(data: str | bytes, name: str) -> Any:
    """The JSON value of a text.

    Raises:
        InputError: the text is not UTF-8 or not JSON, or an object has a key twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{name} has the key {key!r} twice in one object.")
            found[key] = value
        return found

    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data, object_pairs_hook=unique)
    except InputError:  # a ValueError
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text.") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{name} is not JSON: {error.msg} in line {error.lineno}.") from error
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{name} is not JSON that can be read: {error}.") from error
    except RecursionError as error:
        raise InputError(f"{name} is nested too deeply to be results.") from error


def checked_object(value: Any, place: tuple[str, ...], holds: str) -> dict[str, Any]:
    """A JSON object with at least one key, each the name of a ``holds``.

    Raises:
        InputError: it is none, or empty.
    """
    if not isinstance(value, dict):
        raise InputError(f"{'/'.join(place)}: an object from {holds} to contents is expected, not {shortened(value)}.")
    if not value:
        raise InputError(f"{'/'.join(place)}: there is no {holds}.")
    return value


def checked_number(value: Any, place: tuple[str, ...]) -> float:
    """A finite number of single precision.

    Raises:
        InputError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{'/'.join(place)}: a number is expected, not {shortened(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{'/'.join(place)}: a value is {number}; leave out evaluations that gave no finite number.")
    if abs(number) > MAX_FLOAT32:
        raise InputError(
            f"{'/'.join(place)}: {number:.3g} exceeds {MAX_FLOAT32:.3g}, the largest number of single precision."
        )
    return number


def checked_values(value: Any, place: tuple[str, ...]) -> tuple[float, ...]:
    """A list of numbers, or one number.

    Raises:
        InputError: it is neither, or the list is empty.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError(f"{'/'.join(place)}: the list of values is empty.")
    return tuple(checked_number(item, place) for item in values)


def checked_steps(entry: dict[str, Any], place: tuple[str, ...]) -> int:
    """``step_count`` of an evaluation.

    Raises:
        InputError: it is missing, or not a whole number of at least 0.
    """
    if "step_count" not in entry:
        raise InputError(f"{'/'.join(place)}: step_count is missing.")
    count = checked_number(entry["step_count"], (*place, "step_count"))
    if count < 0 or not count.is_integer():
        raise InputError(f"{'/'.join(place)}: step_count is a whole number of at least 0, not {count}.")
    return int(entry["step_count"])


# Files.


Metrics = Mapping[str, tuple[float, ...]]
"""The values of each metric: one for each episode, or their mean alone."""


class Evaluation(NamedTuple):
    """One evaluation during a run."""

    steps: int
    """Environment steps of training before it."""
    metrics: Metrics
    seconds: float | None = None
    """Wall time of the run until then; None if the file does not tell."""


class Run(NamedTuple):
    """One run: a seed of an algorithm on a task."""

    evaluations: tuple[Evaluation, ...]
    """In the order of their steps. An evaluation may lack metrics that others have."""
    absolute: Metrics = MappingProxyType({})
    """Of the best policy on fresh episodes; may be empty."""


Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Run]]]]
"""``results[environment][task][algorithm][run]``."""


def read(path: Path | str) -> dict[str, dict[str, dict[str, dict[str, Run]]]]:
    """Read a file.

    Raises:
        InputError: it cannot be read, or as :func:`loads`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    return loads(data, str(path))


def loads(data: str | bytes, name: str = "The file") -> dict[str, dict[str, dict[str, dict[str, Run]]]]:
    """The results in a text.

    Steps are sorted by ``step_count``, whatever their names. A number alone is a list of one.

    Args:
        data: JSON.
        name: of the file, for messages.

    Raises:
        InputError: the text is not JSON of this format; the message names the place.
    """
    raw = parse(data, name)
    return {
        env: {
            task: {
                algorithm: {
                    run: _run(steps, (name, env, task, algorithm, run))
                    for run, steps in checked_object(runs, (name, env, task, algorithm), "run").items()
                }
                for algorithm, runs in checked_object(algorithms, (name, env, task), "algorithm").items()
            }
            for task, algorithms in checked_object(tasks, (name, env), "task").items()
        }
        for env, tasks in checked_object(raw, (name,), "environment").items()
    }


def dumps(results: Results) -> str:
    """The text of results; :func:`loads` gives them back.

    Raises:
        InputError: a level is empty, steps are not in increasing order, or a value is not a finite number; or
            marl-eval could not read the names: it refuses commas in those of algorithms, and ignores case.
    """
    text: dict[str, Any] = {}
    for env, tasks in results.items():
        for task, algorithms in tasks.items():
            for algorithm, runs in algorithms.items():
                if "," in algorithm:
                    raise InputError(f"marl-eval reads no algorithm with a comma in its name, such as {algorithm!r}.")
                _check_names(algorithms, "algorithms")
                _check_names(runs, "runs")
                place = text.setdefault(env, {}).setdefault(task, {})
                place[algorithm] = {run: _steps(data) for run, data in runs.items()}
        _check_names(tasks, "tasks")
    _check_names(results, "environments")
    content = json.dumps(text, indent=1, ensure_ascii=False) + "\n"
    loads(content, "The result")
    return content


def write(path: Path | str, results: Results) -> None:
    """Replace a file by the text of results.

    Raises:
        InputError: as :func:`dumps`.
        WriteError: the file cannot be written.
    """
    path, content = Path(path), dumps(results)
    beside = None
    try:
        beside = create_beside(path)
        beside.write_text(content, "utf-8")
        beside.replace(path)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise WriteError(f"{path.name} cannot be written: {error.strerror or error}.") from error


def curves(
    results: Results, env: str, algorithm: str, metric: str
) -> dict[str, tuple[Float[np.ndarray, " X"], Float[np.ndarray, "X runs"]]]:
    """(steps, values) of an algorithm for each task that it was run on: means over episodes.

    The steps are those at which all runs of the task have the metric.

    Raises:
        InputError: a name is unknown, or the runs of a task have no such step.
    """
    found = {}
    for task, runs in _runs(results, env, algorithm).items():
        rows = [{e.steps: np.mean(e.metrics[metric]) for e in run.evaluations if metric in e.metrics} for run in runs]
        common = sorted(set.intersection(*(set(row) for row in rows)))
        if not common:
            every = {name for run in runs for e in run.evaluations for name in e.metrics}
            if metric not in every:
                raise unknown(f"metric of {algorithm} on {env}/{task} named", metric, every)
            raise InputError(f"No step of {algorithm} on {env}/{task} has {metric!r} in all runs.")
        found[task] = np.array(common, np.float64), np.array([[row[s] for row in rows] for s in common], np.float64)
    return found


def absolute(results: Results, env: str, algorithm: str, metric: str) -> dict[str, Float[np.ndarray, " runs"]]:
    """The absolute metric of each run for each task: means over episodes, which are scores for this package.

    Raises:
        InputError: a name is unknown, or a run lacks the metric.
    """
    found = {}
    for task, runs in _runs(results, env, algorithm).items():
        if not all(metric in run.absolute for run in runs):
            every = set.intersection(*(set(run.absolute) for run in runs))
            raise unknown(f"absolute metric in all runs of {algorithm} on {env}/{task} named", metric, every)
        found[task] = np.array([np.mean(run.absolute[metric]) for run in runs], np.float64)
    return found


def _runs(results: Results, env: str, algorithm: str) -> dict[str, list[Run]]:
    """The runs of an algorithm for each task."""
    if env not in results:
        raise unknown("environment in these results named", env, results)
    found = {task: list(every[algorithm].values()) for task, every in results[env].items() if algorithm in every}
    if not found:
        known = {name for every in results[env].values() for name in every}
        raise unknown(f"algorithm on {env} named", algorithm, known)
    return found


def _run(steps: Any, place: tuple[str, ...]) -> Run:
    evaluations, absolute = [], {}
    for key, entry in checked_object(steps, place, "step").items():
        inside, is_absolute = (*place, key), "absolute" in key.lower()
        if is_absolute and entry == {}:  # an unfinished run
            continue
        entry = checked_object(entry, inside, "metric")
        values = {
            name: checked_values(value, (*inside, name))
            for name, value in entry.items()
            if name not in ("step_count", "elapsed_time")
        }
        if is_absolute:
            absolute.update(values)
            continue
        seconds = checked_number(entry["elapsed_time"], (*inside, "elapsed_time")) if "elapsed_time" in entry else None
        evaluations.append(Evaluation(checked_steps(entry, inside), values, seconds))
    evaluations.sort(key=lambda e: e.steps)
    for one, two in pairwise(evaluations):
        if one.steps == two.steps:
            raise InputError(f"{'/'.join(place)}: two evaluations have the step_count {one.steps}.")
    return Run(tuple(evaluations), absolute)


def _steps(run: Run) -> dict[str, Any]:
    """The JSON object of a run."""
    counts = [e.steps for e in run.evaluations]
    if any(one >= two for one, two in pairwise(counts)):
        raise InputError("The evaluations of a run are in the order of their steps.")
    text: dict[str, Any] = {}
    for i, e in enumerate(run.evaluations):
        seconds = {} if e.seconds is None else {"elapsed_time": e.seconds}
        text[f"step_{i}"] = {"step_count": int(e.steps), **seconds, **_lists(e.metrics)}
    if run.absolute:
        text["absolute_metrics"] = _lists(run.absolute)
    return text


def _lists(metrics: Metrics) -> dict[str, list[float]]:
    return {name: [checked_number(value, (name,)) for value in values] for name, values in metrics.items()}


def _check_names(names: Iterable[str], kind: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise InputError(f"marl-eval ignores case, so it cannot tell the {kind} {other!r} and {name!r} apart.")
