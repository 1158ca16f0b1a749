"""Play of random legal actions that records every timestep, for device and host environments. Does not import JAX."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shoal.environments import adapters
from shoal.environments.wrappers import WrappedGame
from shoal.game import Game, HostTimestep, action_shape, blank, departed, own_actions, refresh
from shoal.spec import Box, EnvSpec

# Faults of an environment: it raised, ended its process, or did not return.


class PlayError(Exception):
    """A call of an environment did not return normally.

    ``what`` is the predicate of a sentence, for example ``raised ValueError: …``; ``trace`` is the environment's own
    traceback; ``gone`` is True if its process has ended.
    """

    def __init__(self, what: str, trace: str = "", gone: bool = False):
        super().__init__(what)
        self.what, self.trace, self.gone = what, trace, gone


def fault_of(error: BaseException) -> PlayError:
    """An exception as a :class:`PlayError`."""
    described = traceback.TracebackException(type(error), error, None)
    described.__notes__ = None  # JAX adds notes about its tracebacks, which would be the last line
    what = " ".join(list(described.format_exception_only())[-1].split()).rstrip(".")
    return PlayError(f"raised {what}", "" if _of_adapter(error) else own_traceback(error))


def _of_adapter(error: BaseException) -> bool:
    """Whether an adapter refuses a value that the environment returned, which its own frames do not explain."""
    frames = traceback.extract_tb(error.__traceback__)
    home = Path(__file__).parents[1] / "environments"
    adapters = str(home / "adapters"), str(home / "interface.py")
    return isinstance(error, ValueError) and bool(frames) and frames[-1].filename.startswith(adapters)


def own_traceback(error: BaseException, *, package: bool = True) -> str:
    """The traceback of an exception without the frames of the check and of JAX.

    Args:
        error: the exception.
        package: with the frames of the package Shoal; the last of them is also kept where there are no others.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_ours(frame.filename)]
    if not package:
        home = str(Path(__file__).parents[1])
        own = [frame for frame in own if not frame.filename.startswith(home)] or own[-1:]
    return "".join(traceback.format_list(own or list(frames)[-1:])).rstrip()


def is_ours(file: str) -> bool:
    """Whether a file belongs to the check, the registry or JAX, or is not a file."""
    jax = sys.modules.get("jax")
    home = Path(__file__).parents[1]
    ours = [str(home / "checking"), str(home / "environments" / "registry.py")]
    ours += [str(Path(jax.__file__ or "").parent)] if jax else []
    return file.startswith((*ours, "<frozen", "<string>"))


# Play.


UNWRITTEN = np.float32(-1.234567e33)
"""Filled into the arrays that a game must write, before every call, to detect entries that it does not write."""
TIMES = 6
"""Number of timesteps after which a byte that always equals :func:`filling` counts as unwritten."""


def filling(t: int) -> int:
    """The byte that is written before the t-th call of an episode, instead of :data:`UNWRITTEN`."""
    return (101 + 151 * t) % 256


class HostInstance:
    """An instance of a host environment."""

    def __init__(self, game: Game, spec: EnvSpec):
        self.game, self._out, self._own = game, blank(spec), own_actions(spec)
        self._real = np.arange(spec.obs_dim) < np.array(spec.obs_dims)[:, None]
        self._packed, self._t = spec.packed, 0
        self.bounds = getattr(game, "observation_bounds", None)
        """The smallest and the largest value of each observation by its space, if the game knows them."""
        self.limit = _limit(game, spec.horizon)
        """Steps after which an episode is over at the latest."""
        self.empty: list[tuple[int, int, int]] = []
        """Seed, timestep and agent of each mask of a living agent that allows nothing while the episode goes on."""
        self._seed = 0

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        self._seed, self._t = seed, 0
        self._prepare()
        self.game.reset(seed, self._out)
        self._out.first[...] = True
        return self._copy()

    def step(self, action: np.ndarray) -> HostTimestep:
        """Play."""
        self._t += 1
        self._prepare()
        self.game.step(action.copy(), self._out)
        self._out.first[...] = False
        return self._copy()

    @property
    def overran(self) -> int:
        """The number of episodes that went on after a limit that an attribute of the environment seems to hold."""
        return getattr(_inner(self.game), "overran", 0)

    @property
    def unread(self) -> list[str]:
        """Parts of the observations so far that their spaces lack."""
        return sorted(getattr(_inner(self.game), "unread", ()))

    def close(self) -> None:
        """Free the game's resources."""
        self.game.close()

    def _prepare(self) -> None:
        refresh(self._out, self._own)
        self._out.obs[...] = np.where(self._real, filling(self._t) if self._packed else UNWRITTEN, 0)
        self._out.state[...] = UNWRITTEN

    def _copy(self) -> HostTimestep:
        now = departed(HostTimestep(*(leaf.copy() for leaf in self._out)))
        for i in getattr(_inner(self.game), "emptied", ()):
            if now.alive[i] and now.discount[i] > 0 and not now.last:
                self.empty.append((self._seed, self._t, i))
        return now


