"""Checks of values returned by a user's environment: numbers, flags, dicts by agent, and metrics in infos."""

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from shoal.game import HostTimestep


def number(value: Any, *what: Any) -> float:
    """A Python or NumPy number, or an array without axes, as a float. ``what`` describes it in the error.

    Raises:
        ValueError: it is something else, for example text, None or an array.
    """
    if isinstance(value, Real) or (_size(value) == () and _numeric(value)):
        return float(value)
    raise ValueError(f"{' '.join(map(str, what))} is {_shown(value)}, not one number.")


def flag(value: Any, *what: Any) -> bool:
    """A boolean, also given as 0 or 1 or as an array of one element. ``what`` describes it in the error.

    Raises:
        ValueError: it is something else, for example text, None, 2 or NaN.
    """
    if isinstance(value, bool):
        return value
    numeric = isinstance(value, Real) or (np.size(value) == 1 and _size(value) is not None and _numeric(value))
    if numeric and (value == 0 or value == 1):
        return bool(value)
    raise ValueError(f"{' '.join(map(str, what))} is {_shown(value)}, neither True nor False.")


def stepped(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What ``step`` of Gymnasium's or PettingZoo's interface returned.

    Raises:
        ValueError: it is not a tuple of five values.
    """
    if isinstance(result, tuple | list) and len(result) == 5:
        return result[0], result[1], result[2], result[3], result[4]
    old = " (four are those of Gym before 0.26: divide done into the two)" if _count(result) == 4 else ""
    raise ValueError(
        f"step returned {_returned(result)}, but must return five values: observation, reward, terminated, truncated "
        f"and info{old}."
    )


def started(result: Any) -> tuple[Any, Any]:
    """What ``reset`` of Gymnasium's or PettingZoo's interface returned.

    Raises:
        ValueError: it is not a tuple of two values.
    """
    if isinstance(result, tuple | list) and len(result) == 2:
        return result[0], result[1]
    raise ValueError(f"reset returned {_returned(result)}, but must return two values: observation and info.")


def _count(result: Any) -> int | None:
    return len(result) if isinstance(result, tuple | list) else None


def _returned(result: Any) -> str:
    return f"a {type(result).__name__}" if (count := _count(result)) is None else f"{count} values"


def by_agent(what: str, values: Any, agents: Collection[Any]) -> None:
    """Check a dict by agent.

    Raises:
        ValueError: it is not a dict, or has a key that is not in ``agents``.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} are a {type(values).__name__}, not a dict with a key for each agent.")
    stranger = next((key for key in values if key not in agents), None)
    if stranger is not None:
        raise ValueError(f"{what} have the key {stranger!r}, which is not one of possible_agents.")


def _size(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple | list) else None


def _numeric(value: Any) -> bool:
    """Whether an array holds numbers; assumed for arrays of other libraries than NumPy."""
    return getattr(getattr(value, "dtype", None), "kind", "f") in "biuf"


def _shown(value: Any) -> str:
    if (shape := _size(value)) == () and _numeric(value):
        return str(value)
    if shape is not None:
        return f"an array of shape {shape}" if _numeric(value) else f"an array of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


# Metrics of an episode from the ``info`` of PettingZoo's and Gymnasium's interfaces.


def metric_of(info: Mapping[Any, Any], name: str) -> float:
    """``info[name]``; NaN if it is missing.

    Raises:
        ValueError: it is not a single number.
    """
    return number(info[name], f"info[{name!r}]") if name in info else math.nan


def write_metrics(names: Iterable[str], info: Mapping[Any, Any], out: HostTimestep) -> None:
    """Write the named numbers of an ``info`` as the metrics of a timestep.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        out.metrics[i] = metric_of(info, name)


def write_metrics_of_agents(names: Iterable[str], infos: Mapping[Any, Any], out: HostTimestep) -> None:
    """Like :func:`write_metrics` for a dict of infos by agent: the mean over the agents whose ``info`` has the number.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        known = [metric_of(info, name) for info in infos.values() if isinstance(info, Mapping) and name in info]
        out.metrics[i] = sum(known) / len(known) if known else math.nan
