"""Checks of the options of environments."""

import math
from typing import Literal, get_args

from shoal.bounds import LARGEST_INT, text
from shoal.errors import InputError, unknown

MANY = 1024
"""Largest number of agents, landmarks or other entities of one kind."""

Convention = Literal["mpe2", "openai"]


def check_count(name: str, value: int, least: int = 1, most: int = MANY) -> int:
    """``value`` itself, or an :class:`InputError` where it is not an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, not {value!r}.")
    if value > most:
        raise InputError(f"{name} must be at most {most}, not {text(value)}.")
    return value


def check_steps(name: str, value: int) -> int:
    """``value`` itself, or an :class:`InputError` where it is not a number of steps that 32 bits can count."""
    return check_count(name, value, most=LARGEST_INT)


def check_flag(name: str, value: bool) -> bool:
    """``value`` itself, or an :class:`InputError` where it is not True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}.")
    return value


def check_number(name: str, value: float, low: float, high: float) -> float:
    """``value`` as a float, or an :class:`InputError` where it is not a number in [low, high]."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}.")
    return float(value)


def check_convention(value: str) -> bool:
    """True for ``openai``, False for ``mpe2``; an :class:`InputError` for anything else."""
    known = get_args(Convention)
    if value not in known:
        raise unknown("convention", str(value), known)
    return value == "openai"


def check_choice(name: str, value: str, known: tuple[str, ...]) -> str:
    """``value`` itself, or an :class:`InputError` where it is none of ``known``."""
    if value not in known:
        raise unknown(name, str(value), known)
    return value