def _limit(game: Any, horizon: int) -> int:
    """Where an adapter cuts an episode off, which may be a round after the horizon (``limits`` in
    ``adapters/gymnasium.py``); the horizon for other games."""
    return getattr(_inner(game), "_limit", horizon)


def _inner(game: Any) -> Any:
    """The adapter's game within wrappers; None if it is a game of another kind."""
    while isinstance(game, WrappedGame):
        game = game._inner
    return game if type(game).__module__.startswith(f"{adapters.__name__}.") else None


class Instance(Protocol):
    """One instance of an environment. The arrays that it returns are not written to again."""

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        ...

    def step(self, action: np.ndarray) -> HostTimestep:
        """Play."""
        ...

    def close(self) -> None:
        """Free its resources."""
        ...


class Copy:
    """A proxy of one instance of a subject's environment; ``limit`` is the time-out of each call in seconds."""

    def __init__(self, call: Callable[..., Any], number: int, limit: float):
        self._call, self._number, self._limit = call, number, limit
        self.seconds = 0.0
        """Time spent in ``reset`` and ``step``."""

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        return self._timed("reset", seed)

    def step(self, action: np.ndarray) -> HostTimestep:
        """Play."""
        return self._timed("step", action)

    def close(self) -> float:
        """Free its resources; returns the seconds that it took."""
        return self._call("close", self._number, limit=self._limit)

    def overran(self) -> int:
        """The number of its episodes that went on after a limit that an attribute seems to hold."""
        return self._call("overran", self._number, limit=self._limit)

    def unread(self) -> list[str]:
        """Parts of its observations so far that their spaces lack."""
        return self._call("unread", self._number, limit=self._limit)

    def empty(self) -> list[tuple[int, int, int]]:
        """Seed, timestep and agent of each mask so far that allows nothing, see :class:`HostInstance`."""
        return self._call("empty", self._number, limit=self._limit)

    def _timed(self, method: str, argument: Any) -> HostTimestep:
        timestep, seconds = self._call(method, self._number, argument, limit=self._limit)
        self.seconds += seconds
        return timestep


