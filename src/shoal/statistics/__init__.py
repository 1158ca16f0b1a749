"""Statistics of scores over runs (seeds) and tasks, as in Agarwal et al. 2021 and Gorsane et al. 2022.

Everything named below is public and imported from here; it needs NumPy and SciPy only.

Point estimates of one algorithm: :func:`mean`, :func:`median`, :func:`iqm`, :func:`optimality_gap`; with an interval,
:func:`estimate`. Distributions: :func:`profile`. Over training: :func:`efficiency`, :func:`area`, :func:`final`,
:func:`best`. Two algorithms: :func:`compare`, :func:`difference`,
:func:`probability_of_improvement`, :func:`improvement`. Published data:
:mod:`shoal.statistics.marl_eval`. Pictures are drawn by :mod:`shoal.plots.figures`.
"""

from shoal.statistics.aggregates import (
    KINDS,
    STATISTICS,
    estimate,
    iqm,
    mean,
    median,
    optimality_gap,
    profile,
    spanning,
)
from shoal.statistics.comparison import Comparison, compare, difference, improvement, probability_of_improvement
from shoal.statistics.efficiency import Curves, area, best, efficiency, final
from shoal.statistics.intervals import Estimate, band, interval, interval_text
from shoal.statistics.scores import Band, Scores, by_task, normalise, observed_range

__all__ = [
    "KINDS",
    "STATISTICS",
    "Band",
    "Comparison",
    "Curves",
    "Estimate",
    "Scores",
    "area",
    "band",
    "best",
    "by_task",
    "compare",
    "difference",
    "efficiency",
    "estimate",
    "final",
    "improvement",
    "interval",
    "interval_text",
    "iqm",
    "mean",
    "median",
    "normalise",
    "observed_range",
    "optimality_gap",
    "probability_of_improvement",
    "profile",
    "spanning",
]
