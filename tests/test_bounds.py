"""Every number that can be configured has bounds, and what lies outside them is refused before anything is built."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import jax
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.bounds import Bounds, bounds_of, bounds_text, check_bounds, check_value
from shoal.cli.commands import COMMAND_OPTIONS
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.options.flags import flags_of, override
from shoal.training.settings import Settings
from shoal.types import Scale

SCALE = Scale(4, 8, 10)
ALL = [Settings, Wrapping, Body, *COMMAND_OPTIONS]
ALL += [algorithms.get(name).Config for name in (*algorithms.NAMES, "mappo+qmix")]
LARGEST = 2**31 - 1
TITLES = [f"{kind.__module__.removeprefix('shoal.')}.{kind.__name__}" for kind in ALL]


def numeric(hint: Any) -> type | None:
    """``int`` or ``float`` where a field of this type holds a number, or several; read without :mod:`shoal.bounds`."""
    origin = typing.get_origin(hint)
    if hint in (int, float):
        return hint
    if origin in (typing.Union, types.UnionType, tuple):
        return next(filter(None, map(numeric, typing.get_args(hint))), None)
    return None


def fields(kind: type) -> Iterator[tuple[type, str, type]]:
    """(class, name, int or float) of all numeric fields, also of dataclasses inside."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from fields(hints[field.name])
        elif (number := numeric(hints[field.name])) is not None:
            yield kind, field.name, number


def refusal(kind: type, name: str, value: Any) -> str:
    """What is said to an instance with ``value`` in one field, as a number or as a tuple of one."""
    hint = typing.get_type_hints(kind)[name]
    several = any(typing.get_origin(one) is tuple for one in (hint, *typing.get_args(hint)))
    one = object.__new__(kind)  # whatever else is required
    vars(one).update({field.name: None for field in dataclasses.fields(kind)} | {name: (value,) if several else value})
    with pytest.raises(InputError) as caught:
        check_bounds(one)
    return str(caught.value)


@pytest.mark.parametrize("kind", ALL, ids=TITLES)
def test_every_number_has_bounds(kind: type) -> None:
    lacking = [f"{owner.__name__}.{name}" for owner, name, _ in fields(kind) if name not in bounds_of(owner)]
    assert not lacking, "write bounds beside these fields, as shoal.bounds says"


@pytest.mark.parametrize("kind", ALL, ids=TITLES)
def test_nonsense_is_refused_in_every_field(kind: type) -> None:
    for owner, name, number in fields(kind):
        wild = [1e30, math.inf, -math.inf, math.nan, -1e30] if number is float else [2**40, -(2**40), 10**400]
        for value in wild:
            said = refusal(owner, name, value)
            assert said.startswith((f"{name} must be ", f"each item of {name} must be "))
            assert said.endswith(f", not {bounds_text(value)}.") and said.count("\n") == 0


@pytest.mark.parametrize("kind", ALL, ids=TITLES)
def test_bounds_end_where_they_say(kind: type) -> None:
    """The last value inside passes, the next one is refused."""
    for owner, name, number in fields(kind):
        bounds = bounds_of(owner)[name]
        down, up = (lambda x: x - 1, lambda x: x + 1) if number is int else (_down, _up)
        low = bounds.least if bounds.above is None else up(bounds.above)
        high = bounds.most if bounds.below is None else down(bounds.below)
        for value in (low, high):
            assert value is not None, f"{name} is bounded on one side only"
            check_value(name, number(value), bounds)
        assert low is not None and high is not None
        for value in (down(low), up(high)):
            refusal(owner, name, number(value))
        assert number is float or high <= LARGEST, f"{name} overflows 32 bits"


def _down(x: float) -> float:
    return math.nextafter(x, -math.inf)


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


@pytest.mark.parametrize("name", algorithms.NAMES)
def test_make_refuses_before_it_builds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "jit", lambda *_, **__: pytest.fail("something was compiled"))
    module = algorithms.get(name)
    spec = toys.busy().spec
    for _, field, number in fields(module.Config):
        bad = 1e30 if number is float else 2**40
        several = isinstance(flags_of(module.Config()).get(field), tuple) or field == "critic_hidden"
        value = (bad,) if several else bad
        if field == "sharing":
            value = (bad,) * spec.num_agents
        with pytest.raises(InputError, match=rf"\b{field} must be .* not (1e30|1.09951e12)\."):
            module.make(spec, override(module.Config(), {field: value}), SCALE)


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("mappo", {"learning_rate": 1e30}, "learning_rate must be above 0 and at most 10, not 1e30."),
        ("mappo", {"adam_eps": 1e22}, "adam_eps must be at least 1e-30 and at most 1, not 1e22."),
        ("mappo", {"value_norm_beta": -math.inf}, "value_norm_beta must be at least 0 and at most 0.999999, not -inf."),
        ("mappo", {"target_entropy_rate": -math.inf}, "target_entropy_rate must be above 0 and at most 10, not -inf."),
        ("mappo", {"recurrent": 2**31}, "recurrent must be at least 1 and at most 65536, not 2147483648."),
        ("qmix", {"hidden": (8, 0)}, "each item of hidden must be at least 1 and at most 65536, not 0."),
        ("mappo", {"gamma": np.float32(1.5)}, "gamma must be at least 0 and at most 1, not 1.5."),
        ("qmix", {"buffer_size": 10**400}, "buffer_size must be at least 1 and at most 2147483647, not 1e400."),
    ],
)
def test_notices_are_printed(name: str, flags: dict[str, Any], said: str) -> None:
    module = algorithms.get(name)
    with pytest.raises(InputError) as caught:
        module.make(toys.busy().spec, override(module.Config(), flags), SCALE)
    assert str(caught.value) == said


def test_sides_are_named() -> None:
    config = override(algorithms.get("mappo+qmix").Config(), {"side2_gamma": 2.0})
    with pytest.raises(InputError, match="side2_gamma must be at least 0"):
        check_bounds(config)


def test_a_wrapper_out_of_bounds_is_refused_before_it_is_put_on() -> None:
    with pytest.raises(InputError, match="frame_stack must be at least 1 and at most 1000, not 0"):
        wrap(toys.busy(), Wrapping(frame_stack=0))


def test_traced_numbers_are_left_alone() -> None:
    @dataclasses.dataclass
    class Config:
        rate: Annotated[float, Bounds(above=0.0, most=1.0)] | None = None

    check_bounds(Config())
    seen: list[Any] = []

    def traced(x: Any) -> Any:
        check_bounds(Config(rate=x))
        seen.append(x)
        return x

    jax.make_jaxpr(traced)(7.0)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("bounds", "words", "interval"),
    [
        (Bounds(least=1, most=64), "at least 1 and at most 64", "[1, 64]"),
        (Bounds(above=0.0, below=1.0), "above 0 and below 1", "(0, 1)"),
        (Bounds(least=-0.5), "at least -0.5", "[-0.5, inf)"),
        (Bounds(below=1e6), "below 1e6", "(-inf, 1e6)"),
    ],
)
def test_bounds_in_words(bounds: Bounds, words: str, interval: str) -> None:
    assert (str(bounds), bounds.interval) == (words, interval)
