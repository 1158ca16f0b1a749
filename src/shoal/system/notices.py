"""Text for a terminal: warnings on standard error, and the escape of control characters, which a terminal obeys.

Names and messages may come from files of other people. They could rewrite earlier lines, colour a warning away, or
reverse the order in which a name is shown. Notes about progress belong to :mod:`shoal.training.progress`.
"""

import contextlib
import re
import sys
from collections.abc import Callable

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 without tab and newline, DEL, and C1."""
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode's bidirectional controls."""
_OTHERS = "\u2028\u2029\ud800-\udfff"
"""Separators of lines and paragraphs, and halves of surrogate pairs, which cannot be encoded."""
_UNSAFE = re.compile(f"[{_CONTROLS}{_DIRECTIONS}{_OTHERS}]")


def escaped(text: str) -> str:
    r"""``text`` with its control characters written as Python writes them: ``\x1b``, ``\u202e``.

    Tabs and newlines stay.
    """
    return _UNSAFE.sub(_as_python, text)


def escaped_as_unicode(text: str) -> str:
    r"""As :func:`escaped`, but always as ``\uXXXX``, which JSON and TOML read within quotes."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _as_python(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


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
