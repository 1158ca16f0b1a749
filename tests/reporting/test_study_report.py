"""The report of a study: the same numbers as its Markdown page, from its file and records alone."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal as library
from shoal.reporting import command
from shoal.studies.record import Record, rounded_numbers, write_record
from shoal.studies.results import markdown_page
from shoal.studies.state import record_path
from shoal.studies.study_file import read_study
from support.parsed_html import EVIL, Parsed, check_harmless
from support.run_folders import run
from support.small_studies import GRID, SCORES, TABLES, cells_of, made_record, records_of, toml, write_study_file

OVER = ["environment", "gamma"]


def figure(**keys: Any) -> str:
    """A figure of a study file, with a line for each algorithm."""
    return "\n[[figures]]\n" + toml({key: json.dumps(value) for key, value in {"lines": "algorithm", **keys}.items()})


SCALE = """
[[scales]]
environment = ["matrix/climbing", "matrix/two_step"]
worst = 0
best = 8
source = "known"
"""
FILE = "".join(
    (
        GRID.replace("seeds = 2", "seeds = 5"),
        TABLES,
        figure(kind="curves", title="Curves", panels="environment", **{"where.gamma": 0.9}),
        figure(kind="profiles", title="Profiles", over=OVER),
        figure(kind="estimates", title="Estimates", over=OVER, statistic=["mean", "iqm"]),
        figure(kind="improvement", title="Improvement", over=OVER),
        SCALE,
    )
)

WON = """
[[tables]]
title = "Wins"
metric = "won"
baseline = { algorithm = "qmix" }
where = { gamma = 0.9 }

