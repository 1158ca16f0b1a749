"""Metrics of a battle from objects with SMAC's interface. Does not import JAX."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.environments.adapters.infos import metric_of
from shoal.game import HostTimestep


def names(core: Any) -> tuple[str, ...]:
    """The names of the metrics; SMAC and SMACv2 count dead enemies in ``info``, SMAClite lists living ones."""
    counted = hasattr(core, "death_tracker_enemy") or isinstance(getattr(core, "enemies", None), dict | list)
    return ("won", "dead_allies", "dead_enemies") if counted else ("won", "dead_allies")


def write(metrics: Sequence[str], core: Any, info: Mapping[str, Any], out: HostTimestep) -> None:
    """Write the metrics after a step; ``out.alive`` must be written before.

    Without ``battle_won`` in ``info``, as after a crash of StarCraft II, the battle's metrics are unknown.
    """
    if "battle_won" in info:
        known = {
            "won": metric_of(info, "battle_won"),
            "dead_allies": float(np.sum(~out.alive)),
            "dead_enemies": _dead_enemies(core, info),
        }
    else:
        known = {}
    for i, name in enumerate(metrics):
        out.metrics[i] = known[name] if name in known else metric_of(info, name)


def _dead_enemies(core: Any, info: Mapping[str, Any]) -> float:
    living = getattr(core, "enemies", None)
    if "dead_enemies" in info or not isinstance(living, dict | list):
        return metric_of(info, "dead_enemies")
    return float(core.n_enemies - len(living)) if hasattr(core, "n_enemies") else math.nan
