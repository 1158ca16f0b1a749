"""Environments by name: built-in ones, families of other libraries, and ``package.module:factory``."""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from shoal import own_modules
from shoal.environments import common_options
from shoal.environments.adapters import foreign
from shoal.environments.spec_rules import check_spec
from shoal.environments.validation import validate
from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment
from shoal.types import Environment

__all__ = ["FAMILIES", "check_spec", "make", "names", "options_of", "validate"]

_MPE = "shoal.environments.mpe"
_MATRIX = "shoal.environments.matrix"

# Factories as text, so that nothing is imported before it is needed.
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

_ADAPTERS = "shoal.environments.adapters"

FAMILIES: dict[str, str] = {
    "football/": f"{_ADAPTERS}.football:make",
    "gymnasium:": f"{_ADAPTERS}.gymnasium:make",
    "hanabi/": f"{_ADAPTERS}.hanabi:make",
    "jaxmarl/": f"{_ADAPTERS}.jaxmarl:make",
    "lbf/": f"{_ADAPTERS}.lbf:make",
    "mamujoco/": f"{_ADAPTERS}.mamujoco:make",
    "pettingzoo:": f"{_ADAPTERS}.pettingzoo:make",
    "rware/": f"{_ADAPTERS}.rware:make",
    "smac/": f"{_ADAPTERS}.smac:make",
}
"""Prefix of a family's names -> the function that builds its environments from the rest of the name and options."""


def names() -> tuple[str, ...]:
    """The names of all built-in device environments, sorted."""
    return tuple(sorted(_FACTORIES))


def make(name: Any, **options: Any) -> Environment | HostEnvironment:
    """Build an environment.

    Args:
        name: a built-in name (see :func:`names`), a name of a family (:data:`FAMILIES`), ``package.module:factory``,
            that factory itself (for example a PettingZoo class), or an environment.
        options: keyword arguments of its factory, and the options that every environment takes
            (:mod:`shoal.environments.common_options`, see :func:`options_of`).

    Raises:
        InputError: the name is unknown, an option is unknown or out of range, a library is not installed, or the
            factory returns an object without a supported interface.
    """
    if isinstance(name, Environment | HostEnvironment):
        own, common = common_options.split(options, {})
        if own:
            raise InputError(f"{name.spec.name} is already built, so it takes no option {_list(own)}.")
        return common_options.apply(name, common)
    factory = factory_of(name)
    accepted = _parameters(factory)
    options, metrics = common_options.of_info(options, accepted) if _is_own(name) else (options, ())
    own, common = common_options.split(options, accepted)
    flexible = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for option in own:
        if option not in accepted and not flexible:
            raise InputError(f"{name} takes no option {option!r}; it accepts {_list(options_of(name))}.")
    missing = [p.name for p in accepted.values() if p.default is p.empty and p.kind in _NAMED and p.name not in own]
    if missing:
        raise InputError(f"{name} needs the option {_list(missing)}.")
    made = factory(**own)
    if not isinstance(made, Environment | HostEnvironment):
        made = foreign.adapt(made, functools.partial(factory, **own), called(name), metrics)
    elif metrics:
        raise InputError(f"{name} names its metrics in its spec, so it takes no option 'metrics'.")
    return common_options.apply(made, common)


def called(name: Any) -> str:
    """The name of an environment, from any argument of :func:`make`."""
    if isinstance(name, Environment | HostEnvironment):
        return name.spec.name
    return name if isinstance(name, str) else f"{name.__module__}:{getattr(name, '__qualname__', type(name).__name__)}"


def can_be_named(factory: Any) -> bool:
    """Whether :func:`factory_of` finds the factory again by its name (:func:`called`)."""
    if not callable(factory) or getattr(factory, "__module__", "__main__") == "__main__":
        return False
    try:
        return factory_of(called(factory)) is factory
    except InputError:
        return False


def options_of(name: Any) -> dict[str, inspect.Parameter]:
    """The options of an environment: the parameters of its factory and the options of all environments.

    Raises:
        InputError: the environment is unknown.
    """
    own = _parameters(factory_of(name))
    common = common_options.OPTIONS | (common_options.OF_INFO if _is_own(name) else {})
    return own | {option: parameter for option, parameter in common.items() if option not in own}


def _is_own(name: Any) -> bool:
    """Whether an environment is a user's class or function, rather than built in or of a family."""
    return not isinstance(name, str) or not (name in _FACTORIES or name.startswith(tuple(FAMILIES)))


_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError) as error:
        raise InputError(f"{factory!r} has no readable signature, so its options are unknown.") from error


def factory_of(name: Any) -> Callable[..., Any]:
    """The function from options to an environment.

    Raises:
        InputError: the name is unknown.
    """
    if callable(name):
        return name
    if not isinstance(name, str):
        raise InputError(f"An environment is named by text such as 'mpe/simple_spread', not {type(name).__name__}.")
    for prefix, path in FAMILIES.items():
        if name.startswith(prefix):
            return _bound(own_modules.imported(path, name, "environment"), name.removeprefix(prefix))
    if built_in(name):
        return own_modules.imported(_FACTORIES.get(name, name), name, "environment")
    if ":" not in name:
        if not difflib.get_close_matches(name, _FACTORIES, cutoff=0.5):
            raise InputError(
                f"There is no environment {name!r}; 'shoal list environments' names them all, and one of your own is "
                f"'module:name'."
            )
        raise unknown("environment", name, _FACTORIES)
    factory = own_modules.found(name, "environment")
    inner = factory.func if isinstance(factory, functools.partial) else factory
    own_modules.refuse_standard(getattr(inner, "__module__", None) or type(inner).__module__, name, "environment")
    return factory


def built_in(name: str) -> bool:
    """Whether a name is one of :func:`names`, or the path of one of their factories."""
    return name in _FACTORIES or name in _FACTORIES.values()


def _bound(factory: Callable[..., Any], task: str) -> Callable[..., Any]:
    """A family's function for one task, with the same docstring."""
    bound = functools.partial(factory, task)
    bound.__doc__ = factory.__doc__
    return bound


def _list(words: Any) -> str:
    return ", ".join(repr(str(word)) for word in words)
