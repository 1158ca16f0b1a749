"""Stepping of games that write into shared arrays, in a worker process or in this one. Does not import JAX.

A worker process steps games on order: here are its program and the training process's side. An order is two bytes, the
operation and the group; its answer is the byte ``OK``, or ``FAULT`` and the fault. ``OK`` to ``DRAW`` is followed by a
tuple of the picture. A last answer follows when the games are closed. The process exits when the training process is
gone.
"""

import contextlib
import enum
import faulthandler
import mmap
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np

from shoal.errors import WriteError
from shoal.game import Game, HostEnvironment, HostTimestep, action_shape, blank, own_actions, refresh
from shoal.security import isolation
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
    """``make``, ``reset``, ``step``, ``render`` or ``close``."""
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
            except (Exception, SystemExit) as error:
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
            self.games[i].step(self.board.action[i].copy(), out)  # a game may keep its action
        except (Exception, SystemExit) as error:
            return fault_of(error, "step", i)
        return None

    def picture(self, i: int) -> np.ndarray | Fault | None:
        """The picture of one game; None without a renderer."""
        try:
            return self.games[i].render()
        except (Exception, SystemExit) as error:
            return fault_of(error, "render", i)

    def _begin(self, i: int) -> None:
        out = self.fresh[i]
        refresh(out, self.own)
        self.games[i].reset(int(self.board.seed[i]), out)
        out.first[...] = True

    def close(self) -> Fault | None:
        """Close all games, also after one that raises; the first fault."""
        faults = []
        for i, game in self.games.items():
            try:
                game.close()
            except (Exception, SystemExit) as error:
                faults.append(fault_of(error, "close", i))
        self.games = {}
        return faults[0] if faults else None


def _timestep(timesteps: HostTimestep, i: int) -> HostTimestep:
    return HostTimestep(*(leaf[i, ...] for leaf in timesteps))


def fault_of(error: BaseException, during: str, i: int = -1) -> Fault:
    """The exception that is being handled as a :class:`Fault`."""
    return Fault(i, during, _one_line(error), traceback.format_exc())


def _one_line(error: BaseException) -> str:
    """Type and message."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def pickled(make: Any) -> bytes | None:
    """``make`` (or an environment) pickled; None if another process cannot import it, as from a script, a notebook or a
    closure."""
    try:
        pickled = pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in pickled and "__main__" in sys.modules else pickled


def local_workers(env: Any, wanted: int | None) -> int | None:
    """Number of local worker processes: ``wanted``, but 0 for a host environment that only Ray can send elsewhere."""
    there = not isinstance(env, HostEnvironment) or pickled(env.make) is not None
    return wanted if there else 0


STEP, RESET, CLOSE = b"s", b"r", b"c"
PLAY, DRAW = b"p", b"d"
"""Orders to a worker of one game, which is watched: to step it without starting the next episode, and to draw it."""
OK, FAULT = b"k", b"f"

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit numerical libraries to one thread, since there is a worker per core."""


def main(orders: int, answers: int, memory: int) -> None:
    """Serve orders until ``CLOSE`` or until the training process is gone; the arguments are file descriptors."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # these may be sent to all processes; the training process handles them
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not ignored, since child processes of games would inherit that
        signal.siginterrupt(number, False)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    faulthandler.enable()
    isolation.guard_libraries()
    setup = read_block(orders)
    if setup is None:
        return
    stepper, groups = None, setup["groups"]
    try:
        shared = board(setup["spec"], setup["games"], mmap.mmap(memory, 0))
        stepper = Stepper(setup["spec"], pickle.loads(setup["make"]), shared, [i for g in groups for i in g])
    except (Exception, SystemExit) as error:
        with contextlib.suppress(BrokenPipeError):
            answer(answers, fault_of(error, "make"))
        return
    with contextlib.suppress(BrokenPipeError):  # the training process is gone
        answer(answers, None)
        while (order := _read_count(orders, 2)) and order[:1] != CLOSE:
            _serve(stepper, order[:1], groups[order[1]], answers)
    with contextlib.suppress(BrokenPipeError):
        answer(answers, stepper.close())


def _serve(stepper: Stepper, order: bytes, games: range, answers: int) -> None:
    """Execute an order for a group and answer it."""
    if order == DRAW:
        picture = stepper.picture(games[0])
        answer(answers, picture if isinstance(picture, Fault) else None)
        if not isinstance(picture, Fault):
            write_block(answers, (picture,))
    elif order == PLAY:
        answer(answers, stepper.play(games[0]))
    else:
        answer(answers, (stepper.step if order == STEP else stepper.reset)(games))


def answer(descriptor: int, fault: Fault | None) -> None:
    """Send ``OK``, or ``FAULT`` and the fault."""
    if fault is None:
        os.write(descriptor, OK)
    else:
        os.write(descriptor, FAULT)
        write_block(descriptor, fault)


def write_block(descriptor: int, value: Any) -> None:
    """Send a pickled value of any size."""
    data = pickle.dumps(value)
    left = memoryview(struct.pack("<q", len(data)) + data)
    while left:
        left = left[os.write(descriptor, left) :]


def read_block(descriptor: int) -> Any:
    """Receive a value from :func:`write_block`; None if the other side is closed."""
    head = _read_count(descriptor, 8)
    body = _read_count(descriptor, struct.unpack("<q", head)[0]) if head else b""
    return pickle.loads(body) if body else None


def _read_count(descriptor: int, count: int) -> bytes:
    """``count`` bytes, or none at the end of the stream."""
    parts = b""
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            return b""
        parts += part
    return parts


def end_with(parent: int) -> None:
    """Kill this process group when the parent process is gone, even while a game hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(os.getpgrp(), signal.SIGKILL)


