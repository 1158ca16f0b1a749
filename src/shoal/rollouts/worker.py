"""A worker process: steps its games when told to, and ends when nobody is there to tell it. Never imports JAX.

Orders are two bytes, what to do and in which group; the answer to each is one byte, ``OK``, or ``FAULT`` and the fault.
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

STEP, RESET, CLOSE = b"s", b"r", b"c"
OK, FAULT = b"k", b"f"

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""One thread for each worker's numerics: there are as many workers as cores."""


def main(orders: int, answers: int, memory: int) -> None:
    """Serve until told to close or until the training process is gone; the arguments are file descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a scheduler may send these to all; the training process decides
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not ignored, which programs that games start would inherit
        signal.siginterrupt(number, False)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    faulthandler.enable()
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
        act = stepper.step if order[:1] == STEP else stepper.reset
        try:
            answer(answers, act(groups[order[1]]))
        except BrokenPipeError:
            break
    stepper.close()


def answer(descriptor: int, fault: Fault | None) -> None:
    """OK, or what went wrong."""
    if fault is None:
        os.write(descriptor, OK)
    else:
        os.write(descriptor, FAULT)
        write_block(descriptor, fault)


def write_block(descriptor: int, value: Any) -> None:
    """Send a value of any size."""
    said = pickle.dumps(value)
    left = memoryview(struct.pack("<q", len(said)) + said)
    while left:
        left = left[os.write(descriptor, left) :]


def read_block(descriptor: int) -> Any:
    """What :func:`write_block` sent; None where the other side is gone."""
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
    """End this process, and what its games started, when the one that started it is gone; also while a game hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
