"""The program of a worker process, which steps games on order. Does not import JAX.

An order is two bytes, the operation and the group; its answer is the byte ``OK``, or ``FAULT`` and the fault. ``OK`` to
``DRAW`` is followed by a tuple of the picture. The process exits when the training process is gone.
"""

import faulthandler
import mmap
import os
import pickle
import signal
import struct
import sys
import threading
import time
from typing import Any

from shoal.rollouts.stepping import Fault, Stepper, board, fault_of
from shoal.security import isolation

STEP, RESET, CLOSE = b"s", b"r", b"c"
PLAY, DRAW = b"p", b"d"
"""Orders to a worker of one game, which is watched: to step it without starting the next episode, and to draw it."""
OK, FAULT = b"k", b"f"

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
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
    except Exception as error:
        answer(answers, fault_of(error, "make"))
        return
    answer(answers, None)
    while True:
        order = _read(orders, 2)
        if not order or order[:1] == CLOSE:
            break
        try:
            _serve(stepper, order[:1], groups[order[1]], answers)
        except BrokenPipeError:
            break
    stepper.close()


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
    head = _read(descriptor, 8)
    body = _read(descriptor, struct.unpack("<q", head)[0]) if head else b""
    return pickle.loads(body) if body else None


def _read(descriptor: int, count: int) -> bytes:
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


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
