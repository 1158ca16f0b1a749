"""What asks a run to end: Ctrl-C, SIGTERM and SIGHUP, also while compiled code is computing or compiling."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

from shoal.notices import Warn
from shoal.types import PyTree

T = TypeVar("T")

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The last one is sent when the terminal is closed; under ``nohup`` it is ignored, and stays so."""


class Stopped(KeyboardInterrupt):
    """The run was asked to end where all that it has learned is saved already."""


class Stop:
    """Listens for signals. The first one asks the run to end; Ctrl-C after that ends it at once."""

    def __init__(self, warn: Warn):
        self.warn = warn
        self.asked = False
        self._at_once = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals. Outside of the main thread, which alone can do so, nothing changes."""
        global _listening
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
        before, outer = {number: signal.signal(number, self._ask) for number in caught}, _listening
        _listening = self
        try:
            yield
        finally:
            _listening = outer
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Here nothing can be lost: what :func:`wait` waits for is left to itself, and :class:`Stopped` is raised.

        A handler could raise it anywhere, but there it might be swallowed or break what is being imported.
        """
        self._at_once = True
        try:
            yield
            self.leave()
        finally:
            self._at_once = False

    def leave(self) -> None:
        """Raise :class:`Stopped` where the run is asked to end and nothing can be lost."""
        if self.asked and self._at_once:
            raise Stopped

    def _ask(self, number: int, frame: object) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.asked:  # a closed terminal and a scheduler may both send several
            return
        self.asked = True
        when = "before training goes on" if self._at_once else "after this call"
        self.warn(f"Stopping {when}; the run is saved and --resume continues it.")
        _woken.put(None)


_listening: Stop | None = None
_woken: queue.SimpleQueue[None] = queue.SimpleQueue()
"""Receives something where :func:`wait` has to look what happened. An event would not do: a signal handler that sets it
waits for ever where it interrupts the thread that holds the event's lock."""
_busy: set[threading.Thread] = set()


def _leave() -> None:
    if _listening:
        _listening.leave()


def busy() -> bool:
    """Whether something that :func:`wait` did not wait for any more is still going on."""
    return bool(_busy)


def wait(work: Callable[[], T]) -> T:
    """Do ``work`` in another thread, since signals are only handled where the main thread runs Python code.

    Raises:
        Stopped: the run was asked to end where nothing can be lost. The work goes on, since nothing can interrupt
            compiled code, and its result is dropped.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: list[T] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            result.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            _busy.discard(thread)
            _woken.put(None)

    _leave()
    thread = threading.Thread(target=do, name="compiled code")
    _busy.add(thread)
    thread.start()
    while not (result or raised):  # not thread.join(), which takes a thread for ended when a handler raises in it
        _woken.get()
        _leave()
    if raised:
        raise raised[0]
    return result[0]


def ready(tree: PyTree) -> PyTree:
    """``tree`` when all of it is computed."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "is_ready")]  # random keys have no such method
    if not all(leaf.is_ready() for leaf in leaves):
        wait(lambda: jax.block_until_ready(leaves))
    return tree


def call(function: Callable, *arguments: object) -> Any:
    """What a function made by ``jax.jit`` gives, compiled and computed while signals are handled.

    It is traced in the calling thread, whose settings of JAX (``with jax.default_matmul_precision`` …) hold for it.
    """
    compiled = wait(function.lower(*arguments).compile)  # type: ignore[attr-defined]
    return ready(compiled(*arguments))
