"""Options of environments: checks of their values, and those that all environments take. Does not import JAX."""

import functools
import inspect
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from shoal.bounds import LARGEST_INT, bounds_text
from shoal.environments import changes
from shoal.environments.changes import Change
from shoal.environments.wrappers import changed
from shoal.errors import InputError, unknown
from shoal.spec import EnvSpec

MAX_ENTITIES = 1024
"""Largest number of agents, landmarks or other entities of one kind."""

Convention = Literal["mpe2", "openai"]


def check_count(name: str, value: int, least: int = 1, most: int = MAX_ENTITIES) -> int:
    """``value`` itself, or an :class:`InputError` where it is not an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, not {value!r}.")
    if value > most:
        raise InputError(f"{name} must be at most {most}, not {bounds_text(value)}.")
    return value


def check_steps(name: str, value: int) -> int:
    """``value`` itself, or an :class:`InputError` where it is not a number of steps that 32 bits can count."""
    return check_count(name, value, most=LARGEST_INT)


def check_flag(name: str, value: bool) -> bool:
    """``value`` itself, or an :class:`InputError` where it is not True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}.")
    return value


def check_number(name: str, value: float, low: float, high: float) -> float:
    """``value`` as a float, or an :class:`InputError` where it is not a number in [low, high]."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}.")
    return float(value)


def check_convention(value: str) -> bool:
    """True for ``openai``, False for ``mpe2``; an :class:`InputError` for anything else."""
    known = get_args(Convention)
    if value not in known:
        raise unknown("convention", str(value), known)
    return value == "openai"


def check_local_ratio(local_ratio: float | None, openai: bool) -> float:
    """The weight of an agent's own term in a reward of the convention ``mpe2``, by default ½.

    Raises:
        InputError: it is no number from 0 to 1, or is given with the convention ``openai``.
    """
    if openai and local_ratio is not None:
        raise InputError("local_ratio has no meaning under convention 'openai', whose reward is one shared sum.")
    return 0.5 if local_ratio is None else check_number("local_ratio", local_ratio, 0.0, 1.0)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> str:
    """``value`` itself, or an :class:`InputError` where it is none of ``known``."""
    if value not in known:
        raise unknown(name, str(value), known)
    return value


# Options of all environments: shared rewards and the definition of the score. :func:`shoal.environments.registry.make`
# accepts them beside the options of the environment's factory, and applies them to the environment by a wrapper.


Score = Literal["sum", "mean"]

_SCORES: tuple[str, ...] = ("sum", "mean")

OPTION_DOCS: dict[str, str] = {
    "metrics": (
        "Names of numbers in the info of an episode's last step (with PettingZoo's interface the mean over the agents "
        "whose info has it) that are metrics of the episode, for example won."
    ),
    "shared_reward": (
        "True: at each step every agent, dead ones included, receives the mean of all agents' rewards; False: each "
        "agent learns from its own reward; None: as in the environment's spec."
    ),
    "score": (
        "Report the agents' returns as their sum or as their mean (one copy of a shared reward); None: as in the "
        "environment's spec."
    ),
}
"""What each option means, as ``--help`` prints it."""

COMMON_OPTIONS: dict[str, inspect.Parameter] = {
    name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in {"shared_reward": bool | None, "score": Score | None}.items()
}
"""The options as parameters of a factory."""

INFO_OPTIONS: dict[str, inspect.Parameter] = {
    "metrics": inspect.Parameter("metrics", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=tuple[str, ...])
}
"""Options of user-defined environments with the interface of PettingZoo, Gymnasium or SMAC; the adapters apply them."""


def split_common_options(
    options: Mapping[str, Any], accepted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the options for a factory, the options to apply to its environment).

    An option that the factory accepts is passed to it, and also among the second if its value is valid here: it is
    applied to environments of other interfaces, which cannot say whether their rewards are shared. Sharing rewards that
    are equal does not change them.

    Raises:
        InputError: an option has an invalid value.
    """
    own = {name: value for name, value in options.items() if name in accepted or name not in COMMON_OPTIONS}
    common = {name: value for name, value in options.items() if name in COMMON_OPTIONS}
    for name, value in dict(common).items():
        if not _valid(name, value):
            if name not in accepted:
                raise _refusal(name, value)
            del common[name]
    return own, common


def split_metrics(options: Mapping[str, Any], accepted: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the other options, the names in ``metrics``, unless the factory itself has an option of that name).

    Raises:
        InputError: ``metrics`` is no tuple of names.
    """
    if "metrics" in accepted or "metrics" not in options:
        return dict(options), ()
    names = check_metrics(options["metrics"])
    return {name: value for name, value in options.items() if name != "metrics"}, names


def check_metrics(names: Any) -> tuple[str, ...]:
    """``names`` as a tuple, or an :class:`InputError` where they are no names; the letters of a text would be some."""
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"metrics must be a tuple of names, not {names!r}.")
    return tuple(names)


def apply_common_options(env: Any, common: Mapping[str, Any]) -> Any:
    """A device or host environment with these options; unchanged if they have no effect."""
    spec: EnvSpec = env.spec
    shared, score = common.get("shared_reward"), common.get("score")
    shared = None if shared == spec.shared_reward else shared
    score = None if score == spec.score else score
    if shared is None and score is None:
        return env
    return changed(env, functools.partial(_change, shared=shared, score=score))


def _change(spec: EnvSpec, shared: bool | None, score: Score | None) -> Change:
    makers = []
    if shared is not None:
        makers.append(changes.shared_reward if shared else changes.own_rewards)
    if score is not None:
        makers.append(functools.partial(changes.score, kind=score))
    return changes.chain(spec, makers)


def _valid(name: str, value: Any) -> bool:
    if name == "shared_reward":
        return value is None or isinstance(value, bool)
    return value is None or (isinstance(value, str) and value in _SCORES)


def _refusal(name: str, value: Any) -> InputError:
    if name == "shared_reward":
        return InputError(f"shared_reward must be True, False or None, not {value!r}.")
    return unknown("score", str(value), _SCORES)
