"""What a page says, read by Python's own parser of HTML."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import shoal as library

EVIL = (
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "<!--<script>",
    "' onmouseover='window.pwned=1",
    "</title></style><svg onload=window.pwned=1>",
)
"""Texts that would run a script if they were not escaped."""


SCRIPTS = len(list((Path(library.__file__).parent / "reporting" / "assets").rglob("*.js")))
"""Number of scripts of a page."""


class Parsed(HTMLParser):
    """The elements, texts and data of a page."""

    def __init__(self, page: bytes | Path):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.data: dict[str, Any] = {}
        self.tables: dict[str, list[list[str]]] = {}
        """Rows of cells by caption."""
        self._inside: list[str] = []
        self._caption = ""
        self._in_code = False
        data = page.read_bytes() if isinstance(page, Path) else page
        self.size = len(data)
        self.feed(data.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._inside.append(tag)
        if tag == "code":
            self._in_code = False
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables.setdefault(self._caption, []).append([])
        elif tag in ("td", "th") and "table" in self._inside:
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            kind = self.tags[-1][1]
            if kind.get("type") == "application/json":
                self.data[str(kind["id"])] = json.loads(data)
            else:
                self.scripts.append(data)
        elif inside != "style":
            if "code" in self._inside and self._in_code:  # a command is one text
                self.texts[-1] += data
            else:
                self.texts.append(data)
            self._in_code = "code" in self._inside
            if "caption" in self._inside:
                self._caption += data
            elif "table" in self._inside and {"td", "th"} & set(self._inside):
                self.tables[self._caption][-1][-1] += data

    @property
    def text(self) -> str:
        """All visible text."""
        return " ".join(" ".join(self.texts).split())


def check_harmless(page: Parsed) -> None:
    """Check that a page has no script but its own, and nothing that would be loaded or run."""
    assert len(page.scripts) == SCRIPTS
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form", "link")
        assert not any(name.startswith("on") or name == "style" for name in attributes), attributes
        assert not set(attributes) & {"src", "srcset", "action", "xlink:href"}
        assert (attributes.get("href") or "#").startswith(("#", "https://github.com/leeoniya/uPlot"))
