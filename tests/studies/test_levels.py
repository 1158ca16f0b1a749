"""Levels: teams that do not learn, from the records of another study, in the tables and curves of a study."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_results import rows_of

import shoal as library
from shoal.errors import InputError
from shoal.studies.charts import charts_of
from shoal.studies.levels import levels_of
from shoal.studies.record import write_record
from shoal.studies.results import markdown_page, results
from shoal.studies.study_file import read_study
from support.small_studies import GRID, SCORES, cells_of, made_record, records_of, write_study_file

TEAMS = """
title = "Teams"
question = "Q?"

[defaults]
steps = 1

[grid]
algorithm = ["random", "constant"]

[[variants]]
name = "climbing"
environment = "matrix/climbing"

[[variants]]
name = "two steps"
environment = "matrix/two_step"

[[variants]]
name = "long climbing"
environment = "matrix/climbing"
env.horizon = 3
"""
LEVELS = {("random", "climbing"): -9.0, ("random", "two steps"): 5.0, ("random", "long climbing"): -77.0}
LEVELS |= {("constant", name): 3 * x for (_, name), x in list(LEVELS.items())}
STUDY = GRID.replace("[defaults]", 'levels = "teams.toml"\n\n[defaults]', 1)
TABLE = '\n[[tables]]\ntitle = "At 0.9"\nwhere = {{ gamma = 0.9 }}\n{}\n'
CURVES = '\n[[figures]]\nkind = "curves"\nwhere = { gamma = 0.9 }\nlines = "algorithm"\n'


def teams(folder: Path, left_out: tuple[str, str] = ("", ""), **changes: Any) -> None:
    """The records of the teams."""
    path = write_study_file(folder, TEAMS, "teams")
    for cell in cells_of(path):
        team = cell.algorithm, cell.values["variant"]
        if team != left_out:
            record = made_record(cell, (LEVELS[team],), **changes)
            write_record(folder / "records" / "teams" / f"{cell.name}.json", record)


def page(folder: Path, text: str, study: str = STUDY) -> str:
    path = write_study_file(folder, study + text)
    cells = cells_of(path)
    described = read_study(path)
    return markdown_page(described, cells, records_of(cells), levels=levels_of(described))


def means(text: str, title: str) -> dict[tuple[str, ...], list[str]]:
    """The means of a table's rows by the cells before them."""
    _, _, *rows = rows_of(text, title)
    return {(row[0],): [entry.partition(" [")[0].replace("−", "-") for entry in row[1:]] for row in rows}


def test_tables_end_with_the_teams_of_the_same_tasks(tmp_path: Path) -> None:
    teams(tmp_path)
    found = means(page(tmp_path, TABLE.format("")), "## At 0.9")
    assert list(found) == [("mappo",), ("qmix",), ("random play",), ("doing nothing",)]
    assert [[float(x) for x in found[name,]] for name in ("random play", "doing nothing")] == [[-9, 5], [-27, 15]]
    said = "Random play and doing nothing [95% interval over the episodes of 1 seed]: from the study teams"
    assert said in page(tmp_path, TABLE.format(""))


def test_options_of_the_environment_belong_to_the_task(tmp_path: Path) -> None:
    teams(tmp_path)
    long = STUDY.replace("steps = 64", "steps = 64\nenv.horizon = 3").replace(', "matrix/two_step"', "")
    found = means(page(tmp_path, TABLE.format(""), long), "## At 0.9")
    assert [float(x) for x in found["random play",]] == [-77]


def test_options_that_equal_their_defaults_do_not_count(tmp_path: Path) -> None:
    teams(tmp_path)
    same = STUDY.replace("steps = 64", "steps = 64\nenv.horizon = 25").replace(', "matrix/two_step"', "")
    assert float(means(page(tmp_path, TABLE.format(""), same), "## At 0.9")["random play",][0]) == -9


@pytest.mark.parametrize("setting", ["time_limit = 1", "reward_scale = 0.1"])
def test_settings_that_change_scores_belong_to_the_task(tmp_path: Path, setting: str) -> None:
    teams(tmp_path)
    other = STUDY.replace("steps = 64", f"steps = 64\n{setting}")
    assert "random play" not in page(tmp_path, TABLE.format(""), other).lower()


