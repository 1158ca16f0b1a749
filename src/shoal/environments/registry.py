"""Environments by name: the ones that come with Shoal, and a user's own as ``package.module:factory``."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from shoal.environments.validation import validate
from shoal.errors import InputError, unknown
from shoal.types import Environment

__all__ = ["make", "names", "options_of", "validate"]

_MPE = "shoal.environments.mpe"
_MATRIX = "shoal.environments.matrix"

# Where each factory lives, as text: nothing is imported before it is asked for.
_FACTORIES: dict[str, str] = {
    "grid/stag_hunt": "shoal.environments.grid.stag_hunt:stag_hunt",
    "bps/spread": f"{_MPE}.blind_spread:blind_spread",
    **{f"bps/{task}": f"{_MPE}.blind_spread:bps_{task}" for task in ("1", "2", "3", "4", "h1", "h2", "h3")},
    **{
        f"mpe/{scenario}": f"{_MPE}.{scenario.removeprefix('simple_')}:{scenario}"
        for scenario in (
            "simple",
            "simple_adversary",
            "simple_crypto",
            "simple_push",
            "simple_reference",
            "simple_speaker_listener",
            "simple_spread",
            "simple_tag",
            "simple_world_comm",
        )
    },
    **{
        f"matrix/{game}": f"{_MATRIX}:{game}"
        for game in (
            "all_ones",
            "climbing",
            "monotonicity",
            "penalty",
            "proposition1",
            "traffic_junction",
            "two_state",
            "two_step",
        )
    },
}


def names() -> tuple[str, ...]:
    """The names of all built-in device environments, sorted."""
    return tuple(sorted(_FACTORIES))


def make(name: str | Environment, **options: Any) -> Environment:
    """Build an environment.

    Args:
        name: a built-in name (see :func:`names`), ``package.module:factory`` for one's own, or an environment already
            built, which is returned as it is.
        options: keyword arguments of its factory (see :func:`options_of`).

    Raises:
        InputError: there is no such name or factory, an option is unknown or out of range, or the factory returns
            something that is not an :class:`Environment`.
    """
    if isinstance(name, Environment):
        if options:
            raise InputError(f"{name.spec.name} is already built, so it takes no option {_list(options)}.")
        return name
    factory = _factory(name)
    accepted = _parameters(factory)
    flexible = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for option in options:
        if option not in accepted and not flexible:
            raise InputError(f"{name} takes no option {option!r}; it accepts {_list(accepted) or 'none'}.")
    missing = [p.name for p in accepted.values() if p.default is p.empty and p.kind in _NAMED and p.name not in options]
    if missing:
        raise InputError(f"{name} needs the option {_list(missing)}.")
    environment = factory(**options)
    if not isinstance(environment, Environment):
        raise InputError(f"{name} must return a shoal.types.Environment, not {type(environment).__name__}.")
    return environment


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The keyword arguments of a factory, with their defaults and annotations.

    Raises:
        InputError: there is no such environment.
    """
    return _parameters(_factory(name))


_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError) as error:
        raise InputError(f"{factory!r} has no readable signature, so its options are unknown.") from error


def _factory(name: str) -> Callable[..., Any]:
    if not isinstance(name, str):
        raise InputError(f"An environment is named by text such as 'mpe/simple_spread', not {type(name).__name__}.")
    path = _FACTORIES.get(name, name)
    if ":" not in path:
        raise unknown("environment", name, _FACTORIES)
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"There is no module {error.name!r}, which the environment {name!r} needs.") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{name!r} is not of the form 'package.module:factory'.") from error
    factory = getattr(module, attribute, None)
    if factory is None:
        raise InputError(f"The module {module_name!r} has no attribute {attribute!r}.")
    if not callable(factory):
        raise InputError(f"{name!r} is not callable, so it cannot build an environment.")
    return factory


def _list(words: Any) -> str:
    return ", ".join(repr(str(word)) for word in words)
