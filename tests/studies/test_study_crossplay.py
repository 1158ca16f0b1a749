"""The cross-play of a study: its file, its games and their record, and its tables with their intervals."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal as library
from shoal.errors import InputError
from shoal.reporting.study_page import study_page
from shoal.storage import manifest
from shoal.studies import archive, execution, running
from shoal.studies.archive import Stored
from shoal.studies.compare.sources import read_archive
from shoal.studies.contents import contents_of
from shoal.studies.crossplay import (
    CrossplayRecord,
    Group,
    Played,
    about_games,
    about_run,
    crossplays_of,
    groups_of,
    opened_crossplay_record,
    write_crossplay_record,
)
from shoal.studies.crossplay_runs import check_together, without_policies
from shoal.studies.crossplay_tables import crossplay_section
from shoal.studies.plan import Cell
from shoal.studies.record import Record, read_record, readable_records, write_record
from shoal.studies.state import record_path, records_of_cells, silent
from shoal.studies.study_file import Crossplay, read_study
from shoal.training.crossplay import pairs_difference
from support.small_studies import cells_of, check_refused, made_record, write_study_file

TEXT = """
title = "T"
question = "Q?"
[defaults]
environment = "matrix/climbing"
env.horizon = 2
steps = 32
seeds = 2
num_envs = 4
rollout_length = 4
tensorboard = false
devices = 1
[[variants]]
name = "first"
algorithm = "constant"
[[variants]]
name = "draws"
algorithm = "random"
[evaluation]
episodes = 3
[crossplay]
episodes = 5
seed = 7
baseline = { variant = "first" }
"""
"""``first`` always plays row or column 1 of the game, in which it earns 11 a step with itself."""
TWO = TEXT.replace('environment = "matrix/climbing"\n', "").replace(
    "[[variants]]", '[grid]\nenvironment = ["matrix/climbing", "matrix/penalty"]\n[[variants]]', 1
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    monkeypatch.setattr(manifest, "product_rate", lambda: 1e11)
    monkeypatch.chdir(tmp_path)


def records_in(file: Path) -> Path:
    return file.parent / "records" / "demo"


def games_of(file: Path) -> tuple[Played, ...]:
    cells, folder = cells_of(file, "runs"), records_in(file)
    return crossplays_of(read_study(file), cells, records_of_cells(folder, cells, silent), folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a study that was run, with its records and the folders of its runs beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "product_rate", lambda: 1e11)
        patch.setattr(manifest, "product_rate", lambda: 1e11)
        file = write_study_file(tmp_path_factory.mktemp("study"), TEXT)
        report = library.study(file, out=file.parent / "runs", progress=False)
        assert report.ok and [one.word for one in report.games] == ["waits for 2 runs"]
        yield file


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(finished.parent, tmp_path / "copy")) / finished.name


def again(file: Path, **how: Any) -> running.StudyReport:
    return library.study(file, out=file.parent / "runs", progress=False, **how)


# The file.


def test_the_table_has_defaults(tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("[crossplay]")]
    assert read_study(write_study_file(tmp_path, text)).crossplay is None
    assert read_study(write_study_file(tmp_path, text + "[crossplay]\n")).crossplay == Crossplay(128, 0, (), None, {})
    given = 'episodes = 3\nseed = 2\nside = ["agent_1"]\ngreedy = false\nbaseline = { variant = "first" }\n'
    found = read_study(write_study_file(tmp_path, f"{text}[crossplay]\n{given}")).crossplay
    assert found == Crossplay(3, 2, ("agent_1",), False, {"variant": "first"})


MISTAKES = {
    "an unknown key": (
        "seed = 7",
        "seeed = 7",
        "There is no key in [crossplay] named 'seeed'; did you mean 'seed'?",
    ),
    "no episodes": (
        "episodes = 5",
        "episodes = 0",
        "[crossplay] episodes must be at least 1 and at most 1000000, not 0.",
    ),
    "a mode": ("seed = 7", "greedy = 'best'", "[crossplay] greedy must be true, false or \"better\", not 'best'."),
    "an agent": (
        "seed = 7",
        "side = [0]",
        "[crossplay] side must be the name of an agent, or a list of them, not [0].",
    ),
    "an axis": (
        '{ variant = "first" }',
        "{ gamma = 0.9 }",
        "[crossplay] baseline: There is no axis 'gamma'; known: algorithm, environment, variant.",
    ),
    "a value": (
        '{ variant = "first" }',
        '{ variant = "third" }',
        "[crossplay] baseline variant cannot be third; the runs have first, draws.",
    ),
    "several runs": (
        '{ variant = "first" }',
        '{ environment = "matrix/climbing" }',
        "[crossplay] baseline must name one run of each environment, but 2 of matrix/climbing have environment "
        "matrix/climbing.",
    ),
    "an unknown agent": (
        "seed = 7",
        'side = ["agent_7"]',
        "[crossplay] in matrix/climbing: There is no agent 'agent_7'; did you mean 'agent_1'?",
    ),
    "all agents": (
        "seed = 7",
        'side = ["agent_0", "agent_1"]',
        "[crossplay] in matrix/climbing: Side 1 has all 2 agents, so side 2 would be empty.",
    ),
    "one agent": (
        'environment = "matrix/climbing"\nenv.horizon = 2',
        'environment = "mpe/simple"',
        "[crossplay] in mpe/simple: mpe/simple has only one agent; two sides require at least two.",
    ),
    "other observations": (
        'name = "draws"\n',
        'name = "draws"\nframe_stack = 2\n',
        "[crossplay] in matrix/climbing: random in matrix/climbing, variant draws was trained with frame_stack 2 and "
        "constant in matrix/climbing, variant first with 1, so their policies cannot play together.",
    ),
    "another time limit": (
        'name = "draws"\n',
        'name = "draws"\ntime_limit = 1\n',
        "[crossplay] in matrix/climbing: random in matrix/climbing, variant draws and constant in matrix/climbing, "
        "variant first cannot play together: the time limits would be 1 in the one and 2 in the other.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_refused_before_anything_trains(mistake: tuple[str, str, str], tmp_path: Path) -> None:
    def read(path: Path) -> None:
        study = read_study(path)
        check_together(study, groups_of(study, cells_of(path)))

    check_refused(read, TEXT, mistake, tmp_path / "study")


def test_a_study_checks_its_cross_play_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "run_cell", lambda *_: pytest.fail("trained"))
    file = write_study_file(tmp_path, TEXT.replace("seed = 7", 'side = ["agent_7"]'))
    with pytest.raises(InputError, match=r"\[crossplay\] in matrix/climbing: There is no agent 'agent_7'"):
        again(file)


def test_seeds_that_are_trained_apart_are_refused(tmp_path: Path) -> None:
    file = write_study_file(tmp_path, TEXT)
    with pytest.raises(
        InputError, match=r"\[crossplay\] needs the policies of all seeds .* leave out --separate-seeds"
    ):
        again(file, separate_seeds=True)


# The games and their record.


def test_every_seed_plays_with_every_seed(finished: Path) -> None:
    (played,) = games_of(finished)
    record = played.record
    assert record is not None and record.seeds == [2, 2] and record.sides == [["agent_0"], ["agent_1"]]
    assert [run["greedy"] for run in record.runs] == [True, True]
    folders = [cell.folder for cell in played.group.cells]
    expected = library.crossplay(folders, episodes=5, seed=7)
    for a, b in np.ndindex(2, 2):
        means = expected.returns[a][b].mean(2)
        np.testing.assert_allclose(record.pairs[a][b], means, rtol=1e-5)
        np.testing.assert_allclose(record.returns(1)[a][b], means[..., 1], rtol=1e-5)
    np.testing.assert_allclose(np.array(record.wins, float), expected.scores, rtol=1e-5)
    assert (record.returns(0)[0][0] == 22).all() and not (record.returns(0)[0][1] == 22).any()
    assert record.commit == read_first(finished).commit and record.hardware["product_gflops"] == 100


def read_first(file: Path) -> Record:
    cells = cells_of(file, "runs")
    return records_of_cells(records_in(file), cells)[cells[0].name]


def test_runs_act_as_their_records_did(copied: Path) -> None:
    """Neither mode is written to the run's folder, since a study evaluates by itself."""
    cells, folder = cells_of(copied, "runs"), records_in(copied)
    archive.extract(folder)
    for cell in cells:
        record = read_record(record_path(folder, cell))
        sampled = cell.algorithm == "random"
        evaluation = record.evaluation | {"greedy": not sampled, "better": True}
        write_record(record_path(folder, cell), replace(record, evaluation=evaluation))
    copied.write_text(TEXT.replace("episodes = 3\n", 'episodes = 3\ngreedy = "better"\n'), encoding="utf-8")
    assert again(copied).ok
    (played,) = games_of(copied)
    assert played.record is not None and [run["greedy"] for run in played.record.runs] == [True, False]
    page = library.results(copied).read_text(encoding="utf-8")
    assert "Actions are greedy in first; sampled in draws." in page


