"""Warnings to the user, on standard error. Notes about progress belong to :mod:`shoal.training.progress`."""

import contextlib
import sys
from collections.abc import Callable

Warn = Callable[[str], None]
"""Receives one sentence that the user must see, also where progress is hidden."""


def warn(sentence: str) -> None:
    """Print one sentence to standard error."""
    write(f"{sentence}\n")


def write(text: str) -> None:
    """Print to standard error at once. A closed terminal or pipe raises nothing: a run must not end because of it.

    Nor does a signal handler that interrupts this function and calls it again, which is a RuntimeError.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def on_terminal() -> bool:
    """Whether standard error is a terminal, on which a line can be rewritten."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False
