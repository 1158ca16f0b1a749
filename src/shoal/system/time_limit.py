"""A time limit for a call of another's code. Does not import JAX."""

import signal
import threading
from collections.abc import Callable
from typing import Any


class _Late(BaseException):
    """No ``Exception``, which the code might catch and go on."""


def returns_within(seconds: float, call: Callable[[], Any]) -> bool:
    """Call a function and interrupt it if it takes longer; whether it returned in time. What it raises is passed on.

    A signal interrupts it, since some libraries must be called by the thread in which they were started. So there is
    no limit in other threads than the main one, on Windows, and in a function of C that does not return to Python.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        call()
        return True
    over = False

    def interrupt(*_: Any) -> None:
        if not over:
            raise _Late

    before = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    except _Late:
        return False
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
    return True
