"""Rows of metrics: sums over updates while a row is being filled, and what is written when it is full."""

import math
from typing import Any

import numpy as np

from shoal.spec import EnvSpec
from shoal.training.settings import Settings
from shoal.types import EpisodeStats

Row = dict[str, Any]
"""Sums over the updates so far, as JSON holds them; ``count`` of updates and seconds ``spent``."""

_EPISODES = ("episodes", "returns", "lengths", "metrics", "known")
_NO_METRICS = (*_EPISODES, "count", "spent")


def sums_of(stats: EpisodeStats) -> dict[str, np.ndarray]:
    """The columns of a row that are sums over episodes; leaves [n, S, ...]."""
    return {name: value for name, value in stats._asdict().items() if not isinstance(value, tuple)}


def add(row: Row, columns: dict[str, np.ndarray], start: int, stop: int, spent: float) -> Row:
    """``row`` with updates ``start`` to ``stop`` of ``columns`` [n, S, ...]."""
    sums: Row = {name: _add(row.get(name), values[start:stop]) for name, values in columns.items()}
    return sums | {"count": row.get("count", 0) + stop - start, "spent": row.get("spent", 0.0) + spent}


def summary(row: Row, spec: EnvSpec, settings: Settings, update: int, elapsed: float) -> dict[str, Any]:
    """The row as means; None for a seed in which no episode ended, or none in which a metric is known.

    Args:
        row: the sums.
        spec: names the agents and says how the score is made.
        settings: sizes.
        update: updates so far.
        elapsed: seconds of training so far.
    """
    count, steps = row["count"], settings.steps_per_update
    episodes = np.asarray(row["episodes"])
    with np.errstate(invalid="ignore", divide="ignore"):
        returns = np.asarray(row["returns"]) / episodes[:, None]
        lengths = np.asarray(row["lengths"]) / episodes
        metrics = np.asarray(row["metrics"]) / np.asarray(row["known"]) if "metrics" in row else None
    named = {} if metrics is None else {name: _or_none(metrics[:, i]) for i, name in enumerate(spec.metrics)}
    return {
        "step": update * steps,
        "update": update,
        "seconds": round(elapsed, 3),
        "steps_per_second": round(count * steps * settings.seeds / max(row["spent"], 1e-9), 1),
        "return": _or_none(spec.scores(returns)),
        **named,
        **{f"return/{name}": _or_none(returns[:, i]) for i, name in enumerate(spec.agents)},
        "episode_length": _or_none(lengths),
        **{_column(name, spec): [x / count for x in row[name]] for name in row if name not in _NO_METRICS},
    }


def _column(name: str, spec: EnvSpec) -> str:
    """What an update's metric is called in the log: the environment's metrics keep their names."""
    return f"update/{name}" if name in spec.metrics else name


def _add(before: list | None, values: np.ndarray) -> list:
    """``before`` plus all of ``values`` [n, ...], one after the other: the sum is the same however calls cut a row."""
    parts = values if before is None else np.concatenate([np.asarray(before)[None], values])
    return np.add.accumulate(parts)[-1].tolist()


def _or_none(values: np.ndarray) -> list[float | None]:
    return [float(x) if math.isfinite(x) else None for x in values]