def test_a_level_that_is_measured_several_times_is_none(tmp_path: Path) -> None:
    text = TEAMS.replace('["random", "constant"]\n', '["constant"]\naction = [0, 1]\n')
    for cell in cells_of(write_study_file(tmp_path, text, "teams")):
        write_record(tmp_path / "records" / "teams" / f"{cell.name}.json", made_record(cell, (1.0,)))
    assert "doing nothing" not in page(tmp_path, TABLE.format(""))


def test_a_level_has_an_entry_where_there_is_a_record(tmp_path: Path) -> None:
    teams(tmp_path, left_out=("random", "climbing"))
    found = means(page(tmp_path, TABLE.format("")), "## At 0.9")
    assert found["random play",] == ["", "5.00"]
    assert found["doing nothing",] == ["-27.00", "15.00"]


def test_rows_of_several_tasks_have_levels_for_each(tmp_path: Path) -> None:
    teams(tmp_path)
    _, _, *rows = rows_of(page(tmp_path, TABLE.format('rows = ["environment", "algorithm"]')), "## At 0.9")
    found = {tuple(row[:2]): row[2].partition(" [")[0].replace("−", "-") for row in rows}
    assert float(found["matrix/climbing", "random play"]) == -9
    assert float(found["matrix/two_step", "doing nothing"]) == 15
    assert len(found) == 8


@pytest.mark.parametrize(
    "table",
    ['rows = "environment"\ncolumns = "algorithm"', 'metric = "train/entropy"', 'statistic = ["area", "drop"]'],
    ids=["no free axis in rows", "a metric of training", "statistics of curves"],
)
def test_tables_without_room_or_meaning_have_no_levels(tmp_path: Path, table: str) -> None:
    teams(tmp_path)
    text = TABLE.format(table) + ('[record]\nmetrics = "entropy"\n' if "entropy" in table else "")
    assert "random play" not in page(tmp_path, text).lower()


def test_levels_are_in_no_difference_and_not_beside_scores_normalised_by_observed_ones(tmp_path: Path) -> None:
    teams(tmp_path)
    text = TABLE.format('baseline = { algorithm = "qmix" }')
    compared = page(tmp_path, text).partition("Difference from")[2].partition("##")[0]
    assert "mappo" in compared and "random play" not in compared
    over = TABLE.format('rows = "algorithm"\nover = "environment"')
    assert "random play" not in page(tmp_path, over).lower()
    scale = '[[scales]]\nenvironment = ["matrix/climbing", "matrix/two_step"]\nworst = 0\nbest = 10\nsource = "S"\n'
    found = means(page(tmp_path, over + scale), "## At 0.9")
    assert float(found["random play",][0]) == pytest.approx((-9.0 + 5.0) / 2 / 10, abs=6e-3)


def test_a_table_that_shows_a_team_has_no_second_row_of_it(tmp_path: Path) -> None:
    teams(tmp_path)
    study = STUDY.replace('["mappo", "qmix"]', '["random", "qmix"]').replace("gamma = [0.9, 0.99]\n", "")
    path = write_study_file(tmp_path, study)
    cells, described = cells_of(path), read_study(path)
    records = {cell.name: made_record(cell, (1.0, 2.0)) for cell in cells}
    text = markdown_page(described, cells, records, levels=levels_of(described))
    assert "doing nothing" in text and "random play" not in text


def test_columns_of_several_tasks_have_no_levels(tmp_path: Path) -> None:
    teams(tmp_path)
    variants = "".join(
        f'[[variants]]\nname = "{one}"\nenvironment = "matrix/{one}"\n' for one in ("climbing", "two_step")
    )
    study = STUDY.replace('environment = ["matrix/climbing", "matrix/two_step"]\n', "") + variants
    text = TABLE.format('rows = "variant"\ncolumns = "algorithm"')
    assert "random play" not in page(tmp_path, text, study).lower()


def test_stale_levels_are_marked(tmp_path: Path) -> None:
    teams(tmp_path, behaviour={"algorithm": 0, "environment": 1})
    rows = page(tmp_path, TABLE.format("")).splitlines()
    assert [line.count("†") for line in rows if line.startswith("| random play")] == [2]


