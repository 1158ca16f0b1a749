"""The published pages of tuning are what the records of their studies give."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InputError
from shoal.studies.archive import stored
from shoal.studies.state import records_folder
from shoal.studies.study_file import read_study
from shoal.studies.tuning.page import write_tuning_page
from shoal.studies.tuning.record import read_tuning_record
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


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda found: found["tuning"].pop("rounds"), "'tuning' lacks 'rounds'."),
        (lambda found: found["tuning"].update(rounds="2"), "tuning.rounds cannot be '2'."),
        (lambda found: found["tuning"].update(more=1), "There is no key in 'tuning' named 'more'"),
        (lambda found: found["ranges"]["gamma"].update(values=3), "ranges.gamma.values cannot be 3."),
        (lambda found: found["ranges"]["gamma"].update(low="0"), "ranges.gamma.low cannot be '0'."),
        (lambda found: found["rungs"][0].append(1), "rungs cannot hold [75000, 24, 1]."),
    ],
)
def test_a_damaged_record_of_a_search_is_refused(damage: Callable[[Any], Any], said: str, tmp_path: Path) -> None:
    records = stored(records_folder(read_study(STUDIES / "tuned_qmix.toml"), None)).values()
    found = next(one for one in records if one.is_tuning).contents()
    damage(found)
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputError) as caught:
        read_tuning_record(path)
    assert str(caught.value).startswith(f"{path} is not a record of tuning: {said}")
