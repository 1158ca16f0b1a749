"""Metrics of an episode from the ``info`` of PettingZoo's and Gymnasium's interfaces."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.environments.adapters.values import number
from shoal.game import HostTimestep


def metric_of(info: Mapping[Any, Any], name: str) -> float:
    """``info[name]``; NaN if it is missing.

    Raises:
        ValueError: it is not a single number.
    """
    return number(info[name], f"info[{name!r}]") if name in info else math.nan


def write(names: Iterable[str], info: Mapping[Any, Any], out: HostTimestep) -> None:
    """Write the named numbers of an ``info`` as the metrics of a timestep.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        out.metrics[i] = metric_of(info, name)


def write_of_agents(names: Iterable[str], infos: Mapping[Any, Any], out: HostTimestep) -> None:
    """Like :func:`write` for a dict of infos by agent: the mean over the agents whose ``info`` has the number.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        known = [metric_of(info, name) for info in infos.values() if isinstance(info, Mapping) and name in info]
        out.metrics[i] = sum(known) / len(known) if known else math.nan
