"""Seeds that are trained as runs of their own, and the record that is joined from theirs."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.cli import main
from shoal.errors import InputError
from shoal.runs import behaviour
from shoal.storage import log
from shoal.studies import execution, running
from shoal.studies.archive import ARCHIVE_FILE, extract
from shoal.studies.record import Record, read_record, write_record
from shoal.studies.results import markdown_page
from shoal.studies.separate import SEEDS_FOLDER, join_seeds, joined, seed_cells, write_seed
from shoal.studies.state import record_path, records_of_cells
from shoal.studies.study_file import read_study
from support import trained
from support.small_studies import TINY, cells_of, made_record, toml, write_study_file

TEXT = f"""
title = "T"
question = "Q?"
[defaults]
algorithm = "mappo"
environment = "matrix/climbing"
env.horizon = 2
eval_every = 48
{toml(TINY | {"seeds": 3, "seed": 4})}
[evaluation]
episodes = 3
greedy = false
"""


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        shoal.study(path, out=path.parent / "runs", progress=False, separate_seeds=True, **options)
    return str(caught.value)


@pytest.fixture
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.mark.usefixtures("one_program")
def test_seeds_that_are_trained_separately_become_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers are those of runs of one seed, row by row, and of no run of two seeds."""
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    path, records = write_study_file(tmp_path, TEXT.replace("seeds = 3", "seeds = 2")), tmp_path / "records" / "demo"
    singles = records / SEEDS_FOLDER

    def call(**options: Any) -> Any:
        options = {"separate_seeds": True} | options
        return shoal.study(path, out=tmp_path / "runs", progress=False, **options)

    first = call(only={"seed": 5})
    (cell,) = cells_of(path)
    parts = seed_cells(cell)
    assert [one.title for one in parts] == [f"mappo in matrix/climbing, seed {seed}" for seed in (4, 5)]
    assert str(first) == "demo: 0 of 1 runs recorded\nmappo in matrix/climbing: 1 of 2 seeds recorded"
    assert list(records.iterdir()) == [singles] and [file.stem for file in singles.iterdir()] == [parts[1].name]
    words = [(state.word, state.cell.title[-6:]) for state in call(dry_run=True).states]
    assert words == [("missing", "seed 4"), ("recorded", "seed 5")]
    assert (
        "1 of 2 seeds of mappo in matrix/climbing are recorded separately"
        in call(dry_run=True, separate_seeds=False).plan
    )
    assert str(call()) == "demo: 1 of 1 runs recorded"
    assert [file.name for file in records.iterdir()] == [ARCHIVE_FILE]
    assert extract(records) == 1
    record = read_record(records / f"{cell.name}.json")
    assert record.separate_seeds and record.seeds == 2 and record.run["settings"]["seed"] == 4
    assert "seed" not in record.cell and record.evaluation["seed"] == 1_000_000
    run = shoal.train(
        "mappo", "matrix/climbing", folder=tmp_path / "alone", progress=False, eval_episodes=0,
        env={"horizon": 2}, eval_every=48, **TINY | {"seed": 5, "seeds": 1, "hidden": (4,)},
    )  # fmt: skip
    found = run.evaluate(3, greedy=False, seed=1_000_001)
    np.testing.assert_allclose(record.scores[1], found.scores[0], rtol=1e-5)
    curve = [np.ravel(row["return"])[0] for row in log.read_log(run.folder)]
    np.testing.assert_allclose(np.array(record.curve["score"])[:, 1], curve, rtol=1e-5)
    assert record.evaluation["best"]["step"] and np.shape(record.evaluations["score"]) == (2, 2)
    assert len(np.unique(record.scores, axis=0)) == 2
    study = read_study(path)
    assert "2 seeds, trained separately, 3 sampled episodes" in markdown_page(study, [cell], {cell.name: record})
    monkeypatch.setattr(execution, "run_cell", lambda *_: pytest.fail("it ran again"))
    assert call().ok and call(separate_seeds=False).ok


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the runs that were started; none trains."""
    started: list[str] = []

    def run_cell(cell: Any, progress: bool = True) -> Record:
        started.append(cell.title)
        settings = cell.merged().settings
        return made_record(cell, np.arange(settings.seed, settings.seed + settings.seeds))

    monkeypatch.setattr(execution, "run_cell", run_cell)
    monkeypatch.setattr("shoal.studies.running.check_built", lambda *_: None)
    return started


def test_other_processes_may_join_the_seeds_first(tmp_path: Path, made: list[str], monkeypatch: Any) -> None:
    path = write_study_file(tmp_path, TEXT)
    (cell,) = cells_of(path)
    records = tmp_path / "records" / "demo"
    execute: Callable[..., Record] = execution.run_cell

    def meanwhile(part: Any, progress: bool = True) -> Record:
        """Another process records all seeds while this one trains the first."""
        for one, score in zip(seed_cells(cell), (1.0, 2.0, 3.0), strict=True):
            write_seed(records, one, made_record(one, [score]))
        join_seeds(records, cell)
        return execute(part, progress)

    monkeypatch.setattr(execution, "run_cell", meanwhile)
    report = shoal.study(path, out=tmp_path / "runs", progress=False, separate_seeds=True)
    assert made == ["mappo in matrix/climbing, seed 4"] and len(report.records) == 1
    np.testing.assert_array_equal(report.records[cell.name].scores[:, 0], [1.0, 2.0, 3.0])
    assert [file.name for file in records.iterdir()] == [ARCHIVE_FILE]


def test_a_seed_that_another_process_recorded_is_not_trained_again(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study_file(tmp_path, TEXT)
    (cell,) = cells_of(path)
    execute, parts = execution.run_cell, seed_cells(cell)

    def meanwhile(part: Any, progress: bool = True) -> Record:
        write_seed(tmp_path / "records" / "demo", parts[1], made_record(parts[1], [7.0]))
        return execute(part, progress)

    monkeypatch.setattr(execution, "run_cell", meanwhile)
    report = shoal.study(path, out=tmp_path / "runs", progress=False, separate_seeds=True)
    assert [title[-6:] for title in made] == ["seed 4", "seed 6"]
    np.testing.assert_array_equal(report.records[cell.name].scores[:, 0], [4.0, 7.0, 6.0])


def test_seeds_beside_a_run_of_all_of_them_are_kept(tmp_path: Path, made: list[str]) -> None:
    """They are not among the study's records, which other commands read."""
    path = write_study_file(tmp_path, TEXT)
    (cell,), records = cells_of(path), tmp_path / "records" / "demo"
    part = seed_cells(cell)[1]
    write_seed(records, part, made_record(part, [0.5]))
    report = shoal.study(path, out=tmp_path / "runs", progress=False)
    assert made == ["mappo in matrix/climbing"] and not report.records[cell.name].separate_seeds
    assert {file.name for file in records.iterdir()} == {ARCHIVE_FILE, SEEDS_FOLDER}
    assert [file.stem for file in (records / SEEDS_FOLDER).iterdir()] == [part.name]


