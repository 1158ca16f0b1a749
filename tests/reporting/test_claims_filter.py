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
  plots: [...row.querySelectorAll(".claim-plot")].map((plot) => ({
    zero: plot.querySelector(".zero")?.x1.baseVal.value ?? null,
    margin: plot.querySelector(".margin")?.width.baseVal.value ?? null,
    lines: [...plot.querySelectorAll(".interval")].map((x) => [x.x1.baseVal.value, x.x2.baseVal.value]),
    dots: [...plot.querySelectorAll("circle")].map((x) => x.cx.baseVal.value),
  })),
}))"""
BRACKETS = re.compile(r"([−+]?[\d.,]*\d)(?: (?:million|%|points?))? [\[(](−?[\d.,]*\d)(?: to |, )(−?[\d.,]*\d)[\])]")


def test_the_intervals_of_claims_are_drawn(tmp_path: Path, browser: Browser) -> None:
    """A difference is drawn on the side of 0 on which its text has it; the places of all ends are in their order."""
    path, claims = page_of_claims(tmp_path)
    found = browser.open(path, lambda page: page.evaluate(PLOTS))
    assert len(found) == len(claims) and sum(bool(one["plots"]) for one in found) > 0.9 * len(claims)
    for one in found:
        known = [each for part in one["text"].split(";") if (each := BRACKETS.findall(part))]
        assert len(known) == len(one["plots"]), one["text"]
        for texts, plot in zip(known, one["plots"], strict=True):
            written = [float(x.replace("−", "-").replace(",", "")) for each in texts for x in each]
            lines = zip(plot["dots"], plot["lines"], strict=True)
            drawn = [x for dot, (low, high) in lines for x in (dot, low, high)]
            for x, y in zip(written, drawn, strict=True):
                zero = plot["zero"]
                assert zero is None or (x > 0) == (y > zero + 1e-3) or abs(y - zero) < 0.5, one["text"]
                assert all((x < other) <= (y <= place + 1e-3) for other, place in zip(written, drawn, strict=True))


def test_only_differences_have_a_zero_and_the_margin_of_their_task(tmp_path: Path, browser: Browser) -> None:
    path, claims = page_of_claims(tmp_path)
    every = dict(zip([row[0] for row in claims], browser.open(path, lambda page: page.evaluate(PLOTS)), strict=True))

    def of(begin: str) -> list[tuple[bool, bool]]:
        (plots,) = [one["plots"] for claim, one in every.items() if claim.startswith(begin)]
        return [(plot["zero"] is not None, plot["margin"] is not None) for plot in plots]

    assert of("HAPPO exceeds MAPPO (Kuba") == [(True, True), (True, False)], "spread's margin is not reference's"
    assert of("Sharing between different agents") == [(False, False), (False, False), (True, False)]
    assert of("Practices of PPO") == [(True, True)]
    assert of("A counterfactual baseline") == [(True, False)]
