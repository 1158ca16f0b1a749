"""An object of somebody else's, recognised by its interface."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shoal.environments.adapters import smac
from shoal.errors import InputError
from shoal.game import Game, HostEnvironment
from shoal.spec import EnvSpec


def adapt(made: Any, factory: Callable[..., Any], name: str, metrics: Sequence[str] = ()) -> HostEnvironment:
    """What ``factory`` built, as an environment that worker processes step.

    Args:
        made: one that was built, to look at; it is closed.
        factory: () -> another one; worker processes call it.
        name: how the environment is called.
        metrics: which numbers of its ``info`` are metrics of an episode.

    Raises:
        InputError: no adapter knows its interface, or it has no ``info``.
    """
    maker = functools.partial(game, factory, name, tuple(metrics))
    built = wrap(made, name, metrics)
    spec = built.spec
    built.close()
    return HostEnvironment(spec, maker)


def game(factory: Callable[..., Any], name: str, metrics: Sequence[str] = (), render: bool = False) -> Game:
    """A game of what ``factory`` builds; with ``render``, one that draws, where the factory takes ``render_mode``."""
    if render:
        try:
            return wrap(factory(render_mode="rgb_array"), name, metrics)
        except TypeError:
            return wrap(factory(), name, metrics)
    return wrap(factory(), name, metrics)


def wrap(made: Any, name: str, metrics: Sequence[str] = ()) -> Game:
    """``made`` behind the adapter of its interface.

    Raises:
        InputError: no adapter knows its interface, or it names its metrics itself.
    """
    if isinstance(getattr(made, "spec", None), EnvSpec):
        if metrics:
            raise InputError(f"{name} names its metrics in its spec, so it takes no option 'metrics'.")
        return made
    if smac.understands(made):
        return smac.wrap(made, name, metrics)
    if hasattr(made, "possible_agents"):
        from shoal.environments.adapters import pettingzoo

        return pettingzoo.wrap(made, name, metrics=metrics)
    if hasattr(made, "action_space") and hasattr(made, "observation_space"):
        from shoal.environments.adapters import gymnasium

        return gymnasium.wrap(made, name, metrics=metrics)
    raise InputError(
        f"{name} gives a {type(made).__name__}, which is neither a shoal.Environment or shoal.Game nor an environment "
        f"with PettingZoo's, Gymnasium's or SMAC's interface."
    )
