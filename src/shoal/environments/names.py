"""The names of environments, where their factories are, and commands with them. Does not import JAX."""

import ast
import difflib
import importlib
import inspect
import shlex
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from shoal.errors import InputError, unknown
from shoal.options.convert import Anything, is_boolean, is_flag

_MPE = "shoal.environments.mpe"
_MATRIX = "shoal.environments.matrix"

# Factories as text, so that nothing is imported before it is needed.
FACTORIES: dict[str, str] = {
    "grid/pursuit": "shoal.environments.grid.pursuit:pursuit",
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
    "matrix/coordsum": "shoal.environments.coordsum:coordsum",
    **{
        f"matrix/{game}": f"{_MATRIX}:{game}"
        for game in (
            "all_ones",
            "climbing",
            "coordination",
            "loud_agent",
            "matching_pennies",
            "monotonicity",
            "penalty",
            "proposition1",
            "rock_paper_scissors",
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
    "hanabi/": "shoal.environments.hanabi.tasks:make",
    "hands/": "shoal.environments.hands.tasks:make",
    "jaxmarl/": f"{_ADAPTERS}.jaxmarl:make",
    "lbf/": f"{_ADAPTERS}.lbf:make",
    "mamujoco/": f"{_ADAPTERS}.mamujoco:make",
    "pettingzoo:": f"{_ADAPTERS}.pettingzoo:make",
    "rware/": f"{_ADAPTERS}.rware:make",
    "skirmish/": "shoal.environments.skirmish.tasks:make",
    "smac/": f"{_ADAPTERS}.smac:make",
}
"""Prefix of a family's names -> the function that builds its environments from the rest of the name and options."""

_SMAX = (
    "3m",
    "2s3z",
    "25m",
    "3s5z",
    "8m",
    "5m_vs_6m",
    "10m_vs_11m",
    "27m_vs_30m",
    "3s5z_vs_3s6z",
    "3s_vs_5z",
    "6h_vs_8z",
)
_KITCHENS = ("asymm_advantages", "coord_ring", "counter_circuit", "cramped_room", "forced_coord")
_BODIES = ("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9x8", "walker2d_2x3")
_JAXMARL = ("hanabi", *_BODIES, *(f"overcooked_v2/{name}" for name in _KITCHENS), *(f"smax/{name}" for name in _SMAX))
_TASKS: dict[str, tuple[str, ...]] = {
    "football/": (f"{_ADAPTERS}.football:PLAYERS",),
    "hanabi/": ("shoal.environments.hanabi.tasks:TASKS",),
    "hands/": ("shoal.environments.hands.constants:TASKS",),
    "jaxmarl/": (f"{__name__}:_JAXMARL",),  # its adapter imports JAX
    "lbf/": (f"{_ADAPTERS}.lbf:PUBLISHED",),
    "mamujoco/": (f"{_ADAPTERS}.mamujoco:PUBLISHED",),
    "rware/": (f"{_ADAPTERS}.rware:PUBLISHED",),
    "skirmish/": ("shoal.environments.skirmish.maps:MAPS", f"{_ADAPTERS}.smac:DRAWN"),
    "smac/": (f"{_ADAPTERS}.smac:LIMITS", f"{_ADAPTERS}.smac:DRAWN"),
}


def names() -> tuple[str, ...]:
    """The names of all built-in device environments, sorted."""
    return tuple(sorted(FACTORIES))


def completed(begun: str) -> list[str]:
    """The names of environments that start with ``begun``: built-in ones and the usual ones of each family.

    Of a family whose names are those of another package (``gymnasium:``, ``pettingzoo:``) it is the prefix.
    """
    found = [name for name in FACTORIES if name.startswith(begun)]
    for prefix in FAMILIES:
        if prefix.startswith(begun) or begun.startswith(prefix):
            places = (path.partition(":") for path in _TASKS.get(prefix, ()))
            tasks = [task for module, _, name in places for task in getattr(importlib.import_module(module), name)]
            found += [name for task in tasks or [""] if (name := f"{prefix}{task}").startswith(begun)]
    return sorted(found)


def built_in(name: str) -> bool:
    """Whether a name is one of :func:`names`, or the path of one of their factories."""
    return name in FACTORIES or name in FACTORIES.values()


def check_name(name: str) -> None:
    """Refuse a name that is neither built in, nor of a family, nor ``package.module:factory``.

    Raises:
        InputError: naming the nearest.
    """
    if built_in(name) or ":" in name or name.startswith(tuple(FAMILIES)):
        return
    if tasks := [task for task in completed("") if task.endswith(f"/{name}")]:  # smax/3m of jaxmarl/, or 3m alone
        near = " or ".join(map(repr, sorted(tasks, key=lambda task: (task.count("/"), task))[:3]))
        raise InputError(f"There is no environment {name!r}; did you mean {near}?")
    if difflib.get_close_matches(name, FACTORIES, cutoff=0.6):
        raise unknown("environment", name, FACTORIES)
    raise InputError(
        f"There is no environment {name!r}; 'shoal list environments' lists those of Shoal and families of others, and "
        f"'shoal list skirmish/' those of a family; the name of your own is 'module:name'."
    )


# An environment's name and options as words of a command line, for printed commands.


def hint_of(option: inspect.Parameter, default: Any) -> Any:
    """The type of an option on the command line: its annotation, else the type of its default (of all its items)."""
    if not isinstance(option.annotation, str) and option.annotation not in (option.empty, Anything):
        return option.annotation
    kinds = {type(item) for item in default} if isinstance(default, tuple) else set()
    if len(kinds) == 1 and kinds <= {int, float, str}:
        return tuple[*kinds, ...]
    return Anything if default is option.empty or default is None else type(default)


def commands_with(environment: Any, options: Mapping[str, Any]) -> tuple[str, str]:
    """(command to train in an environment, command to check it), as shell commands if name and options can be written
    as words, else as Python calls, in which other objects are called ``environment`` and ``env``."""
    from shoal.environments import registry  # imports JAX

    name = registry.called(environment)
    if isinstance(environment, str):
        words = _words(environment, options)
        if words is not None:
            return f"shoal train mappo {shlex.join([name, *words])}", f"shoal check {shlex.join([name, *words])}"
    what = repr(name) if isinstance(environment, str) else "environment"
    given = f", env={dict(options)!r}" if _literal(dict(options)) else ", env=env"
    given = given if options else ""
    return f'shoal.train("mappo", {what}{given})', f"shoal.check({what}{given})"


def path_words(path: Path | str) -> str:
    """A path as a shell word that is not mistaken for a flag."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _words(name: str, options: Mapping[str, Any]) -> list[str] | None:
    """Flags for ``options``; None if one cannot be written as words."""
    from shoal.environments import registry  # imports JAX

    known, words = registry.options_of(name), []
    for option, value in options.items():
        parameter = known.get(option)
        if parameter is None or parameter.kind is parameter.VAR_KEYWORD:
            hint = Anything
        else:
            hint = hint_of(parameter, parameter.default)
        flag = _flag(option.replace("_", "-"), value, hint)
        if flag is None:
            return None
        words += flag
    return words


def _flag(name: str, value: Any, hint: Any) -> list[str] | None:
    if is_boolean(hint) and isinstance(value, bool):
        return [f"--env.{name}" if value else f"--env.no-{name}"]
    texts = _texts(value, hint)
    if not texts or any(is_flag(text) for text in texts[1:]):
        return None
    if not texts[0] and not isinstance(value, str):  # an empty tuple cannot be written
        return None
    if texts[0][:1] in ("-", ""):  # a word that could be mistaken for a flag or a missing value
        return [f"--env.{name}={texts[0]}", *texts[1:]]
    return [f"--env.{name}", *texts]


def _texts(value: Any, hint: Any) -> list[str] | None:
    """The words after a flag of type ``hint`` that are parsed as ``value``; None if there are none."""
    origin, choices = typing.get_origin(hint), typing.get_args(hint)
    if hint is Anything:
        plain = isinstance(value, str) and Anything.read(value) == value and isinstance(Anything.read(value), str)
        return [value] if plain else [repr(value)] if _literal(value) else None
    if origin in (typing.Union, types.UnionType):
        if isinstance(value, str) and value == "None":
            return None
        found = (_texts(value, choice) for choice in choices)
        return next((texts for texts in found if texts is not None), None)
    if origin is Literal:
        return [str(value)] if any(type(value) is type(x) and value == x for x in choices) else None
    if origin is tuple and isinstance(value, tuple | list):
        kinds = [choices[0]] * len(value) if Ellipsis in choices else list(choices)
        each = [_texts(x, kind) for x, kind in zip(value, kinds, strict=True)] if len(kinds) == len(value) else [None]
        return None if None in each else [text for texts in each if texts is not None for text in texts]
    if hint in (None, types.NoneType):
        return ["None"] if value is None else None
    if hint is Path and isinstance(value, Path | str):
        return [str(value)]
    if isinstance(value, bool) or hint not in (int, float, str):
        return None
    if hint is float and isinstance(value, int):
        value = float(value)
    return [str(value) if hint is str else repr(value)] if isinstance(value, hint) else None


def _literal(value: Any) -> bool:
    """Whether a value equals its ``repr`` read as a literal."""
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError):
        return False
