"""Stale records are marked on pages, and flags that differ between compared rows are listed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal import presets
from shoal.algorithms import NAMES, SCRIPTED
from shoal.environments.names import FAMILIES, names
from shoal.errors import InputError
from shoal.runs import behaviour
from shoal.studies import record, state
from shoal.studies.results import markdown_page, results
from shoal.studies.running import study
from shoal.studies.state import record_path, records_of_cells
from shoal.studies.study_file import StudyFile, read_study
from support.small_studies import GRID, TABLES, cells_of, made_record, records_of, write_study_file

FIVE = GRID.replace("seeds = 2", "seeds = 5")
NOW = {"algorithm": 1, "environment": 1}


def filled(folder: Path, text: str = FIVE, **changes: Any) -> tuple[Path, list, dict[str, record.Record]]:
    """A study on the disk whose records have today's versions; ``changes`` concern the last of them."""
    path = write_study_file(folder, text)
    cells = cells_of(path)
    records = {name: replace(one, behaviour=NOW) for name, one in records_of(cells).items()}
    records[cells[-1].name] = replace(records[cells[-1].name], **changes)
    for cell in cells:
        record.write_record(record_path(folder / "records" / "demo", cell), records[cell.name])
    return path, cells, records


def test_every_algorithm_and_family_has_a_version() -> None:
    assert {*NAMES, *SCRIPTED} == behaviour.ALGORITHMS.keys()
    families = {*FAMILIES, *(f"{name.partition('/')[0]}/" for name in names())}
    assert families == {name for name in behaviour.ENVIRONMENTS if name[-1] in "/:"}
    assert (
        behaviour.family_of("skirmish/zerg_5_vs_5") == "skirmish/zerg_"
        and behaviour.family_of("skirmish/3m") == "skirmish/"
    )
    assert behaviour.versions("mappo+qmix", "mpe/simple_tag", {}) == {
        "algorithm 1": 1,
        "algorithm 2": 1,
        "environment": 1,
    }
    assert behaviour.versions("mine:make", "mine:factory", {}) == {}


def test_versions_of_options_count_where_the_option_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(behaviour.OPTIONS, "normalise_inputs", 2)
    run = ("mappo", "matrix/climbing")
    assert behaviour.changes(NOW, *run, {"normalise_inputs": False}) == []
    assert behaviour.changes(NOW, *run, {"normalise_inputs": True}) == [
        "normalise_inputs had behaviour version 1 and has 2 now"
    ]
    assert behaviour.changes({}, *run, {"normalise_inputs": True}) == [], "without versions nothing is compared"


def test_a_raised_version_marks_what_was_recorded_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cells, records = filled(tmp_path, FIVE + TABLES, behaviour={"algorithm": 0, "environment": 1})
    text = markdown_page(read_study(path), cells, records)
    assert f"**{cells[-1].title} is stale: qmix had an earlier or unknown behaviour version and has 1 now.**" in text
    assert f"**Their values are marked {state.STALE_MARK}. shoal study --renew trains them again.**" in text
    assert text.count(state.STALE_MARK) == 3, "the sentence, the table of lengths, and the run"
    cited = FIVE + TABLES.replace(
        'environment = "matrix/two_step"\ngamma = 0.9', 'environment = "matrix/two_step"\ngamma = 0.99'
    )
    read = read_study(write_study_file(tmp_path / "cited", cited))
    (row,) = [line for line in markdown_page(read, cells, records).splitlines() if "Somebody" in line]
    assert row.count(state.STALE_MARK) == 1, "the value beside a published one"
    assert study(path, dry_run=True).states[-1].word == "stale"

    assert state.STALE_MARK not in markdown_page(read_study(path), cells[:-1], records)
    monkeypatch.setitem(behaviour.ENVIRONMENTS, "matrix/", 2)
    assert "**All runs are stale" not in markdown_page(read_study(path), cells, records), "the last has another reason"
    assert "7 of 8 runs, the first of them" in markdown_page(read_study(path), cells, records)
    assert "matrix had behaviour version 1 and has 2 now.**" in markdown_page(read_study(path), cells, records)


