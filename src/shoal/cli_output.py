"""What the command line writes to: streams that were closed, readers that went away, disks that are full."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


def fill_closed_streams() -> None:
    """Put the null device in the place of standard streams that the shell closed (``>&-``).

    Otherwise the next file or pipe that is opened takes the stream's number, and what libraries and worker processes
    print lands in it.
    """
    for name, number, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the whole process


class Lenient:
    """A text stream whose failures to write are ignored: a terminal that is gone ends no training."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text`` if that is possible."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if that is possible."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lenient_errors() -> Iterator[None]:
    """``sys.stderr`` as a :class:`Lenient` stream."""
    before = sys.stderr
    sys.stderr = Lenient(before)
    try:
        yield
    finally:
        sys.stderr = before


def abandon_output() -> None:
    """Send what is left of stdout to the null device, so that the interpreter does not fail on it once more."""
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no number
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def leave(code: int) -> None:
    """End the process without waiting for threads that are still going on."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
