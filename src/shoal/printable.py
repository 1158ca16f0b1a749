"""Text for a terminal: names and messages may come from files of other people, and a terminal obeys control characters.

They could rewrite earlier lines, colour a warning away, or reverse the order in which a name is shown.
"""

import re

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
