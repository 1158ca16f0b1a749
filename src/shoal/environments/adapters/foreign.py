"""An object of somebody else's, recognised by its interface."""

import functools
from collections.abc import Callable
from typing import Any

from shoal.environments.adapters import smac
from shoal.errors import InputError
from shoal.game import Game, HostEnvironment
from shoal.spec import EnvSpec


def adapt(made: Any, factory: Callable[..., Any], name: str) -> HostEnvironment:
    """What ``factory`` built, as an environment that worker processes step.

    Args:
        made: one that was built, to look at; it is closed.
        factory: () -> another one; worker processes call it.
        name: how the environment is called.

    Raises:
        InputError: no adapter knows its interface.
    """
    maker = functools.partial(game, factory, name)
    built = wrap(made, name)
    spec = built.spec
    built.close()
    return HostEnvironment(spec, maker)


def game(factory: Callable[..., Any], name: str, render: bool = False) -> Game:
    """A game of what ``factory`` builds; with ``render``, one that draws, where the factory takes ``render_mode``."""
    if render:
        try:
            return wrap(factory(render_mode="rgb_array"), name)
        except TypeError:
            return wrap(factory(), name)
    return wrap(factory(), name)


def wrap(made: Any, name: str) -> Game:
    """``made`` behind the adapter of its interface.

    Raises:
        InputError: no adapter knows its interface.
    """
    if isinstance(getattr(made, "spec", None), EnvSpec):
        return made
    if smac.understands(made):
        return smac.wrap(made, name)
    if hasattr(made, "possible_agents"):
        from shoal.environments.adapters import pettingzoo

        return pettingzoo.wrap(made, name)
    if hasattr(made, "action_space") and hasattr(made, "observation_space"):
        from shoal.environments.adapters import gymnasium

        return gymnasium.wrap(made, name)
    raise InputError(
        f"{name} gives a {type(made).__name__}, which is neither a shoal.Environment or shoal.Game nor an environment "
        f"with PettingZoo's, Gymnasium's or SMAC's interface."
    )