@pytest.mark.parametrize("separate", [True, False])
def test_seeds_that_were_copied_from_elsewhere_are_joined(separate: bool, tmp_path: Path, made: list[str]) -> None:
    path = write_study_file(tmp_path, TEXT)
    (cell,) = cells_of(path)
    for part, score in zip(seed_cells(cell), (0.5, 1.5, 2.5), strict=True):
        write_seed(tmp_path / "records" / "demo", part, made_record(part, [score]))
    dry = shoal.study(path, out=tmp_path / "runs", separate_seeds=separate, dry_run=True)
    assert [state.word for state in dry.states] == (["recorded"] * 3 if separate else ["missing"])
    assert ("All seeds of mappo in matrix/climbing are recorded separately; the study joins" in dry.plan) != separate
    report = shoal.study(path, out=tmp_path / "runs", progress=False, separate_seeds=separate)
    np.testing.assert_array_equal(report.records[cell.name].scores[:, 0], [0.5, 1.5, 2.5])
    assert not made and not report.seeds


def test_a_run_of_one_seed_is_its_own(tmp_path: Path, made: list[str]) -> None:
    path = write_study_file(tmp_path, TEXT.replace("seeds = 3", "seeds = 1"))
    (cell,) = cells_of(path)
    assert shoal.study(path, out=tmp_path / "runs", progress=False, separate_seeds=True).ok
    assert made == ["mappo in matrix/climbing"]
    assert records_of_cells(tmp_path / "records" / "demo", [cell])[cell.name].separate_seeds is False
    assert refused(path, only={"seed": 5}, again=100) == "--only seed cannot be 5; the runs have 100."


def test_a_joined_record_names_all_machines_versions_and_commits(tmp_path: Path) -> None:
    (cell,) = cells_of(write_study_file(tmp_path, TEXT))
    records = [made_record(part, [float(i)]) for i, part in enumerate(seed_cells(cell))]
    hardware = records[0].hardware
    other = hardware | {"processor": "Another", "product_gflops": 300.0}
    records[1] = replace(
        records[1], versions={"python": "3.13", "jax": "0.10"}, commit="cd" * 20,
        sources={"mine": "0" * 16}, behaviour={"algorithm": 1, "environment": 2},
        seconds={"training": 20.0, "other": 1.5}, curve={"step": [32, 48, 64], "score": [[7.0], [8.0], [9.0]]},
    )  # fmt: skip
    records[0] = replace(
        records[0], hardware=other, sources={"mine": "1" * 16}, behaviour={"algorithm": 1, "environment": 1}
    )
    records[2] = replace(
        records[2],
        sources={"mine": "0" * 16},
        behaviour={"algorithm": 2, "environment": 2},
        hardware=hardware | {"product_gflops": None},
    )
    found = joined(cell, records)
    write_record(path := tmp_path / "one.json", found)
    assert read_record(path) == found
    here = {name: value for name, value in hardware.items() if name != "product_gflops"}
    assert found.hardware == here | {"product_gflops": 200, "earlier": [here | {"processor": "Another"}]}
    assert found.versions == {"python": "3.11, 3.13", "jax": "0.10"}
    assert found.commit == "ab" * 20 and found.changed
    assert found.sources["mine"] not in ("0" * 16, "1" * 16) and len(found.sources["mine"]) == 16
    assert found.behaviour == {"algorithm": 1, "environment": 1}
    assert found.seconds == {"training": 40, "other": 11.5}
    assert found.curve == {"step": [32, 64], "score": [[0.5, 7.0, 0.5], [1.0, 9.0, 1.0]]}