def test_an_environment_of_the_users_own_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study names it, so it needs no permission, even if the folders are not known to be of one's own training."""
    first, draws = TEXT.index('[[variants]]\nname = "first"'), TEXT.index('[[variants]]\nname = "draws"')
    text = TEXT[:first] + TEXT[draws:].replace('"first"', '"draws"')
    text = text.replace("matrix/climbing", "toys:coordination").replace("env.horizon = 2\n", "")
    file = write_study_file(tmp_path, text)
    assert again(file).ok
    forget_games(file)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert again(file).ok
    (played,) = games_of(file)
    assert played.record is not None and played.record.seeds == [2]
    assert played.group.name.startswith("crossplay-toys-coordination-")
    assert "Side 1's difference" not in library.results(file).read_text(encoding="utf-8")


def test_games_are_played_once(copied: Path, monkeypatch: pytest.MonkeyPatch, shoal: Callable) -> None:
    monkeypatch.setattr(running, "play_group", lambda *_: pytest.fail("played"))
    report = again(copied)
    assert report.ok and [one.word for one in report.games] == ["recorded"] and len(report.records) == 2
    name = report.games[0].group.name
    assert name.startswith("crossplay-matrix-climbing-")
    assert f"  recorded      cross-play in matrix/climbing  ({name})" in again(copied, dry_run=True).plan