[[references]]
metric = "won"
algorithm = "qmix"
gamma = 0.9
value = 0.906
source = "S"
"""
WON += figure(metric="won", panels=OVER)
WON += "".join(figure(kind=kind, metric="won", scale="raw", over=OVER) for kind in ("estimates", "profiles"))


def study(folder: Path, text: str = FILE, leave_out: int = 0, **changes: Any) -> tuple[Path, dict[str, Record]]:
    """A study file with records on the disk; ``changes`` concern the last of them."""
    path = write_study_file(folder, text)
    cells = cells_of(path)
    records = records_of(cells, leave_out, **changes)
    for cell in cells[leave_out:]:
        write_record(record_path(folder / "records" / "demo", cell), records[cell.name])
    return path, records


def report(path: Path, **options: Any) -> Parsed:
    return Parsed(library.report(path, runs=path.parent / "out", **options))


def markdown_rows(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown page, without their rules."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    split = [[[cell.strip() for cell in line.strip("|").split("|")] for line in x.splitlines()] for x in blocks]
    return [[rows[0], *rows[2:]] for rows in split]


def test_every_table_of_the_markdown_page_is_there(tmp_path: Path) -> None:
    path, records = study(tmp_path, leave_out=1)
    found = report(path)
    expected = markdown_rows(markdown_page(read_study(path), cells_of(path), records))
    tables = [[[cell or "–" for cell in row] for row in rows] for rows in found.tables.values()]
    assert len(expected) == 7
    for rows in expected:
        assert [[cell or "–" for cell in row] for row in rows] in tables
    assert "1 of 8 runs are missing." in found.text and "Q?" in found.text
    for words in ("5 seeds, 256 greedy episodes", "commit abababababab", "A processor, 2 cores; devices: 2 × cpu"):
        assert words in found.text
    check_harmless(found)


def test_commands_on_the_pages_find_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study_file(tmp_path / "studies")
    said: dict[str, tuple] = {"outside": (tmp_path / "studies", "demo.toml"), "by name": (tmp_path, "demo")}
    for folder, word in said.values():
        monkeypatch.chdir(folder)
        found = Parsed(library.report(path, out=tmp_path / "page.html"))
        for name in ("study", "results", "report"):
            assert f"shoal {name} {word}" in found.texts
        assert f"`shoal results {word}`" in library.results(path).read_text(encoding="utf-8")
        Path("a b").mkdir()
        found = Parsed(library.report(path, out=tmp_path / "page.html", records="a b"))
        assert f"shoal study {word} --records 'a b'" in found.texts


def test_pages_show_no_folders_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study_file(tmp_path / "somebody" / "studies")
    (records := tmp_path / "somebody" / "their records").mkdir()
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    page = library.report(path, out="page.html", records=records)
    assert "shoal study demo.toml --records 'their records'" in Parsed(page).texts
    every = library.report(path.parent, out="all.html")
    assert "Studies in studies" in Parsed(every).texts
    for one in (page, every):
        assert "somebody" not in one.read_text("utf-8")
    assert (
        "shoal study ../somebody/studies/demo.toml"
        in Parsed(library.report("../somebody/studies/demo.toml", out="page.html")).texts
    ), "a relative path is shown as it was typed"


def test_figures_are_charts_of_the_records_numbers(tmp_path: Path) -> None:
    found = report(study(tmp_path)[0])
    first, second, profiles = found.data["chart-data"]
    for chart in (first, second):
        assert [line["name"] for line in chart["lines"]] == ["mappo", "qmix"] and chart["y"] == "Score"
        assert chart["lines"][0]["x"] == [32, 64] and chart["lines"][0]["mean"] == [0.5, 1]
        assert len(chart["lines"][0]["seeds"]) == 5
    assert profiles["stairs"] and profiles["percent"]
    every = [score / 8 for score in SCORES["mappo"]]
    for threshold, share in zip(profiles["lines"][0]["x"], profiles["lines"][0]["mean"], strict=True):
        assert share == pytest.approx(sum(score > threshold for score in every) / 5, rel=1e-4)
    rows = found.tables["Mean: Normalised score"]
    assert rows[1][0] == "mappo" and rows[1][2].startswith("0.400 [")
    rows = found.tables["Probability of improvement, P(X > Y)"]
    better = sum(x > y for x in SCORES["mappo"] for y in SCORES["qmix"])
    equal = sum(x == y for x in SCORES["mappo"] for y in SCORES["qmix"])
    assert rows[1][0] == "mappo > qmix" and float(rows[1][2].split()[0]) == pytest.approx(
        (better + equal / 2) / 25, abs=0.005
    )


def test_mixed_commits_and_machines_are_warned_of(tmp_path: Path) -> None:
    hardware = {"processor": "Another", "cores": 1, "memory_gib": 8.0, "product_gflops": None}
    hardware["devices"] = [{"platform": "cpu", "kind": "cpu", "count": 4}]
    found = report(study(tmp_path, commit="cd" * 20, changed=True, hardware=hardware)[0])
    assert "The tables mix 2 commits and 2 machines ( which )." in found.text
    assert "commit abababababab: 7 runs commit cdcdcdcdcdcd with changed files: 1 run" in found.text
    assert "Another, 1 core; devices: 4 × cpu: 1 run" in found.text


def test_a_section_has_the_notes_of_the_file(tmp_path: Path) -> None:
    found = report(study(tmp_path, FILE.replace('"Q?"', '"Q?"\nnotes = "Of `gamma` alone."'))[0])
    assert "Notes Of gamma alone." in found.text


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    path, _ = study(tmp_path)
    first = library.report(path, runs=tmp_path / "out")
    assert first == tmp_path / "out" / "demo" / "report.html"
    assert library.report(path, out=tmp_path / "other.html").read_bytes() == first.read_bytes()


def test_texts_of_hostile_files_are_shown_as_texts(tmp_path: Path) -> None:
    text = FILE.replace('"T"', f"'''{EVIL[0]}'''").replace('"Q?"', f"'''{EVIL[1]} `{EVIL[2]}`'''")
    text = text.replace('"Scores at 0.9"', f"'''{EVIL[4]}'''").replace('"Curves"', f"'''{EVIL[0]}'''")
    text = text.replace('"known"', f"'''{EVIL[1]}'''").replace('"Somebody 2018, table 1"', f"'''{EVIL[2]}'''")
    hardware = {"processor": EVIL[0], "cores": 4, "memory_gib": 8.0, "product_gflops": None}
    hardware["devices"] = [{"platform": "cpu", "kind": EVIL[3], "count": 4}]
    path, _ = study(tmp_path, text, hardware=hardware, versions={EVIL[1]: EVIL[4]})
    found = report(path)
    check_harmless(found)
    for words in (*EVIL, f"{EVIL[1]} {EVIL[4]}", f"{EVIL[0]}, 4 cores; devices: 4 × {EVIL[3]}"):
        assert words in found.text


def test_at_most_four_runs_whose_folders_exist_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = study(tmp_path)
    labels: list[list[str]] = []
    monkeypatch.setattr(command, "played", lambda runs, **_: labels.append([label for label, _ in runs]) or {})
    assert "Replays" not in report(path).texts and labels == []
    cells = cells_of(path)
    for cell in cells[1:7]:
        if len(labels) == 0 and cell is cells[2]:
            found = report(path)  # one folder: all of them are played, so there is nothing to say about the others
            assert labels.pop() == [cells[1].title] and "Replays" in found.texts
            assert any(attributes.get("id") == "player" for _, attributes in found.tags)
        run(cell.folder, (1.0, 2.0), cell.algorithm, cell.environment)
    found = report(path)
    assert labels == [[cell.title for cell in cells[1:5]]]
    assert "The first 4 of 6 runs with folders are shown." in found.text
    report(path, replays=False)
    assert len(labels) == 1


def test_a_study_without_records_is_written(tmp_path: Path) -> None:
    found = report(write_study_file(tmp_path, FILE))
    assert "8 of 8 runs are missing." in found.text and found.data["chart-data"] == []


def test_shares_are_shown_in_per_cent_everywhere(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, GRID + WON)
    for cell in cells_of(path):
        one = made_record(cell, (0.0, 0.0))
        won = np.repeat([[0.25], [0.75]] if cell.algorithm == "mappo" else [[0.0], [0.5]], cell.evaluation.episodes, 1)
        evaluation = one.evaluation | {"metrics": {"won": rounded_numbers(won)}}
        curve = one.curve | {"won": [[0.0, 0.0], [0.25, 0.75]]}
        write_record(record_path(tmp_path / "records" / "demo", cell), replace(one, evaluation=evaluation, curve=curve))
    found = report(path)
    assert found.tables["Wins"][1] == ["mappo", "50 [25, 75]", "50 [25, 75]"]
    assert "Mean of the win rate, in per cent [" in found.text
    assert found.tables["Difference from algorithm qmix"][1][1].startswith("25 [")
    row = found.tables["Published values, and here"][1]
    assert "win rate, in per cent" in row and "90.60" in row and "25 [0, 50]" in row
    curves, profiles = found.data["chart-data"][0], found.data["chart-data"][-1]
    assert curves["y"] == "Win rate, in per cent" and curves["lines"][0]["mean"] == [0, 50]
    assert curves["lines"][0]["seeds"] == [[0, 25], [0, 75]]
    assert profiles["x"] == "Win rate, in per cent τ" and profiles["lines"][0]["x"][-1] == 75
    assert found.tables["Mean: Win rate, in per cent"][1][2].startswith("50 [")
