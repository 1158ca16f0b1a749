"""Output: standard streams that are closed, whose reader is gone, or whose disk is full, and files that may fail."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoal.errors import WriteError
from shoal.system.notices import escaped

_STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


def fill_closed_streams() -> None:
    """Open the null device for standard streams that the shell closed (``>&-``).

    Otherwise the next file or pipe takes the stream's number and receives the output of libraries and workers.
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


class Escaping:
    """A text stream that escapes control characters: whatever a command prints may come from a file."""

    def __init__(self, stream: Any):
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Write ``text`` escaped."""
        self.write_unescaped(escaped(text))
        return len(text)

    def write_unescaped(self, text: str) -> None:
        """Write ``text`` as it is."""
        self.unescaped.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


class Lenient(Escaping):
    """One that also ignores write errors, so that a closed terminal does not end training."""

    def write_unescaped(self, text: str) -> None:
        """Write ``text`` as it is, if possible."""
        with contextlib.suppress(OSError, ValueError):
            self.unescaped.write(text)

    def flush(self) -> None:
        """Flush if possible."""
        with contextlib.suppress(OSError, ValueError):
            self.unescaped.flush()


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """``sys.stdout`` as an :class:`Escaping` stream, and ``sys.stderr`` as a :class:`Lenient` one.

    What their encoding lacks, such as a minus sign in a file with a Windows code page, is escaped.
    """
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = Escaping(sys.stdout), Lenient(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        try:
            sys.stderr.flush()
        except (OSError, ValueError):  # from Python 3.14 on the exit code would be 120
            abandon_output(sys.stderr)


def abandon_output(stream: Any) -> None:
    """Redirect a standard stream to the null device, so that the interpreter's flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):  # pytest's stream has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def leave(code: int) -> None:
    """Exit without waiting for threads that are still running."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def attempted(write: Callable[[], Path | str]) -> str:
    """The path of what ``write`` wrote, or why it could not: a page about results must not fail what was computed."""
    try:
        return str(write())
    except WriteError as error:
        return str(error)
    except Exception as error:
        return f"cannot be written: {' '.join(str(error).split()) or type(error).__name__}"
