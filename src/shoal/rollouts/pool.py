"""A pool of games in worker processes, or in this process. Does not import JAX.

Games are stepped in groups, so that one group steps while the policy acts for another. A worker that dies or hangs is
restarted; its episodes are truncated, as by a time limit.
"""

import itertools
import mmap
import os
import time
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from shoal.errors import GameError, InputError
from shoal.game import CLOSING, LEFT_OPEN, HostEnvironment, HostTimestep
from shoal.rollouts import worker as serving
from shoal.rollouts.worker import (
    Board,
    Fault,
    Loss,
    Stepper,
    Worker,
    board,
    board_bytes,
    fault_of,
    how_it_ended,
    memory_file,
    pickled,
)
from shoal.system import notices
from shoal.system.machine import cores
from shoal.system.notices import Warn
from shoal.system.time_limit import returns_within

PATIENCE = 3
"""Largest number of restarts of a worker without a step in between, and of episodes that an environment loses without
finishing one in an evaluation; then the run fails. Training ends after its steps in any case, and learns from those of
lost episodes, so it goes on however many are lost."""

BUILDING = 300.0
"""Time-out in seconds for building a worker's games."""

PER_CORE = 64
"""Largest number of worker processes per core; each holds an interpreter and its games."""

RESETTING = "while it was reset"
"""What a game did when it raised, in messages."""