def test_stale_runs_and_seeds_are_set_aside(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    file = write_study_file(tmp_path, TEXT)
    versions = {"algorithm": 1, "environment": 1}
    (cell,), where = cells_of(file, "runs"), tmp_path / "records" / "demo"
    whole, first = record_path(where, cell), seed_cells(cell)[0]

    def renewed(*folders: Path) -> list[str]:
        made.clear()
        for folder in folders:
            folder.mkdir(parents=True)
        report = shoal.study(file, out=tmp_path / "runs", renew=True, separate_seeds=True)
        assert len(report.records) == 1 and "% trained" not in capsys.readouterr().err
        assert not any(folder.exists() for folder in folders), "so that nothing of them is continued"
        return made

    write_record(whole, replace(made_record(cell, (1.0, 2.0, 3.0)), behaviour=versions))
    monkeypatch.setitem(behaviour.ALGORITHMS, "mappo", 2)
    assert len(renewed(cell.folder, first.folder)) == 3
    extract(where)
    whole.unlink()
    write_seed(where, first, replace(made_record(first, (1.0,)), behaviour=versions))
    assert len(renewed(first.folder)) == 3, "the seed's record is stale"
    assert len([*(where / "former").iterdir()]) == 2


def test_a_run_that_is_begun_with_all_its_seeds_is_named(tmp_path: Path, made: list[str], capsys: Any) -> None:
    path = write_study_file(tmp_path, TEXT)
    (cell,) = cells_of(path)
    cell.folder.mkdir(parents=True)
    (cell.folder / "run.json").write_text("{}")
    report = shoal.study(path, out=tmp_path / "out", separate_seeds=True, dry_run=True)
    assert report.plan.endswith(
        "mappo in matrix/climbing is 0% trained with all its seeds; without --separate-seeds it continues."
    )
    shutil.rmtree(cell.folder)
    assert "without --separate-seeds" not in shoal.study(path, separate_seeds=True, dry_run=True).plan


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("greedy = false", 'greedy = "better"', "greedy is true or false in [evaluation]"),
        ("seeds = 3", "seeds = 3\nstop_at = 5", "does not go with stop_at"),
        ("seeds = 3", "seeds = 3\ntime_budget = 5", "does not go with time_budget"),
        ("seeds = 3", 'seeds = 3\ninit_from = "runs/x"', "does not go with init_from, from whose seeds"),
        ('"mappo"', '"seps"', "does not go with seps, which decides once for all seeds"),
        ("[evaluation]", "[grid]\nseed = [4, 9]\n[evaluation]", "requires that seed is set only in [defaults]"),
    ],
)
def test_what_depends_on_all_seeds_of_a_run_is_refused(
    tmp_path: Path, made: list[str], before: str, after: str, sentence: str
) -> None:
    text = TEXT.replace("seed = 4\n", "") if "[grid]" in after else TEXT
    text = text.replace("epochs = 1\nminibatches = 1\n", "") if "seps" in after else text
    assert sentence in refused(write_study_file(tmp_path, text.replace(before, after))) and not made


def test_the_command_selects_seeds(tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture) -> None:
    path = write_study_file(tmp_path, TEXT)
    words = ["study", str(path), "--out", str(tmp_path / "runs"), "--separate-seeds", "--only"]
    assert main([*words, "seed=4", "seed=6"]) == 0
    assert made == ["mappo in matrix/climbing, seed 4", "mappo in matrix/climbing, seed 6"]
    assert "mappo in matrix/climbing: 2 of 3 seeds recorded" in capsys.readouterr().out
    assert main([*words, "seed=7"]) == 2
    assert "--only seed cannot be 7; the runs have 4, 5, 6." in capsys.readouterr().err


def test_a_seed_that_is_joined_while_it_is_read_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study_file(tmp_path, TEXT)
    (cell,) = cells_of(path)
    part, whole = seed_cells(cell)[0], made_record(cell, (1.0, 2.0, 3.0))

    def gone(*_: Any) -> Any:
        write_record(record_path(tmp_path, cell), whole)
        raise InputError("There is no record.")

    monkeypatch.setattr(running, "records_of_seeds", gone)
    report = running.StudyReport(read_study(path), [], [], {}, [cell], wholes={part.name: cell})
    assert running._recorded_meanwhile(report, tmp_path, part) and report.records == {cell.name: whole}
