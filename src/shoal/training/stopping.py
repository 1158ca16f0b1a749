"""Stop a run on Ctrl-C, SIGTERM and SIGHUP, also while JAX computes or compiles."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

from shoal.errors import Terminated
from shoal.system.notices import Warn
from shoal.types import PyTree

T = TypeVar("T")

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""SIGHUP is sent when the terminal is closed; where it is ignored (``nohup``) it stays ignored."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the run at a point at which everything is saved."""


class Stop:
    """Handles signals: the first one requests a stop; a later Ctrl-C raises KeyboardInterrupt."""

    def __init__(self, warn: Warn, begun: Callable[[], bool] = lambda: True):
        """Wait for signals only in :meth:`listening`.

        Args:
            warn: called with one sentence when a stop is requested.
            begun: whether the run has trained before, for the sentence.
        """
        self.warn, self.begun = warn, begun
        self.asked = False
        self._at_once = False
        self.number = signal.SIGINT
        """The signal that requested the stop."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside the block. Has no effect outside the main thread, which alone can handle signals."""
        global _listening
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        there = {number: signal.getsignal(number) for number in SIGNALS}
        # None stands for a handler of the program in which Python is embedded, which could not be put back.
        before = {
            number: handler
            for number, handler in there.items()
            if handler is not None and (number == signal.SIGINT or handler != signal.SIG_IGN)
        }
        for number in before:
            signal.signal(number, self._ask)
        outer = _listening
        _listening = self
        try:
            yield
        finally:
            _listening = outer
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Stop immediately: inside the block, in which everything is saved, :func:`wait` raises :class:`Stopped`.

        The signal handler does not raise it itself, since that could interrupt an import or be swallowed.
        """
        self._at_once = True
        try:
            yield
            self.leave()
        finally:
            self._at_once = False

    def leave(self) -> None:
        """Raise :class:`Stopped` if a stop was requested inside :meth:`at_once`."""
        if self.asked and self._at_once:
            raise Stopped

    def exception(self, sentence: str) -> KeyboardInterrupt | Terminated:
        """The exception that ends the calling program once the run is saved, so that it does not continue.

        Args:
            sentence: the message after Ctrl-C; other signals have no message.
        """
        return KeyboardInterrupt(sentence) if self.number == signal.SIGINT else Terminated(128 + self.number)

    def _ask(self, number: int, frame: object) -> None:
        self.ask(number)

    def ask(self, number: int) -> None:
        """Request a stop, as the signal of this number does."""
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.asked:  # terminals and schedulers may send several signals
            return
        self.asked, self.number = True, signal.Signals(number)
        if self._at_once and not self.begun():
            self.warn("Stopping before training begins; --resume starts the run.")
        else:
            when = "before training continues" if self._at_once else "after this call"
            self.warn(f"Stopping {when}; the run is saved and --resume continues it.")
        _woken.put(None)


_listening: Stop | None = None
_woken: queue.SimpleQueue[None] = queue.SimpleQueue()
"""Wakes :func:`wait`. Not a ``threading.Event``: a signal handler that sets it deadlocks if it interrupts the thread
that holds the event's lock."""
_busy: set[threading.Thread] = set()


def _leave() -> None:
    if _listening:
        _listening.leave()


def busy() -> bool:
    """Whether work that :func:`wait` abandoned is still running."""
    return bool(_busy)


def wait(work: Callable[[], T]) -> T:
    """Run ``work`` in another thread, since signals are handled only while the main thread executes Python code.

    Raises:
        Stopped: a stop was requested inside :meth:`Stop.at_once`. The work continues, since compiled code cannot be
            interrupted, and its result is discarded.
    """
    return begin(work)()


def begin(work: Callable[[], T]) -> Callable[[], T]:
    """Start ``work`` in another thread; returns the function that waits for its result, as :func:`wait` does."""
    if threading.current_thread() is not threading.main_thread():
        return work
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

    def join() -> T:
        # Not thread.join(), which marks the thread as ended if a signal handler raises in it.
        while not (result or raised):
            _woken.get()
            _leave()
        if raised:
            raise raised[0]
        return result[0]

    return join


def ready(tree: PyTree) -> PyTree:
    """Wait until all arrays of ``tree`` are computed; returns it."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "is_ready")]  # PRNG keys have no such method
    if not all(leaf.is_ready() for leaf in leaves):
        wait(lambda: jax.block_until_ready(leaves))
    return tree


def call(function: Callable, *arguments: object) -> Any:
    """Call a ``jax.jit`` function; signals are handled while it compiles and computes.

    It is traced in the calling thread, so JAX's context managers (``jax.default_matmul_precision`` …) apply.
    """
    compiled = wait(function.lower(*arguments).compile)  # type: ignore[attr-defined]
    return ready(compiled(*arguments))
