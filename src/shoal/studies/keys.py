"""Typed reading of the keys of a study file. Every error names the file and the key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from shoal.errors import InputError, shortened, unknown

REQUIRED = object()
Value = bool | int | float | str | tuple
"""A flag's value: a scalar, or a tuple of values."""


class Keys:
    """One table of a study file. Keys are taken one by one; keys that are not taken are unknown."""

    def __init__(self, file: Path, title: str, found: Any):
        """Wrap a table.

        Args:
            file: the study file, for messages.
            title: the table as it is written in the file, for example ``[grid]``; empty for the whole file.
            found: its TOML value.

        Raises:
            InputError: ``found`` is not a table.
        """
        self.file, self.title = file, title
        if not isinstance(found, dict):
            self.refuse("", f"must be a table of keys and values, not {shortened(found)}.")
        self.left = dict(found)

    def name(self, key: str) -> str:
        """The key as messages name it, for example ``[grid] gamma``."""
        return " ".join(word for word in (self.title, key) if word)

    def refuse(self, key: str, rest: str) -> NoReturn:
        """Raise an InputError whose sentence starts with the file and the key."""
        raise InputError(f"{self.file}: {self.name(key)} {rest}")

    def take(self, key: str, what: str, kinds: tuple[type, ...], default: Any = REQUIRED) -> Any:
        """Take a key whose value has one of ``kinds``; ``what`` describes them.

        Raises:
            InputError: the key is missing and has no default, or the value is of another type.
        """
        if key not in self.left:
            if default is REQUIRED:
                self.refuse(key, f"is missing; it must be {what}.")
            return default
        value = self.left.pop(key)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.refuse(key, f"must be {what}, not {shortened(value)}.")
        return value

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """Take a printable text that is not empty."""
        value = self.take(key, "a string", (str,), default)
        return value if value is default else self._line(key, value)

    def _line(self, key: str, value: str) -> str:
        if not value.strip() or not value.replace("\n", " ").isprintable():
            self.refuse(key, "must be a string of printable characters that is not empty.")
        return " ".join(value.split())

    def lines(self, key: str) -> tuple[str, ...]:
        """Take a printable text or a list of them, none of them empty; none if the key is missing."""
        return tuple(self._line(key, one) for one in self.texts(key, "a string") or ())

    def number(self, key: str, default: Any = REQUIRED) -> float | None:
        """Take a finite number."""
        value = self.take(key, "a number", (int, float), default)
        if value is default:
            return None
        if not abs(value) < float("inf"):
            self.refuse(key, f"must be a finite number, not {value}.")
        return float(value)

    def count(self, key: str, default: int, least: int, most: int) -> int:
        """Take a whole number within bounds."""
        value = self.take(key, "a whole number", (int,), default)
        if not least <= value <= most:
            self.refuse(key, f"must be at least {least} and at most {most}, not {value}.")
        return value

    def texts(self, key: str, what: str = "the name of an axis") -> tuple[str, ...] | None:
        """Take a string or a list of strings, each ``what``; None if the key is missing."""
        value = self.take(key, f"{what}, or a list of them", (str, list), None)
        if value is None:
            return None
        found = [value] if isinstance(value, str) else value
        if not found or not all(isinstance(one, str) for one in found):
            self.refuse(key, f"must be {what}, or a list of them, not {shortened(value)}.")
        return tuple(found)

    def table(self, key: str) -> "Keys":
        """Take an inner table; an empty one if the key is missing."""
        title = f"[{key}]" if not self.title else self.name(key)
        return Keys(self.file, title, self.left.pop(key, {}))

    def tables(self, key: str) -> list["Keys"]:
        """Take a list of tables, ``[[key]]``; an empty one if the key is missing."""
        found = self.left.pop(key, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self.refuse(key, f"must be tables that each start with [[{key}]], not {shortened(found)}.")
        return [Keys(self.file, f"[[{key}]] {i}", one) for i, one in enumerate(found, 1)]

    def flags(self) -> dict[str, Any]:
        """Take all remaining keys as flags. The table ``env`` gives the options ``env.NAME``; lists become tuples.

        Raises:
            InputError: a value is a date or a table, or an option of ``env`` is given twice.
        """
        found, self.left = self.left, {}
        inner = found.pop("env", {})
        if not isinstance(inner, dict):
            self.refuse("env", f"must be a table of options, not {shortened(inner)}.")
        for option, value in inner.items():
            if f"env.{option}" in found:
                self.refuse(f"env.{option}", "is set twice, with and without quotes.")
            found[f"env.{option}"] = value
        return {key: self._value(key, value) for key, value in found.items()}

    def _value(self, key: str, value: Any) -> Value:
        if isinstance(value, list):
            return tuple(self._value(key, one) for one in value)
        if not isinstance(value, bool | int | float | str):
            self.refuse(key, f"must be a number, a string, true, false, or a list, not {shortened(value)}.")
        return value

    def end(self, known: Iterable[str]) -> None:
        """Check that all keys were taken.

        Raises:
            InputError: one is; the message suggests the most similar of ``known``.
        """
        for key in self.left:
            kind = f"key in {self.title} named" if self.title else "key"
            raise InputError(f"{self.file}: {unknown(kind, key, known)}")


def frozen(value: Any) -> Any:
    """A value with tuples for lists, so that it is hashable."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def key(value: Any) -> Any:
    """A hashable form of a value in which true differs from 1."""
    if isinstance(value, tuple):
        return tuple(map(key, value))
    return ("bool", value) if isinstance(value, bool) else value


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; true and 1 are not."""
    return key(one) == key(other)


def label(value: Any) -> str:
    """A value as short text: ``0.9``, ``mappo``, ``64 64``, ``true``."""
    if isinstance(value, tuple | list):
        return " ".join(map(label, value)) or "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def labels(values: Mapping[str, Any]) -> str:
    """The values of a run by axis as text: ``mappo in matrix/climbing, gamma 0.9``."""
    others = [f"{axis} {label(value)}" for axis, value in values.items() if axis not in ("algorithm", "environment")]
    return ", ".join([f"{values['algorithm']} in {values['environment']}", *others])