def test_the_record_goes_to_the_archive_and_is_none_of_a_run(copied: Path) -> None:
    folder, (played,) = records_in(copied), games_of(copied)
    assert [path.name for path in folder.iterdir()] == [archive.ARCHIVE_FILE]
    assert len(archive.stored(folder)) == 3 and len(readable_records(folder)) == 2
    assert len(read_archive(folder / archive.ARCHIVE_FILE, "return")[0]) == 2
    assert archive.extract(folder) == 3
    path = folder / f"{played.group.name}.json"
    with pytest.raises(InputError, match="is not a record of a run: it is of the kind 'crossplay'"):
        read_record(path)
    assert opened_crossplay_record(Stored(path.stem, path)) == played.record
    assert games_of(copied)[0].record == played.record


def test_the_order_of_the_runs_does_not_matter(copied: Path) -> None:
    first, draws = TEXT.index('[[variants]]\nname = "first"'), TEXT.index('[[variants]]\nname = "draws"')
    end = TEXT.index("[evaluation]")
    (before,) = games_of(copied)
    copied.write_text(TEXT[:first] + TEXT[draws:end] + TEXT[first:draws] + TEXT[end:], encoding="utf-8")
    (after,) = games_of(copied)
    assert before.record is not None and after.record is not None
    assert after.record.pairs[1][0] == before.record.pairs[0][1] != before.record.pairs[1][0]
    assert after.record.wins[1][0] == before.record.wins[0][1]


@pytest.mark.parametrize("change", [("episodes = 5", "episodes = 6"), ("seed = 7", "greedy = false"), ("seed = 7", "")])
def test_other_games_have_another_record(change: tuple[str, str], copied: Path) -> None:
    copied.write_text(TEXT.replace(*change), encoding="utf-8")
    assert games_of(copied)[0].word == "missing"


def test_of_a_run_that_was_trained_again_the_games_are_missing(copied: Path) -> None:
    cells, folder = cells_of(copied, "runs"), records_in(copied)
    assert games_of(copied)[0].word == "recorded"
    record = read_first(copied)
    scores = [[score + 1 for score in row] for row in record.evaluation["scores"]]
    write_record(record_path(folder, cells[0]), replace(record, evaluation=record.evaluation | {"scores": scores}))
    assert games_of(copied)[0].word == "missing"
    page = library.results(copied).read_text(encoding="utf-8")
    assert "## Cross-play in matrix/climbing\n\nMissing: shoal study plays it" in page


