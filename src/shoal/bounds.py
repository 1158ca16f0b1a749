"""Bounds of numeric configuration fields, as annotations, and their check. Does not import JAX.

    learning_rate: Annotated[float, Bounds(above=0.0, most=10.0)] = 7e-4

Bounds are wide: beyond them an array cannot be allocated, a value overflows single precision or a 32-bit integer, or
training is meaningless. Names such as :data:`Count` are for frequent kinds of fields.
"""

import dataclasses
import functools
import numbers
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from shoal.errors import InputError

LARGEST_INT = 2**31 - 1
"""The largest 32-bit integer; compiled programs count with 32 bits."""


@dataclass(frozen=True)
class Bounds:
    """An interval of numbers, unbounded where fields are None. NaN lies in no interval."""

    least: int | float | None = None
    """The smallest value."""
    most: int | float | None = None
    """The largest value."""
    above: int | float | None = None
    """Exclusive lower bound, instead of ``least``."""
    below: int | float | None = None
    """Exclusive upper bound, instead of ``most``."""

    def holds(self, value: Any) -> bool:
        """Whether ``value`` lies within the bounds."""
        return (
            value == value  # NaN does not equal itself
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """For example ``at least 1 and at most 64``."""
        words = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return " and ".join(f"{word} {bounds_text(limit)}" for word, limit in words if limit is not None)

    @property
    def interval(self) -> str:
        """In mathematical notation, for example ``(0, 10]``."""
        low, high = (x if y is None else y for x, y in ((self.least, self.above), (self.most, self.below)))
        left = "(" if self.above is not None or low is None else "["
        right = ")" if self.below is not None or high is None else "]"
        lowest, highest = "-inf" if low is None else bounds_text(low), "inf" if high is None else bounds_text(high)
        return f"{left}{lowest}, {highest}{right}"


Count = Annotated[int, Bounds(least=1, most=1_000_000)]
"""Number of repetitions."""
Width = Annotated[int, Bounds(least=1, most=65_536)]
"""Units of one layer of a network."""
Depth = Annotated[int, Bounds(least=1, most=64)]
"""Layers, blocks or heads of a network."""
Index = Annotated[int, Bounds(least=0, most=65_535)]
"""Index of an agent, a role or a policy, from 0."""
Size = Annotated[int, Bounds(least=1, most=LARGEST_INT)]
"""Number of stored items."""
Fraction = Annotated[float, Bounds(least=0.0, most=1.0)]
"""A fraction or a probability."""
Part = Annotated[float, Bounds(least=0.0, most=0.999999)]
"""A fraction below 1, also in single precision."""
Positive = Annotated[float, Bounds(above=0.0, most=1e6)]
"""A width, a limit or a temperature."""
Weight = Annotated[float, Bounds(least=0.0, most=1e6)]
"""Weight of a loss term, or a standard deviation; 0 disables it."""
Gain = Annotated[float, Bounds(least=0.0, most=1000.0)]
"""Scale of initial weights."""
Decay = Annotated[float, Bounds(least=0.0, most=0.999999)]
"""Decay of an exponential average; closer to 1 it would not change in single precision."""
Draws = Annotated[int, Bounds(least=1, most=1024)]
"""Number of samples per row, all of which are in memory."""
Rate = Annotated[float, Bounds(above=0.0, most=10.0)]
"""An optimiser's step size."""
Tiny = Annotated[float, Bounds(least=1e-30, most=1.0)]
"""A constant that keeps a denominator positive in single precision."""


def check_bounds(config: Any, prefix: str = "") -> None:
    """Check the bounds of all fields of a dataclass and of dataclasses inside it.

    Values other than Python and NumPy numbers, such as traced arrays and None, are not checked.

    Raises:
        InputError: a value is out of bounds; the message names the field, its bounds and the value.
    """
    known = bounds_of(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_bounds(value, prefix + field.metadata.get("prefix", ""))
        elif field.name in known:
            check_value(prefix + field.name, value, known[field.name])


def off(value: Any) -> bool:
    """Whether a weight or a probability is the number 0, so that its term can be left out; never for a traced array."""
    return isinstance(value, numbers.Real) and value == 0


def check_value(name: str, value: Any, bounds: Bounds) -> None:
    """Check a number, or each item of a tuple of numbers.

    Raises:
        InputError: it is out of bounds; the message has ``name``, the bounds and the value.
    """
    for one in value if isinstance(value, tuple | list) else (value,):
        if isinstance(one, numbers.Real) and not isinstance(one, bool) and not bounds.holds(one):
            whose = "each item of " if isinstance(value, tuple | list) else ""
            raise InputError(f"{whose}{name} must be {bounds}, not {bounds_text(one)}.")


@functools.cache
def bounds_of(kind: type) -> dict[str, Bounds]:
    """The bounds of a dataclass's own fields by name; for a tuple, those of its items."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {field.name: next(_bounds(hints[field.name]), None) for field in dataclasses.fields(kind)}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(hint: Any) -> Iterator[Bounds]:
    """The bounds in an annotation, also inside unions and tuples."""
    if typing.get_origin(hint) is Annotated:
        yield from (mark for mark in hint.__metadata__ if isinstance(mark, Bounds))
        yield from _bounds(hint.__origin__)
    elif isinstance(hint, types.UnionType) or typing.get_origin(hint) in (typing.Union, tuple):
        for part in typing.get_args(hint):
            yield from _bounds(part)


def bounds_text(number: Any) -> str:
    """A number as short text: 65536, 0.5, 1e15."""
    if isinstance(number, numbers.Integral):
        plain = str(int(number)) if abs(int(number)) < 10**10 else ""
        if plain and not plain.endswith("00000"):
            return plain
        number = Decimal(int(number)).normalize()  # an integer may be too large for a float
    mantissa, e, exponent = f"{number:.6g}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}" if e else mantissa