def test_a_changed_preset_marks_rows_and_runs_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, _ = filled(tmp_path, FIVE + TABLES)
    before = presets.preset

    def changed(algorithm: str, environment: str) -> Any:
        return before(algorithm, environment) | ({"learning_rate": 0.0123, "gamma": 0.5} if algorithm == "qmix" else {})

    monkeypatch.setattr("shoal.config.resolve.preset", changed)
    after, folder = cells_of(path), tmp_path / "records" / "demo"
    held = records_of_cells(folder, after)
    assert len(held) == 4 and len(state.former_records(folder, after, held)) == 4
    found = state.stale_records(after, state.former_records(folder, after, held))
    assert set(found) == {cell.name for cell in after if cell.algorithm == "qmix"}
    assert all("learning_rate is " in reason and "0.0123 today" in reason for reason in found.values())
    text = results(path).read_text(encoding="utf-8")
    assert (
        "missing |" not in text
        and "runs are missing" not in text
        and "4 of 8 runs, the first of them qmix in matrix/climbing" in text
    )
    assert [state.word for state in study(path, dry_run=True).states] == ["recorded"] * 4 + ["missing"] * 4

    path.write_text(FIVE.replace("steps = 64", "steps = 128"), encoding="utf-8")  # the file, not a preset
    assert state.former_records(folder, cells_of(path), {}) == {}


def test_a_value_that_became_a_default_makes_no_run_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest in a record's name has the values that were no defaults when it was made."""
    cells = cells_of(write_study_file(tmp_path, FIVE.replace("seeds = 5", "seeds = 5\nlam = 0.9")))
    cell, folder = cells[0], tmp_path / "records" / "demo"
    made = made_record(cell, (1.0,) * 5)

    def found(settings: Any = None, config: Any = None, horizon: int = 1, without: str = "") -> bool:
        run = made.run | {"settings": made.run["settings"] | {"num_envs": 8, "rollout_length": 16} | (settings or {})}
        run |= {"config": made.run["config"] | (config or {}), "spec": made.run["spec"] | {"horizon": horizon}}
        run["config"].pop(without, None)
        path = folder / f"{cell.name.removesuffix(cell.digest)}0123456789.json"
        record.write_record(path, replace(made, run=run))
        return cell.name in records_of_cells(folder, cells)

    assert found()
    assert not found(config={"lam": 0.8}) and not found(config={"max_grad_norm": 0.125}), "another value"
    assert not found(config={"removed": 1}), "of an option that there is no longer"
    assert not found(settings={"num_envs": 4}) and not found(horizon=100), "sizes that the file set"
    assert found(without="max_grad_norm") and not found(without="lam"), "an option that is newer has its default"
    monkeypatch.setattr("shoal.config.resolve.preset", lambda *_: {"max_grad_norm": 0.125})
    assert not found(without="max_grad_norm")


def test_of_former_records_that_with_the_newest_versions_is_shown(tmp_path: Path) -> None:
    cell = cells_of(write_study_file(tmp_path, FIVE))[0]
    made, folder = made_record(cell, (1.0,) * 5), tmp_path / "records" / "demo"
    for i, (lam, version) in enumerate(((0.1, 0), (0.2, 1), (0.3, 0))):
        run = made.run | {"config": made.run["config"] | {"lam": lam}}  # a default that has changed twice
        one = replace(made, run=run, behaviour={"algorithm": version, "environment": 1})
        record.write_record(folder / f"old-{i:010}.json", one)
    assert state.former_records(folder, [cell], {})[cell.name].run["config"]["lam"] == 0.2


def test_a_record_that_a_run_uses_is_no_former_one_of_another(tmp_path: Path) -> None:
    """A variant got another name, and its former name another meaning."""
    text = FIVE.replace("gamma = [0.9, 0.99]", "")
    before = cells_of(write_study_file(tmp_path, f'{text}\n[[variants]]\nname = "a"\ngamma = 0.9\n'))
    folder = tmp_path / "records" / "demo"
    for cell in before:
        record.write_record(record_path(folder, cell), made_record(cell, (1.0,) * 5))
    variants = '\n[[variants]]\nname = "a"\n\n[[variants]]\nname = "b"\ngamma = 0.9\n'
    cells = cells_of(write_study_file(tmp_path, text + variants))
    held = records_of_cells(folder, cells)
    assert {cell.values["variant"] for cell in cells if cell.name in held} == {"b"}
    assert state.former_records(folder, cells, held) == {}


