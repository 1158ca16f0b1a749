"""Games and the shared arrays they write into: what a worker process does, and a pool without processes too. No JAX."""

import mmap
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from shoal.game import Game, HostTimestep, action_shape, blank, own_actions, refresh
from shoal.spec import EnvSpec

ALIGNMENT = 64


class Board(NamedTuple):
    """Arrays that the training process and the workers share; leaves [G, ...] for G games."""

    outcome: HostTimestep
    """What the last action led to."""
    fresh: HostTimestep
    """Where an ended episode is followed by a new one: its first timestep."""
    action: np.ndarray
    """What to play next."""
    seed: np.ndarray
    """int32 [G]: what the next episode depends on."""


def board(spec: EnvSpec, games: int, memory: mmap.mmap | None = None) -> Board:
    """The arrays of ``games`` games, in ``memory`` where it is given (of :func:`board_bytes`), which holds zeros."""
    shape, dtype = action_shape(spec)
    empty = Board(blank(spec, games), blank(spec, games), np.zeros((games, *shape), dtype), np.zeros(games, np.int32))
    if memory is None:
        return empty
    leaves, at = [], 0
    for leaf in (*empty.outcome, *empty.fresh, empty.action, empty.seed):
        leaves.append(np.frombuffer(memory, leaf.dtype, leaf.size, at).reshape(leaf.shape))
        at += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
    k = len(HostTimestep._fields)
    return Board(HostTimestep(*leaves[:k]), HostTimestep(*leaves[k : 2 * k]), leaves[2 * k], leaves[2 * k + 1])


def board_bytes(spec: EnvSpec, games: int) -> int:
    """Memory that a board takes."""
    one = board(spec, 1)
    leaves = (*one.outcome, *one.fresh, one.action, one.seed)
    return sum(-(-leaf.nbytes * games // ALIGNMENT) * ALIGNMENT for leaf in leaves)


class Fault(NamedTuple):
    """An exception in a game."""

    game: int
    """Its index; -1 for no one's."""
    during: str
    """``make``, ``reset`` or ``step``."""
    error: str
    """Type and message, one line."""
    trace: str
    """The traceback."""


class Stepper:
    """Steps some of a board's games."""

    def __init__(self, spec: EnvSpec, make: Callable[[], Game], shared: Board, indices: Iterable[int]):
        self.own = own_actions(spec)
        self.board = shared
        self.games = {i: make() for i in indices}
        # Views are made once: slicing eight arrays for each game and step would take longer than a light game's step.
        self.outcome = {i: _timestep(shared.outcome, i) for i in self.games}
        self.fresh = {i: _timestep(shared.fresh, i) for i in self.games}

    def reset(self, indices: Iterable[int]) -> Fault | None:
        """Start an episode in each game, written to ``fresh``."""
        for i in indices:
            try:
                self._begin(i)
            except Exception as error:
                return fault_of(error, "reset", i)
        return None

    def step(self, indices: Iterable[int]) -> Fault | None:
        """Play ``action`` in each game; one whose episode ended starts another."""
        for i in indices:
            out = self.outcome[i]
            refresh(out, self.own)
            try:
                self.games[i].step(self.board.action[i], out)
            except Exception as error:
                return fault_of(error, "step", i)
            if out.last:
                try:
                    self._begin(i)
                except Exception as error:
                    return fault_of(error, "reset", i)
        return None

    def _begin(self, i: int) -> None:
        out = self.fresh[i]
        refresh(out, self.own)
        self.games[i].reset(int(self.board.seed[i]), out)
        out.first[...] = True

    def close(self) -> None:
        """Free the games."""
        for game in self.games.values():
            game.close()
        self.games = {}


def _timestep(timesteps: HostTimestep, i: int) -> HostTimestep:
    return HostTimestep(*(leaf[i, ...] for leaf in timesteps))


def fault_of(error: Exception, during: str, i: int = -1) -> Fault:
    """What to say of an exception that is being handled."""
    return Fault(i, during, _one_line(error), traceback.format_exc())


def _one_line(error: Exception) -> str:
    """Type and message."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def importable(make: Any) -> bytes | None:
    """What another process reads as ``make``, which may be an environment as well; None where it is defined in a script
    or a notebook, or is a closure."""
    try:
        said = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in said and "__main__" in sys.modules else said
