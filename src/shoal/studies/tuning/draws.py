"""Random search: values drawn independently from their ranges."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.studies.tuning.file import Range

DIGITS = 6
"""Significant digits of a drawn number, so that records and command lines contain exactly the value that was used."""


def drawn(ranges: Mapping[str, Range], count: int, seed: int, start: int = 0) -> list[dict[str, Any]]:
    """The values of ``count`` trials from number ``start`` on. The values of a trial depend only on its number.

    Args:
        ranges: the ranges by flag.
        count: number of trials.
        seed: the seed of NumPy's generator.
        start: number of the first trial.
    """
    return [_one(ranges, np.random.default_rng([seed, start + i])) for i in range(count)]


def _one(ranges: Mapping[str, Range], random: np.random.Generator) -> dict[str, Any]:
    return {flag: _value(span, float(random.random())) for flag, span in ranges.items()}


def _value(span: Range, share: float) -> Any:
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
    return rounded(value, span)


def rounded(value: float, span: Range) -> float:
    """A number with :data:`DIGITS` significant digits that lies within the range."""
    return min(max(float(f"{value:.{DIGITS}g}"), span.low), span.high)
