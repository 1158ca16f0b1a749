"""Games in worker processes, or in this one: orders go by group, so that one group steps while another is decided on.

A worker that dies or hangs is started again; the episodes it was in end there, as if cut off by a time limit. No JAX.
"""

import itertools
import mmap
import os
import time
from typing import IO

import numpy as np

from shoal import notices
from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.notices import Warn
from shoal.rollouts import worker as serving
from shoal.rollouts.process import Worker, how_it_ended, memory_file
from shoal.rollouts.stepping import Board, Fault, Stepper, board, board_bytes, fault_of, importable

PATIENCE = 3
"""Restarts of one worker without a single step in between, after which the run ends."""

BUILDING = 300.0
"""Seconds in which a worker must have built its games."""

PER_CORE = 64
"""Most worker processes for each core: each holds an interpreter and its games."""

CLOSING = 2.0
"""Seconds that workers have to free what they hold before they are killed."""


class Pool:
    """``size`` games of each of ``groups`` groups, stepped by ``workers`` processes; by this process if that is 0.

    Game i of group g is row g · size + i of :attr:`board`.
    """

    def __init__(
        self,
        env: HostEnvironment,
        groups: int,
        size: int,
        workers: int,
        timeout: float = 60.0,
        warn: Warn = notices.warn,
    ):
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
            except Exception as error:
                self._check(fault_of(error, "make"))
            return
        self.make = sendable(env)
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
        """Order an episode's start in every game of a group; its first timesteps will stand in ``board.fresh``."""
        self._order(group, serving.RESET)

    def step(self, group: int) -> None:
        """Order ``board.action`` to be played in every game of a group."""
        self._order(group, serving.STEP)

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
        """Wait until a group has done what was ordered.

        Args:
            group: which.
            before: the timesteps in which the actions were taken; where a worker was lost, the outcome is that timestep
                again, without reward, and the episode ends by being cut off.

        Returns:
            bool [size]: games whose episode was lost.

        Raises:
            GameError: a game raised, or a worker broke down again and again.
        """
        lost = np.zeros(self.size, bool)
        if self.here is not None:
            self._check(self.here_fault[group])
            return lost
        start = self.rows[group].start
        for one in self.workers:
            while group in one.asked:
                said = one.read(self.timeout)
                if said is False:
                    self._restart(one)
                    continue
                self._check(said)
                done = one.asked.pop(0)
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
        doing = "while it was reset"
        if fault.during == "step":
            doing = f"at the action {np.array(self.board.action[fault.game]).tolist()}"
        raise GameError(f"{name} raised {fault.error}", fault.game, doing, fault.trace)

    def _start(self, one: Worker) -> None:
        setup = {"spec": self.env.spec, "games": self.rows[-1].stop, "make": self.make, "groups": one.groups}
        assert self._file is not None
        one.start(self._file.fileno(), setup)

    def _greet(self, one: Worker) -> None:
        """Wait until a worker has built its games."""
        said = one.read(max(self.timeout, BUILDING))
        if said is False:
            how = how_it_ended(one.exit_code(), max(self.timeout, BUILDING))
            raise InputError(f"{self.env.spec.name}: worker {one.number} {how} while it built its games.")
        self._check(said)

    def _restart(self, one: Worker) -> None:
        how = how_it_ended(one.exit_code(), self.timeout)
        one.restarts += 1
        if one.restarts > PATIENCE:
            what = f"{self.env.spec.name}: worker {one.number} {how}, {one.restarts} times in a row"
            raise GameError(what, None, "", "")
        games = sum(map(len, one.groups))
        self.warn(f"Worker {one.number} {how} and is started again; {games} episodes were cut off.")
        one.end()
        self._start(one)
        try:
            self._greet(one)
        except InputError as error:  # it could be built before, so it is the environment that broke down
            raise GameError(str(error), None, "", "") from None
        one.lost = [True] * len(one.groups)
        for group in one.asked:
            one.send(serving.RESET, group)

    def close(self) -> None:
        """End the workers and free the games; harmless twice."""
        if self.here is not None:
            self.here.close()
        for one in self.workers:
            if one.process is not None:  # one that is at a step reads this afterwards
                one.send(serving.CLOSE, 0)
        deadline = time.monotonic() + CLOSING
        for one in self.workers:
            one.end(max(0.0, deadline - time.monotonic()))
        self.workers = []
        if self._file is not None:
            self._file.close()


def sendable(env: HostEnvironment) -> bytes:
    """What makes a game, as it is sent to worker processes.

    Raises:
        InputError: there can be none here, or they cannot import it.
    """
    if os.name != "posix":
        raise InputError("Worker processes need Linux or macOS; step in this process with num_workers 0.")
    make = importable(env.make)
    if make is None:
        raise InputError(
            f"{env.spec.name} is defined where worker processes cannot import it from; move it to a module, or "
            f"step it in this process with num_workers 0."
        )
    return make


def spread(games: int, workers: int | None) -> int:
    """How many workers step so many games: one for each core unless said otherwise, and never more than games."""
    return min(games, cores() if workers is None else workers)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
