"""Scores of one algorithm: a number for each run of each task."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Real

from shoal.errors import InputError, shortened

Scores = Real[np.ndarray, "_ _"] | Sequence[Real[np.ndarray, " _"]] | Mapping[str, Real[np.ndarray, " _"]]
"""Finite scores of one algorithm: an array [runs, tasks], or where tasks have different numbers of runs an array [runs]
for each task, in a sequence or under the task's name."""
Level = float | int | Sequence[float | int] | Real[np.ndarray, " _"] | Mapping[str, float | int]
"""One number for all tasks, or one for each task in their order or under their names."""
_AnyScores = TypeVar("_AnyScores", bound=Scores)
_Range = Float[np.ndarray, " tasks"] | dict[str, float]


MAX_FLOAT32 = float(np.finfo(np.float32).max)
"""The largest score: that of single precision, in which training computes. Sums and squares of larger ones would exceed
double precision."""


class Band(NamedTuple):
    """Point estimates and intervals at X points, for example evaluation steps or thresholds."""

    point: Float[np.ndarray, " X"]
    low: Float[np.ndarray, " X"]
    """NaN where there is no interval, because a task has a single run."""
    high: Float[np.ndarray, " X"]


def by_task(scores: Scores) -> list[Float[np.ndarray, " _"]]:
    """The scores [runs] of each task.

    Raises:
        InputError: there is no task, a task has no run, a score is not a finite number or exceeds :data:`MAX_FLOAT32`,
            or the scores have none of the forms of :data:`Scores`.
    """
    given: Any = scores
    table = np.asarray(given) if hasattr(given, "__array__") else None  # of NumPy or another library
    if table is not None and table.ndim != 2:
        raise InputError(
            f"An array of scores is [runs, tasks], not of shape {table.shape}; one task is scores[:, None]."
        )
    if table is None and (not isinstance(given, Iterable) or isinstance(given, str | bytes)):
        raise InputError(
            f"Scores are an array [runs, tasks], or an array [runs] for each task in a sequence or under the task's "
            f"name, not {shortened(given)}."
        )
    named = list(given) if isinstance(given, Mapping) else None
    columns = list(given.values() if isinstance(given, Mapping) else given if table is None else table.T)
    if not columns:
        raise InputError("Statistics need the scores of at least one task.")
    parts = []
    for k, column in enumerate(columns):
        name = f"task {named[k]!r}" if named else f"task {k}"
        try:
            part = np.asarray(column, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"The scores of {name} are one number for each run, not {shortened(column)}.") from error
        parts.append(part)
        if part.ndim != 1 or part.size == 0:
            raise InputError(f"The scores of {name} are one number for each run, not an array of shape {part.shape}.")
        if not np.isfinite(part).all():
            raise InputError(f"The scores of {name} hold NaN or infinity; leave out runs without a score.")
        if np.abs(part).max() > MAX_FLOAT32:
            raise InputError(f"The scores of {name} exceed {MAX_FLOAT32:.3g}, the largest number of single precision.")
    return parts


def in_pairs(x: Scores, y: Scores) -> tuple[list[Float[np.ndarray, " _"]], list[Float[np.ndarray, " _"]]]:
    """The scores of two algorithms for each task, in the order of ``x``. If both have names, tasks are paired by name.

    Raises:
        InputError: as :func:`by_task`, or the tasks are not the same.
    """
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        if odd := sorted(set(x) ^ set(y)):
            raise InputError(f"Two algorithms are compared on the same tasks, but only one has scores of {odd[0]!r}.")
        y = {name: y[name] for name in x}
    xs, ys = by_task(x), by_task(y)
    if len(xs) != len(ys):
        raise InputError(f"Two algorithms are compared on the same tasks, but they have {len(xs)} and {len(ys)} tasks.")
    return xs, ys


def normalise(scores: _AnyScores, worst: Level, best: Level) -> _AnyScores:
    """(score − worst) / (best − worst) by task, so that ``worst`` becomes 0 and ``best`` 1. Scores may lie outside.

    Args:
        scores: scores of any form, which the result keeps.
        worst: for example the score of random play. Where less is better, ``worst`` exceeds ``best``.
        best: for example the score of an optimal or human policy.

    Raises:
        InputError: as :func:`by_task`, or a task's ``worst`` and ``best`` are missing, equal or not finite.

    Source: Agarwal et al. 2021, Deep RL at the Edge of the Statistical Precipice, section 2.
    """
    parts = by_task(scores)
    names = list(scores) if isinstance(scores, Mapping) else list(range(len(parts)))
    zero, one = (_levels(level, names, word) for level, word in ((worst, "worst"), (best, "best")))
    for k in np.flatnonzero(~np.isfinite(one - zero) | (one == zero)):
        raise InputError(
            f"The worst and best score of task {names[k]!r} are {zero[k]} and {one[k]}, not two finite numbers."
        )
    scaled = [(part - low) / (high - low) for part, low, high in zip(parts, zero, one, strict=True)]
    if hasattr(scores, "__array__"):
        return np.stack(scaled, 1)  # pyright: ignore[reportReturnType]
    return dict(zip(scores, scaled, strict=True)) if isinstance(scores, Mapping) else scaled  # pyright: ignore[reportReturnType]


def observed_range(*algorithms: Scores) -> tuple[_Range, _Range]:
    """The lowest and highest score of each task over all algorithms, under the tasks' names if scores have names.

    They can be the ``worst`` and ``best`` of :func:`normalise` where these are not known. The numbers then depend on
    which algorithms are compared, and cannot be compared with those of another study.

    Raises:
        InputError: there is no algorithm, or as :func:`in_pairs`.
    """
    if not algorithms:
        raise InputError("A range of scores needs at least one algorithm.")
    first = next((scores for scores in algorithms if isinstance(scores, Mapping)), algorithms[0])
    every = [in_pairs(first, other)[1] for other in algorithms]
    together = [np.concatenate(parts) for parts in zip(*every, strict=True)]
    low, high = (np.array([of(part) for part in together]) for of in (np.min, np.max))
    if isinstance(first, Mapping):
        return dict(zip(first, low.tolist(), strict=True)), dict(zip(first, high.tolist(), strict=True))
    return low, high


def _levels(level: Level, names: Sequence[str | int], word: str) -> Float[np.ndarray, " tasks"]:
    """One number for each task."""
    if isinstance(level, Mapping):
        if missing := [name for name in names if name not in level]:
            raise InputError(f"The {word} score of task {missing[0]!r} is missing.")
        level = [level[name] for name in names]  # pyright: ignore[reportArgumentType]
    values = np.asarray(level, np.float64)
    if values.shape not in ((), (len(names),)):
        raise InputError(f"There are {len(names)} tasks, and {values.size} numbers for their {word} score.")
    return np.broadcast_to(values, (len(names),))
