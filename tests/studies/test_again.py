"""A study measured again with other seeds: its own records stay, and a table compares both."""

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import main
from shoal.errors import InputError
from shoal.studies import execution
from shoal.studies.plan import Cell
from shoal.studies.record import Record, readable_records
from support.small_studies import GRID, SCORES, TABLES, TUNING, made_record, write_study_file

TEXT = (GRID + TABLES).replace("seeds = 2", "seeds = 5").replace("gamma = [0.9, 0.99]", "gamma = [0.9]")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Cells are not trained: mappo has the same scores with all seeds, qmix scores 5 more with seeds from 100 on."""
    cells: list[Cell] = []

    def run(cell: Cell, progress: bool) -> Record:
        cells.append(cell)
        more = 5.0 if cell.algorithm == "qmix" and cell.flags.get("seed", 0) >= 100 else 0.0
        scores = SCORES[cell.algorithm][: cell.merged().settings.seeds]
        return made_record(cell, [score + more for score in scores], behaviour={"algorithm": 1, "environment": 1})

    monkeypatch.setattr(execution, "run_cell", run)
    return cells


def again(path: Path, seed: int = 100, **options: Any) -> Any:
    return shoal.study(path, out=path.parent / "runs", progress=False, again=seed, **options)


def test_other_seeds_are_recorded_apart_and_compared(tmp_path: Path, trained: list[Cell]) -> None:
    limits = '[primary]\nmetric = "score"\nfloor = 0.0\nceiling = 100.0\n'
    path = write_study_file(tmp_path, TEXT.replace('title = "T"', 'title = "<script>T</script>"') + limits)
    shoal.study(path, out=tmp_path / "runs", progress=False)
    kept, again_kept = tmp_path / "records" / "demo", tmp_path / "again" / "demo-seed100"
    before = {file: file.read_bytes() for file in kept.iterdir()}
    del trained[:]
    report = again(path)
    assert len(readable_records(kept)) == len(trained) == 4 and report.ok, (
        "nothing of what is recorded counts as measured again"
    )
    assert {file: file.read_bytes() for file in kept.iterdir()} == before
    records = readable_records(again_kept)
    assert len(records) == 4 and {record.run["settings"]["seed"] for record in records} == {100}
    assert {record.evaluation["seed"] for record in records} == {1_000_100}
    assert [file.name for file in again_kept.iterdir()] == ["records.jsonl.xz"]
    assert {cell.folder.parent for cell in trained} == {tmp_path / "runs" / "demo-seed100"}

    text = (tmp_path / "again" / "demo-seed100.md").read_text(encoding="utf-8")
    rows = [[x.strip() for x in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| m")]
    assert len(rows) == 2 and all(row[-1] == "agree" and row[-2].startswith("0.0 [") for row in rows)
    assert "| qmix      | matrix/climbing | 0.75 [0.05, 1.80] | 5.75 [5.05, 6.80] | 5.0 [" in text
    assert text.startswith("# &lt;script>T&lt;/script>, measured again\n") and "<script" not in text
    assert "In the folder of demo.toml, `shoal study demo.toml --again --seed 100` trains every run" in text
    assert text.count("| differ") == 2 and "Of 4 runs with several seeds 2 differ: " in text
    assert " 2 agree: the whole interval is within 5% of the distance between floor and ceiling. 0 are not" in text
    assert "**Primary metric:** mean of the score [95% interval over 5 seeds]." in text
    assert "| differ" in str(report) and "demo-seed100: 4 of 4 runs recorded" in str(report)

    del trained[:]
    assert again(path).records.keys() == report.records.keys() and trained == [], "it continues as a study does"
    assert len(again(path, 200, only={"algorithm": "mappo"}).records) == 2
    part = again(path, 200, only={"algorithm": "qmix"})
    text = (tmp_path / "again" / "demo-seed200.md").read_text(encoding="utf-8")
    assert len(part.records) == 2 and "missing" not in text, (
        "the page has all runs, whichever the last command selected"
    )
    assert str(part).count("| agree") == text.count("| agree") == 2


def test_an_interval_that_is_wider_than_the_margin_does_not_agree(tmp_path: Path, trained: list[Cell]) -> None:
    path = write_study_file(tmp_path, TEXT)
    shoal.study(path, out=tmp_path / "runs", progress=False)
    text = again(path).page.read_text(encoding="utf-8")
    assert text.count("| not told apart |") == 2 and text.count("| differ") == 2 and "which are not known here" in text
    assert "with 2 or 3 seeds an interval is a range" in text, "a difference of 4 seeds is less than its range"
    path.write_text(TEXT + '[primary]\nmetric = "score"\nfloor = 0.0\nceiling = 55.0\n', encoding="utf-8")
    text = again(path).page.read_text(encoding="utf-8")
    assert text.count("| not told apart |") == 2 and "2 are not told apart" in text, "2.8 are more than 5% of 55"


def test_runs_that_cannot_be_compared_have_no_verdict(tmp_path: Path, trained: list[Cell]) -> None:
    path = write_study_file(tmp_path, TEXT.replace("seeds = 5", "seeds = 1"))
    text = again(path).page.read_text(encoding="utf-8")
    assert text.count("| missing") == 3 * 4 and "Of 0 runs" in text, "before, difference and verdict"
    shoal.study(path, out=tmp_path / "runs", progress=False)
    text = again(path).page.read_text(encoding="utf-8")
    assert text.count("| one seed") == 4 and "Of 0 runs" in text


def test_seeds_that_are_not_other_ones_are_refused(tmp_path: Path, trained: list[Cell]) -> None:
    path = write_study_file(tmp_path, TEXT)
    with pytest.raises(InputError, match=r"--seed 4 would repeat seeds of mappo .* 0 to 4; .* --seed 100\."):
        again(path, 4)
    path.write_text(TEXT.replace("gamma = [0.9]", "gamma = [0.9]\nseed = [0, 50]"), encoding="utf-8")
    path.write_text(path.read_text().partition("[[tables]]")[0], encoding="utf-8")
    with pytest.raises(InputError, match=r"--again requires that seed is set only in \[defaults\]"):
        again(path)
    assert trained == []


def test_seeds_and_episodes_of_a_search_are_refused(tmp_path: Path, trained: list[Cell]) -> None:
    path = write_study_file(tmp_path, TUNING.replace('[[variants]]\nname = "tuned"\ntuned = true\n', ""))
    with pytest.raises(InputError, match=r"--seed 9999 would repeat seeds of the search, which are 10000 to 10001; "):
        again(path, 9_999)
    with pytest.raises(
        InputError, match=r"--seed 1000000 would repeat the episodes of the search; .* --seed 1000001\."
    ):
        again(path, 1_000_000)
    assert trained == []


def test_the_command(tmp_path: Path, trained: list[Cell], capsys: pytest.CaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_study_file(tmp_path, TEXT)
    assert main(["study", "demo.toml", "--seed", "7"]) == 2
    assert "--seed requires --again" in capsys.readouterr().err
    assert main(["study", "demo.toml", "--again", "--seed", "7", "--no-progress"]) == 0
    out = capsys.readouterr().out
    assert "| verdict" in out and out.rstrip().endswith("comparison: again/demo-seed7.md") and len(trained) == 4
