"""Flat flags to nested frozen dataclasses and back: what the user types, what ``run.json`` holds."""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from shoal.errors import InputError, unknown

T = TypeVar("T")


def flags_of(config: Any) -> dict[str, Any]:
    """Every leaf field of a (nested) dataclass by its own name, with its value."""
    flags: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        flags |= flags_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return flags


def override(config: T, flags: Mapping[str, Any]) -> T:
    """``config`` with fields replaced by name, also those of dataclasses inside it; names it lacks are ignored.

    Raises:
        InputError: a value has the wrong type.
    """
    hints = typing.get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = override(value, flags)
        elif field.name in flags:
            changes[field.name] = _coerce(field.name, flags[field.name], hints[field.name])
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def check_names(flags: Iterable[str], *configs: Any) -> None:
    """Refuse a flag that none of the configurations has.

    Raises:
        InputError: naming the nearest flag.
    """
    known = {name for config in configs for name in flags_of(config)}
    for name in flags:
        if name not in known:
            raise unknown("setting", name, known)


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """The value as the field's type: ints where floats are due, tuples for lists; anything else must fit."""
    for option in _options(hint):
        origin = typing.get_origin(option)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if option is type(None) and value is None:
            return None
        if origin is typing.Literal and value in typing.get_args(option):
            return value
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(value)
        if option is float and number:
            return float(value)
        if option is int and number and float(value).is_integer():
            return int(value)
        if option in (bool, str) and isinstance(value, option):
            return value
    said = " or ".join(_words(option) for option in _options(hint))
    raise InputError(f"{name} cannot be {value!r}; it is {said}.")


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, flat; the hint itself otherwise."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(leaf for option in typing.get_args(hint) for leaf in _options(option))
    return (hint,)


def _words(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(option))
    known = {float: "a number", int: "a whole number", bool: "True or False", str: "a text", type(None): "None"}
    return known.get(option, "a tuple" if typing.get_origin(option) is tuple else str(option))
