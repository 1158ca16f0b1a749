"""Warnings to the user, on standard error. Notes about progress belong to :mod:`shoal.training.progress`."""

import contextlib
import sys
from collections.abc import Callable

from shoal.printable import escaped

Warn = Callable[[str], None]
"""Function that shows one sentence to the user, also where progress is hidden."""


CLEAR = "\r\033[K"
"""Clears the line on a terminal."""


def warn(sentence: str, clear: bool = False) -> None:
    """Print one sentence to standard error."""
    write_stderr(f"{sentence}\n", clear)


def write_stderr(text: str, clear: bool = False) -> None:
    """Print to standard error and flush; control characters in ``text`` are escaped.

    ``clear`` clears the terminal's line before. A closed terminal or pipe is ignored, so that it does not end a run.

    So is the RuntimeError of a signal handler that interrupts this function and calls it again.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        if sys.stderr is not None:
            directly = getattr(sys.stderr, "write_unescaped", sys.stderr.write)
            directly(CLEAR * clear + escaped(text))
            sys.stderr.flush()


def on_terminal() -> bool:
    """Whether standard error is a terminal, on which a line can be rewritten."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False
