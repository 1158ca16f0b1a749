"""The page of results: what its tables say of records, what is missing, and that nothing else decides its bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.plots.texts import estimate_text, estimate_texts
from shoal.statistics.intervals import interval
from shoal.studies.record import rounded_numbers, write_record
from shoal.studies.results import markdown_page, results
from shoal.studies.state import record_path
from shoal.studies.study_file import read_study
from support.small_studies import GRID, SCORES, TABLES, cells_of, made_record, records_of, write_study_file

FIVE = GRID.replace("seeds = 2", "seeds = 5")


def drawn(folder: Path, text: str = FIVE + TABLES, leave_out: int = 0, **changes: Any) -> str:
    """The page of records; see :func:`records_of`."""
    path = write_study_file(folder, text)
    cells = cells_of(path)
    return markdown_page(read_study(path), cells, records_of(cells, leave_out, **changes))


def rows_of(text: str, title: str) -> list[list[str]]:
    """The cells of the first table after a line."""
    lines = text.split(f"{title}\n", 1)[1].lstrip("\n").splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_an_entry_is_the_mean_over_seeds_with_its_interval(tmp_path: Path) -> None:
    text = drawn(tmp_path)
    each = {name: interval(np.array(scores)) for name, scores in SCORES.items()}
    mean = dict(zip(each, estimate_texts([*each.values()], typical=True), strict=True))
    head, _, *rows = rows_of(text, "## Scores at 0.9")
    assert head == ["algorithm", "matrix/climbing", "matrix/two_step"]
    assert rows == [[name, mean[name], mean[name]] for name in ("mappo", "qmix")]
    assert "Mean of the score [95% interval over 5 seeds]." in text
    difference = estimate_text(interval(np.array(SCORES["mappo"]), -np.array(SCORES["qmix"])))
    assert rows_of(text, "Difference from algorithm qmix:")[2:] == [["mappo", difference, difference]]
    assert rows_of(text, "## Length by gamma and algorithm and environment")[2] == [
        "0.9",
        "mappo",
        "1 [1, 1]",
        "1 [1, 1]",
    ]
    assert rows_of(text, "## Published values")[2:] == [
        [
            "qmix",
            "matrix/two_step",
            "0.9",
            "score",
            "8.00 [7.50, 8.50]",
            estimate_text(each["qmix"]),
            "Somebody 2018, table 1",
        ]
    ]
    assert rows_of(text, "## Runs")[2] == ["mappo", "matrix/climbing", "0.9", "64", "1, 2, 3, 4, 6", "10.0 s"]
    for line in ("5 seeds, 256 greedy episodes", "commit `abababababab`.", "A processor, 2 cores; devices: 2 × cpu"):
        assert line in text


def test_without_tables_there_is_one_of_everything(tmp_path: Path) -> None:
    head, _, *rows = rows_of(drawn(tmp_path, FIVE), "## Score by algorithm and gamma and environment")
    assert head == ["algorithm", "gamma", "matrix/climbing", "matrix/two_step"] and len(rows) == 4


def test_notes_stand_below_the_tables(tmp_path: Path) -> None:
    noted = FIVE.replace('"Q?"', '"Q?"\nnotes = ["One\\nline.", "Another."]')
    text = drawn(tmp_path, noted)
    tables, notes, flags_and_runs = (
        text.index("## Score by"),
        text.index("## Notes\n\n- One line.\n- Another.\n"),
        text.index("## Runs"),
    )
    assert tables < notes < flags_and_runs and "## Notes" not in drawn(tmp_path, FIVE)


def test_a_metric_that_no_run_of_a_table_has_is_named_once_all_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = '\n[[tables]]\nmetric = "lenght"\n[[tables]]\nmetric = "length"\n[[tables]]\nmetric = "train/score"\n'
    path = write_study_file(tmp_path, GRID + tables)
    first, *others = cells_of(path)
    folder = tmp_path / "records" / "demo"
    for cell in others:
        write_record(record_path(folder, cell), made_record(cell, (7.0, 8.0)))
    results(path)
    assert capsys.readouterr().err == "", "the one that is missing may have it"
    write_record(record_path(folder, first), made_record(first, (7.0, 8.0)))
    results(path)
    assert capsys.readouterr().err == f"{path}: [[tables]] 1: There is no metric 'lenght'; did you mean 'length'?\n"


def test_missing_runs_are_shown(tmp_path: Path) -> None:
    text = drawn(tmp_path, leave_out=1)
    assert "**1 of 8 runs are missing.**" in text and text.count("missing") == 2 + 3 + 3
    assert rows_of(text, "## Scores at 0.9")[2][1] == "missing"
    assert rows_of(text, "Difference from algorithm qmix:")[2][1] == "missing"
    assert rows_of(drawn(tmp_path, leave_out=8), "## Scores at 0.9")[2:] == [
        ["mappo", "missing", "missing"],
        ["qmix", "missing", "missing"],
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"commit": "cd" * 20}, "- Code:\n  - commit `abababababab`: 7 runs\n  - commit `cdcdcdcdcdcd`: 1 run\n"),
        ({"changed": True}, "  - commit `abababababab` with changed files: 1 run\n"),
        ({"commit": None}, "  - an installed Shoal without commit, version 0.1.0: 1 run\n"),
    ],
)
def test_a_page_states_several_commits(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert "The tables mix" not in drawn(tmp_path)
    text = drawn(tmp_path, **changes)
    assert "**The tables mix 2 commits** ([which](#how-it-was-made))." in text and said in text


def test_a_page_states_several_machines(tmp_path: Path) -> None:
    cell = cells_of(write_study_file(tmp_path))[0]
    other = made_record(cell).hardware | {"processor": "Another | <b>"}
    text = drawn(tmp_path, hardware=other)
    assert "**The tables mix 2 machines** (" in text and "  - Another  b, 2 cores" in text and "<b>" not in text
    slower = made_record(cell).hardware | {"product_gflops": 80.0}
    text = drawn(tmp_path, hardware=slower)
    assert "The tables mix" not in text and "2 × cpu; 80 to 100 GFLOP/s in a 2048³ float32 product." in text


def test_one_seed_has_an_interval_over_its_episodes(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)
    cells = cells_of(path)
    scores = np.arange(256.0)[None]
    record = made_record(cells[0], (0.0,))
    record = made_record(cells[0], (0.0,), evaluation=record.evaluation | {"scores": rounded_numbers(scores)})
    text = markdown_page(read_study(path), cells, {cells[0].name: record})
    assert estimate_text(interval(scores[0])) in text and "95% interval over the episodes of 1 seed" in text


def test_the_page_of_the_same_records_has_the_same_bytes(tmp_path: Path) -> None:
    assert drawn(tmp_path / "a").encode() == drawn(tmp_path / "b").encode()
    path = write_study_file(tmp_path)
    cells = cells_of(path)
    records = list(records_of(cells).items())
    here, there = (markdown_page(read_study(path), cells, dict(order)) for order in (records, records[::-1]))
    assert here == there
