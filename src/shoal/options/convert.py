"""Conversion of values to the types of options: from Python and JSON, from TOML, and from words of a command line.

:func:`convert_value` is the only such conversion. Does not import JAX.
"""

import ast
import contextlib
import functools
import math
import numbers
import operator
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from shoal.errors import InputError, shortened


class _AnyInstance(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return True  # type checkers at run time check defaults against this type


class Anything(metaclass=_AnyInstance):
    """The type of an option without annotation: a Python literal is read as its value, other words as text.

    True, False and None are read in any case, since the text ``false`` would count as true.
    """

    @staticmethod
    def read(text: str) -> Any:
        """``3`` as a number, ``[1, 2]`` as a list, ``None`` as None, ``easy`` as text."""
        try:
            return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false", "none") else text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text


class Words(tuple[str, ...]):
    """Words of a command line, to be read as a value of any type: ``("1e2",)`` as 100, ``("64", "64")`` as (64, 64)."""


def from_toml(value: Any, hint: Any = Anything) -> Any:
    """A value of a TOML file as a Python value: the text "None" as None, which TOML lacks, and lists as tuples.

    The text stays one if an option of type ``hint`` takes texts and not None.
    """
    options = alternatives(hint)
    if isinstance(value, list | tuple):
        found = [typing.get_args(option) for option in options if typing.get_origin(option) is tuple]
        return tuple(from_toml(item, _kind_of_item(i, found)) for i, item in enumerate(value))
    if value != "None" or types.NoneType in options:
        return None if value == "None" else value
    takes_text = any(_fitted(value, option) is not _UNFIT for option in options if option is not Anything)
    return value if takes_text else None


def _kind_of_item(i: int, tuples: Iterable[Sequence[Any]]) -> Any:
    """The type of an item of a value of these types, each given by its arguments; :class:`Anything` if not known."""
    kinds = [kinds[0 if Ellipsis in kinds else i] for kinds in tuples if Ellipsis in kinds or i < len(kinds)]
    return functools.reduce(operator.or_, kinds) if kinds else Anything


def becomes_none(value: Any, hint: Any) -> bool:
    """Whether :func:`from_toml` would read a text in ``value`` as None."""

    def lost(one: Any, read: Any) -> bool:
        return any(map(lost, one, read)) if isinstance(one, list | tuple) else read is None is not one

    return lost(value, from_toml(value, hint))


def convert_value(name: str, value: Any, hint: Any, lone: bool = True) -> Any:
    """The value converted to the type ``hint``.

    Integers are converted to floats, floats without a fraction to integers, lists to tuples, and strings to paths.
    Otherwise the type must match; strings, bytes and mappings are no sequences. :class:`Words` are read.

    Args:
        name: of the option, for the message.
        value: any value.
        hint: a union of bool, int, float, str, Path, None, literals, tuples and :class:`Anything`.
        lone: a string alone is a tuple of strings with one item, as users write it; False for files that Shoal wrote.

    Raises:
        InputError: it does not match; the message starts with ``name``.
    """
    options = alternatives(hint)
    if isinstance(value, Words):  # "None" is also a text
        options = sorted(options, key=lambda option: option is not types.NoneType)
    for option in options:
        fitted = _read(value, option) if isinstance(value, Words) else _fitted(value, option)
        if fitted is not _UNFIT:
            return fitted
    if lone and isinstance(value, str) and any(_fitted((value,), option) == (value,) for option in options):
        return (value,)  # else it would have to be ("actor",), which is easily written as "actor"
    if isinstance(value, Words):
        form = (takes(hint) or "no words").removesuffix(".")  # "INT..." is its own full stop
        raise InputError(f"{name} cannot be {shortened(' '.join(value))}; it takes {form}.")
    raise InputError(f"{name} must be {' or '.join(map(_prose, alternatives(hint)))}, not {shortened(value)}.")


def items_of(what: str, value: Any, one: type | tuple[type, ...]) -> tuple[Any, ...]:
    """The items of an argument that takes several; an instance of ``one`` alone is the only item.

    Raises:
        InputError: it is something else, such as bytes or a mapping, whose numbers or keys would pass as items; the
            message starts with ``what``.
    """
    if isinstance(value, one):
        return (value,)
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{what} must be a list, not {shortened(value)}.")
    return tuple(value)


def mapping(what: str, value: Any) -> dict[str, Any]:
    """An argument that maps names to values; None is empty.

    Raises:
        InputError: it does not; the message starts with ``what``.
    """
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
        raise InputError(f"{what} must map names to values, such as {{'x': 1}}, not {shortened(value)}.")
    return dict(value or {})


def alternatives(hint: Any) -> Sequence[Any]:
    """The types of a union, flattened; otherwise the type itself."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return [leaf for option in typing.get_args(hint) for leaf in alternatives(option)]
    return [hint]


def is_flag(word: str) -> bool:
    """Whether a word of a command line is a flag rather than a value: it starts with ``-`` and is not a number."""
    return isinstance(_number(word), str) and word.startswith("-") and word != "-"


def is_boolean(hint: Any) -> bool:
    """Whether a flag of this type is written as ``--x`` or ``--no-x``."""
    return hint is bool or set(alternatives(hint)) == {bool, types.NoneType}


def takes(hint: Any) -> str | None:
    """The form of a value on the command line, for example ``INT|None``; None for a type that cannot be read."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        each = [takes(x) for x in arguments if x is not Ellipsis]
        return None if None in each else f"{each[0]}..." if Ellipsis in arguments else " ".join(map(str, each))
    if origin in (typing.Union, types.UnionType):
        each = [takes(x) for x in sorted(alternatives(hint), key=lambda x: x is types.NoneType)]
        return None if None in each else "|".join(map(str, each))
    known = {int: "INT", float: "NUMBER", str: "TEXT", bool: "True|False", Path: "PATH", types.NoneType: "None"}
    return known.get(hint, "VALUE" if hint is Anything else None)


_UNFIT = object()


def _read(words: Words, option: Any) -> Any:
    """Words as one type of a union, or ``_UNFIT``."""
    if typing.get_origin(option) is tuple:
        return _items([Words((word,)) for word in words], typing.get_args(option), _read)
    if len(words) != 1:
        return _UNFIT
    word = words[0]
    if option is Anything:
        return Anything.read(word)
    if typing.get_origin(option) is Literal:
        return next((choice for choice in typing.get_args(option) if str(choice) == word), _UNFIT)
    if option is bool:
        return {"True": True, "False": False}.get(word, _UNFIT)
    if option is types.NoneType:
        return None if word == "None" else _UNFIT
    if option not in (int, float):
        return _fitted(word, option)
    if option is int and word.isascii():
        with contextlib.suppress(ValueError):  # 1e3, or thousands of digits
            return int(word)
    return _fitted(_number(word), option)


def _number(word: str) -> Any:
    """A number in ASCII digits, which Python's ``float`` does not require; other words as they are."""
    try:
        return float(word) if word.isascii() else word
    except ValueError:
        return word


def _fitted(value: Any, option: Any) -> Any:
    """The value as one type of a union, or ``_UNFIT``. NumPy scalars count as numbers, booleans do not."""
    origin, choices = typing.get_origin(option), typing.get_args(option)
    if option is Anything or (option is types.NoneType and value is None):
        return value
    if origin is Literal and any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return _items(value, choices, _fitted)
    if option in (bool, str) and isinstance(value, option):
        return value
    if option is Path and isinstance(value, str | Path):
        return Path(value)
    if option is float and _traced(value):
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


def _items(values: Sequence[Any], kinds: Sequence[Any], fit: Any) -> Any:
    """The items of a tuple of type ``(kind, ...)``, or of as many kinds as items; ``_UNFIT`` if one does not fit."""
    kinds = [kinds[0]] * len(values) if Ellipsis in kinds else kinds
    items = []
    for value, kind in zip(values, kinds, strict=False):
        fitted = (fit(value, option) for option in alternatives(kind))
        items.append(next((one for one in fitted if one is not _UNFIT), _UNFIT))
    return _UNFIT if len(values) != len(kinds) or any(item is _UNFIT for item in items) else tuple(items)


def _traced(value: Any) -> bool:
    """Whether a value is a JAX array of one number of floating-point type."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array) and value.shape == () and value.dtype.kind == "f"


def _prose(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(option))
    if typing.get_origin(option) is tuple:
        kinds = typing.get_args(option)
        return f"a list or tuple with each item {' or '.join(map(_prose, alternatives(kinds[0])))}"
    known = {float: "a number", int: "a whole number", bool: "True or False", str: "a string", Path: "a path"}
    return "None" if option is types.NoneType else known.get(option, str(option))