# The training process's side: start, send, read, kill.


class Loss(enum.Enum):
    """Why there is no answer from a worker."""

    ENDED = enum.auto()
    """Its answers have ended, since its process has ended or is about to."""
    SILENT = enum.auto()
    """It did not answer in time."""


class Worker:
    """A worker process and its pending orders."""

    def __init__(self, number: int, groups: list[range]):
        self.number, self.groups = number, groups
        self.process: subprocess.Popen | None = None
        self.orders = self.answers = -1
        self.asked: list[int] = []
        """Groups with a pending order, in the order in which they were sent."""
        self.lost = [False] * len(groups)
        """Groups whose episodes were lost with the previous process."""
        self.restarts = 0
        """Restarts since the last step."""

    def start(
        self, memory: int, setup: dict[str, Any], quiet: bool = False, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start a process that builds its games; its answer is read later, so that workers build in parallel.

        ``quiet`` discards its output; ``environ`` are defaults of environment variables.

        ``multiprocessing`` is not used, since it would run a script without a main guard again.
        """
        with contextlib.ExitStack() as opened:

            def pipe() -> tuple[int, int]:
                ends = os.pipe()
                for end in ends:
                    opened.callback(os.close, end)
                return ends

            orders, self.orders = pipe()
            self.answers, answers = pipe()
            self.process = subprocess.Popen(
                isolation.child_command(__name__, orders, answers, memory),
                stdin=subprocess.DEVNULL,
                pass_fds=(orders, answers, memory),
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.DEVNULL if quiet else None,
                env=dict.fromkeys(THREAD_LIMITS, "1") | dict(environ) | isolation.child_environment(),
                start_new_session=True,  # so that it can be killed with the processes of its games
            )
            opened.pop_all()  # they stay open
        os.close(orders)
        os.close(answers)
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            write_block(self.orders, setup)

    def send(self, order: bytes, group: int) -> None:
        """Send an order for one group."""
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            os.write(self.orders, order + bytes([group]))

    def read(self, seconds: float) -> Fault | Loss | None:
        """The next answer, within ``seconds``: None for OK, a fault, or why there is none."""
        poll = select.poll()
        poll.register(self.answers, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return Loss.SILENT
        answer = os.read(self.answers, 1)
        if answer == OK:
            return None
        return (read_block(self.answers) if answer else None) or Loss.ENDED

    def exit_code(self) -> int | None:
        """Exit code of the process; None if it is running."""
        if self.process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe closes shortly before it exits
            return self.process.wait(0.5)
        return None

    def end(self, seconds: float = 0.0) -> Fault | None:
        """Kill the process unless it exits within ``seconds``, and kill the processes that its games started.

        Returns the fault of closing its games, if one raised.
        """
        if self.process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        exited, fault = self.process.returncode == 0, None
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises the second
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(Exception):  # what an interrupted reader has left is no answer
            while exited and not isinstance(found := self.read(0.0), Loss):
                fault = found if found and found.during == "close" else fault
        os.close(self.orders)
        os.close(self.answers)
        self.process = None
        return fault


def how_it_ended(one: Worker, loss: Loss, seconds: float) -> str:
    """Why a worker was lost, as text; ``seconds`` are those in which it had to answer."""
    code = one.exit_code()
    if code is None:  # of a process that has died too, for example while its memory is written to a file
        return "died" if loss is Loss.ENDED else f"did not answer for {seconds:g} s"
    return f"died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def memory_file(size: int) -> IO[bytes]:
    """An unnamed file of ``size`` zeros, which leaves nothing behind; in memory if there is room."""
    folder = Path("/dev/shm")
    there = os.statvfs(folder) if folder.is_dir() else None
    roomy = there is not None and there.f_bavail * there.f_frsize > 2 * size
    file = tempfile.TemporaryFile(dir=folder if roomy else None)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):  # writing to a sparse file on a full disk would kill the process
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        file.close()
        raise WriteError(f"The workers' shared memory of {size} bytes cannot be made: {error.strerror}.") from error
    return file