@dataclass
class Episode:
    """An episode, or the start of one."""

    number: int
    """Counted from 1."""
    seed: int
    timesteps: HostTimestep
    """Leaves [T + 1, ...]."""
    actions: np.ndarray
    """[T, N] or [T, N, A]."""
    unwritten: dict[str, np.ndarray] = field(default_factory=dict)
    """Indices at which the game did not write ``obs`` and ``state``, which are 0 there."""
    error: PlayError | None = None
    """The fault that ended the episode, in reset or in the step ``tried``."""
    tried: np.ndarray | None = None
    """The action of the step that did not return; None for reset."""
    seconds: float = 0.0
    """Time spent in the environment."""

    @property
    def steps(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def ended(self) -> bool:
        """Whether the episode ended."""
        return bool(self.timesteps.last[-1:].any())


def random_action(spec: EnvSpec, timestep: HostTimestep, rng: np.random.Generator) -> np.ndarray:
    """A joint action, uniform over each agent's legal actions; 0 for an agent without any.

    Of a box's numbers a tenth each are its lower and its upper bound, which policies choose too.
    """
    if not isinstance(spec.action, Box):
        return (rng.random(timestep.legal.shape) * timestep.legal).argmax(-1).astype(np.int32)
    low, high = spec.action.low, spec.action.high
    finite = np.isfinite(low) and np.isfinite(high)
    shape = timestep.legal.shape
    beyond = (high - low) / 8
    drawn = rng.uniform(low - beyond, high + beyond, shape) if finite else rng.standard_normal(shape)
    return np.clip(np.where(own_actions(spec), drawn, 0.0), low, high).astype(np.float32)


def play_episode(player: Copy, spec: EnvSpec, number: int, seed: int, rng: np.random.Generator, limit: int) -> Episode:
    """Play one episode of at most ``limit`` steps; a fault is recorded, not raised."""
    seen: list[HostTimestep] = []
    actions: list[np.ndarray] = []
    error, tried, before = None, None, player.seconds
    while not seen or (len(actions) < limit and not (seen[-1].last and actions)):
        tried = random_action(spec, seen[-1], rng) if seen else None
        try:
            timestep = player.reset(seed) if tried is None else player.step(tried)
        except PlayError as fault:
            error = fault
            break
        seen.append(timestep)
        if tried is not None:
            actions.append(tried)
    timesteps = _stacked(spec, seen)
    shape, dtype = action_shape(spec)
    unwritten = _unwritten(spec, timesteps)
    played = np.array(actions, dtype).reshape(len(actions), *shape)
    return Episode(number, seed, timesteps, played, unwritten, error, tried if error else None, player.seconds - before)


def repeat(player: Copy, spec: EnvSpec, episode: Episode, limit: int) -> HostTimestep:
    """Repeat an episode's first ``limit`` actions from its seed; returns the timesteps, fewer where it ends earlier."""
    seen = [player.reset(episode.seed)]
    for t, action in enumerate(episode.actions[:limit]):
        if t and seen[-1].last:  # a game need not accept steps after its end
            break
        seen.append(player.step(action))
    timesteps = _stacked(spec, seen)
    _unwritten(spec, timesteps)
    return timesteps


def repeat_beside(player: Copy, other: Copy, spec: EnvSpec, episode: Episode, limit: int) -> HostTimestep:
    """Like :func:`repeat`, while ``other`` plays random legal actions between the steps, in episodes of other seeds.

    It also ends at the first timestep that is not the episode's, after which the episode's actions may be illegal.
    """
    seed, rng = episode.seed, np.random.default_rng(episode.seed)
    beside: HostTimestep | None = None
    seen: list[HostTimestep] = []
    for t in range(min(limit, episode.steps) + 1):
        seen.append(player.step(episode.actions[t - 1]) if t else player.reset(episode.seed))
        if (t and seen[-1].last) or any(
            unlike(getattr(episode.timesteps, name)[t], getattr(seen[-1], name)).any() for name in COMPARED
        ):
            break
        if beside is None or beside.last:
            seed = (seed + 1) % 2**31
            beside = other.reset(seed)
        else:
            beside = other.step(random_action(spec, beside, rng))
    return _stacked(spec, seen)


COMPARED = ("obs", "state", "reward", "discount", "legal", "alive", "last", "metrics")
"""The fields of a timestep that a repetition has to give again."""


def unlike(was: Any, now: Any) -> Any:
    """Where two arrays or numbers differ; NaN equals NaN."""
    return ~((was == now) | ((was != was) & (now != now)))


def _unwritten(spec: EnvSpec, timesteps: HostTimestep) -> dict[str, np.ndarray]:
    """Indices of the entries that the game did not write, by field; they are set to 0."""
    found = {}
    for name in ("obs", "state"):
        values = getattr(timesteps, name)
        if name == "obs" and spec.packed:
            fills = np.array([filling(t) for t in range(len(values))], np.uint8)
            always = (values == fills[:, None, None]).all(0) & (len(values) >= TIMES)
            missing = np.broadcast_to(always, values.shape)
        else:
            missing = values == UNWRITTEN
        if missing.any():
            found[name] = np.argwhere(missing)
            values[missing] = 0
    return found


def _stacked(spec: EnvSpec, seen: list[HostTimestep]) -> HostTimestep:
    if not seen:
        return blank(spec, 0)
    return HostTimestep(*(np.stack(leaves) for leaves in zip(*seen, strict=True)))
