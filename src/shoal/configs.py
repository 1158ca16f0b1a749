"""Flat flags to nested frozen dataclasses and back: what the user types, what ``run.json`` holds."""

import dataclasses
import inspect
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from shoal.errors import InputError, shortened, unknown
from shoal.synonyms import meant
from shoal.types import EnvSpec

T = TypeVar("T")


def flags_of(config: Any) -> dict[str, Any]:
    """Every leaf field of a (nested) dataclass by its own name, with its value.

    Where a dataclass holds several of a kind, their fields' metadata have a ``prefix``, which the names begin with.
    """
    flags: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        inner = flags_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
        flags |= {field.metadata.get("prefix", "") + name: x for name, x in inner.items()}
    return flags


def override(config: T, flags: Mapping[str, Any]) -> T:
    """``config`` with fields replaced by name, also those of dataclasses inside it; names it lacks are ignored.

    A name without a prefix is for every dataclass inside that has it; one with a prefix is for that one, and wins.

    Raises:
        InputError: a value has the wrong type.
    """
    hints = typing.get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            prefix = field.metadata.get("prefix", "")
            own = {name.removeprefix(prefix): x for name, x in flags.items() if prefix and name.startswith(prefix)}
            changes[field.name] = override(value, {**flags, **own})
        elif field.name in flags:
            changes[field.name] = typed(field.name, flags[field.name], hints[field.name])
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def check_names(flags: Iterable[str], *configs: Any) -> None:
    """Refuse a flag that none of the configurations has.

    Raises:
        InputError: naming the nearest flag.
    """
    known = {name for config in configs for name in [*flags_of(config), *_unprefixed(config)]}
    for name in flags:
        if name not in known:
            if found := meant(name, known):
                raise InputError(f"There is no setting {name!r}; did you mean {found!r}?")
            raise unknown("setting", name, known)


def _unprefixed(config: Any) -> list[str]:
    """Names that are for all of several dataclasses of a kind."""
    inner = [getattr(config, field.name) for field in dataclasses.fields(config) if "prefix" in field.metadata]
    return [name for value in inner for name in flags_of(value)]


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """What ``run.json`` holds of an environment's spec."""
    said = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(spec).items()}
    return said | {"action": {"kind": type(spec.action).__name__.lower(), **vars(spec.action)}}


def options_from_json(options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """A factory's options as they were before JSON, which has no tuples, made lists of them.

    ``known`` are the factory's parameters; a list becomes a tuple where the parameter's annotation has one.
    """
    tuples = {
        name
        for name, parameter in known.items()
        if any(typing.get_origin(option) is tuple for option in _options(parameter.annotation))
    }
    return {k: tuple(v) if k in tuples and isinstance(v, list) else v for k, v in options.items()}


def typed(name: str, value: Any, hint: Any) -> Any:
    """The value as the type ``hint``: ints where floats are due, tuples for lists; anything else must fit.

    Raises:
        InputError: it does not fit; the message begins with ``name``.
    """
    for option in _options(hint):
        fitted = _fitted(value, option)
        if fitted is not _UNFIT:
            return fitted
    said = " or ".join(_words(option) for option in _options(hint))
    raise InputError(f"{name} cannot be {shortened(value)}; it is {said}.")


_UNFIT = object()


def _fitted(value: Any, option: Any) -> Any:
    """The value as one type without alternatives, or ``_UNFIT``. NumPy's scalars count as numbers, True does not."""
    origin, choices = typing.get_origin(option), typing.get_args(option)
    if option is type(None) and value is None:
        return None
    if origin is typing.Literal and any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    if origin is tuple and isinstance(value, list | tuple):
        items = tuple(_fitted(item, choices[0]) for item in value)  # every tuple of a configuration is (item, ...)
        return _UNFIT if any(item is _UNFIT for item in items) else items
    if option in (bool, str) and isinstance(value, option):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return _UNFIT
    if option is int and isinstance(value, numbers.Integral):
        return int(value)
    if option in (int, float):
        try:
            number = float(value)
        except OverflowError:
            return _UNFIT
        if option is float:
            return _UNFIT if math.isnan(number) else number
        return int(number) if number.is_integer() else _UNFIT
    return _UNFIT


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, flat; the hint itself otherwise."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(leaf for option in typing.get_args(hint) for leaf in _options(option))
    return (hint,)


def _words(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(option))
    if typing.get_origin(option) is tuple:
        return f"a tuple, each item {_words(typing.get_args(option)[0])}"
    known = {float: "a number", int: "a whole number", bool: "True or False", str: "a text", type(None): "None"}
    return known.get(option, str(option))
