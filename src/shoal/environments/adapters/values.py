"""Checks of values returned by a user's environment: numbers, flags, and dicts by agent."""

from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

import numpy as np


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
        ValueError: it is something else, for example text or None.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, Real) or (np.size(value) == 1 and _size(value) is not None and _numeric(value)):
        return bool(value)
    raise ValueError(f"{' '.join(map(str, what))} is {_shown(value)}, neither True nor False.")


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
    if (shape := _size(value)) is not None:
        return f"an array of shape {shape}" if _numeric(value) else f"an array of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
