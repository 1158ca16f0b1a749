"""Values of trials: drawn at random, or proposed by Optuna, an optional dependency."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.studies.keys import label
from shoal.studies.tuning.file import Range, Scores, ranked
from shoal.studies.tuning.methods import Method
from shoal.system import extras

# Random search: values drawn independently from their ranges.


DIGITS = 6
"""Significant digits of a drawn number, so that records and command lines contain exactly the value that was used."""
_DRAWS = 100
"""Draws of a trial's values until they are not those of another, which would have the same scores."""


def drawn(
    ranges: Mapping[str, Range], count: int, seed: int, trials: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The values of ``count`` new trials, each from a generator of its own, so that methods with the same ranges try
    the same values. They differ from all others as long as the ranges have others.

    Args:
        ranges: the ranges by flag.
        count: number of trials.
        seed: the seed of NumPy's generators.
        trials: values of earlier trials.
    """
    found: list[Any] = list(trials)
    for number in range(len(trials), len(trials) + count):
        random = np.random.default_rng([seed, number])
        values = _new(lambda random=random: _one(ranges, random), found)
        if values in found and all(span.values for span in ranges.values()):
            every = product(*(span.values for span in ranges.values()))
            left = [one for one in (dict(zip(ranges, each, strict=True)) for each in every) if one not in found]
            values = left[int(random.random() * len(left))] if left else values
        found.append(values)
    return found[len(trials) :]


def _new(draw: Callable[[], dict[str, Any]], known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Values that are not known, if that many draws give some."""
    values = draw()
    for _ in range(_DRAWS):
        if values not in known:
            break
        values = draw()
    return values


def _one(ranges: Mapping[str, Range], random: np.random.Generator) -> dict[str, Any]:
    return {flag: _drawn_value(span, float(random.random())) for flag, span in ranges.items()}


def _drawn_value(span: Range, share: float) -> Any:
    """The value at ``share`` in [0, 1) of a range."""
    if span.values:
        return span.values[int(share * len(span.values))]
    whole = isinstance(span.low, int)
    low, high = (span.low - 0.5, span.high + 0.5) if whole else (span.low, span.high)
    if span.log:
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    if whole:
        return min(max(round(value), int(span.low)), int(span.high))
    return rounded_value(value, span)


def rounded_value(value: float, span: Range) -> float:
    """A number with :data:`DIGITS` significant digits that lies within the range."""
    return min(max(float(f"{value:.{DIGITS}g}"), span.low), span.high)


# Bayesian search by Optuna's tree-structured Parzen estimator (Bergstra et al. 2011).


def optuna_library() -> Any:
    """Optuna.

    Raises:
        InputError: it is not installed; the message names the command.
    """
    try:
        import optuna  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(extras.lacking("search = 'optuna'", "optuna", error, extras.install("optuna"))) from None
    return optuna


def proposed(
    method: Method, trials: Sequence[Mapping[str, Any]], reached: Mapping[int, Sequence[Scores]], count: int
) -> list[dict[str, Any]]:
    """The values of ``count`` new trials.

    Optuna's study is rebuilt from the known scores in each round, with a different seed, so that a resumed search
    proposes the same values as an uninterrupted one.

    Args:
        method: the method.
        trials: values of the trials so far.
        reached: by trial of earlier rounds, its scores at each rung that it reached.
        count: number of new trials.

    Raises:
        InputError: Optuna is not installed.
    """
    optuna = optuna_library()
    optuna.logging.set_verbosity(logging.ERROR)
    spaces = {flag: _distribution(optuna, span) for flag, span in method.ranges.items()}
    sampler = optuna.samplers.TPESampler(
        seed=method.tuning.draw + len(reached), n_startup_trials=min(10, method.trials), constant_liar=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    standing = _standing(method, reached)
    for number, values in enumerate(trials):
        told = _told(optuna, method, values, standing.get(number, []), spaces)
        if told is not None:
            study.add_trial(told)

    def asked() -> dict[str, Any]:
        one = study.ask(spaces)
        return {flag: _value(span, one.params[flag]) for flag, span in method.ranges.items()}

    found: list[Any] = list(trials)
    for _ in range(count):
        found.append(_new(asked, found))
    return found[len(trials) :]


def _standing(method: Method, reached: Mapping[int, Sequence[Scores]]) -> dict[int, list[float]]:
    """By trial, minus its rank at each rung that it reached, as a fraction, since scores of several environments may
    have different scales. A trial that diverged has the last rank."""
    found: dict[int, list[float]] = {}
    for rung in range(len(method.rungs)):
        scores = {trial: each[rung] for trial, each in reached.items() if len(each) > rung}
        for place, trial in enumerate(ranked(scores)):
            found.setdefault(trial, []).append(-place / max(1, len(scores)))
    return found


def _told(
    optuna: Any, method: Method, values: Mapping[str, Any], standing: Sequence[float], spaces: Mapping[str, Any]
) -> Any:
    """A finished trial for Optuna; None if its values are not all within the ranges, as the default's may be."""
    params = {flag: label(x) if span.values else x for flag, span in method.ranges.items() for x in [values.get(flag)]}
    fits = all(params[flag] is not None and _within(span, values[flag]) for flag, span in method.ranges.items())
    if not fits or not standing:
        return None
    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        state=states.COMPLETE if len(standing) == len(method.rungs) else states.PRUNED,
        value=standing[-1] if len(standing) == len(method.rungs) else None,
        params=params,
        distributions=dict(spaces),
        intermediate_values={rung.steps: place for rung, place in zip(method.rungs, standing, strict=False)},
    )


def _within(span: Range, value: Any) -> bool:
    return value in span.values if span.values else isinstance(value, int | float) and span.low <= value <= span.high


def _distribution(optuna: Any, span: Range) -> Any:
    if span.values:
        return optuna.distributions.CategoricalDistribution([label(value) for value in span.values])
    kind = "IntDistribution" if isinstance(span.low, int) else "FloatDistribution"
    return getattr(optuna.distributions, kind)(span.low, span.high, log=span.log)


def _value(span: Range, value: Any) -> Any:
    if span.values:
        return next(one for one in span.values if label(one) == value)
    return value if isinstance(span.low, int) else rounded_value(value, span)
