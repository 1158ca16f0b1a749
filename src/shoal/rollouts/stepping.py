"""Stepping of games that write into shared arrays, in a worker process or in this one. Does not import JAX."""

import mmap
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from shoal.game import Game, HostEnvironment, HostTimestep, action_shape, blank, own_actions, refresh
from shoal.spec import EnvSpec

ALIGNMENT = 64


class Board(NamedTuple):
    """Arrays shared by the training process and the workers; leaves [G, ...] for G games."""

    outcome: HostTimestep
    """Result of the last action."""
    fresh: HostTimestep
    """First timestep of the episode that follows an ended one."""
    action: np.ndarray
    """Next joint action."""
    seed: np.ndarray
    """int32 [G]: seed of the next episode."""
    idle: np.ndarray
    """bool [G]: games that are not stepped."""


def board(spec: EnvSpec, games: int, memory: mmap.mmap | None = None) -> Board:
    """The arrays of ``games`` games, in ``memory`` (zeros, of size :func:`board_bytes`) if it is given."""
    shape, dtype = action_shape(spec)
    actions, seeds, idle = np.zeros((games, *shape), dtype), np.zeros(games, np.int32), np.zeros(games, bool)
    empty = Board(blank(spec, games), blank(spec, games), actions, seeds, idle)
    if memory is None:
        return empty
    leaves, at = [], 0
    for leaf in _leaves(empty):
        leaves.append(np.frombuffer(memory, leaf.dtype, leaf.size, at).reshape(leaf.shape))
        at += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
    k = len(HostTimestep._fields)
    return Board(HostTimestep(*leaves[:k]), HostTimestep(*leaves[k : 2 * k]), *leaves[2 * k :])


def _leaves(one: Board) -> list[np.ndarray]:
    return [*one.outcome, *one.fresh, one.action, one.seed, one.idle]


def board_bytes(spec: EnvSpec, games: int) -> int:
    """Size of a board in bytes."""
    return sum(-(-leaf.nbytes * games // ALIGNMENT) * ALIGNMENT for leaf in _leaves(board(spec, 1)))


class Fault(NamedTuple):
    """An exception in a game."""

    game: int
    """Index of the game; -1 if the fault belongs to none."""
    during: str
    """``make``, ``reset``, ``step`` or ``render``."""
    error: str
    """Type and message, one line."""
    trace: str
    """The traceback."""


class Stepper:
    """Steps a subset of a board's games."""

    def __init__(self, spec: EnvSpec, make: Callable[[], Game], shared: Board, indices: Iterable[int]):
        self.own = own_actions(spec)
        self.board = shared
        self.games = {i: make() for i in indices}
        # Views are created once: slicing eight arrays per game and step would take longer than a fast game's step.
        self.outcome = {i: _timestep(shared.outcome, i) for i in self.games}
        self.fresh = {i: _timestep(shared.fresh, i) for i in self.games}

    def reset(self, indices: Iterable[int]) -> Fault | None:
        """Start an episode in each game; writes to ``fresh``."""
        for i in indices:
            try:
                self._begin(i)
            except Exception as error:
                return fault_of(error, "reset", i)
        return None

    def step(self, indices: Iterable[int]) -> Fault | None:
        """Play ``action`` in each game that is not idle; a game whose episode ends starts the next one."""
        for i in indices:
            if self.board.idle[i]:
                continue
            if (fault := self.play(i)) is not None:
                return fault
            if self.outcome[i].last and (fault := self.reset([i])) is not None:
                return fault
        return None

    def play(self, i: int) -> Fault | None:
        """Play ``action`` in one game, which stays in its last state if its episode ends."""
        out = self.outcome[i]
        refresh(out, self.own)
        try:
            self.games[i].step(self.board.action[i], out)
        except Exception as error:
            return fault_of(error, "step", i)
        return None

    def picture(self, i: int) -> np.ndarray | Fault | None:
        """The picture of one game; None without a renderer."""
        try:
            return self.games[i].render()
        except Exception as error:
            return fault_of(error, "render", i)

    def _begin(self, i: int) -> None:
        out = self.fresh[i]
        refresh(out, self.own)
        self.games[i].reset(int(self.board.seed[i]), out)
        out.first[...] = True

    def close(self) -> None:
        """Close the games."""
        for game in self.games.values():
            game.close()
        self.games = {}


def _timestep(timesteps: HostTimestep, i: int) -> HostTimestep:
    return HostTimestep(*(leaf[i, ...] for leaf in timesteps))


def fault_of(error: Exception, during: str, i: int = -1) -> Fault:
    """The exception that is being handled as a :class:`Fault`."""
    return Fault(i, during, _one_line(error), traceback.format_exc())


def _one_line(error: Exception) -> str:
    """Type and message."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def importable(make: Any) -> bytes | None:
    """``make`` (or an environment) pickled; None if another process cannot import it, as from a script, a notebook or a
    closure."""
    try:
        pickled = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in pickled and "__main__" in sys.modules else pickled


def local_workers(env: Any, wanted: int | None) -> int | None:
    """Number of local worker processes: ``wanted``, but 0 for a host environment that only Ray can send elsewhere."""
    there = not isinstance(env, HostEnvironment) or importable(env.make) is not None
    return wanted if there else 0
