"""Conversion between flat flags, nested frozen dataclasses and JSON."""

import dataclasses
import inspect
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import jax

from shoal.errors import InputError, shortened, unknown
from shoal.synonyms import meant
from shoal.types import EnvSpec

T = TypeVar("T")


def flags_of(config: Any) -> dict[str, Any]:
    """The leaf fields of a nested dataclass, from name to value.

    Fields that hold dataclasses of the same kind have a ``prefix`` in their metadata, which is prepended to names.
    """
    flags: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        inner = flags_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
        flags |= {field.metadata.get("prefix", "") + name: x for name, x in inner.items()}
    return flags


def override(config: T, flags: Mapping[str, Any]) -> T:
    """``config`` with leaf fields replaced by name, also in nested dataclasses; unknown names are ignored.

    A name without a prefix applies to all nested dataclasses; one with a prefix to a single one, and takes precedence.

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


def check_names(flags: Iterable[str], *configs: Any, of: str = "") -> None:
    """Check that every flag is a field of one of the configurations; ``of`` says in a message whose flags they are.

    Raises:
        InputError: one is not; the message names the most similar flag.
    """
    known = {name for config in configs for name in [*flags_of(config), *_unprefixed(config)]}
    for name in flags:
        if name not in known:
            kind = "setting" + f" (in {of}) named" * bool(of)
            if found := meant(name, known):
                raise InputError(f"There is no {kind} {name!r}; did you mean {found!r}?")
            raise unknown(kind, name, known)


def _unprefixed(config: Any) -> list[str]:
    """Names without prefix of the fields of dataclasses that have one."""
    inner = [getattr(config, field.name) for field in dataclasses.fields(config) if "prefix" in field.metadata]
    return [name for value in inner for name in flags_of(value)]


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """An environment's spec as JSON values, for ``run.json``."""
    fields = _listed(vars(spec))
    if spec.parts is not None:
        fields["parts"] = [[_listed(part._asdict()) for part in own] for own in spec.parts]
    return fields | {"action": {"kind": type(spec.action).__name__.lower(), **vars(spec.action)}}


def _listed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with lists in place of tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def options_from_json(options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """A factory's options from JSON, which has lists in place of tuples.

    ``known`` holds the factory's parameters; a list becomes a tuple if the parameter's annotation has one.
    """
    tuples = {
        name
        for name, parameter in known.items()
        if any(typing.get_origin(option) is tuple for option in _options(parameter.annotation))
    }
    return {k: tuple(v) if k in tuples and isinstance(v, list) else v for k, v in options.items()}


def typed(name: str, value: Any, hint: Any) -> Any:
    """The value converted to the type ``hint``: integers to floats, lists to tuples; otherwise the type must match.

    Raises:
        InputError: it does not match; the message starts with ``name``.
    """
    for option in _options(hint):
        fitted = _fitted(value, option)
        if fitted is not _UNFIT:
            return fitted
    wanted = " or ".join(_words(option) for option in _options(hint))
    raise InputError(f"{name} cannot be {shortened(value)}; it is {wanted}.")


_UNFIT = object()


def _fitted(value: Any, option: Any) -> Any:
    """The value as one type of a union, or ``_UNFIT``. NumPy scalars count as numbers, booleans do not."""
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
    if option is float and isinstance(value, jax.Array) and value.shape == () and value.dtype.kind == "f":
        return value  # one program can then train with many values
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
    """The alternatives of a union, flattened; otherwise the hint itself."""
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