class Pool:
    """``groups`` groups of ``size`` games, stepped by ``workers`` processes, or by this process if that is 0.

    Game i of group g is row g · size + i of :attr:`board`.
    """

    building = BUILDING
    """Least time-out in seconds for building a worker's games."""
    launch: Mapping[str, Any] = {}
    """Keyword arguments of :meth:`Worker.start`."""

    def __init__(
        self,
        env: HostEnvironment,
        groups: int,
        size: int,
        workers: int,
        timeout: float = 60.0,
        warn: Warn = notices.warn,
        make: bytes | None = None,
    ):
        """``make`` is ``env.make`` pickled, if that was done already."""
        self.env, self.size, self.timeout, self.warn = env, size, timeout, warn
        self.rows = [slice(g * size, (g + 1) * size) for g in range(groups)]
        self.workers: list[Worker] = []
        self.here: Stepper | None = None
        self.here_fault: list[Fault | None] = [None] * groups
        self._file: IO[bytes] | None = None
        games = groups * size
        if min(workers, size) > PER_CORE * cores():
            raise InputError(
                f"{min(workers, size)} worker processes are more than {PER_CORE} per core; lower num_workers."
            )
        if workers == 0:
            self.board: Board = board(env.spec, games)
            try:
                self.here = Stepper(env.spec, env.make, self.board, range(games))
            except (Exception, SystemExit) as error:
                self._check(fault_of(error, "make"))
            return
        self.make = make or sendable(env)
        size_in_bytes = board_bytes(env.spec, games)
        try:
            self._file = memory_file(size_in_bytes)
            self.board = board(env.spec, games, mmap.mmap(self._file.fileno(), 0))
        except (OSError, OverflowError, ValueError) as error:
            self.close()
            raise InputError(f"{games} environments need {size_in_bytes} bytes of shared memory: {error}.") from None
        cuts = np.linspace(0, size, min(workers, size) + 1).astype(int)
        for w, (start, stop) in enumerate(itertools.pairwise(cuts)):
            self.workers.append(Worker(w, [range(rows.start + start, rows.start + stop) for rows in self.rows]))
        try:
            for one in self.workers:
                self._start(one)
            for one in self.workers:
                self._greet(one)
        except OSError as error:  # too many processes or open files
            count = len(self.workers)
            self.close()
            raise InputError(
                f"{count} worker processes cannot be started: {error.strerror}; lower num_workers."
            ) from None
        except BaseException:
            self.close()
            raise

    def reset(self, group: int) -> None:
        """Start an episode in every game of a group; the first timesteps will be in ``board.fresh``."""
        self._order(group, serving.RESET)

    def step(self, group: int) -> None:
        """Start to play ``board.action`` in every game of a group."""
        self._order(group, serving.STEP)

    def rest(self, games: np.ndarray) -> None:
        """Do not step ``games`` (rows of the board) until they are woken: their outcome stays the first timestep of an
        episode. They must not be stepping."""
        if not games.size:  # at almost every step of an evaluation
            return
        for outcome, fresh in zip(self.board.outcome, self.board.fresh, strict=True):
            outcome[games] = fresh[games]
        self.board.idle[games] = True

    def wake(self) -> None:
        """Step all games again."""
        self.board.idle[:] = False

    def _order(self, group: int, order: bytes) -> None:
        if self.here is not None:
            rows = range(self.rows[group].start, self.rows[group].stop)
            act = self.here.step if order == serving.STEP else self.here.reset
            self.here_fault[group] = act(rows)
            return
        for one in self.workers:
            one.asked.append(group)
            one.send(serving.RESET if one.lost[group] else order, group)

    def wait(self, group: int, before: HostTimestep | None = None) -> np.ndarray:
        """Wait until a group has finished its reset or step.

        Args:
            group: index of the group.
            before: the timesteps at which the actions were taken. For the games of a lost worker the outcome is that
                timestep again, with reward 0, and the episode is truncated.

        Returns:
            bool [size]: games whose episode was lost.

        Raises:
            GameError: a game raised, or a worker died or hung too often.
        """
        lost = np.zeros(self.size, bool)
        if self.here is not None:
            self._check(self.here_fault[group])
            return lost
        start = self.rows[group].start
        for one in self.workers:
            while group in one.asked:
                answer = one.read(self.timeout)
                if isinstance(answer, Loss):
                    self._restart(one, answer)
                    continue
                done = one.asked.pop(0)
                self._check(answer)
                if not one.lost[done]:
                    one.restarts = 0
            if one.lost[group]:
                one.lost[group] = False
                mine = one.groups[group]
                rows = slice(mine.start - start, mine.stop - start)
                lost[rows] = True
                if before is not None:
                    self._cut_off(slice(mine.start, mine.stop), HostTimestep(*(leaf[rows] for leaf in before)))
        return lost

    def _cut_off(self, rows: slice, before: HostTimestep) -> None:
        outcome = self.board.outcome
        for there, leaf in zip(outcome, before, strict=True):
            there[rows] = leaf
        outcome.reward[rows], outcome.discount[rows] = 0.0, 1.0
        outcome.first[rows], outcome.last[rows] = False, True

    def _check(self, fault: Fault | None) -> None:
        if fault is None:
            return
        name = self.env.spec.name
        if fault.during == "make":
            where = " in a worker process" if self.workers else ""
            raise InputError(f"{name} cannot be built{where}: {fault.error}\n{fault.trace}")
        doing = RESETTING
        if fault.during == "step":
            doing = f"at the action {np.array(self.board.action[fault.game]).tolist()}"
        raise GameError(f"{name} raised {fault.error.rstrip(':. ')}", fault.game, doing, fault.trace)

    def _start(self, one: Worker) -> None:
        setup = {"spec": self.env.spec, "games": self.rows[-1].stop, "make": self.make, "groups": one.groups}
        assert self._file is not None
        one.start(self._file.fileno(), setup, **self.launch)

    def _greet(self, one: Worker) -> None:
        """Wait until a worker has built its games."""
        seconds = max(self.timeout, self.building)
        answer = one.read(seconds)
        if isinstance(answer, Loss):
            how = how_it_ended(one, answer, seconds)
            raise InputError(f"{self.env.spec.name}: worker {one.number} {how} while it built its games.")
        self._check(answer)

    def _restart(self, one: Worker, loss: Loss) -> None:
        how = how_it_ended(one, loss, self.timeout)
        one.restarts += 1
        if one.restarts > PATIENCE:
            what = f"{self.env.spec.name}: worker {one.number} {how}, {one.restarts} times in a row"
            raise GameError(what, None, "", "")
        games = sum(map(len, one.groups))
        self.warn(f"Worker {one.number} {how} and is started again; {games} episodes were cut off.")
        one.end()
        try:
            self._start(one)
            self._greet(one)
        except OSError as error:  # too many processes or open files, or too little memory
            what = f"{self.env.spec.name}: worker {one.number} {how} and cannot be started again: {error.strerror}"
            raise GameError(what, None, "", "") from None
        except InputError as error:  # the games could be built before, so this is a fault of the environment
            raise GameError(str(error), None, "", "") from None
        one.lost = [True] * len(one.groups)
        for group in one.asked:
            one.send(serving.RESET, group)

    def close(self) -> None:
        """Stop the workers and close the games; idempotent.

        What a game raises then is a warning, once for each environment: it has played all its steps. Workers that have
        not closed their games within :data:`shoal.game.CLOSING` are killed, and games of this process stay open.
        """
        name, here, faults = self.env.spec.name, self.here, []
        if here is not None and not returns_within(CLOSING, lambda: faults.append(here.close())):
            self.warn(LEFT_OPEN.format(name))
        for one in self.workers:
            if one.process is not None:  # a worker that is stepping reads this afterwards
                one.send(serving.CLOSE, 0)
        deadline = time.monotonic() + CLOSING
        for one in self.workers:
            faults.append(one.end(max(0.0, deadline - time.monotonic())))
        self.workers = []
        if self._file is not None:
            self._file.close()
        fault = next(filter(None, faults), None)
        if fault is not None and name not in _badly_closed:
            _badly_closed.add(name)
            self.warn(f"{name} raised {fault.error} while it was closed, which changes no result.")


_badly_closed: set[str] = set()
"""The names of environments whose games raised as they were closed, which has been said."""


def sendable(env: HostEnvironment) -> bytes:
    """``env.make`` pickled for worker processes.

    Raises:
        InputError: the platform has no worker processes, or they cannot import ``env.make``.
    """
    if os.name != "posix":
        raise InputError("Worker processes need Linux or macOS; step in this process with num_workers 0.")
    make = pickled(env.make)
    if make is None:
        raise InputError(
            f"{env.spec.name} is defined where worker processes cannot import it from; move it to a module, or "
            f"step it in this process with num_workers 0."
        )
    return make


def workers_for(games: int, workers: int | None) -> int:
    """Number of workers for ``games`` games: ``workers``, by default one per core, and at most one per game."""
    return min(games, cores() if workers is None else workers)
