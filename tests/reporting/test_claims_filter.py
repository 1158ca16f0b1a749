"""The filters and the plots of the site's page of claims, on the claims themselves."""

import json
import re
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.environments.skirmish.maps import MAPS
from support.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
SHOWN = (
    "[...document.querySelectorAll('tbody tr')].filter((x) => x.checkVisibility()).map((x) => x.cells[0].textContent)"
)


def page_of_claims(folder: Path) -> tuple[Path, list[list[str]]]:
    """The claims as a page like the site's, a section for each table, and their cells."""
    sections, rows, claims = "", [], []

    def close() -> None:
        nonlocal sections, rows
        if rows:
            body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
            head = "<thead><tr><th>claim</th><th>verdict</th></tr></thead>"
            sections += f"<section><table>{head}<tbody>{body}</tbody></table></section>"
        rows = []

    inside = False
    for line in (ROOT / "docs" / "studies.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            close()
            inside = False
        elif cells[:2] == ["claim", "verdict"]:
            inside = True
        elif inside and not cells[0].startswith("-"):
            rows.append(cells)
            claims.append(cells)
    close()
    names = json.dumps(sorted(algorithms.NAMES))
    script = (ROOT / "docs" / "_static" / "claims.js").read_text(encoding="utf-8")
    path = folder / "claims.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><body>{sections}<script>window.ALGORITHMS = {names};\n{script}</script>",
        encoding="utf-8",
    )
    return path, claims


def about(row: list[str]) -> str:
    """A claim without what is published, which may be about another task."""
    return " ".join([*row[:4], *row[5:]])


def test_filters_show_the_claims_that_match_all_of_them(tmp_path: Path, browser: Browser) -> None:
    path, claims = page_of_claims(tmp_path)
    assert len(claims) > 70

    def use(page: Any) -> list[list[str]]:
        found, hidden = [page.evaluate(SHOWN)], []
        for label, value in (
            ("algorithm", "QMIX"),
            ("verdict", "does not hold"),
            ("algorithm", ""),
            ("task", "spread"),
            ("verdict", ""),
            ("task", "skirmish (SMAC's maps)"),
            ("task", "matrix and step games"),
        ):
            page.get_by_label(label).select_option(value)
            found.append(page.evaluate(SHOWN))
            said = page.locator("output").text_content()
            assert said == f"{len(found[-1])} of {len(claims)} claims"
            hidden.append(page.evaluate("[...document.querySelectorAll('section')].some((x) => !x.checkVisibility())"))
        assert any(hidden), "sections without a claim"
        return found

    everything, qmix, both, failed, on_spread, _, battles, games = browser.open(path, use)
    assert len(everything) == len(claims)
    assert set(qmix) == {row[0] for row in claims if "QMIX" in about(row)}, "also among others, as in VDN and QMIX"
    assert set(both) == set(qmix) & set(failed)
    assert set(failed) == {row[0] for row in claims if "does not hold" in row[1]} and failed
    spread = {row[0] for row in claims if re.search(r"\bspread\b", about(row))}
    assert set(on_spread) == set(failed) & spread and on_spread
    maps = re.compile(rf"(?<![\w])({'|'.join(map(re.escape, MAPS))})(?![\w])|[Ss]kirmish|[Bb]attle")
    assert set(battles) == {row[0] for row in claims if maps.search(about(row))}, "0.2M is no map"
    assert games and not any("Hanabi" in claim for claim in games)


PLOTS = """[...document.querySelectorAll("tbody tr")].map((row) => ({
  text: row.cells[2].textContent,
  zero: row.querySelector(".claim-plot .zero")?.x1.baseVal.value ?? null,
  margin: row.querySelector(".claim-plot .margin")?.width.baseVal.value ?? null,
  lines: [...row.querySelectorAll(".claim-plot .interval")].map((x) => [x.x1.baseVal.value, x.x2.baseVal.value]),
  dots: [...row.querySelectorAll(".claim-plot circle")].map((x) => x.cx.baseVal.value),
}))"""


def test_the_intervals_of_claims_are_drawn(tmp_path: Path, browser: Browser) -> None:
    """A difference is drawn on the side of 0 on which its text has it; the places of all ends are in their order."""
    path, claims = page_of_claims(tmp_path)
    found = browser.open(path, lambda page: page.evaluate(PLOTS))
    assert len(found) == len(claims) and sum(bool(one["dots"]) for one in found) > 0.9 * len(claims)
    brackets = re.compile(
        r"([−+]?[\d.,]*\d)(?: (?:million|%|points?))? [\[(](−?[\d.,]*\d)(?: to |, )(−?[\d.,]*\d)[\])]"
    )
    differences = 0
    for one in found:
        numbers = [
            [float(x.replace("−", "-").replace(",", "")) for x in each] for each in brackets.findall(one["text"])
        ]
        assert len(numbers) == len(one["dots"]), one["text"]
        drawn = [x for dot, (low, high) in zip(one["dots"], one["lines"], strict=True) for x in (dot, low, high)]
        written = [x for each in numbers for x in each]
        for x, y in zip(written, drawn, strict=True):
            assert one["zero"] is None or (x > 0) == (y > one["zero"] + 1e-3) or abs(y - one["zero"]) < 0.5, one["text"]
            assert all((x < other) <= (y <= place + 1e-3) for other, place in zip(written, drawn, strict=True))
        differences += one["zero"] is not None
        assert (one["margin"] is not None) == ("margin" in one["text"] and one["zero"] is not None)
    assert differences > 30
