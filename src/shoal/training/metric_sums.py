"""Sums of metrics over the updates of one log row, and their means when the row is complete."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.spec import EnvSpec
from shoal.training.settings import Settings
from shoal.types import EpisodeStats

Sums = dict[str, Any]
"""Sums over the updates of the current row, as JSON values; with the ``count`` of updates and the seconds ``spent``."""

_EPISODES = ("episodes", "returns", "lengths", "metrics", "known")
_NO_METRICS = (*_EPISODES, "count", "spent")


def sums_of(stats: EpisodeStats) -> dict[str, np.ndarray]:
    """The columns that are sums over episodes; leaves [n, S, ...]."""
    return {name: value for name, value in stats._asdict().items() if not isinstance(value, tuple)}


def add_updates(row: Sums, columns: dict[str, np.ndarray], start: int, stop: int, spent: float) -> Sums:
    """``row`` plus updates ``start`` to ``stop`` of ``columns`` [n, S, ...]."""
    sums: Sums = {name: _add(row.get(name), values[start:stop]) for name, values in columns.items()}
    return sums | {"count": row.get("count", 0) + stop - start, "spent": row.get("spent", 0.0) + spent}


def log_row(row: Sums, spec: EnvSpec, settings: Settings, update: int, elapsed: float) -> dict[str, Any]:
    """The log row with means; None for a seed in which no episode ended, or in which a metric is unknown.

    Args:
        row: the sums.
        spec: the environment's.
        settings: the run's.
        update: updates so far.
        elapsed: seconds of training so far.
    """
    count, steps = row["count"], settings.steps_per_update
    episodes = np.asarray(row["episodes"])
    with np.errstate(invalid="ignore", divide="ignore"):
        returns = np.asarray(row["returns"]) / episodes[:, None]
        lengths = np.asarray(row["lengths"]) / episodes
        metrics = np.asarray(row["metrics"]) / np.asarray(row["known"]) if "metrics" in row else None
    named = {} if metrics is None else {name: or_none(metrics[:, i]) for i, name in enumerate(spec.metrics)}
    return {
        "step": update * steps,
        "update": update,
        "seconds": round(elapsed, 3),
        "steps_per_second": round(count * steps * settings.seeds / max(row["spent"], 1e-9), 1),
        "return": or_none(spec.scores(returns)),
        **named,
        **{f"return/{name}": or_none(returns[:, i]) for i, name in enumerate(spec.agents)},
        "episode_length": or_none(lengths),
        **{_column(name, spec): [x / count for x in row[name]] for name in row if name not in _NO_METRICS},
    }


def _column(name: str, spec: EnvSpec) -> str:
    """The log's column of an update's metric; a name that the environment's metrics also have gets a prefix."""
    return f"update/{name}" if name in spec.metrics else name


def _add(before: list | None, values: np.ndarray) -> list:
    """``before`` plus ``values`` [n, ...] in order, so that the sum does not depend on how calls divide a row."""
    parts = values if before is None else np.concatenate([np.asarray(before)[None], values])
    return np.add.accumulate(parts)[-1].tolist()


def or_none(values: np.ndarray) -> list[float | None]:
    """The values as JSON: None where one is not finite."""
    return [float(x) if math.isfinite(x) else None for x in values]


def shown(row: Mapping[str, Any], spec: EnvSpec) -> tuple[float | None, dict[str, float]]:
    """(return, the environment's known metrics) of a log row, each a mean over the seeds that have a value."""
    means = {name: _mean(row[name]) for name in ("return", *spec.metrics) if name in row}
    score = means.pop("return")
    return score, {name: mean for name, mean in means.items() if mean is not None}


def _mean(seeds: list[float | None]) -> float | None:
    values = [x for x in seeds if x is not None]
    return sum(values) / len(values) if values else None
