"""The report of a folder of studies: all comparisons and records, with filters in the browser."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_study_report import study

import shoal as library
from shoal.errors import InputError
from shoal.studies.record import write_record
from shoal.studies.state import record_path
from support.browser import Browser
from support.parsed_html import EVIL, Parsed, check_harmless
from support.small_studies import GRID, TABLES, cells_of, made_record, write_study_file

PRIMARY = '\n[primary]\nmetric = "score"\nfloor = 0.0\nceiling = 8.0\n'
SHOWN = """(name) => [...document.querySelectorAll(`#${name} tbody tr`)].filter((x) => x.checkVisibility())
  .map((x) => [...x.cells].map((cell) => cell.textContent))"""


def studies(folder: Path) -> Path:
    """Two studies: one of mappo and qmix with records, one of vdn in three games without."""
    study(folder, GRID.replace("seeds = 2", "seeds = 5") + TABLES + PRIMARY)
    other = GRID.replace('"mappo", "qmix"', '"vdn", "iql"').replace(
        '"matrix/climbing"', '"matrix/climbing", "matrix/penalty"'
    )
    baseline = '\n[[tables]]\nwhere = { gamma = 0.9 }\nbaseline = { algorithm = "iql" }\n'
    write_study_file(folder, other + baseline + PRIMARY, "other")
    return folder


def test_the_page_has_every_comparison_and_every_study(tmp_path: Path) -> None:
    path = library.report(studies(tmp_path), out=tmp_path / "all.html")
    check_harmless(Parsed(path))
    text = path.read_text("utf-8")
    assert "2 studies, 8 of 20 runs recorded." in text
    assert "5 comparisons with the baselines of tables: 2 better, 3 missing." in text
    assert text.count('data-algorithm="mappo|qmix"') == 3, "two comparisons and a study"
    assert 'data-task="matrix/…|matrix/climbing"' in text


def test_filters_choose_rows(tmp_path: Path, browser: Browser) -> None:
    path = library.report(studies(tmp_path), out=tmp_path / "all.html")

    def use(page: Any) -> list[Any]:
        found = [page.evaluate(SHOWN, "comparisons")]
        form = page.locator("#comparisons form.filters")
        for label, value in (("algorithm", "vdn"), ("task", "matrix/penalty"), ("verdict", "better")):
            form.get_by_label(label).select_option(value)
            found.append(page.evaluate(SHOWN, "comparisons"))
            assert form.locator("output").text_content() == f"{len(found[-1])} of 5"
        for label in ("algorithm", "task", "verdict"):
            form.get_by_label(label).select_option("")
        form.get_by_label("words").fill("TWO_step  mappo")
        found.append(page.evaluate(SHOWN, "comparisons"))
        page.locator("#studies form.filters").get_by_label("records").select_option("complete")
        return [*found, page.evaluate(SHOWN, "studies")]

    everything, vdn, penalty, better, words, complete = browser.open(path, use)
    assert len(everything) == 5
    assert vdn == [row for row in everything if row[0].startswith("vdn")] and len(vdn) == 3
    assert [row[1] for row in penalty] == ["matrix/penalty, gamma 0.9"]
    assert better == []
    assert [row[:2] for row in words] == [["mappo less qmix", "matrix/two_step, gamma 0.9"]]
    assert [row[0] for row in complete] == ["demo"]


def test_texts_of_foreign_studies_are_harmless(tmp_path: Path) -> None:
    title = json.dumps(" ".join(EVIL))
    text = GRID.replace('title = "T"', f"title = {title}") + TABLES + PRIMARY
    path = write_study_file(tmp_path, text)
    cell = cells_of(path)[0]
    write_record(record_path(tmp_path / "records" / "demo", cell), made_record(cell))
    check_harmless(Parsed(library.report(tmp_path, out=tmp_path / "all.html")))


def test_a_folder_without_studies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^There is neither run\.json nor a study file \*\.toml in "):
        library.report(tmp_path)


def test_other_toml_files_in_a_folder_of_studies_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    with pytest.raises(InputError, match=r"^There is neither run\.json nor a study file \*\.toml in "):
        library.report(tmp_path)
    write_study_file(tmp_path, GRID + TABLES)
    text = library.report(tmp_path, out=tmp_path / "all.html").read_text("utf-8")
    assert "1 study, " in text and "pyproject" not in text
    assert capsys.readouterr().err.endswith(" they are no studies: pyproject.toml.\n")


@pytest.mark.parametrize("text", ['question = "Q"\n', "[grid]\n", "[[variants]]\n", "[defaults]\n", "x ="])
def test_a_broken_study_in_a_folder_is_named(text: str, tmp_path: Path) -> None:
    write_study_file(tmp_path, GRID + TABLES)
    (tmp_path / "broken.toml").write_text(text)
    with pytest.raises(InputError, match=r"broken\.toml: "):
        library.report(tmp_path, out=tmp_path / "all.html")


def test_a_folder_of_studies_is_compared_with_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="against requires a run"):
        library.report(studies(tmp_path), against=tmp_path)


def test_a_run_has_no_folder_of_records(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="records requires a study"):
        library.report(tmp_path, records=tmp_path)
