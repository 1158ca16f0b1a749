"""Choice of the adapter for a user's environment by its interface."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shoal.environments.adapters import smac
from shoal.environments.adapters.teams import tell_of_state
from shoal.errors import InputError
from shoal.game import Game, HostEnvironment, close_example
from shoal.spec import EnvSpec


def adapt(made: Any, factory: Callable[..., Any], name: str, metrics: Sequence[str] = ()) -> HostEnvironment:
    """The environment that ``factory`` builds, as a :class:`HostEnvironment`.

    Args:
        made: an instance, which is inspected and closed.
        factory: () -> another instance; worker processes call it.
        name: name of the environment.
        metrics: keys of its ``info`` that are metrics of an episode.

    Raises:
        InputError: its interface is not supported, or it has no ``info``.
    """
    maker = functools.partial(game, factory, name, tuple(metrics))
    built = wrap(made, name, metrics)
    spec = built.spec
    tell_of_state(built)
    close_example(built)
    return HostEnvironment(spec, maker)


def game(factory: Callable[..., Any], name: str, metrics: Sequence[str] = (), render: bool = False) -> Game:
    """A game of the environment that ``factory`` builds; ``render`` is passed as ``render_mode`` if it is accepted."""
    if render:
        try:
            return wrap(factory(render_mode="rgb_array"), name, metrics)
        except TypeError:
            return wrap(factory(), name, metrics)
    return wrap(factory(), name, metrics)


def wrap(made: Any, name: str, metrics: Sequence[str] = ()) -> Game:
    """Wrap ``made`` by the adapter of its interface.

    Raises:
        InputError: its interface is not supported, or it names its metrics itself.
    """
    if isinstance(getattr(made, "spec", None), EnvSpec):
        if metrics:
            raise InputError(f"{name} names its metrics in its spec, so it takes no option 'metrics'.")
        return made
    several = hasattr(made, "possible_agents")
    if smac.understands(made) and not (several and callable(getattr(made, "observation_space", None))):
        return smac.wrap(made, name, metrics)
    if several:
        from shoal.environments.adapters import pettingzoo

        return pettingzoo.wrap(made, name, metrics=metrics)
    if hasattr(made, "action_space") and hasattr(made, "observation_space"):
        from shoal.environments.adapters import gymnasium

        return gymnasium.wrap(made, name, metrics=metrics)
    raise InputError(
        f"{name} gives a {type(made).__name__}, which is neither a shoal.Environment or shoal.Game nor an environment "
        f"with PettingZoo's, Gymnasium's or SMAC's interface."
    )