def test_a_flag_that_is_deleted_from_the_file_leaves_a_former_record(tmp_path: Path) -> None:
    text = FIVE.replace("gamma = [0.9, 0.99]", "")
    before = cells_of(write_study_file(tmp_path, text.replace("seeds = 5", "seeds = 5\nlam = 0.5")))
    folder = tmp_path / "records" / "demo"
    record.write_record(record_path(folder, before[0]), made_record(before[0], (1.0,) * 5))
    for lines, held in (("", True), ("\nlam = 0.6", False)):
        cells = cells_of(write_study_file(tmp_path, text.replace("seeds = 5", f"seeds = 5{lines}")))
        assert records_of_cells(folder, cells[:1]) == {}
        assert bool(state.former_records(folder, cells[:1], {})) == held


def test_records_of_runs_hold_their_versions(tmp_path: Path) -> None:
    _, cells, _ = filled(tmp_path)
    where = record_path(tmp_path / "records" / "demo", cells[0])
    assert record.read_record(where).behaviour == NOW
    text = where.read_text(encoding="utf-8")
    for bad in ('"one"', "-1", "true"):
        where.write_text(text.replace('"algorithm": 1', f'"algorithm": {bad}'), encoding="utf-8")
        with pytest.raises(InputError, match=r"behaviour\.algorithm"):
            record.read_record(where)


PRIMARY = '[primary]\nmetric = "length"\n'


def primary(folder: Path, text: str) -> StudyFile:
    path = write_study_file(folder, FIVE + text + TABLES)
    cells_of(path)
    return read_study(path)


def test_the_primary_metric_is_stated_and_shown(tmp_path: Path) -> None:
    found = primary(tmp_path, PRIMARY)
    text = markdown_page(found, cells_of(found.path), {})
    assert "**Primary metric:** mean of the length of episodes." in text
    assert "Primary metric" not in markdown_page(primary(tmp_path, ""), cells_of(found.path), {})
    wrong = {
        PRIMARY.replace("length", "won"): r"\[primary\] names the mean of won, which no table shows",
        PRIMARY + 'statistic = "iqm"\n': "There is no statistic of a single run 'iqm'",
        PRIMARY + 'statistic = "mode"\n': "There is no statistic of a single run 'mode'",
        PRIMARY + "typo = 1\n": r"key in \[primary\] named 'typo'",
        "[primary]\n": r"\[primary\] metric is missing",
    }
    for part, message in wrong.items():
        with pytest.raises(InputError, match=message):
            primary(tmp_path, part)


def test_flags_that_differ_beyond_the_axes_are_listed(tmp_path: Path) -> None:
    text = GRID.replace("gamma = [0.9, 0.99]", "") + "".join(
        f'\n[[variants]]\nname = "{name}"\n{flags}' for name, flags in {"plain": "", "wide": "hidden = [8]\n"}.items()
    )
    text += '\n[[overrides]]\nwhere = { variant = "wide", algorithm = "mappo" }\nmax_grad_norm = 0.125\n'
    path = write_study_file(tmp_path, text)
    listed = markdown_page(read_study(path), cells_of(path), {}).partition("## Flags that differ beyond the axes")[2]
    lines = {line.split("|")[1].strip(): line for line in listed.splitlines() if line.startswith("| ")}
    assert (
        "0.125: mappo wide" in lines["max_grad_norm"] and "matrix/climbing; matrix/two_step" in lines["max_grad_norm"]
    )
    assert "variant" not in lines and "gradient_steps" not in lines, "axes, and flags of one algorithm"
    assert "hidden" not in lines or "64" in lines["hidden"], "a variant's own flag is what its name says"


def test_a_former_record_has_the_mode_of_its_study(tmp_path: Path) -> None:
    """A record of the better mode is the former one of a study of the better mode, and of no other."""
    better = FIVE + '\n[evaluation]\ngreedy = "better"\n'
    cell = cells_of(write_study_file(tmp_path, better))[0]
    made = made_record(cell, (1.0,) * 5)
    run = made.run | {"config": made.run["config"] | {"lam": 0.123}}  # a default that has changed since
    evaluation = made.evaluation | {"greedy": True, "better": True}
    record.write_record(
        tmp_path / "records" / "demo" / "old-0123456789.json", replace(made, run=run, evaluation=evaluation)
    )
    for text, held in ((better, True), (FIVE, False), (FIVE + "\n[evaluation]\ngreedy = false\n", False)):
        cells = cells_of(write_study_file(tmp_path, text))
        assert bool(state.former_records(tmp_path / "records" / "demo", cells, {})) == held
