"""The HTML document: its head with the content security policy, sections, data, scripts and styles."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.errors import InputError
from shoal.reporting import assets
from shoal.reporting.markup import Html, Part, data_script, escaped, joined, tag

LIMIT = 5_000_000
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
    return max(0, min(REPLAYS, LIMIT - len(written(page, None)) - 1000))


def size_of(replays: Mapping[str, Any]) -> int:
    """Approximate size of the replays in the page, in bytes."""
    return len(data_script("", replays))


def written(page: Page, replays: Mapping[str, Any] | None) -> bytes:
    """The document.

    Args:
        page: its contents.
        replays: the player's document; None for a page without replays.

    Raises:
        InputError: it would exceed :data:`LIMIT`.
    """
    data = [data_script("chart-data", list(page.charts))]
    data += [] if replays is None else [data_script("replay-data", replays)]
    scripts = [tag("script", Html(script.text)) for script in assets.scripts()]
    body = tag("body", _skip(), _header(page), _main(page), _footer(), *data, *scripts)
    text = f'<!doctype html>\n<html lang="en">\n{_head(page.title)}\n{body}\n</html>\n'
    encoded = text.encode("utf-8")
    if len(encoded) >= LIMIT:
        raise InputError(
            f"The report would take {len(encoded) / 1e6:.1f} MB, more than the limit of {LIMIT / 1e6:.0f} MB; it has "
            f"too many runs or metrics."
        )
    return encoded


def _head(title: str) -> Html:
    sources = {"script-src": assets.scripts(), "style-src": assets.styles()}
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
        Html(f"<!-- Charts: uPlot, https://github.com/leeoniya/uPlot\n{escaped(assets.licence())}\n-->"),
        *(tag("style", Html(style.text)) for style in assets.styles()),
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
