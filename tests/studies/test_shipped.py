"""The studies that ship: their pages are what their records give, and nothing in them was typed by hand."""

import json
import lzma
import re
import textwrap
from collections.abc import Mapping
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest

from shoal.studies.again import AGAIN_FOLDER, Again, again_page, rows_of, with_seed
from shoal.studies.archive import ARCHIVE_FILE
from shoal.studies.crossplay import crossplays_of
from shoal.studies.keys import label
from shoal.studies.levels import levels_of
from shoal.studies.limits import limits_of
from shoal.studies.plan import Cell, plan
from shoal.studies.results import draw_figures, markdown_page
from shoal.studies.state import former_records, records_folder, records_of_cells
from shoal.studies.study_file import StudyFile, read_study
from shoal.studies.tables import MISSING
from shoal.studies.tuning.record import winner
from support.selection import quick

STUDIES = Path(__file__).parents[2] / "studies"
GROWING = {"battle_choices", "communicate", "flagship", "long_particles", "mappo_choices_long", "other_libraries"}
GROWING |= {"posthumous_credit", "unknown_methods"}
GROWING |= {"tuned_bodies", "tuned_particles", "tuned_skirmish", "tuned_warehouse"}
"""Their pages are published while cells are empty, and say how many are."""
NAMES = sorted(path.stem for path in STUDIES.glob("*.toml") if (STUDIES / "results" / f"{path.stem}.md").exists())


@pytest.mark.parametrize("name", quick(NAMES, "two_step", "monotonicity"))
def test_the_page_is_that_of_the_records(name: str, tmp_path: Path) -> None:
    study = read_study(STUDIES / f"{name}.toml")
    where = records_folder(study, None)
    cells = plan(study, tmp_path, winner(study, where))
    held = records_of_cells(where, cells)
    levels, games = levels_of(study), crossplays_of(study, cells, held, where)
    drawn = draw_figures(study, cells, held, tmp_path, levels)
    committed = STUDIES / "results" / f"{name}.md"
    assert markdown_page(study, cells, held, drawn, levels, games) == committed.read_text(encoding="utf-8")
    assert all((committed.parent / figure).exists() for figure in drawn)
    assert len(held) == len(cells) or name in GROWING


AGAIN = sorted(path.stem for path in (STUDIES / AGAIN_FOLDER).glob("*.md"))


@pytest.mark.parametrize("name", quick(AGAIN, "mat_order-seed100"))
def test_the_page_of_other_seeds_is_that_of_the_records(name: str, tmp_path: Path) -> None:
    known, seed = name.rpartition("-seed")[0], int(name.rpartition("-seed")[2])
    study = read_study(STUDIES / f"{known}.toml")
    where = records_folder(study, None)
    tuned = winner(study, where)
    cells = plan(study, tmp_path, tuned)
    before = records_of_cells(where, cells)
    before |= former_records(where, cells, before)
    new = plan(with_seed(study, cells, seed), tmp_path, tuned)
    records = records_of_cells(STUDIES / AGAIN_FOLDER / name, new)
    page = again_page(Again(study, seed, cells, before, new), records)
    assert page == (STUDIES / AGAIN_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    said = (STUDIES.parent / "docs" / "studies.md").read_text(encoding="utf-8")
    for row in rows_of(Again(study, seed, cells, before, new), records):
        if row["again"] != MISSING:
            assert f"| {row['before']} | {row['again']} | {row['again − before']} |" in said


def test_every_study_names_its_primary_metric() -> None:
    assert [path.stem for path in STUDIES.glob("*.toml") if read_study(path).primary is None] == []


PROTOCOL = STUDIES.parent / "docs" / "protocol.md"
DEFAULTS = PROTOCOL.with_name("defaults.md")


def rows_under(page: Path, title: str) -> list[list[str]]:
    """The rows of the first table under a heading of a page."""
    part = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2]
    lines = dropwhile(lambda line: not line.startswith("|"), part.split("\n"))
    return [line.strip("| ").split(" | ") for line in takewhile(lambda line: line.startswith("|"), lines)][2:]


def seeds_of_the_page() -> list[range]:
    """The seeds of reported runs, of trials and of studies that decide a default."""
    bounds = [row[0].replace(",", "").split(" to ") for row in rows_under(PROTOCOL, "Seeds")]
    return [range(int(low), int(high) + 1) for low, high in bounds]


def parts_of(study: StudyFile) -> list[dict[str, Any]]:
    """The tables of the file that set flags."""
    return [study.defaults, *study.variants.values(), *(one.flags for one in study.overrides)]


def first_seeds(study: StudyFile) -> set[int]:
    """The first seeds of its runs."""
    return {part["seed"] for part in parts_of(study) if "seed" in part} | {*study.grid.get("seed", ())} or {0}


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
    tasks = [[re.findall("`(.+?)`", entry) for entry in row[1:]] for row in rows_under(PROTOCOL, "Tasks")]
    tuning, reporting = ({task(words) for row in tasks for words in row[column]} for column in (0, 1))
    assert len(tuning) > 10 and not tuning & reporting
    report, search, decision = seeds_of_the_page()
    searches = 0
    for path in sorted(STUDIES.glob("*.toml")):
        study = read_study(path)
        flags, first = parts_of(study), first_seeds(study)
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


