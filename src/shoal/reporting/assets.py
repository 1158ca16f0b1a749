"""The scripts and styles of the report, which are part of this package."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "assets"
UPLOT = FOLDER / "vendor" / "uplot"


class Asset(NamedTuple):
    """A script or style."""

    text: str
    source: str
    """Its source expression in a content security policy, ``'sha256-…'``."""


@cache
def scripts() -> tuple[Asset, ...]:
    """The scripts in the order in which they run: uPlot, charts, the player, and last the one that starts them."""
    return _read(UPLOT / "uPlot.iife.min.js", *_own("charts*.js"), *_own("player*.js"), FOLDER / "page.js")


@cache
def styles() -> tuple[Asset, ...]:
    """The styles."""
    return _read(UPLOT / "uPlot.min.css", *_own("report*.css"), *_own("player*.css"))


@cache
def licence() -> str:
    """uPlot's licence, which every copy of uPlot must include."""
    return (UPLOT / "LICENSE").read_text("utf-8")


def _own(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern))


def _read(*paths: Path) -> tuple[Asset, ...]:
    found = []
    for path in paths:
        text = path.read_text("utf-8").strip()
        # The element would end there, or its text would not match the hash.
        assert not any(end in text.lower() for end in ("</script", "</style", "<!--", "\r")), path
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        found.append(Asset(text, f"'sha256-{digest}'"))
    return tuple(found)
