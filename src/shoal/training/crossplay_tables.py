"""Entries and lines of the tables of cross-play."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from shoal.statistics.intervals import interval
from shoal.training.evaluation import known_mean


def letters(count: int) -> list[str]:
    """Short names of the runs in tables."""
    return [chr(ord("A") + i) if count <= 26 else str(i + 1) for i in range(count)]


def every_entry(rows: Sequence[Sequence[np.ndarray]]) -> Float[np.ndarray, "R R 3"]:
    """(mean, low, high) of each run on side 1 with each on side 2, from [S_a, S_b, episodes]."""
    return np.array([[pairs_interval(x, same=a == b) for b, x in enumerate(row)] for a, row in enumerate(rows)])


def own_pairs(pairs: Float[np.ndarray, "S S episodes"]) -> tuple[float, float, float]:
    """(mean, low, high) over the diagonal of pairs of seeds; with one seed, over episodes."""
    seeds = np.diagonal(pairs).T  # [S, episodes]
    values = known_mean(seeds, axis=-1) if len(seeds) > 1 else seeds[0]
    values = values[np.isfinite(values)]
    return interval(values) if values.size else _UNKNOWN


def pairs_interval(values: Float[np.ndarray, "A B episodes"], same: bool) -> tuple[float, float, float]:
    """(mean, low, high): 95 % interval of the mean over all pairs of A seeds and B other seeds.

    Every seed plays with every seed of the other run, so pairs are not independent and A · B is not the sample size.
    With row means r_i, column means c_j and the mean m of all pairs, the mean over resampled seeds is, to first order
    in 1 / A and 1 / B (the projection of a two-sample U-statistic; Hoeffding 1948),

        mean of the r_i + mean of the c_j − m       different runs, whose seeds are resampled independently
        mean of the (r_i + c_i − m)                 a run with itself (``same``): seed i is row i and column i

    :func:`shoal.statistics.intervals.interval` gives its interval, clipped to the lowest and highest pair. If one run
    has a single seed, the interval is over the other's seeds; with a single pair, over episodes. NaN episodes, in which
    a metric is unknown, are left out; if a pair has no others, the interval is NaN.
    """
    if values.shape[:2] == (1, 1):
        known = values[np.isfinite(values)]
        return interval(known) if known.size else _UNKNOWN
    pairs = known_mean(values, axis=2)
    if np.isnan(pairs).any():
        return float(known_mean(values, axis=(0, 1, 2))), math.nan, math.nan
    rows, columns, middle = pairs.mean(1), pairs.mean(0), pairs.mean()
    _, low, high = interval(rows + columns - middle) if same else interval(rows, columns - middle)
    return float(middle), max(low, float(pairs.min())), min(high, float(pairs.max()))


_UNKNOWN = (math.nan, math.nan, math.nan)


def cell(mean: float, low: float, high: float) -> str:
    """A mean with its interval as text."""
    text = f"{mean:.2f}" if np.isnan(low) else f"{mean:.2f} ({low:.2f} … {high:.2f})"
    return text.replace("-", "−")


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with ``names`` in the first column and right-aligned other columns."""
    first = max(map(len, names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{name:<{first}}", *(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))]).rstrip()
        for name, row in zip(names, rows, strict=True)
    ]
