"""Random legal play, step by step and kept whole, alike on the device and on the host."""

import time
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from shoal.game import Game, Moment, action_shape, blank, own_actions, refresh
from shoal.spec import Box, EnvSpec
from shoal.types import Environment

UNWRITTEN = np.float32(-1.234567e33)
"""Stands wherever a game has to write before every call, so that what it leaves out shows."""


class HostPlayer:
    """A game."""

    def __init__(self, game: Game, spec: EnvSpec):
        self.game, self._out, self._own = game, blank(spec), own_actions(spec)
        self._real = np.arange(spec.obs_dim) < np.array(spec.obs_dims)[:, None]

    def reset(self, seed: int) -> Moment:
        """Start an episode."""
        self._prepare()
        self.game.reset(seed, self._out)
        self._out.first[...] = True
        return self._copy()

    def step(self, action: np.ndarray) -> Moment:
        """Play."""
        self._prepare()
        self.game.step(action.copy(), self._out)
        self._out.first[...] = False
        return self._copy()

    def close(self) -> None:
        """Free what the game holds."""
        self.game.close()

    def _prepare(self) -> None:
        refresh(self._out, self._own)
        self._out.obs[...] = np.where(self._real, UNWRITTEN, 0.0)
        self._out.state[...] = UNWRITTEN

    def _copy(self) -> Moment:
        return Moment(*(leaf.copy() for leaf in self._out))


class DevicePlayer:
    """A device environment, one compiled call for each step."""

    def __init__(self, env: Environment):
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._unknown = np.full(len(env.spec.metrics), np.nan, np.float32)
        self._state: Any = None
        self._key, self._t = jax.random.key(0), 0
        zeros = np.zeros(*action_shape(env.spec))
        self.reset(0)
        self.step(zeros)  # compiled before anything is timed

    def reset(self, seed: int) -> Moment:
        """Start an episode."""
        self._key, self._t = jax.random.key(seed), 0
        self._state, step = self._reset(self._key)
        return Moment(*map(np.asarray, step._replace(metrics=self._unknown)))  # reset may leave them out

    def step(self, action: np.ndarray) -> Moment:
        """Play."""
        self._t += 1
        self._state, step = self._step(jax.random.fold_in(self._key, self._t), self._state, action)
        return Moment(*map(np.asarray, step))

    def close(self) -> None:
        """Nothing is held."""


Player = HostPlayer | DevicePlayer
"""One environment, whatever it is made of. The moments it returns are the caller's."""


@dataclass
class Episode:
    """An episode, or its beginning."""

    number: int
    """From 1."""
    seed: int
    moments: Moment
    """Leaves [T + 1, ...]."""
    actions: np.ndarray
    """[T, N] or [T, N, A]."""
    unwritten: dict[str, np.ndarray] = field(default_factory=dict)
    """Where ``obs`` and ``state`` were left as they were: rows of indices. They hold 0 there."""
    error: Exception | None = None
    """What the environment raised on being reset, or on the last of ``tried``."""
    tried: np.ndarray | None = None
    """The action that raised."""
    seconds: float = 0.0
    """Spent in the environment."""

    @property
    def steps(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def ended(self) -> bool:
        """Whether it was played to its end."""
        return bool(self.moments.last[-1:].any())


def random_action(spec: EnvSpec, moment: Moment, rng: np.random.Generator) -> np.ndarray:
    """Each agent's legal actions are equally probable; without any it plays 0."""
    if not isinstance(spec.action, Box):
        return (rng.random(moment.legal.shape) * moment.legal).argmax(-1).astype(np.int32)
    low, high = spec.action.low, spec.action.high
    finite = np.isfinite(low) and np.isfinite(high)
    shape = moment.legal.shape
    drawn = rng.uniform(low, high, shape) if finite else rng.standard_normal(shape)
    return np.clip(np.where(own_actions(spec), drawn, 0.0), low, high).astype(np.float32)


def play(player: Player, spec: EnvSpec, number: int, seed: int, rng: np.random.Generator, limit: int) -> Episode:
    """One episode, of ``limit`` steps at the most; what the environment raises is kept, not raised."""
    seen: list[Moment] = []
    actions: list[np.ndarray] = []
    error, tried, seconds = None, None, 0.0
    while not seen or (len(actions) < limit and not (seen[-1].last and actions)):
        tried = random_action(spec, seen[-1], rng) if seen else None
        before = time.perf_counter()
        try:
            moment = player.reset(seed) if tried is None else player.step(tried)
        except Exception as raised:
            error = raised
            break
        seconds += time.perf_counter() - before
        seen.append(moment)
        if tried is not None:
            actions.append(tried)
    moments = _stacked(spec, seen)
    shape, dtype = action_shape(spec)
    unwritten = {}
    for name in ("obs", "state"):
        values = getattr(moments, name)
        missing = values == UNWRITTEN
        if missing.any():
            unwritten[name] = np.argwhere(missing)
            values[missing] = 0.0
    played = np.array(actions, dtype).reshape(len(actions), *shape)
    return Episode(number, seed, moments, played, unwritten, error, tried if error else None, seconds)


def repeat(player: Player, spec: EnvSpec, episode: Episode, limit: int) -> Moment:
    """The moments of an episode's first ``limit`` actions played once more."""
    seen = [player.reset(episode.seed)]
    seen += [player.step(action) for action in episode.actions[:limit]]
    moments = _stacked(spec, seen)
    for values in (moments.obs, moments.state):
        values[values == UNWRITTEN] = 0.0
    return moments


def _stacked(spec: EnvSpec, seen: list[Moment]) -> Moment:
    if not seen:
        return blank(spec, 0)
    return Moment(*(np.stack(leaves) for leaves in zip(*seen, strict=True)))
