"""HTML from untrusted text: all text that is not :class:`Html` is escaped."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

_BESIDE = 3
"""Columns of a table that a phone shows beside each other."""
_VOID = {"meta", "br"}
_NUMBER = re.compile(r"[−+-]?[\d,]*\.?\d")
_IN_SCRIPT = {ord(x): f"\\u{ord(x):04x}" for x in "<>&\u2028\u2029"}


class Html(str):
    """Text that is HTML already. Only this module and constants of this package may create it."""


Part = Html | str | None


def escaped(text: object) -> Html:
    """Text as HTML. Unprintable characters, for example control characters or a change of direction, become �."""
    plain = "".join(x if x.isprintable() or x == "\n" else "\ufffd" for x in str(text))
    return Html(html.escape(plain, quote=True))


def tag(name: str, /, *parts: Part, **attributes: str | int | bool | None) -> Html:
    """An element. Parts that are not :class:`Html` are escaped, and None is left out.

    Args:
        name: of the element; a constant.
        parts: its contents.
        attributes: values are escaped; True has no value, and None and False leave the attribute out. In names an
            underscore at the end is dropped, and others become hyphens: ``class_``, ``aria_label``.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{escaped(value)}"')
    start = f"<{' '.join(words)}>"
    return Html(start if name in _VOID else f"{start}{joined(*parts)}</{name}>")


def joined(*parts: Part) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escaped(part) for part in parts if part is not None))


def with_code(text: str) -> Html:
    """Text in which backticks mark code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escaped(text)
    return joined(*(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)))


def bullets(items: Sequence[Part], **attributes: str) -> Html:
    """An unordered list."""
    return tag("ul", *(tag("li", item) for item in items), **attributes)


def pairs(items: Mapping[str, Part], **attributes: str) -> Html:
    """A list of names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in items.items()), **attributes)


def table(
    rows: Sequence[Mapping[str, Any]],
    caption: str,
    *,
    class_: str | None = None,
    heads: Mapping[str, Part] = MappingProxyType({}),
) -> Html:
    """A table, which scrolls sideways where it is too wide; columns of numbers are right-aligned.

    On a phone, the lines of a table of more than :data:`_BESIDE` columns are blocks in which each value has its
    column's name before it, so that nothing is outside the screen.

    Args:
        rows: one mapping for each line, from column to value (:class:`Html` or text); the first column names the line.
        caption: what it shows.
        class_: of the table.
        heads: contents of the heads of some columns; other heads are the columns' names.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    stacked = len(columns) > _BESIDE and class_ != "bars"
    numeric = {name for name in columns if all(_is_number(row.get(name, "")) for row in rows)}

    def kind(name: str) -> str | None:
        return "number" if name in numeric else None

    head = tag("tr", *(tag("th", heads.get(name, name), scope="col", class_=kind(name)) for name in columns))
    lines = []
    for row in rows:
        cells = [
            tag("td", row.get(name, "–"), class_=kind(name), data_column=name if stacked else None)
            if i
            else tag("th", row.get(name, "–"), scope="row", class_=kind(name))
            for i, name in enumerate(columns)
        ]
        lines.append(tag("tr", *cells))
    whole = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", *lines), class_=_classes(class_, stacked)
    )
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _classes(given: str | None, stacked: bool) -> str | None:
    return " ".join(name for name in (given, "stacked" if stacked else None) if name) or None


def _is_number(value: Any) -> bool:
    return not isinstance(value, Html) and (value in ("", "–", "missing") or bool(_NUMBER.match(str(value))))


def data_script(name: str, value: Any) -> Html:
    """Data for the page's scripts, as JSON in which no text can end the element or start a comment.

    Args:
        name: the element's id.
        value: JSON values, without NaN.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return Html(f'<script type="application/json" id="{escaped(name)}">{text.translate(_IN_SCRIPT)}</script>')
