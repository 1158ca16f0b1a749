"""Wrappers of environments, with the same code on the device and in worker processes. Does not import JAX.

The memory of a wrapper (:mod:`shoal.environments.changes`) is part of a device environment's state, and an attribute of
a wrapped game on the host. Returns and lengths of episodes need no wrapper, since rollouts record them
(:class:`shoal.types.EpisodeStats`). Running normalisation of observations and rewards is part of the learner
(:mod:`shoal.sides.reward_normalisation`).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import numpy as np

from shoal.bounds import Bounds, Positive, Size, check_bounds
from shoal.environments import changes, images, rows
from shoal.environments.changes import Change
from shoal.environments.images import Look
from shoal.errors import InputError
from shoal.game import Game, HostEnvironment, HostTimestep, blank
from shoal.spec import EnvSpec, Part

Env = TypeVar("Env")
Maker = Callable[[EnvSpec], Change]
"""Spec of the environment to wrap -> the change."""


@dataclass(frozen=True)
class Wrapping:
    """Options of wrappers, applied in the order of the fields; by default none is."""

    time_limit: Size | None = None
    """End episodes after this many steps; the discount does not change, so that values bootstrap."""
    limit_terminates: bool = False
    """Count a time limit as a termination, with discount 0, as libraries do that report both alike (EPyMARL's
    wrappers). Values are then those of a finite episode, of which agents without the time observe too little."""
    crop: tuple[Annotated[int, Bounds(least=0, most=100_000)], ...] | None = None
    """Remove this many pixels at the top, bottom, left and right of images."""
    greyscale: bool = False
    """Convert images from RGB to one channel, 0.299 R + 0.587 G + 0.114 B."""
    resize: tuple[Annotated[int, Bounds(least=1, most=4096)], ...] | None = None
    """New height and width of images: each new pixel is the mean of the area that it covers."""
    frame_stack: Annotated[int, Bounds(least=1, most=1000)] = 1
    """Each agent observes this many of its last observations, oldest first; at the start of an episode the first
    observation is repeated. Frames of an image become its channels. The global state is not stacked."""
    blind: bool = False
    """Show each agent only the time: the steps of the episode so far divided by the time limit. With the agent's id
    this is the open-loop control of SMACv2 (Ellis et al. 2023): what it scores needs no reaction. Legal actions and the
    global state of critics are unchanged; frame_stack and the options of images have no effect."""
    last_action: bool = False
    """Append its last executed action to every agent's own observation, one-hot if actions are discrete; zeros at the
    start of an episode. With a recurrent policy this gives the history of its own actions (pymarl's
    ``obs_last_action``)."""
    agent_ids: bool = False
    """Append a one-hot id to every agent's own observation."""
    reward_scale: Positive = 1.0
    """Multiply rewards by this factor; reported returns are scaled as well."""
    action_mask: bool = True
    """Show policies and critics which actions are legal. If False, all of an agent's own actions are shown as legal,
    and its first legal action is executed instead of an illegal one; only for discrete actions. False is the ablation
    of Yu et al. 2022 without action masks."""

    @property
    def observing(self) -> "Wrapping":
        """The options that change observations, masks or actions, which deployed policies apply themselves."""
        return replace(self, time_limit=None, limit_terminates=False, reward_scale=1.0)

    @property
    def look(self) -> Look:
        """The options that change images."""
        return Look(self.crop, self.greyscale, self.resize)


def wrap(env: Env, wrapping: Wrapping) -> Env:
    """Wrap an environment.

    Args:
        env: a :class:`shoal.types.Environment` or a :class:`shoal.game.HostEnvironment`.
        wrapping: the options.

    Returns:
        An environment of the same kind; ``env`` itself without wrappers.

    Raises:
        InputError: a field of ``wrapping`` is out of its range, it hides the mask of continuous actions, or it changes
            images and there are none, or not such.
    """
    check_bounds(wrapping)
    return env if wrapping == Wrapping() else changed(env, functools.partial(change_of, wrapping=wrapping))


def changed(env: Env, maker: Maker) -> Env:
    """Wrap a device or host environment by the change that ``maker`` returns for its spec.

    Worker processes unpickle ``maker``, so it must be a function of an importable module, or a ``functools.partial``
    of one.
    """
    change = maker(cast(Any, env).spec)
    if isinstance(env, HostEnvironment):
        return cast(Env, HostEnvironment(change.spec, functools.partial(wrapped_game, env.make, maker)))
    return _on_device(env, change)


def change_of(spec: EnvSpec, wrapping: Wrapping) -> Change:
    """The options ``wrapping`` as one change of an environment with this spec."""
    w, makers = wrapping, []
    if w.time_limit is not None:
        makers.append(functools.partial(changes.time_limit, limit=w.time_limit))
    if w.limit_terminates:
        makers.append(changes.limit_terminates)
    if w.look != Look():
        looked = functools.partial(images.change_images, look=w.look)
        if w.blind:
            looked(spec)  # only for its errors, since nothing of an image is shown
        else:
            makers.append(looked)
    if w.blind:
        makers.append(changes.blind)
    elif w.frame_stack > 1:
        makers.append(functools.partial(changes.frame_stack, count=w.frame_stack))
    if w.last_action:
        makers.append(changes.last_action)
    if w.agent_ids:
        makers.append(changes.agent_ids)
    if w.reward_scale != 1.0:
        makers.append(functools.partial(changes.reward_scale, scale=w.reward_scale))
    if not w.action_mask:
        makers.append(changes.hidden_mask)
    return changes.chain(spec, makers)


