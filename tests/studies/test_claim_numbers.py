"""The numbers of the claims in docs/studies.md and docs/claims-notes.md stand on the pages that the notes link.

A page that is written again from new records changes its numbers; the claims quote them by hand.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DERIVED = Path(__file__).with_name("derived_numbers.txt")
"""Intervals that no page has: differences that were computed from its records, and runs that were not recorded."""

NUMBER = r"[+−]?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER})(?: %)? (?:\[({NUMBER}), ({NUMBER})\]|\(({NUMBER}) to ({NUMBER})\))")


def intervals(text: str) -> Iterator[tuple[str, str, str]]:
    """(mean, lowest, highest) of each interval in a text, as written."""
    for found in INTERVAL.finditer(text):
        mean, *ends = filter(None, found.groups())
        yield mean, ends[0], ends[1]


def value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


@cache
def on_page(name: str) -> list[tuple[float, ...]]:
    page = (ROOT / "studies" / "results" / name).read_text(encoding="utf-8")
    found = [tuple(map(value, interval)) for interval in intervals(page)]
    reverse = [(-mean, -high, -low) for mean, low, high in found]  # b less a
    return [*found, *reverse, *(tuple(100 * x for x in interval) for interval in found)]  # and per cent


def quotes(written: tuple[str, ...], exact: tuple[float, ...]) -> bool:
    return all(
        abs(value(number) - x) <= 0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9
        for number, x in zip(written, exact, strict=True)
    )


def claims() -> Iterator[tuple[str, str, set[str]]]:
    """(title, what its line and its note measured, the pages that the note links)."""
    page, notes = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("studies.md", "claims-notes.md"))
    lines = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|.*\[([^\]]+)\]\(claims-notes\.md", page, re.MULTILINE)
    numbers = {title: number for number, title in lines}
    for note in re.split("^### ", notes, flags=re.MULTILINE)[1:]:
        title, _, rest = note.partition("\n")
        if title in numbers:
            body = re.split("^## ", rest, flags=re.MULTILINE)[0]
            measured = body.partition("**Measured here:**")[2].partition("**Verdict:**")[0]
            linked = set(re.findall(r"studies/results/([\w-]+\.md)", body))
            yield title, " ".join(f"{numbers[title]} {measured}".split()).replace("**", ""), linked


def test_the_intervals_of_claims_stand_on_the_pages_that_the_notes_link() -> None:
    known = set(DERIVED.read_text(encoding="utf-8").splitlines())
    missing, count = set(), 0
    for title, text, linked in claims():
        for interval in intervals(text):
            count += 1
            if not any(quotes(interval, exact) for name in linked for exact in on_page(name)):
                missing.add("{}: {} [{}, {}]".format(title, *interval))
    assert count > 800
    assert missing - known == set(), "not on the pages that the note links"
    assert known - missing == set(), "on a page, or in no claim: leave them out of derived_numbers.txt"
