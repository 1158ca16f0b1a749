"""What building the environment of an untrusted run folder would import, and may call (``docs/security.md``).

Names that the user types are trusted; names in a run folder are not.
"""

import functools
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal.environments import registry
from shoal.environments.options import COMMON_OPTIONS
from shoal.errors import InputError, shortened
from shoal.game import HostEnvironment
from shoal.security import user_modules
from shoal.security.user_modules import installed, places, standard, top
from shoal.trust import provenance
from shoal.trust.run_file import TRUST, decides, own_record, why_not_own
from shoal.types import Environment

PACKAGES: dict[str, tuple[str, ...]] = {
    "football/": ("gfootball", "gym"),
    "gymnasium:": ("gymnasium", "gymnasium_robotics", "mujoco", "Box2D"),
    "hanabi/": ("pyspiel", "open_spiel"),
    "hands/": ("mujoco",),
    "jaxmarl/": ("jaxmarl", "brax"),
    "lbf/": ("jumanji", "lbforaging", "gymnasium"),
    "mamujoco/": ("gymnasium_robotics", "gymnasium", "mujoco", "pettingzoo"),
    "pettingzoo:": ("pettingzoo", "mpe2", "gymnasium", "pygame"),
    "rware/": ("jumanji", "rware", "gymnasium"),
    "skirmish/": (),
    "smac/": ("smac", "smacv2", "smaclite", "pysc2", "gymnasium", "pygame"),
}
"""Packages that each family imports: those of Shoal's extras, and those of the documented installation."""


def beyond(name: str, options: Mapping[str, Any]) -> str | None:
    """What building an environment would import beyond Shoal and its extras, as the end of "it would …"; or None.

    Nothing is imported for this, except Gymnasium for one of its names.
    """
    found = list(_beyond(name, options))
    return " and ".join(found) or None


def own_module(name: str) -> str | None:
    """The user's own module that defines an environment, or None."""
    prefix, rest = _family(name)
    if prefix == "gymnasium:":
        return rest.partition(":")[0] if ":" in rest else None
    if prefix == "pettingzoo:":
        return None if _published(rest) else rest
    return None if prefix or registry.built_in(name) else name.partition(":")[0]


def _family(name: str) -> tuple[str, str]:
    prefix = next((prefix for prefix in registry.FAMILIES if name.startswith(prefix)), "")
    return prefix, name.removeprefix(prefix)


def _published(module: str) -> bool:
    """Whether ``pettingzoo:module`` is PettingZoo's (also without the prefix ``pettingzoo.``) or MPE2's."""
    if top(module) in ("pettingzoo", "mpe2"):
        return True
    if places(top(module)) is not None:
        return False
    return any((place.parent / top(module)).is_dir() for place in places("pettingzoo") or ())


def _beyond(name: str, options: Mapping[str, Any]) -> Iterator[str]:
    if registry.built_in(name):
        return
    if own := own_module(name):
        yield f"import the module {own!r}"
    prefix, rest = _family(name)
    for package in PACKAGES.get(prefix, ()):
        lies = places(package)
        if lies is not None and not installed(package):
            where = f" ({lies[0]})" if lies else ""
            yield f"import a {package!r} that does not lie where Python installs packages{where}"
    if prefix == "gymnasium:" and not own and installed("gymnasium"):
        yield from _registered(rest)
    yield from _hand(name, options)


def _hand(environment: Any, options: Mapping[str, Any]) -> Iterator[str]:
    return (f"hand it {shortened(text)}" for _, text in handed(environment, options))