def unwrapped(spec: EnvSpec, wrapping: Wrapping) -> EnvSpec:
    """The spec without the wrappers of observations, from the spec of the wrapped environment.

    ``horizon`` is unchanged and ``novel`` is None, since deployed policies need neither.
    """
    if wrapping.observing == Wrapping():
        return spec
    if spec.parts is None:
        obs_dims = tuple(width // wrapping.frame_stack for width in _unextended(spec, wrapping))
        return replace(spec, obs_dims=obs_dims, novel=None)
    added = wrapping.blind + wrapping.last_action + wrapping.agent_ids
    kept = [own[: len(own) - added] for own in spec.parts]
    parts = [[part._replace(shape=changes.raw(part), source=None) for part in own] for own in kept]
    return replace(spec, **rows.part_fields(spec, parts), novel=None)


def fits(spec: EnvSpec, wrapping: Wrapping) -> bool:
    """Whether a spec, perhaps from an untrusted file, can be that of an environment with these wrappers."""
    stack, look = wrapping.frame_stack, wrapping.look
    if spec.parts is None:
        return (
            not wrapping.blind
            and look == Look()
            and all(w >= 0 and w % stack == 0 for w in _unextended(spec, wrapping))
        )
    if look != Look() and not spec.packed:
        return False
    for i, own in enumerate(spec.parts):
        more = [changes.TIME] * wrapping.blind
        more += [changes.action_part(spec, i)] * wrapping.last_action
        more += [changes.id_part(spec)] * wrapping.agent_ids
        if len(own) < len(more) or list(own[len(own) - len(more) :]) != more:
            return False
        if any(part.shape != _shape(spec, part, wrapping) for part in own[: len(own) - len(more)]):
            return False
    return True


def _shape(spec: EnvSpec, part: Part, wrapping: Wrapping) -> tuple[int, ...] | None:
    """The shape that an array of the environment's observation has with wrappers; None if they do not fit."""
    if wrapping.blind:
        return (0,) if part.source is not None else None
    shape = changes.raw(part)
    if wrapping.look != Look() and images.is_image(part):
        try:
            shape = images.shape_after(shape, wrapping.look, spec.name)
        except (InputError, ValueError):
            return None
    return changes.stacked_shape(shape, wrapping.frame_stack) if wrapping.frame_stack > 1 else shape


def _unextended(spec: EnvSpec, wrapping: Wrapping) -> tuple[int, ...]:
    """Each agent's ``obs_dims`` without its last action and id, which are appended after the stacked observations."""
    ids = spec.num_agents if wrapping.agent_ids else 0
    each = zip(spec.obs_dims, spec.action_dims, strict=True)
    return tuple(width - ids - (actions if wrapping.last_action else 0) for width, actions in each)


class Wrapped(NamedTuple):
    """The state of a wrapped device environment."""

    inner: Any
    memory: Any


class _InnerRender:
    """The renderer of a wrapped environment, for the states of the wrapper."""

    def __init__(self, render: Any):
        self._render = render
        if hasattr(render, "fitted"):
            self.fitted = lambda states: _InnerRender(render.fitted([state.inner for state in states]))

    def __call__(self, state: Wrapped) -> Any:
        return self._render(state.inner)


def _on_device(env: Any, change: Change) -> Any:
    def reset(key: Any) -> tuple[Wrapped, Any]:
        inner, step = env.reset(key)
        memory, step = change.begin(step)
        return Wrapped(inner, memory), step

    def step(key: Any, state: Wrapped, action: Any) -> tuple[Wrapped, Any]:
        executed = change.execute(state.memory, action)
        inner, outcome = env.step(key, state.inner, executed)
        memory, outcome = change.follow(state.memory, outcome, executed)
        return Wrapped(inner, memory), outcome

    render = None if env.render is None else _InnerRender(env.render)
    outline = None if env.outline is None else lambda state: env.outline(state.inner)
    batched = env.batched
    if batched is not None:
        from shoal.environments import batching  # imports JAX

        batched = batching.change_batched(batched, change, Wrapped)
    return replace(env, spec=change.spec, reset=reset, step=step, render=render, batched=batched, outline=outline)


class WrappedGame:
    """A wrapped game. The inner game writes fields that wrappers do not change directly into the output."""

    def __init__(self, inner: Game, maker: Maker):
        self._inner, self._change = inner, maker(inner.spec)
        self._memory: Any = None
        outer = self._change.spec
        own = (outer.obs_dims, outer.parts) == (inner.spec.obs_dims, inner.spec.parts)
        self._obs = None if own else blank(inner.spec).obs

    @property
    def spec(self) -> EnvSpec:
        """Its description."""
        return self._change.spec

    @property
    def observation_bounds(self) -> Any:
        """Those of the inner game, if it has any and its observations do not change."""
        return getattr(self._inner, "observation_bounds", None) if self._obs is None else None

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        inner = out if self._obs is None else HostTimestep(self._obs, *out[1:])
        self._inner.reset(seed, inner)
        self._memory, shown = self._change.begin(inner)
        _write(shown, inner, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play ``action``."""
        inner = out if self._obs is None else HostTimestep(self._obs, *out[1:])
        executed = self._change.execute(self._memory, action)
        self._inner.step(executed, inner)
        self._memory, shown = self._change.follow(self._memory, inner, executed)
        _write(shown, inner, out)

    def render(self) -> np.ndarray | None:
        """The inner game's picture."""
        return self._inner.render()

    def close(self) -> None:
        """Free the inner game."""
        self._inner.close()


def _write(shown: HostTimestep, inner: HostTimestep, out: HostTimestep) -> None:
    """Copy the fields that wrappers replaced."""
    for new, old, to in zip(shown, inner, out, strict=True):
        if new is not old:
            to[...] = new


def wrapped_game(make: Callable[..., Game], maker: Maker, **options: Any) -> Game:
    """A wrapped game of ``make(**options)``; worker processes call this."""
    return WrappedGame(make(**options), maker)
