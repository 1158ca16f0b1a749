"""Wrappers that change what an environment shows, by the same code on the device and in worker processes. No JAX.

What a wrapper remembers (:mod:`shoal.environments.changes`) is carried in a device environment's state, and beside a
game on the host. Returns and lengths of episodes need no wrapper: every rollout counts them
(:class:`shoal.types.EpisodeStats`, each agent's own return). Running normalisation of observations and rewards belongs
to what is learned, and is saved with it: :mod:`shoal.composing.reward_normalisation`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import numpy as np

from shoal.bounds import Bounds, Positive, Size, check
from shoal.environments import changes
from shoal.environments.changes import Change
from shoal.game import Game, HostEnvironment, HostTimestep, blank
from shoal.spec import EnvSpec

Env = TypeVar("Env")
Maker = Callable[[EnvSpec], Change]
"""The spec of what is wrapped -> the change."""


@dataclass(frozen=True)
class Wrapping:
    """What is changed of an environment; by default nothing. Applied in the order of the fields."""

    time_limit: Size | None = None
    """Steps after which an episode is cut off: by truncation, so that values still bootstrap (discount unchanged)."""
    frame_stack: Annotated[int, Bounds(least=1, most=1000)] = 1
    """Each agent sees its last so many observations side by side, the oldest first; early in an episode, its first
    observation stands in for those that are missing. The global state is not stacked."""
    agent_ids: bool = False
    """Append a one-hot id to every agent's own observation."""
    reward_scale: Positive = 1.0
    """Multiply rewards by this; reported returns are in the new unit too."""

    @property
    def observing(self) -> "Wrapping":
        """The part that changes observations: what a deployed policy has to do by itself."""
        return replace(self, time_limit=None, reward_scale=1.0)


def wrap(env: Env, wrapping: Wrapping) -> Env:
    """An environment behind wrappers.

    Args:
        env: a :class:`shoal.types.Environment` or a :class:`shoal.game.HostEnvironment`.
        wrapping: what to change.

    Returns:
        One of the same kind; ``env`` itself where nothing is asked for.

    Raises:
        InputError: a field of ``wrapping`` is out of its range.
    """
    check(wrapping)
    return env if wrapping == Wrapping() else changed(env, functools.partial(change_of, wrapping=wrapping))


def changed(env: Env, maker: Maker) -> Env:
    """An environment, on the device or on the host, behind the change that ``maker`` makes of its spec.

    Worker processes unpickle ``maker``, so it is a function of an importable module, or a ``functools.partial`` of one.
    """
    change = maker(cast(Any, env).spec)
    if isinstance(env, HostEnvironment):
        return cast(Env, HostEnvironment(change.spec, functools.partial(wrapped_game, env.make, maker)))
    return _on_device(env, change)


def change_of(spec: EnvSpec, wrapping: Wrapping) -> Change:
    """All that ``wrapping`` asks for as one change of an environment that ``spec`` describes."""
    w, makers = wrapping, []
    if w.time_limit is not None:
        makers.append(functools.partial(changes.time_limit, limit=w.time_limit))
    if w.frame_stack > 1:
        makers.append(functools.partial(changes.frame_stack, count=w.frame_stack))
    if w.agent_ids:
        makers.append(changes.agent_ids)
    if w.reward_scale != 1.0:
        makers.append(functools.partial(changes.reward_scale, scale=w.reward_scale))
    return changes.chain(spec, makers)


def unwrapped(spec: EnvSpec, wrapping: Wrapping) -> EnvSpec:
    """The spec with observations as the environment itself gives them, from that of the wrapped environment.

    ``horizon`` stays as it is, and ``novel`` is None: neither matters to who hands over observations.
    """
    if wrapping.observing == Wrapping():
        return spec
    ids = spec.num_agents if wrapping.agent_ids else 0
    return replace(spec, obs_dims=tuple((d - ids) // wrapping.frame_stack for d in spec.obs_dims), novel=None)


class Wrapped(NamedTuple):
    """The state of a wrapped device environment."""

    inner: Any
    memory: Any


def _on_device(env: Any, change: Change) -> Any:
    def reset(key: Any) -> tuple[Wrapped, Any]:
        inner, step = env.reset(key)
        memory, step = change.begin(step)
        return Wrapped(inner, memory), step

    def step(key: Any, state: Wrapped, action: Any) -> tuple[Wrapped, Any]:
        inner, outcome = env.step(key, state.inner, action)
        memory, outcome = change.follow(state.memory, outcome)
        return Wrapped(inner, memory), outcome

    render = None if env.render is None else lambda state: env.render(state.inner)
    return replace(env, spec=change.spec, reset=reset, step=step, render=render)


class WrappedGame:
    """A game behind wrappers. What they leave alone, the inner game writes straight to where it belongs."""

    def __init__(self, inner: Game, maker: Maker):
        self._inner, self._change = inner, maker(inner.spec)
        self._memory: Any = None
        own = self._change.spec.obs_dims == inner.spec.obs_dims
        self._obs = None if own else blank(inner.spec).obs

    @property
    def spec(self) -> EnvSpec:
        """Its description."""
        return self._change.spec

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        seen = out if self._obs is None else HostTimestep(self._obs, *out[1:])
        self._inner.reset(seed, seen)
        self._memory, shown = self._change.begin(seen)
        _write(shown, seen, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play ``action``."""
        seen = out if self._obs is None else HostTimestep(self._obs, *out[1:])
        self._inner.step(action, seen)
        self._memory, shown = self._change.follow(self._memory, seen)
        _write(shown, seen, out)

    def render(self) -> np.ndarray | None:
        """The inner game's picture."""
        return self._inner.render()

    def close(self) -> None:
        """Free the inner game."""
        self._inner.close()


def _write(shown: HostTimestep, seen: HostTimestep, out: HostTimestep) -> None:
    """Copy what wrappers replaced."""
    for new, old, to in zip(shown, seen, out, strict=True):
        if new is not old:
            to[...] = new


def wrapped_game(make: Callable[..., Game], maker: Maker, **options: Any) -> Game:
    """What worker processes call: a game of ``make(**options)`` behind the change that ``maker`` makes."""
    return WrappedGame(make(**options), maker)
