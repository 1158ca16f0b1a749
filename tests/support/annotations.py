"""Annotations of all of Shoal's functions and dataclasses, shapes included, are checked while tests run.

`jaxtyping.jaxtyped` makes two checking functions of every function when it is defined, and in each call it binds the
arguments by name and checks them twice. Here one function of beartype's checks, made at the first call.
"""

import functools
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import beartype
import jaxtyping
from jaxtyping._storage import pop_shape_memo, push_shape_memo


def install() -> None:
    """Check the annotations of all modules of Shoal that are imported from now on."""
    jaxtyping.jaxtyped = lambda *, typechecker: checked  # what the import hook decorates with
    jaxtyping.install_import_hook("shoal", "beartype.beartype")


def checked(of: Any) -> Any:
    """The function, whose arguments and result are checked in each call; or the dataclass, whose fields are.

    A generator's arguments are checked when its first item is asked for.
    """
    if isinstance(of, type):
        if is_dataclass(of) and not hasattr(of.__init__, "__wrapped__"):
            of.__init__ = checked(of.__init__)
        return of
    checking: Callable[..., Any] | None = None

    @functools.wraps(of)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checking
        if jaxtyping.config.jaxtyping_disable:
            return of(*args, **kwargs)
        if checking is None:
            checking = beartype.beartype(_without_strings(of))
        push_shape_memo({})  # within a call, a name of an axis stands for one size
        try:
            return checking(*args, **kwargs)
        finally:
            pop_shape_memo()

    return call


def _without_strings(function: FunctionType) -> FunctionType:
    """A copy whose annotations are types; those in quotes that name what pyright alone imports are left out."""
    copy = FunctionType(*(getattr(function, f"__{of}__") for of in ("code", "globals", "name", "defaults", "closure")))
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    for name, hint in function.__annotations__.items():
        one = SimpleNamespace(__annotations__={name: hint})
        try:
            copy.__annotations__ |= typing.get_type_hints(one, function.__globals__, include_extras=True)
        except NameError:
            continue
    return copy