NO_LIMITS = {
    "mpe": "the return of doing nothing differs by task, and no largest one is known",
    "mamujoco": "returns grow with the speed of the robot, and may be negative",
}
"""Families whose scores have no limit that a study file could name for all its tasks."""


def test_a_study_that_decides_names_the_floor_or_the_ceiling_of_its_metric(tmp_path: Path) -> None:
    decision = seeds_of_the_page()[2]
    for path in sorted(STUDIES.glob("*.toml")):
        study = read_study(path)
        if study.tuning is None and not any(seed in decision for seed in first_seeds(study)):
            continue
        cells = [cell for cell in plan(study, tmp_path) if cell.environment.partition("/")[0] not in NO_LIMITS]
        assert [cell.title for cell in cells if limits_of(study, cell) == (None, None)] == [], path.stem


OTHER_SEEDS = {
    "tuned_bodies": "a search; its winner is compared on five seeds from 0 on",
    "tuned_foraging": "a search; its winner is compared on five seeds from 0 on",
    "tuned_particles": "a search; its winner is compared on five seeds from 0 on",
    "tuned_skirmish": "a search; its winner is compared on five seeds from 0 on",
    "tuned_warehouse": "a search; its winner is compared on five seeds from 0 on",
    "first_command": "of a command that users run, so on its task",
    "flagship": "beside foraging_q_targets, with PQN-VDN, which that has not",
    "messages": "decided on a reported task, as the row says",
}
"""Studies that a row of docs/defaults.md cites although their seeds are not those that decide a default."""


def test_a_default_is_decided_by_a_study_with_seeds_of_its_own() -> None:
    decision = seeds_of_the_page()[2]
    rows = rows_under(DEFAULTS, "Decided")
    cited = {name for row in rows for name in re.findall(r"results/(\w+?)(?:-tuning)?\.md", row[-1])}
    assert len(rows) > 10 and all("results/" in row[-1] for row in rows)
    for name in sorted(cited):
        own = all(seed in decision for seed in first_seeds(read_study(STUDIES / f"{name}.toml")))
        assert own != (name in OTHER_SEEDS), name
    assert cited >= OTHER_SEEDS.keys()


GROUPS = {
    "skirmish": "skirmish",
    "mpe": "particle environments",
    "mamujoco": "MuJoCo's robots",
    "lbf": "foraging",
    "grid": "Pursuit and the stag hunt",
    "pettingzoo:sisl.pursuit_v5": "Pursuit and the stag hunt",
}
"""What the page calls an environment or its family."""
OTHERS = "all others"


def has_accelerator(machine: Mapping[str, Any]) -> bool:
    """Whether a machine of a record's ``hardware`` has a device other than its processor."""
    return any(device["platform"] != "cpu" for device in machine["devices"])


def sum_of_the_records() -> str:
    """The last paragraph of docs/studies.md."""
    found = [json.loads(path.read_bytes()) for path in STUDIES.glob("records/*/*.json")]
    for archive in STUDIES.glob(f"records/*/{ARCHIVE_FILE}"):
        found += map(json.loads, lzma.decompress(archive.read_bytes()).splitlines())
    runs = [one for one in found if "cell" in one and "run" in one]
    steps = sum(len(one["evaluation"]["scores"]) * one["evaluation"]["step"] for one in runs)
    hours = dict.fromkeys((*GROUPS.values(), OTHERS), 0.0)
    on_one = of_hatd3 = elsewhere = 0.0
    count = begun = 0
    for one in runs:
        took, name = sum(one["seconds"].values()) / 3600, one["run"]["environment"]
        if has_accelerator(one["hardware"]):
            elsewhere, count = elsewhere + took, count + 1
            continue
        begun += any(map(has_accelerator, one["hardware"].get("earlier", ())))
        hours[GROUPS.get(name) or GROUPS.get(name.partition("/")[0], OTHERS)] += took
        if one["hardware"]["cores"] == 1:
            on_one += took
            of_hatd3 += took * (one["run"]["algorithm"] == "hatd3")
    kept, drawn = (sum(path.stat().st_size for path in STUDIES.glob(one)) for one in ("records/*/*", "results/*.png"))
    return (
        f"All records together: {len(runs):,} runs of {len({one['study'] for one in runs})} studies, "
        f"{steps / 1e9:.2f} billion environment steps, {sum(hours.values()):.0f} hours on CPUs ({on_one:.0f} of them "
        f"on one core, {of_hatd3:.0f} of these HATD3's; the others on two) and {elsewhere:.1f} hours of {count} runs "
        f"on an H100 and an H200, many at a time. {begun} runs were begun there and ended on CPUs. Hours on CPUs: "
        f"{', '.join(f'{one:.0f} in {name}' for name, one in hours.items())}. The records have {kept / 1e6:.1f} MB, "
        f"the figures of their pages {drawn / 1e6:.1f} MB."
    )


def test_the_page_counts_the_records_as_they_are() -> None:
    said = sum_of_the_records()
    page = (STUDIES.parent / "docs" / "studies.md").read_text(encoding="utf-8")
    found = said in " ".join(page.split())
    assert found, f"The last paragraph of docs/studies.md must be:\n\n{textwrap.fill(said, 140)}\n"