def other_commit(cell: Cell) -> None:
    path = cell.folder / manifest.RUN_JSON
    found = json.loads(path.read_text(encoding="utf-8"))
    found["made_with"]["commit"] = "ab" * 20
    path.write_text(json.dumps(found), encoding="utf-8")


def other_run(cell: Cell) -> None:
    path = cell.folder / manifest.RUN_JSON
    found = json.loads(path.read_text(encoding="utf-8"))
    found["config"]["settings"]["seed"] = 3
    path.write_text(json.dumps(found), encoding="utf-8")


def other_curve(cell: Cell) -> None:
    path = cell.folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[-1]["return"] = [x + 1 for x in rows[-1]["return"]]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    shutil.rmtree(cell.folder / "checkpoints")


def no_policy(cell: Cell) -> None:
    shutil.rmtree(cell.folder / "policy")


def no_folder(cell: Cell) -> None:
    shutil.rmtree(cell.folder)


@pytest.mark.parametrize("spoil", [no_folder, no_policy, other_commit, other_run, other_curve])
def test_policies_that_are_not_those_of_the_record_do_not_play(
    spoil: Callable[[Cell], None], copied: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "play_group", lambda *_: pytest.fail("played"))
    folder, cell = records_in(copied), cells_of(copied, "runs")[1]
    forget_games(copied)
    held = records_of_cells(folder, cells_of(copied, "runs"))
    assert without_policies(games_of(copied)[0].group, held) == []
    spoil(cell)
    report = again(copied)
    err = capsys.readouterr().err
    assert report.ok and [one.word for one in report.games] == ["missing"]
    assert "The cross-play in matrix/climbing is not played" in err and err.count("is not played") == 1
    assert f"the record of {cell.title} is of are not in {cell.folder}. " in err
    assert f"delete its record {folder / cell.name}.json{'' if spoil is no_folder else f' and {cell.folder}'}," in err


def forget_games(file: Path) -> None:
    """Delete the record of the games."""
    folder = records_in(file)
    archive.extract(folder)
    (games,) = folder.glob("crossplay-*.json")
    games.unlink()


# Which groups are played. Nothing trains or plays.


