"""Options that every environment takes, whoever wrote it: how rewards are shared, and how the score is counted.

:func:`shoal.environments.registry.make` takes them beside the options of the environment's own factory, and applies
them to what the factory gave, by the same wrapper on the device and on the host. No JAX.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any, Literal

from shoal.environments import changes
from shoal.environments.changes import Change
from shoal.environments.wrappers import changed
from shoal.errors import InputError, unknown
from shoal.spec import EnvSpec

Score = Literal["sum", "mean"]

_SCORES: tuple[str, ...] = ("sum", "mean")

DOCS: dict[str, str] = {
    "metrics": (
        "Names of numbers in the info of an episode's last step (with PettingZoo's interface the mean over the agents "
        "whose info has it) that are metrics of the episode, for example won."
    ),
    "shared_reward": (
        "True: at each step every agent, a dead one too, is given the mean of all agents' rewards; False: each agent "
        "learns from its own reward; None: as the environment describes itself."
    ),
    "score": (
        "Report the agents' returns as their sum or as their mean (one copy of a shared reward); None: as the "
        "environment describes itself."
    ),
}
"""What each option means, as ``--help`` prints it."""

OPTIONS: dict[str, inspect.Parameter] = {
    name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in {"shared_reward": bool | None, "score": Score | None}.items()
}
"""The options as parameters of a factory."""

OF_INFO: dict[str, inspect.Parameter] = {
    "metrics": inspect.Parameter("metrics", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=tuple[str, ...])
}
"""Options of one's own environments with the interface of PettingZoo, Gymnasium or SMAC, whose adapters apply them."""


def split(options: Mapping[str, Any], accepted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the options that go to a factory, those that are applied to what it gives).

    An option that the factory names itself goes to the factory. It is applied as well where its value is one that it
    can have here: a factory that shares rewards by itself gives equal rewards, which stay as they are.

    Raises:
        InputError: an option has a value that it cannot have.
    """
    own = {name: value for name, value in options.items() if name in accepted or name not in OPTIONS}
    common = {name: value for name, value in options.items() if name in OPTIONS}
    for name, value in dict(common).items():
        if not _valid(name, value):
            if name not in accepted:
                raise _refusal(name, value)
            del common[name]
    return own, common


def of_info(options: Mapping[str, Any], accepted: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the other options, the names that ``metrics`` gives unless the factory takes an option of that name itself).

    Raises:
        InputError: they are no names.
    """
    if "metrics" in accepted or "metrics" not in options:
        return dict(options), ()
    names = options["metrics"]
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"metrics must be a tuple of names, not {names!r}.")
    return {name: value for name, value in options.items() if name != "metrics"}, tuple(names)


def apply(env: Any, common: Mapping[str, Any]) -> Any:
    """An environment, on the device or on the host, with these options; itself where they change nothing."""
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
    return value is None or (isinstance(value, bool) if name == "shared_reward" else value in _SCORES)


def _refusal(name: str, value: Any) -> InputError:
    if name == "shared_reward":
        return InputError(f"shared_reward must be True, False or None, not {value!r}.")
    return unknown("score", str(value), _SCORES)
