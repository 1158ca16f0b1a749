"""The HTML document: its head with the content security policy, sections, data, scripts and styles."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import InputError
from shoal.reporting.markup import Html, Part, data_script, escaped, joined, tag

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
    """The scripts in the order in which they run: uPlot, charts, the player, and last the one that starts them."""
    return _read(UPLOT / "uPlot.iife.min.js", *_own("charts*.js"), *_own("player*.js"), ASSETS / "page.js")


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


MAX_BYTES = 5_000_000
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
    return max(0, min(REPLAYS, MAX_BYTES - len(written(page, None)) - 1000))


def size_of(replays: Mapping[str, Any]) -> int:
    """Approximate size of the replays in the page, in bytes."""
    return len(data_script("", replays))


def written(page: Page, replays: Mapping[str, Any] | None) -> bytes:
    """The document.

    Args:
        page: its contents.
        replays: the player's document; None for a page without replays.

    Raises:
        InputError: it would exceed :data:`MAX_BYTES`.
    """
    data = [data_script("chart-data", list(page.charts))]
    data += [] if replays is None else [data_script("replay-data", replays)]
    scripts = [tag("script", Html(script.text)) for script in page_scripts()]
    body = tag("body", _skip(), _header(page), _main(page), _footer(), *data, *scripts)
    text = f'<!doctype html>\n<html lang="en">\n{_head(page.title)}\n{body}\n</html>\n'
    encoded = text.encode("utf-8")
    if len(encoded) >= MAX_BYTES:
        raise InputError(
            f"The report would take {len(encoded) / 1e6:.1f} MB, more than the limit of {MAX_BYTES / 1e6:.0f} MB; "
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
    return joined(tag("div", class_="sp-player", id="player"), *said)
