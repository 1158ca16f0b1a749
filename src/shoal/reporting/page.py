"""The HTML document: escaped text, its head with the content security policy, sections, data, scripts and styles.

All text that is not :class:`Html` is escaped, since it may come from files of other people.
"""

import base64
import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from shoal.errors import InputError

LONG = 20
"""Characters of a text beyond which its column is not made as narrow as its longest word, on a phone."""
_VOID = {"meta", "br"}
_FLAG = re.compile(r"((?<= )--[a-z0-9.-]{1,30}(?= |$))")
_NUMBER = re.compile(r"[−+-]?[\d,]*\.?\d")
_IN_NUMBERS = {"h", "min", "s", "e", "k", "M", "G", "to"}
"""Words of a text that is a number, a time or an interval."""
_IN_SCRIPT = {ord(x): f"\\u{ord(x):04x}" for x in "<>&\u2028\u2029"}


class Html(str):
    """Text that is HTML already. Only this module and constants of this package may create it."""


Part = Html | str | None


def escaped(text: object) -> Html:
    """Text as HTML. Unprintable characters, for example control characters or a change of direction, become �, and the
    spaces of other scripts a space."""
    plain = "".join(x if x.isprintable() or x == "\n" else _printed(x) for x in str(text))
    return Html(html.escape(plain, quote=True))


def _printed(x: str) -> str:
    return " " if unicodedata.category(x) == "Zs" else "\ufffd"


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
    return Html(start if name in _VOID else f"{start}{joined_html(*parts)}</{name}>")


def joined_html(*parts: Part) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escaped(part) for part in parts if part is not None))


def with_code(text: str) -> Html:
    """Text in which backticks mark code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escaped(text)
    return joined_html(*(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)))


def bullets(items: Sequence[Part], **attributes: str) -> Html:
    """An unordered list."""
    return tag("ul", *(tag("li", item) for item in items), **attributes)


def pairs(items: Mapping[str, Part], **attributes: str) -> Html:
    """A list of names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in items.items()), **attributes)


def commands(lines: Mapping[str, str]) -> Html:
    """A list of commands by what they do. A narrow screen does not break a flag after its hyphens."""

    def line(command: str) -> Html:
        pieces = _FLAG.split(command)
        return tag("code", *(tag("span", piece) if i % 2 else piece for i, piece in enumerate(pieces)))

    return pairs({what: line(command) for what, command in lines.items()}, class_="commands")


def html_table(
    rows: Sequence[Mapping[str, Any]],
    caption: str,
    *,
    class_: str | None = None,
    heads: Mapping[str, Part] = MappingProxyType({}),
    attributes: Sequence[Mapping[str, str]] = (),
) -> Html:
    """A table, which scrolls sideways where it is too wide, beside its first column; columns of numbers are
    right-aligned.

    Args:
        rows: one mapping for each line, from column to value (:class:`Html` or text); the first column names the line.
        caption: what it shows.
        class_: of the table.
        heads: contents of the heads of some columns; other heads are the columns' names.
        attributes: of each line's element; the names are constants.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name for name in columns if all(_is_number(row.get(name, "")) for row in rows)}

    long = {name for name in columns if any(len(str(row.get(name, ""))) > LONG for row in rows)} - numeric

    def kind(name: str) -> str | None:
        return "number" if name in numeric else "long" if name in long else None

    head = tag("tr", *(tag("th", heads.get(name, name), scope="col", class_=kind(name)) for name in columns))
    lines = []
    for i, row in enumerate(rows):
        cells = [
            tag("td", row.get(name, "–"), class_=kind(name))
            if j
            else tag("th", row.get(name, "–"), scope="row", class_=kind(name))
            for j, name in enumerate(columns)
        ]
        lines.append(tag("tr", *cells, **(attributes[i] if attributes else {})))
    said = tag("caption", tag("span", caption))
    whole = tag("table", said, tag("thead", head), tag("tbody", *lines), class_=class_)
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _is_number(value: Any) -> bool:
    if isinstance(value, Html):
        return False
    if value in ("", "–", "missing"):
        return True
    words = "".join(x if x.isalpha() else " " for x in str(value)).split()
    return _NUMBER.match(str(value)) is not None and _IN_NUMBERS.issuperset(words)


def data_script(name: str, value: Any) -> Html:
    """Data for the page's scripts, as JSON in which no text can end the element or start a comment.

    Args:
        name: the element's id.
        value: JSON values, without NaN.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return Html(f'<script type="application/json" id="{escaped(name)}">{text.translate(_IN_SCRIPT)}</script>')


# The scripts and styles, which are part of this package.


ASSETS = Path(__file__).parent / "assets"
UPLOT = ASSETS / "vendor" / "uplot"


class Asset(NamedTuple):
    """A script or style."""

    text: str
    source: str
    """Its source expression in a content security policy, ``'sha256-…'``."""


