"""Checks of the values in a file of :mod:`shoal.statistics.marl_eval`. Messages name the place in the file."""

import json
import math
from numbers import Real
from typing import Any

from shoal.errors import InputError, shortened
from shoal.statistics.scores import LARGEST


def parse(data: str | bytes, name: str) -> Any:
    """The JSON value of a text.

    Raises:
        InputError: the text is not UTF-8 or not JSON, or an object has a key twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{name} has the key {key!r} twice in one object.")
            found[key] = value
        return found

    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data, object_pairs_hook=unique)
    except InputError:  # a ValueError
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text.") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{name} is not JSON: {error.msg} in line {error.lineno}.") from error
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{name} is not JSON that can be read: {error}.") from error
    except RecursionError as error:
        raise InputError(f"{name} is nested too deeply to be results.") from error


def checked_object(value: Any, place: tuple[str, ...], holds: str) -> dict[str, Any]:
    """A JSON object with at least one key, each the name of a ``holds``.

    Raises:
        InputError: it is none, or empty.
    """
    if not isinstance(value, dict):
        raise InputError(f"{'/'.join(place)}: an object from {holds} to contents is expected, not {shortened(value)}.")
    if not value:
        raise InputError(f"{'/'.join(place)}: there is no {holds}.")
    return value


def checked_number(value: Any, place: tuple[str, ...]) -> float:
    """A finite number of single precision.

    Raises:
        InputError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{'/'.join(place)}: a number is expected, not {shortened(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{'/'.join(place)}: a value is {number}; leave out evaluations that gave no finite number.")
    if abs(number) > LARGEST:
        raise InputError(
            f"{'/'.join(place)}: {number:.3g} exceeds {LARGEST:.3g}, the largest number of single precision."
        )
    return number


def checked_values(value: Any, place: tuple[str, ...]) -> tuple[float, ...]:
    """A list of numbers, or one number.

    Raises:
        InputError: it is neither, or the list is empty.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError(f"{'/'.join(place)}: the list of values is empty.")
    return tuple(checked_number(item, place) for item in values)


def checked_steps(entry: dict[str, Any], place: tuple[str, ...]) -> int:
    """``step_count`` of an evaluation.

    Raises:
        InputError: it is missing, or not a whole number of at least 0.
    """
    if "step_count" not in entry:
        raise InputError(f"{'/'.join(place)}: step_count is missing.")
    count = checked_number(entry["step_count"], (*place, "step_count"))
    if count < 0 or not count.is_integer():
        raise InputError(f"{'/'.join(place)}: step_count is a whole number of at least 0, not {count}.")
    return int(entry["step_count"])
