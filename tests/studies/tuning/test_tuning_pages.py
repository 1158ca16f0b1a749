"""The published pages of tuning are what the records of their studies give."""

from pathlib import Path

import pytest

from shoal.studies.state import records_folder
from shoal.studies.study_file import read_study
from shoal.studies.tuning.page import write_tuning_page
from support.selection import quick

STUDIES = Path(__file__).parents[3] / "studies"
NAMES = sorted(path.stem.removesuffix("-tuning") for path in (STUDIES / "results").glob("*-tuning.md"))


@pytest.mark.parametrize("name", quick(NAMES, "tuned_qmix"))
def test_a_published_page_of_tuning_is_that_of_the_records(name: str, tmp_path: Path) -> None:
    study = read_study(STUDIES / f"{name}.toml")
    path = write_tuning_page(study, records_folder(study, None), tmp_path / f"{name}.md")
    assert path is not None
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (STUDIES / "results" / made.name).read_bytes(), made.name