@cache
def page_scripts() -> tuple[Asset, ...]:
    """The scripts as they run: uPlot, charts, the player, filters, and last the one that starts them."""
    last = (ASSETS / "filters.js", ASSETS / "page.js")
    return _read(UPLOT / "uPlot.iife.min.js", *_own("charts*.js"), *_own("player*.js"), *last)


@cache
def page_styles() -> tuple[Asset, ...]:
    """The styles."""
    return _read(UPLOT / "uPlot.min.css", *_own("report*.css"), *_own("player*.css"))


@cache
def licence() -> str:
    """uPlot's licence, which every copy of uPlot must include."""
    return (UPLOT / "LICENSE").read_text("utf-8")


def _own(pattern: str) -> list[Path]:
    return sorted(ASSETS.glob(pattern))


def _read(*paths: Path) -> tuple[Asset, ...]:
    found = []
    for path in paths:
        text = path.read_text("utf-8").strip()
        # The element would end there, or its text would not match the hash.
        assert not any(end in text.lower() for end in ("</script", "</style", "<!--", "\r")), path
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        found.append(Asset(text, f"'sha256-{digest}'"))
    return tuple(found)


# The document.


MAX_PAGE_BYTES = 5_000_000
"""Limit of a report's size in bytes."""
REPLAYS = 3_000_000
"""Limit of the replays' size in bytes."""


class Section(NamedTuple):
    """A part of the page with a heading and a place in the navigation."""

    name: str
    """Its id; a constant, or letters, digits and hyphens."""
    title: str
    body: Html


class Page(NamedTuple):
    """The contents of a report."""

    title: str
    lead: Html
    """Below the title."""
    sections: Sequence[Section]
    charts: Sequence[Mapping[str, Any]]
    """What the charts draw (:mod:`shoal.reporting.charts`), by their numbers in ``data-chart``."""


def budget(page: Page) -> int:
    """Largest size of the replays in this page, in bytes."""
    return max(0, min(REPLAYS, MAX_PAGE_BYTES - len(page_bytes(page, None)) - 1000))


def replays_size(replays: Mapping[str, Any]) -> int:
    """Approximate size of the replays in the page, in bytes."""
    return len(data_script("", replays))


def page_bytes(page: Page, replays: Mapping[str, Any] | None) -> bytes:
    """The document.

    Args:
        page: its contents.
        replays: the player's document; None for a page without replays.

    Raises:
        InputError: it would exceed :data:`MAX_PAGE_BYTES`.
    """
    data = [data_script("chart-data", list(page.charts))]
    data += [] if replays is None else [data_script("replay-data", replays)]
    scripts = [tag("script", Html(script.text)) for script in page_scripts()]
    body = tag("body", _skip(), _header(page), _main(page), _footer(), *data, *scripts)
    text = f'<!doctype html>\n<html lang="en">\n{_head(page.title)}\n{body}\n</html>\n'
    encoded = text.encode("utf-8")
    if len(encoded) >= MAX_PAGE_BYTES:
        raise InputError(
            f"The report would take {len(encoded) / 1e6:.1f} MB, more than the limit of {MAX_PAGE_BYTES / 1e6:.0f} MB; "
            f"it has too many runs or metrics."
        )
    return encoded


def _head(title: str) -> Html:
    sources = {"script-src": page_scripts(), "style-src": page_styles()}
    policy = ["default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'"]
    policy += [f"{what} {' '.join(one.source for one in found)}" for what, found in sources.items()]
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content="; ".join(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Html(f"<!-- Charts: uPlot, https://github.com/leeoniya/uPlot\n{escaped(licence())}\n-->"),
        *(tag("style", Html(style.text)) for style in page_styles()),
    )


def _skip() -> Html:
    return tag("a", "Skip to the contents", href="#contents", class_="skip")


def _header(page: Page) -> Html:
    toggle = tag("button", "Dark", type="button", id="theme", aria_pressed="false", hidden=True)
    links = [tag("li", tag("a", section.title, href=f"#{section.name}")) for section in page.sections]
    return tag(
        "header",
        tag("div", tag("h1", page.title), toggle, class_="top"),
        tag("div", page.lead, class_="lead"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )


def _main(page: Page) -> Html:
    silent = tag("noscript", tag("p", "Charts and replays require JavaScript; text and tables do not.", class_="note"))
    parts = [
        tag("section", tag("h2", each.title, id=f"{each.name}-title"), each.body, id=each.name, **_named(each))
        for each in page.sections
    ]
    return tag("main", silent, *parts, id="contents", tabindex="-1")


def _named(section: Section) -> dict[str, str]:
    return {"aria_labelledby": f"{section.name}-title"}


def _footer() -> Html:
    link = tag("a", "uPlot", href="https://github.com/leeoniya/uPlot", rel="noreferrer")
    return tag("footer", tag("p", "Written by Shoal. This page loads nothing from the network. Charts: ", link, "."))


def player(notes: Sequence[Part]) -> Html:
    """The element of the player, and sentences about its replays."""
    said = [tag("p", note, class_="note") for note in notes]
    return joined_html(tag("div", class_="sp-player", id="player"), *said)
