"""The studies that ship: their pages are what their records give, and nothing in them was typed by hand."""

import re
from pathlib import Path

import pytest

from shoal.studies.keys import label
from shoal.studies.plan import Cell, plan
from shoal.studies.results import draw_figures, markdown_page
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study
from shoal.studies.tuning.record import winner
from support.selection import quick

STUDIES = Path(__file__).parents[2] / "studies"
GROWING = {"flagship", "posthumous_credit", "unknown_methods"}
GROWING |= {"tuned_foraging", "tuned_particles", "tuned_skirmish", "tuned_warehouse"}
"""Their pages are published while cells are empty, and say how many are."""
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
    assert len(held) == len(cells) or name in GROWING


def test_every_study_names_its_primary_metric() -> None:
    assert [path.stem for path in STUDIES.glob("*.toml") if read_study(path).primary is None] == []


PROTOCOL = STUDIES.parent / "docs" / "protocol.md"


def protocol_rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading of docs/protocol.md."""
    part = PROTOCOL.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in part.split("\n") if line.startswith("|")]
    return lines[2:]


def task(words: str) -> tuple[str, frozenset[str]]:
    """An environment and its options, from a command's words."""
    name, *options = words.split(" --env.")
    return name, frozenset(options)


def task_of(cell: Cell) -> tuple[str, frozenset[str]]:
    """A run's task, without the options that the page leaves free."""
    free = ("convention", "time_limit", "continuous_actions")
    options = {name: value for name, value in cell.env.items() if name not in free}
    return cell.environment, frozenset(f"{name.replace('_', '-')} {label(value)}" for name, value in options.items())


def test_no_search_and_no_default_uses_a_task_or_a_seed_that_a_table_reports(tmp_path: Path) -> None:
    tasks = [[re.findall("`(.+?)`", entry) for entry in row[1:]] for row in protocol_rows("Tasks")]
    tuning, reporting = ({task(words) for row in tasks for words in row[column]} for column in (0, 1))
    assert len(tuning) > 10 and not tuning & reporting
    bounds = [row[0].replace(",", "").split(" to ") for row in protocol_rows("Seeds")]
    report, search, decision = (range(int(low), int(high) + 1) for low, high in bounds)
    searches = 0
    for path in sorted(STUDIES.glob("*.toml")):
        study = read_study(path)
        flags = [study.defaults, *study.variants.values(), *(one.flags for one in study.overrides)]
        first = {part["seed"] for part in flags if "seed" in part} | {*study.grid.get("seed", ())} or {0}
        count = max([1, *(part["seeds"] for part in flags if "seeds" in part), *study.grid.get("seeds", ())])
        decides = any(seed in decision for seed in first)
        assert all(seed + count - 1 in (decision if decides else report) for seed in first), path.stem
        if (trials := study.tuning) is not None:
            searches += 1
            assert trials.seed in search and trials.seed + trials.seeds - 1 in search, path.stem
        if trials is not None or decides:
            cells = plan(study, tmp_path)
            only = trials.environments if trials else None
            asked = {task_of(cell) for cell in cells if only is None or cell.environment in only}
            assert asked <= tuning, path.stem
    assert searches
