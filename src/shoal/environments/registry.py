"""Environments by name: built-in ones, families of other libraries, and ``package.module:factory``."""

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from shoal.environments.adapters import foreign
from shoal.environments.names import FACTORIES, FAMILIES, built_in, check_name, names
from shoal.environments.options import (
    COMMON_OPTIONS,
    INFO_OPTIONS,
    apply_common_options,
    check_metrics,
    split_common_options,
    split_metrics,
)
from shoal.environments.spec_rules import check_spec
from shoal.environments.validation import validate
from shoal.errors import BuildError, InputError, shortened, told
from shoal.game import HostEnvironment
from shoal.options.convert import Anything
from shoal.security import isolation, user_modules
from shoal.types import Environment, EnvSpec

__all__ = ["FAMILIES", "built_in", "check_spec", "make", "names", "options_of", "validate"]


def make(name: Any, /, **options: Any) -> Environment | HostEnvironment:
    """Build an environment.

    Args:
        name: a built-in name (see :func:`names`), a name of a family (:data:`FAMILIES`), ``package.module:factory``,
            that factory itself (for example a PettingZoo class), or an environment.
        options: keyword arguments of its factory, and the options that every environment takes
            (:mod:`shoal.environments.options`, see :func:`options_of`).

    Raises:
        InputError: the name is unknown, an option is unknown or out of range, a library is not installed, or the
            factory raises (:class:`BuildError`) or returns an object without a supported interface.
    """
    if isinstance(name, Environment | HostEnvironment):
        own, common = split_common_options(options, {})
        if own:
            raise InputError(f"{name.spec.name} is already built, so it takes no option {_list(own)}.")
        return apply_common_options(name, common)
    factory = factory_of(name)
    accepted = _parameters(factory)
    metrics: tuple[str, ...] = ()
    if _is_own(name):
        options, metrics = split_metrics(options, accepted)
    elif "metrics" in options and "metrics" in accepted:  # of a family, whose adapter takes them
        options["metrics"] = check_metrics(options["metrics"])
    own, common = split_common_options(options, accepted)
    if not _is_own(name):  # None stands for the default
        own = {option: value for option, value in own.items() if value is not None or option not in COMMON_OPTIONS}
    flexible = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for option in own:
        if option not in accepted and not flexible:
            raise InputError(f"{called(name)} takes no option {option!r}; it accepts {_list(options_of(name))}.")
    missing = [p.name for p in accepted.values() if p.default is p.empty and p.kind in _NAMED and p.name not in own]
    if missing:
        raise InputError(f"{called(name)} needs the option {_list(missing)}.")
    with _building(name):
        with isolation.safe_children():
            made = factory(**own)
        # A spec says what the factory's own options of these names did.
        if isinstance(getattr(made, "spec", None), EnvSpec):
            common = {option: value for option, value in common.items() if option not in accepted}
        foreigner = not isinstance(made, Environment | HostEnvironment)
        if foreigner:
            made = foreign.adapt(made, functools.partial(factory, **own), called(name), metrics)
    if metrics and not foreigner:
        raise InputError(f"{name} names its metrics in its spec, so it takes no option 'metrics'.")
    return apply_common_options(made, common)


@contextlib.contextmanager
def _building(name: Any) -> Iterator[None]:
    """Turn what the code of an environment that is not built in raises into one sentence, with the traceback.

    Raises:
        BuildError: it raised an exception other than an ``InputError`` and a ``MemoryError``.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if isinstance(name, str) and name in FACTORIES:
            raise
        raise BuildError(f"{called(name)} cannot be built: {told(error)}", traceback.format_exc()) from error


def called(name: Any) -> str:
    """The name of an environment, from any argument of :func:`make`.

    Raises:
        InputError: it is neither a name, nor an environment, nor a factory of one.
    """
    if not isinstance(name, str) and not callable(name) and not isinstance(name, Environment | HostEnvironment):
        how = f": give its class, {type(name).__name__}, and its options" if hasattr(name, "step") else ""
        raise InputError(
            f"An environment is given by its name, a factory or an Environment, not {shortened(name)}{how}."
        )
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
    common = COMMON_OPTIONS | (INFO_OPTIONS if _is_own(name) else {})
    return own | {option: parameter for option, parameter in common.items() if option not in own}


def _is_own(name: Any) -> bool:
    """Whether an environment is a user's class or function, rather than built in or of a family."""
    return not isinstance(name, str) or not (name in FACTORIES or name.startswith(tuple(FAMILIES)))


_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """A factory's parameters; names in the text of an annotation that are not there at run time stand for any type."""
    absent: dict[str, Any] = {}
    try:
        with contextlib.suppress(Exception):  # what an annotation's text raises
            while True:
                try:
                    return dict(inspect.signature(factory, locals=absent, eval_str=True).parameters)
                except NameError as error:  # imported for type checkers only
                    if not error.name or error.name in absent:
                        break
                    absent[error.name] = Anything
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
        called(name)
        raise InputError(f"An environment is named by text such as 'mpe/simple_spread', not {type(name).__name__}.")
    for prefix, path in FAMILIES.items():
        if name.startswith(prefix):
            return _bound(user_modules.imported(path, name, "environment"), name.removeprefix(prefix))
    if built_in(name):
        return user_modules.imported(FACTORIES.get(name, name), name, "environment")
    check_name(name)
    factory = user_modules.import_user_object(name, "environment")
    user_modules.refuse_standard(user_modules.defining(factory), name, "environment")
    return factory


def _bound(factory: Callable[..., Any], task: str) -> Callable[..., Any]:
    """A family's function for one task, with the same docstring."""
    bound = functools.partial(factory, task)
    bound.__doc__ = factory.__doc__
    return bound


def _list(words: Any) -> str:
    return ", ".join(repr(str(word)) for word in words)
