"""The studies that ship: their pages are what their records give, and nothing in them was typed by hand."""

from pathlib import Path

import pytest

from shoal.studies.plan import plan
from shoal.studies.results import draw_figures, markdown_page
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study
from shoal.studies.tuning.record import winner
from support.selection import quick

STUDIES = Path(__file__).parents[2] / "studies"
NAMES = sorted(path.stem for path in STUDIES.glob("*.toml") if (STUDIES / "results" / f"{path.stem}.md").exists())


@pytest.mark.parametrize("name", quick(NAMES, "two_step", "monotonicity"))
def test_the_page_is_that_of_the_records(name: str, tmp_path: Path) -> None:
    study = read_study(STUDIES / f"{name}.toml")
    where = records_folder(study, None)
    cells = plan(study, tmp_path, winner(study, where))
    held = records_of_cells(where, cells)
    drawn = draw_figures(study, cells, held, tmp_path)
    committed = STUDIES / "results" / f"{name}.md"
    assert markdown_page(study, cells, held, drawn) == committed.read_text(encoding="utf-8")
    assert all((committed.parent / figure).exists() for figure in drawn)
    assert len(held) == len(cells)


def test_every_study_names_its_primary_metric() -> None:
    assert [path.stem for path in STUDIES.glob("*.toml") if read_study(path).primary is None] == []