class Fakes:
    """What is trained and played."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.played: list[str] = []
        self.error: Exception | None = None

    def run_cell(self, cell: Cell, progress: bool = True) -> Record:
        self.trained.append(cell.title)
        return made_record(cell)

    def play_group(self, group: Group, records: Mapping[str, Record]) -> CrossplayRecord:
        self.played.append(group.title)
        if self.error is not None:
            raise self.error
        return made_games(group, records)


def made_games(group: Group, records: Mapping[str, Record]) -> CrossplayRecord:
    """Games in which run a with seed i and run b with seed j earn 10 a + b + i + j, and their negative."""
    some = next(iter(records.values()))

    def pairs(a: int, b: int) -> np.ndarray:
        earned = 10.0 * a + b + np.add.outer(np.arange(2.0), np.arange(2.0))
        return np.stack([earned, -earned], -1)

    runs = range(len(group.cells))
    return CrossplayRecord(
        **about_games(group),
        runs=[about_run(cell, records[cell.name], i == 0) for i, cell in enumerate(group.cells)],
        sides=[["agent_0"], ["agent_1"]],
        pairs=[[pairs(a, b).tolist() for b in runs] for a in runs],
        metrics={"won": [[(pairs(a, b)[..., 0] / 100).tolist() for b in runs] for a in runs]},
        wins=[[0.5] * len(runs) for _ in runs],
        **{name: getattr(some, name) for name in ("versions", "commit", "changed", "platform", "hardware")},
        seconds=1.5,
    )


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    found = Fakes()
    monkeypatch.setattr(execution, "run_cell", found.run_cell)
    monkeypatch.setattr(running, "play_group", found.play_group)
    monkeypatch.setattr(running, "without_policies", lambda *_: [])
    monkeypatch.setattr(running, "check_built", lambda *_: None)
    monkeypatch.setattr(running, "check_together", lambda *_: None)
    return found


def test_a_group_waits_for_its_runs(fakes: Fakes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = write_study_file(tmp_path, TWO)
    again(file, only={"environment": "matrix/climbing", "variant": "first"})
    assert len(fakes.trained) == 1 and fakes.played == []
    plan = again(file, dry_run=True).plan
    assert "  waits for 1 run  cross-play in matrix/climbing" in plan
    assert "  waits for 2 runs  cross-play in matrix/penalty" in plan
    report = library.study(file, out=file.parent / "runs", only={"environment": "matrix/climbing"})
    assert fakes.played == ["matrix/climbing"] and report.ok and len(fakes.trained) == 2
    assert "cross-play in matrix/climbing: 2 runs, 2 seeds\n" in capsys.readouterr().err
    again(file, only={"environment": "matrix/penalty"})
    again(file)
    assert fakes.played == ["matrix/climbing", "matrix/penalty"]


def test_games_that_fail_are_reported_as_runs_are(fakes: Fakes, tmp_path: Path, shoal: Callable) -> None:
    file = write_study_file(tmp_path, TWO)
    fakes.error = InputError("The disk\nis full.")
    code, out, err = shoal("study", file)
    assert code == 1 and "Failed: cross-play in matrix/climbing: The disk is full." in err
    assert out.splitlines()[:2] == [
        "demo: 4 of 4 runs recorded",
        "failed: cross-play in matrix/climbing: The disk is full.",
    ]
    fakes.error = None
    assert shoal("study", file)[0] == 0 and len(fakes.trained) == 4
    assert len(archive.archived(records_in(file) / archive.ARCHIVE_FILE)) == 6


def test_runs_with_other_seeds_do_not_play(fakes: Fakes, tmp_path: Path) -> None:
    file = write_study_file(tmp_path, TWO)
    report = again(file, again=100)
    assert len(fakes.trained) == 4 and fakes.played == [] and report.games == ()


def test_options_of_an_environment_make_groups(tmp_path: Path) -> None:
    text = TEXT.replace("env.horizon = 2\n", "").replace(
        "[[variants]]", '[grid]\n"env.horizon" = [2, 25]\n[[variants]]', 1
    )
    file = write_study_file(tmp_path, text)
    groups = groups_of(read_study(file), cells_of(file))
    assert [group.title for group in groups] == ["matrix/climbing, horizon 2", "matrix/climbing, default options"]
    assert [len(group.cells) for group in groups] == [2, 2] and len({group.name for group in groups}) == 2
    assert [group.baseline for group in groups] == [0, 0]


# The page.


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Played, dict[str, Record]]:
    """A study whose records and games were made by hand."""
    file = write_study_file(tmp_path, TEXT)
    cells = cells_of(file, "runs")
    records = {cell.name: made_record(cell) for cell in cells}
    (group,) = groups_of(read_study(file), cells)
    for cell in cells:
        write_record(record_path(records_in(file), cell), records[cell.name])
    write_crossplay_record(records_in(file), group, made_games(group, records))
    return file, games_of(file)[0], records


def test_tables_have_both_sides_metrics_and_differences(made: tuple[Path, Played, dict[str, Record]]) -> None:
    _, played, _ = made
    said = [block for block in crossplay_section(played).blocks if isinstance(block, str)]
    returns, losses, won, less, side_2 = [
        block for block in crossplay_section(played).blocks if not isinstance(block, str)
    ]
    assert said[:3] == [
        "Return of side 1, mean over its agents (agent_0):",
        "Return of side 2, mean over its agents (agent_1):",
        "Win rate, in per cent, mean over episodes:",
    ]
    corner = "side 1 \\ side 2"
    assert [row[corner] for row in returns] == ["first", "draws"]
    assert [row["first"] for row in returns] == ["1.0 [0.0, 2.0]", "11.0 [10.0, 12.0]"]
    assert [row["draws"] for row in returns] == ["2.0 [1.0, 3.0]", "12.0 [11.0, 13.0]"]
    assert [row["trained together"] for row in returns] == ["1.0 [0.0, 2.0]", "12.0 [11.0, 13.0]"]
    assert [row["draws"] for row in losses] == ["−2.0 [−3.0, −1.0]", "−12.0 [−13.0, −11.0]"]
    assert won[1]["first"] == "11.0 [10.0, 12.0]"
    assert [row[corner] for row in less] == ["draws"] and list(side_2[0]) == [corner, "draws"]
    assert less[0]["first"].startswith("10.0 [") and less[0]["draws"].startswith("10.0 [")
    assert all(row["draws"].startswith("−1.0 [") for row in side_2)
    (note,) = [block for block in said if block.startswith("Rows play")]
    assert (
        "2 seeds, 5 episodes for each pair" in note
        and "too narrow for so few seeds" in note
        and "Actions are greedy in first; sampled in draws." in note
    )


def test_pages_show_the_games(made: tuple[Path, Played, dict[str, Record]]) -> None:
    file, played, records = made
    page = library.results(file).read_text(encoding="utf-8")
    assert "\n## Cross-play in matrix/climbing\n" in page and "Side 1's difference from variant first" in page
    assert "- Cross-play: commit `abababababab`; A processor, 2 cores" in page
    assert "Missing" not in page
    html = study_page(read_study(file), played.group.cells, records, None, games=[played])
    section = next(one for one in html.sections if one.title == "Cross-play in matrix/climbing")
    assert "11.0 [10.0, 12.0]" in section.body and len({one.name for one in html.sections}) == len(html.sections)
    assert "Cross-play in matrix/climbing" in library.report(file, replays=False).read_text(encoding="utf-8")


def test_values_of_stale_runs_are_marked(made: tuple[Path, Played, dict[str, Record]]) -> None:
    file, played, records = made
    cells = played.group.cells
    old = records | {cells[1].name: replace(records[cells[1].name], behaviour={"environment": 0})}
    now = {cells[0].name: replace(records[cells[0].name], behaviour={})}
    section = contents_of(read_study(file), cells, old | now, games=[played]).tables[-1]
    returns, *_, less, side_2 = [block for block in section.blocks if not isinstance(block, str)]
    assert [row["first"][-1] for row in returns] == ["]", "†"] and [row["draws"][-1] for row in returns] == ["†", "†"]
    assert [row["trained together"][-1] for row in returns] == ["]", "†"]
    assert less[0]["first"][-1] == "†" and side_2[0]["draws"][-1] == "†"


def test_a_single_pair_has_a_mean_alone(made: tuple[Path, Played, dict[str, Record]]) -> None:
    _, played, _ = made
    assert played.record is not None
    one = replace(played.record, pairs=[[[each[0][:1]] for each in row] for row in played.record.pairs], metrics={})
    returns, *_, less, _ = [
        block for block in crossplay_section(played._replace(record=one)).blocks if not isinstance(block, str)
    ]
    assert returns[1] == {"side 1 \\ side 2": "draws", "first": "10", "draws": "11"} and less[0]["first"] == "10"


# Damaged records.


DAMAGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another kind": (lambda r: r.update(kind="tuning"), "it is of the kind 'tuning'."),
    "no kind": (lambda r: r.pop("kind"), "it names no kind."),
    "a newer format": (lambda r: r.update(format=2), "its format 2 is of a newer version of Shoal; this one reads 1."),
    "a missing key": (lambda r: r.pop("wins"), "'record' lacks 'wins'."),
    "an unknown key": (lambda r: r.update(more=1), "There is no key in 'record' named 'more'"),
    "a commit": (lambda r: r.update(commit="$(rm)"), "commit cannot be '$(rm)'."),
    "no runs": (lambda r: r.update(runs=[]), "it has no runs."),
    "a run": (lambda r: r["runs"][0].update(greedy=1), "a run's greedy cannot be 1."),
    "a result": (lambda r: r["runs"][0].update(result="x"), "a run's result cannot be 'x'."),
    "a name that moves the cursor": (lambda r: r["runs"][0].update(name="\x1b[2J"), "a run's name cannot be"),
    "one side": (lambda r: r.update(sides=[["a"]]), "sides must hold two lists of agents."),
    "no episodes": (lambda r: r["protocol"].update(episodes=0), "protocol.episodes cannot be 0."),
    "a missing pair of runs": (lambda r: r["pairs"].pop(), "pairs must hold 2 lists of 2 entries."),
    "a missing seed": (lambda r: r["pairs"][0][1].pop(), "pairs must hold 2 lists of 2 pairs of seeds."),
    "a missing side": (lambda r: r["pairs"][0][1][0][0].pop(), "pairs must hold the returns of two sides"),
    "text for a number": (lambda r: r["pairs"][0][1][0].__setitem__(0, ["1", 2]), "pairs must be a number, not '1'."),
    "an infinite number": (lambda r: r["pairs"][0][1][0].__setitem__(0, [1e300, 2]), "pairs must be a number"),
    "a metric of fewer seeds": (lambda r: r["metrics"]["won"][1][0].pop(), "metrics.won must hold 2 lists of 2 pairs"),
    "a metric that is text": (lambda r: r["metrics"].update(won="x"), "metrics.won cannot be 'x'."),
    "a share of wins": (lambda r: r["wins"][0].pop(), "wins must hold 2 lists of 2 entries."),
    "seconds": (lambda r: r.update(seconds="1"), "seconds cannot be '1'."),
}


@pytest.mark.parametrize(("damage", "sentence"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_records_are_refused(
    damage: Callable, sentence: str, made: tuple[Path, Played, dict[str, Record]]
) -> None:
    file, played, _ = made
    path = records_in(file) / f"{played.group.name}.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    damage(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        library.results(file)
    assert str(caught.value).startswith(f"{path} is not a record of cross-play: ") and sentence in str(caught.value)


# The interval of a difference.


Runs = tuple[tuple[str, str], tuple[str, str]]
CASES: dict[str, Runs] = {
    "one column": (("a", "b"), ("c", "b")),
    "one row": (("a", "b"), ("a", "c")),
    "the row against itself": (("a", "a"), ("c", "a")),
    "against the other's own": (("a", "c"), ("c", "c")),
    "four runs": (("a", "b"), ("c", "d")),
}


def entries(runs: Runs, seeds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two entries in which the effects of a seed on side 1 and on side 2 are alike, and are larger than the noise."""
    strength = {name: rng.normal(size=seeds) for name in "abcd"}
    first = {name: x + 0.3 * rng.normal(size=seeds) for name, x in strength.items()}
    second = [{name: x + 0.3 * rng.normal(size=seeds) for name, x in strength.items()} for _ in range(2)]
    one, other = (
        np.add.outer(first[row], second[i][column]) + 0.5 * rng.normal(size=(seeds, seeds))
        for i, (row, column) in enumerate(runs)
    )
    return one, other