def test_a_chart_of_several_tasks_has_no_levels(tmp_path: Path) -> None:
    """Also if only one of its tasks has some."""
    teams(tmp_path)
    for path in (tmp_path / "records" / "teams").glob("*two*"):
        path.unlink()
    figure = CURVES.replace('lines = "algorithm"', 'lines = ["environment", "algorithm"]\npanels = "gamma"')
    path = write_study_file(tmp_path, STUDY + figure)
    cells, described = cells_of(path), read_study(path)
    for whole in (False, True):
        if whole:
            teams(tmp_path)
        charts = charts_of(described, cells, records_of(cells), levels_of(described))
        assert charts and not any("random play" in chart.note.lower() for chart in charts)


def test_levels_without_a_value_leave_a_figure_as_it_is(tmp_path: Path) -> None:
    teams(tmp_path)
    figure = CURVES.replace('"curves"', '"estimates"') + 'statistic = ["mean", "area"]\n'
    path = write_study_file(tmp_path, STUDY + figure)
    cells, described = cells_of(path), read_study(path)
    found = charts_of(described, cells, records_of(cells), levels_of(described))
    assert [chart.panels for chart in found] == [
        chart.panels for chart in charts_of(described, cells, records_of(cells))
    ]
    assert found


def test_levels_are_lines_in_curves(tmp_path: Path) -> None:
    teams(tmp_path)
    path = write_study_file(tmp_path, STUDY + CURVES)
    cells, described = cells_of(path), read_study(path)
    found: list[Mapping[str, float | int]] = []
    for chart in charts_of(described, cells, records_of(cells), levels_of(described)):
        found += [panel.marks for panel in chart.panels if hasattr(panel, "marks")]  # type: ignore[union-attr]
        assert "Random play and doing nothing: from the study teams." in chart.note
    assert found == [{"random play": -9.0, "doing nothing": -27.0}, {"random play": 5.0, "doing nothing": 15.0}]


def test_pages_without_levels_stay_as_they_are(tmp_path: Path) -> None:
    teams(tmp_path)
    text = TABLE.format("")
    with_levels, without = page(tmp_path, text), page(tmp_path, text, GRID)
    assert "random play" not in without
    rows = [line for line in with_levels.splitlines() if not line.startswith(("| random play", "| doing nothing"))]
    words = [[part.strip() for part in re.sub("-{3,}", "---", line).split("|")] for line in rows]
    plain = [[part.strip() for part in re.sub("-{3,}", "---", line).split("|")] for line in without.splitlines()]
    different = [(a, b) for a, b in zip(words, plain, strict=True) if a != b]
    assert len(different) == 1 and "Random play and doing nothing [" in different[0][0][0]


def test_results_reads_the_levels(tmp_path: Path) -> None:
    teams(tmp_path)
    path = write_study_file(tmp_path, STUDY + TABLE.format(""))
    for cell in cells_of(path):
        record = made_record(cell, SCORES[cell.algorithm])
        write_record(tmp_path / "records" / "demo" / f"{cell.name}.json", replace(record, study="demo"))
    assert "| random play" in results(path).read_text("utf-8")


def test_an_unknown_study_of_levels_is_refused_at_once(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, STUDY)
    with pytest.raises(InputError, match=r"demo\.toml: levels: There is no study file '.*teams\.toml'\.$"):
        read_study(path)
    write_study_file(tmp_path, TEAMS, "teams")
    path = write_study_file(tmp_path, STUDY.replace("teams.toml", "teams"))
    with pytest.raises(InputError, match=r"levels: the file beside this one is 'teams\.toml', not 'teams'\.$"):
        read_study(path)


@pytest.mark.parametrize("name", ["../teams.toml", "/teams.toml"])
def test_a_study_of_levels_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    path = write_study_file(tmp_path / "inner", STUDY.replace("teams.toml", name))
    with pytest.raises(InputError, match="levels must be names of studies, or files in the folder of this one"):
        read_study(path)


def test_an_invalid_study_of_levels_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    write_study_file(tmp_path, TEAMS.replace("matrix/two_step", "matrix/unknown"), "teams")
    with pytest.raises(InputError, match=r"teams\.toml"):
        library.study(write_study_file(tmp_path, STUDY), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