def handed(environment: Any, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that may name a file or a module, with such a text, of an environment (a name or a factory) that is not
    built in."""
    if registry.built_in(registry.called(environment)):
        return
    known = registry.options_of(environment) if isinstance(environment, str) and not own_module(environment) else {}
    for option, value in options.items():
        if option not in known and option not in COMMON_OPTIONS:
            yield from ((option, text) for text in _texts(value) if _leads_somewhere(text))


def _registered(task: str) -> Iterator[str]:
    """Modules of ``task`` in Gymnasium's registry that are not the extras'."""
    import gymnasium

    for key, spec in gymnasium.registry.items():
        if key == task or key.rpartition("-v")[0] == task:  # without a version it is the newest
            entry = spec.entry_point
            module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None) or "?"
            if top(module) not in PACKAGES["gymnasium:"]:
                yield f"import the module {module!r}"


def _texts(value: Any) -> Iterator[str]:
    """All strings in an option."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _leads_somewhere(text: str) -> bool:
    """Whether a string may be a path or a module, rather than one of several choices.

    A word without signs is, if it is that of a file, or of a module that Python finds outside of installed packages.
    """
    if any(sign in text for sign in "/\\:~.") or "\0" in text:
        return True
    if Path(text).exists():
        return True
    return text.isidentifier() and not standard(text) and places(text) is not None and not installed(text)


def check_factory(name: str) -> None:
    """Check that a name from a run folder, even a trusted one, refers to a factory of environments.

    Allowed are names of built-in environments and families; classes with ``reset``, ``step`` and ``close``; and
    functions whose return annotation is such a class or one of Shoal's environments.

    Raises:
        InputError: it is none of these.
    """
    if top(name.partition(":")[0]) == "shoal" and not registry.built_in(name):
        raise InputError(f"{name!r} names a part of Shoal that is not an environment.")
    if not makes_environments(name):
        raise InputError(
            f"{name!r} is neither a class with reset, step and close nor a function whose return annotation is such a "
            f"class, so it is not called for a run folder; in Python, give the environment itself (environment=...)."
        )


def makes_environments(name: str) -> bool:
    """Whether a name refers to a factory of environments, as :func:`check_factory` says; its module is imported."""
    return registry.built_in(name) or bool(_family(name)[0]) or _makes_environments(registry.factory_of(name))


def _makes_environments(factory: Any) -> bool:
    if isinstance(factory, functools.partial):
        return _makes_environments(factory.func)
    if inspect.isclass(factory):
        return _is_environment(factory)
    if not isinstance(factory, types.FunctionType) and not hasattr(factory, "__wrapped__"):
        return False
    try:
        returned = typing.get_type_hints(factory).get("return")
    except Exception:  # an annotation that cannot be evaluated
        return False
    union = isinstance(returned, types.UnionType) or typing.get_origin(returned) is typing.Union
    return all(_is_environment(one) for one in (typing.get_args(returned) if union else (returned,)))


def _is_environment(kind: Any) -> bool:
    if not inspect.isclass(kind) or standard(top(kind.__module__)):
        return False
    if issubclass(kind, Environment | HostEnvironment):
        return True
    return all(callable(getattr(kind, word, None)) for word in ("reset", "step", "close"))


def permit(folder: Path, entries: Mapping[str, Any], trust: bool, environment: Any = None) -> None:
    """Check that the environment that a folder names may be built.

    Args:
        folder: a run folder.
        entries: of its ``run.json``.
        trust: whether the user trusts the folder.
        environment: the name or factory of one that the user gives, which needs no permission, to be built with the
            options of ``entries``.

    Raises:
        InputError: the folder is untrusted and its environment would import modules that are neither Shoal's nor an
            extra's, or its options may name a file or a module; or the name is not that of an environment.
    """
    if environment is not None:
        own = provenance.marked_record(folder, decides(entries))  # whatever has become of the modules that it names
        if hand := "" if trust or own is not None else " and ".join(_hand(environment, entries["env"])):
            what = f"building {registry.called(environment)!r} with its options would {hand}"
            raise InputError(f"{folder} {why_not_own(folder, entries)}, and {what}: {TRUST}.")
        return
    name, record = entries["environment"], own_record(folder, entries)
    if record is not None and not trust:
        user_modules.instead(record.directory)
        return
    if trust:
        check_factory(name)
    elif imports := beyond(name, entries["env"]):
        raise InputError(
            f"{folder} {why_not_own(folder, entries)}, and its environment {name!r} would {imports}: {TRUST}."
        )
    else:
        user_modules.instead(None)