@pytest.mark.parametrize("runs", CASES.values(), ids=CASES)
def test_intervals_of_differences_hold_them_as_often_as_they_say(runs: Runs) -> None:
    rng, tries = np.random.default_rng(0), 200
    found = [pairs_difference(*entries(runs, 6, rng), runs=runs) for _ in range(tries)]
    assert 0.9 < np.mean([low <= 0 <= high for _, low, high in found]) < 0.99


@pytest.mark.parametrize("runs", CASES.values(), ids=CASES)
def test_intervals_of_differences_are_those_of_a_bootstrap_of_the_seeds(runs: Runs) -> None:
    """A resample draws the seeds of each run once, wherever it plays."""
    rng, seeds = np.random.default_rng(1), 40
    one, other = entries(runs, seeds, rng)
    means = []
    for _ in range(2000):
        drawn = {name: rng.integers(seeds, size=seeds) for name in "abcd"}
        (a, b), (c, d) = runs
        means.append(one[np.ix_(drawn[a], drawn[b])].mean() - other[np.ix_(drawn[c], drawn[d])].mean())
    value, low, high = pairs_difference(one, other, runs)
    assert value == pytest.approx(one.mean() - other.mean())
    lowest, highest = np.quantile(means, [0.025, 0.975])
    assert (high - low) == pytest.approx(highest - lowest, rel=0.12)
    assert abs((low + high) / 2 - (lowest + highest) / 2) < 0.1 * (high - low)


def test_a_difference_of_one_seed_or_of_unknown_pairs_has_no_interval() -> None:
    many, runs = np.arange(6.0).reshape(2, 3), (("a", "b"), ("c", "b"))
    assert pairs_difference(many, many, (runs[0], runs[0])) == (0, 0, 0)
    for one, other in ((many[:1], many), (many, many[:, :1]), (np.where(many == 5, np.nan, many), many)):
        value, low, high = pairs_difference(one, other, runs)
        assert np.isfinite(value) and np.isnan([low, high]).all()
