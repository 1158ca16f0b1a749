"""Tasks in which a study's primary metric decides nothing, judged by hand-made scores."""

from pathlib import Path
from typing import Any

import pytest

from shoal.studies.contents import contents_of
from shoal.studies.results import markdown_page
from shoal.studies.study_file import read_study
from support.small_studies import cells_of, check_refused, made_record, write_study_file

STUDY = """
title = "T"
question = "Q?"

[defaults]
environment = "matrix/climbing"
steps = 64
seeds = 5

[grid]
algorithm = ["mappo", "qmix"]

[primary]
metric = "score"
"""
LEVELS = "floor = 0.0\nceiling = 10.0\n"
SCALE = '\n[[scales]]\nenvironment = "matrix/climbing"\nworst = 0\nbest = 10\nsource = "S"\n'
LOW, WIDE, MIDDLE, TOP = (0.1, 0.2, 0.0, 0.1, 0.3), (0.0, 9.0, 0.0, 9.0, 0.0), (4.0, 5.0, 6.0, 5.0, 4.0), (9.8,) * 5


def said(folder: Path, text: str, mappo: Any, qmix: Any) -> tuple[str, ...]:
    path = write_study_file(folder, text)
    cells = cells_of(path)
    scores = {"mappo": mappo, "qmix": qmix}
    records = {cell.name: made_record(cell, scores[cell.algorithm]) for cell in cells if scores[cell.algorithm]}
    return contents_of(read_study(path), cells, records).undecided


@pytest.mark.parametrize("text", [STUDY + LEVELS, STUDY + SCALE])
def test_a_study_decides_nothing_if_its_best_run_is_at_the_floor(text: str, tmp_path: Path) -> None:
    (sentence,) = said(tmp_path, text, LOW, (0.0,) * 5)
    assert sentence.startswith(
        "Nothing is decided in matrix/climbing: no run's interval leaves the floor of 0 by more "
    )
    assert sentence.endswith("the margin of 0.5; the best is 0.14 [0.02, 0.28].")
    assert len(said(tmp_path, text, WIDE, LOW)) == 1, "its interval holds the floor, although its mean does not"
    assert said(tmp_path, text, MIDDLE, LOW) == ()


def test_one_run_that_leaves_the_floor_is_enough(tmp_path: Path) -> None:
    """Also if another has the higher mean, in an interval that holds the floor."""
    assert said(tmp_path, STUDY + LEVELS, WIDE, (2.9, 3.0, 3.1, 3.0, 3.0)) == ()


@pytest.mark.parametrize("text", [STUDY + LEVELS, STUDY + SCALE])
def test_a_study_decides_nothing_if_all_its_runs_are_at_the_ceiling(text: str, tmp_path: Path) -> None:
    wanted = "Nothing is decided in matrix/climbing: every run reaches the ceiling of 10 up to the margin of 0.5."
    assert said(tmp_path, text, TOP, (10.0,) * 5) == (wanted,)
    assert said(tmp_path, text, TOP, MIDDLE) == ()


def test_where_lower_is_better_the_ceiling_is_below_the_floor(tmp_path: Path) -> None:
    text = STUDY + "floor = 10.0\nceiling = 0.0\n"
    assert "floor of 10" in said(tmp_path, text, TOP, (9.9,) * 5)[0]
    assert "ceiling of 0" in said(tmp_path, text, LOW, (0.0,) * 5)[0]
    assert said(tmp_path, text, TOP, MIDDLE) == ()


def test_one_limit_has_no_margin(tmp_path: Path) -> None:
    assert said(tmp_path, STUDY + "floor = 0.0\n", (0.2, 0.1, 0.3, 0.2, 0.1), LOW) == ()
    assert said(tmp_path, STUDY + "ceiling = 10.0\n", TOP, TOP) == ()
    assert said(tmp_path, STUDY + "ceiling = 9.8\n", TOP, TOP)[0].endswith("every run reaches the ceiling of 9.8.")


def test_nothing_is_said_without_limits_or_with_missing_runs(tmp_path: Path) -> None:
    assert said(tmp_path, STUDY, LOW, LOW) == ()
    assert said(tmp_path, STUDY + LEVELS, LOW, None) == ()


def test_tasks_are_judged_one_by_one_and_the_page_says_it(tmp_path: Path) -> None:
    two = STUDY.replace('environment = "matrix/climbing"\n', "") + LEVELS
    path = write_study_file(
        tmp_path, two.replace("[grid]", '[grid]\nenvironment = ["matrix/climbing", "matrix/penalty"]')
    )
    cells = cells_of(path)
    records = {cell.name: made_record(cell, TOP if "penalty" in cell.environment else MIDDLE) for cell in cells}
    page = markdown_page(read_study(path), cells, records)
    assert "**Nothing is decided in matrix/penalty: every run reaches the ceiling" in page
    assert page.count("Nothing is decided") == 1


def test_equal_limits_are_refused(tmp_path: Path) -> None:
    mistake = ("ceiling = 10.0", "ceiling = 0.0", "[primary] ceiling must differ from floor, but both are 0.")
    check_refused(read_study, STUDY + LEVELS, mistake, tmp_path)
