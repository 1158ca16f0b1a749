"""Which runs of a study are started, and what happens if one fails or is stopped. Nothing trains."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import shoal
from shoal.errors import GameError, InputError, NonFiniteError
from shoal.runs import behaviour
from shoal.storage import manifest
from shoal.studies import execution, running
from shoal.studies.archive import extract
from shoal.studies.plan import Cell
from shoal.studies.record import Record, read_record, write_record
from shoal.studies.state import estimate_seconds, record_path, state_of
from support.small_studies import GRID, cells_of, made_record, write_study_file

FEW = GRID + "[evaluation]\nepisodes = 2\n"
HARDWARE = {
    "processor": "A processor",
    "cores": 2,
    "memory_gib": 8.0,
    "devices": [{"platform": "cpu", "kind": "cpu", "count": 2}],
}


class Runs:
    """What is run, in place of training."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.errors: dict[str, BaseException] = {}

    def __call__(self, cell: Cell, progress: bool = True) -> Record:
        self.started.append(cell.title)
        if cell.title in self.errors:
            raise self.errors[cell.title]
        return replace(
            made_record(cell), behaviour={"algorithm": behaviour.ALGORITHMS[cell.algorithm], "environment": 1}
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    found = Runs()
    monkeypatch.setattr(execution, "run_cell", found)
    monkeypatch.setattr(running, "check_built", lambda *_: None)
    monkeypatch.setattr(manifest, "describe_machine", lambda: {"hardware": HARDWARE})
    monkeypatch.setattr("shoal.system.files.sync", lambda _: None)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_study_file(tmp_path / "studies", FEW)


TITLES = [
    f"{algorithm} in matrix/{game}, gamma {gamma}"
    for algorithm in ("mappo", "qmix")
    for game in ("climbing", "two_step")
    for gamma in (0.9, 0.99)
]


def test_only_missing_runs_are_run(runs: Runs, file: Path, capsys: pytest.CaptureFixture) -> None:
    report = shoal.study(file)
    assert runs.started == TITLES and report.ok and len(report.records) == 8
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 8 · mappo in matrix/climbing, gamma 0.9 · time unknown"
    assert lines[1] == f"2 of 8 · {TITLES[1]} · about 1 min 15 s, and an unknown time for 2 of 7 runs"
    folder = file.parent / "records" / "demo"
    assert extract(folder) == 8
    paths = sorted(folder.iterdir())
    assert len(paths) == 8 and [path.suffix for path in paths] == [".json"] * 8
    paths[-1].unlink()
    runs.started.clear()
    report = shoal.study(file)
    assert runs.started == [TITLES[-1]] and str(report) == "demo: 8 of 8 runs recorded"
    assert capsys.readouterr().err.splitlines() == [f"8 of 8 · {TITLES[-1]} · about 15.0 s"]


def test_only_selects_runs(runs: Runs, shoal: Callable, file: Path) -> None:
    code, out, _ = shoal("study", file, "--only", "algorithm=qmix", "gamma=0.9")
    assert code == 0 and runs.started == [TITLES[4], TITLES[6]]
    assert out.splitlines()[0] == "demo: 2 of 2 runs recorded" and out.splitlines()[1].endswith("results/demo.md")
    code, _, err = shoal("study", file, "--only", "algorithm")
    assert (code, err) == (
        2,
        "shoal: --only takes the value of an axis, for example algorithm=mappo, not 'algorithm'.\n",
    )
    code, _, err = shoal("study", file, "--only", "gamma=0.8")
    assert code == 2 and err == f"shoal: {file}: --only gamma cannot be 0.8; the runs have 0.9, 0.99.\n"


def test_what_another_process_has_recorded_meanwhile_is_not_run(
    runs: Runs, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of(file)

    def run(cell: Cell, progress: bool = True) -> Record:
        if not runs.started:
            write_record(file.parent / "records" / "demo" / f"{cells[1].name}.json", made_record(cells[1]))
        return runs(cell, progress)

    monkeypatch.setattr(execution, "run_cell", run)
    report = shoal.study(file, progress=False)
    assert runs.started == [one.title for i, one in enumerate(cells) if i != 1] and len(report.records) == len(cells)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NonFiniteError("loss of seed 0 is nan."), "loss of seed 0 is nan."),
        (InputError("The disk\nis full."), "The disk is full."),
        (GameError("The game raised", None, "in reset", "its trace"), "The game raised in reset."),
        (MemoryError(), "There is not enough memory; reduce seeds"),
        (RuntimeError("RESOURCE_EXHAUSTED: out"), "There is not enough memory; reduce seeds"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Exception) else "",
)
def test_a_run_that_fails_does_not_stop_the_others(
    error: Exception, said: str, runs: Runs, file: Path, shoal: Callable
) -> None:
    runs.errors[TITLES[1]] = error
    code, out, err = shoal("study", file)
    assert code == 1 and runs.started == TITLES
    assert out.splitlines()[:2][0] == "demo: 7 of 8 runs recorded"
    assert out.splitlines()[1].startswith(f"failed: {TITLES[1]}: {said}")
    assert f"Failed: {TITLES[1]}: {said}" in err and ("Traceback" in err) == isinstance(error, KeyError)
    assert "**1 of 8 runs are missing.**" in (file.parent / "results" / "demo.md").read_text()
    runs.errors.clear()
    assert shoal("study", file)[0] == 0 and runs.started[8:] == [TITLES[1]]


def test_ctrl_c_prints_the_command_that_continues(runs: Runs, file: Path, shoal: Callable) -> None:
    runs.errors[TITLES[2]] = KeyboardInterrupt()
    code, out, err = shoal("study", file, "--only", "algorithm=mappo", "--out", "some runs")
    assert (code, out) == (130, "") and runs.started == TITLES[:3]
    assert err.splitlines()[-2:] == [
        "Stopped with 2 of 4 runs recorded; the same command continues. Continue with",
        f"shoal study {file} --only algorithm=mappo --out 'some runs'",
    ]


def test_a_dry_run_runs_nothing(runs: Runs, file: Path, shoal: Callable) -> None:
    code, out, _ = shoal("study", file, "--dry-run")
    assert code == 0 and runs.started == [] and not (file.parent / "records").exists()
    assert out.splitlines()[0] == "demo: 8 runs, 0 recorded, 8 to run"
    assert out.splitlines()[-1] == (
        "The time is unknown, since this machine has no record of these algorithms or environments."
    )
    cell = cells_of(file)[0]
    write_record(record_path(file.parent / "records" / "demo", cell), made_record(cell))
    _, out, _ = shoal("study", file, "--dry-run")
    lines = out.splitlines()
    assert lines[1] == f"  recorded      {TITLES[0]}  ({cell.name})"
    assert lines[2].startswith(f"  missing       {TITLES[1]}") and lines[2].endswith("about 15.0 s")
    assert lines[-1] == (
        "Estimated from records of this machine: about 1 min 15 s, and an unknown time for 2 of 7 runs."
    )


def test_estimates_are_of_records_of_like_options_at_the_usual_speed(file: Path) -> None:
    cell = cells_of(file)[0]
    fast = made_record(cell)  # 10 s of training and 5 s for the rest, at 100 GFLOP/s
    busy = made_record(
        cell, seconds={"training": 100.0, "other": 50.0}, hardware=fast.hardware | {"product_gflops": 10.0}
    )
    wide = made_record(cell, seconds={"training": 1000.0, "other": 0.0})
    wide.run["config"] |= {"hidden": [512, 512]}
    other_rate = made_record(cell)
    other_rate.run["config"] |= {"learning_rate": 0.5, "gamma": 0.5, "clip": 0.5}
    for records, seconds in (
        ([fast, wide], 15.0),
        ([other_rate, wide], 15.0),
        ([fast, busy, fast], 15.0),
        ([busy, wide, wide], 15.0),  # the machine was ten times slower than usual
        ([wide], 1000.0),
    ):
        assert estimate_seconds(state_of(cell, None), records) == pytest.approx(seconds)


def test_the_longer_of_two_estimates_counts_if_no_record_has_both(file: Path) -> None:
    cell = cells_of(file)[0]

    def record(algorithm: str, environment: str, seconds: float) -> Record:
        found = made_record(cell, seconds={"training": seconds, "other": 5.0})
        found.run.update(algorithm=algorithm, environment=environment)
        return found

    cheap, dear = record(cell.algorithm, "mpe/spread", 10.0), record("vdn", cell.environment, 1000.0)
    assert estimate_seconds(state_of(cell, None), [cheap, dear]) == pytest.approx(1005.0), (
        "the environment's steps are slow"
    )
    cheap, dear = record("vdn", cell.environment, 10.0), record(cell.algorithm, "mpe/spread", 1000.0)
    assert estimate_seconds(state_of(cell, None), [cheap, dear]) == pytest.approx(1005.0), (
        "the algorithm's updates are slow"
    )
    assert estimate_seconds(state_of(cell, None), [record("vdn", "mpe/spread", 1.0)]) is None


def test_records_of_another_machine_are_not_used_for_estimates(
    runs: Runs, file: Path, monkeypatch: pytest.MonkeyPatch, shoal: Callable
) -> None:
    cell = cells_of(file)[0]
    write_record(record_path(file.parent / "records" / "demo", cell), made_record(cell))
    monkeypatch.setattr(manifest, "describe_machine", lambda: {"hardware": HARDWARE | {"cores": 64}})
    assert "The time is unknown" in shoal("study", file, "--dry-run")[1]


def test_a_record_of_another_evaluation_is_not_used(runs: Runs, file: Path, capsys: pytest.CaptureFixture) -> None:
    shoal.study(file, progress=False)
    write_study_file(file.parent, FEW.replace("episodes = 2", "episodes = 3"))
    runs.started.clear()
    shoal.study(file, progress=False)
    assert runs.started == TITLES
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 8 and err[0].endswith("is not used: episodes of its evaluation is 2, but 3 in the study.")


def test_a_record_of_another_configuration_is_not_used(runs: Runs, file: Path, capsys: pytest.CaptureFixture) -> None:
    """As where a default has changed since."""
    cell = cells_of(file)[0]
    record = made_record(cell)
    record.run["config"]["lam"] = 0.5
    write_record(record_path(file.parent / "records" / "demo", cell), record)
    shoal.study(file, progress=False)
    assert runs.started == TITLES
    assert (
        "is not used, since it belongs to another run: lam is 0.5 there and 0.95 in the study."
        in capsys.readouterr().err
    )


def test_a_damaged_record_stops_before_anything_runs(runs: Runs, file: Path) -> None:
    cell = cells_of(file)[0]
    path = record_path(file.parent / "records" / "demo", cell)
    path.parent.mkdir(parents=True)
    path.write_text("<<<<<<< ours")
    for call in (shoal.study, shoal.results):
        with pytest.raises(InputError, match=r"The record .* cannot be read as JSON."):
            call(file)
    assert runs.started == []


def test_records_may_be_elsewhere(runs: Runs, file: Path, tmp_path: Path, shoal: Callable) -> None:
    code, out, _ = shoal("study", file, "--records", tmp_path / "kept" / "records", "--only", "gamma=0.9")
    assert code == 0 and len(list((tmp_path / "kept" / "records" / "demo").iterdir())) == 4
    assert out.splitlines()[1] == f"results: {tmp_path / 'kept' / 'results' / 'demo.md'}"
    assert not (file.parent / "records").exists()


def test_results_of_all_studies(runs: Runs, file: Path, shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import shoal as library

    library.study(file, progress=False)
    code, out, _ = shoal("results", file)
    page = file.parent / "results" / "demo.md"
    assert (code, out) == (0, f"{page}\n") and "| missing" not in page.read_text()
    before = page.read_bytes()
    assert shoal("results", file)[0] == 0 and page.read_bytes() == before
    monkeypatch.setattr("shoal.studies.study_file.shipped", lambda: {"demo": file})
    assert shoal("results")[1] == f"{page}\n"


def test_records_are_gathered_when_every_run_is_recorded(runs: Runs, file: Path, shoal: Callable) -> None:
    folder = file.parent / "records" / "demo"
    shoal("study", file, "--only", "gamma=0.9")
    assert len(list(folder.glob("*.json"))) == len(list(folder.iterdir())) == 4
    shoal("study", file)
    assert [path.name for path in folder.iterdir()] == ["records.jsonl.xz"]
    runs.started.clear()
    assert shoal("study", file)[0] == 0 and runs.started == []


def test_records_are_read_back_as_they_were_returned(runs: Runs, file: Path) -> None:
    report = shoal.study(file, only={"gamma": 0.9, "algorithm": ["mappo"]}, progress=False)
    for name, record in report.records.items():
        assert read_record(file.parent / "records" / "demo" / f"{name}.json") == record


def test_a_damaged_record_of_another_run_does_not_fail_those_that_were_selected(runs: Runs, file: Path) -> None:
    damaged = record_path(file.parent / "records" / "demo", cells_of(file)[0])
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{", encoding="utf-8")
    report = shoal.study(file, only={"algorithm": "qmix"}, progress=False)
    assert report.ok and len(report.records) == 4 and len(list(damaged.parent.glob("*.json"))) == 5


def test_stale_runs_are_trained_again_in_place(
    runs: Runs, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    first = shoal.study(file)
    records, cell = first.records, first.cells[4]
    cell.folder.mkdir(parents=True)
    (cell.folder / "policy").touch()
    runs.started.clear()
    monkeypatch.setitem(behaviour.ALGORITHMS, "qmix", 2)
    assert shoal.study(file).ok and runs.started == []
    words = [state.word for state in shoal.study(file, renew=True, dry_run=True).states]
    assert words == ["recorded"] * 4 + ["stale"] * 4 and cell.folder.exists()

    runs.errors = {TITLES[5]: KeyboardInterrupt()}
    capsys.readouterr()
    with pytest.raises(KeyboardInterrupt):
        shoal.study(file, renew=True)
    former = file.parent / "records" / "demo" / "former"
    assert capsys.readouterr().err.splitlines()[0] == (
        f"4 stale runs are trained again; the former records are in {former}, former run folders end in .former."
    )
    assert runs.started == TITLES[4:6] and not cell.folder.exists()
    assert (cell.folder.with_name(f"{cell.name}.former") / "policy").exists()
    held = {path.stem: read_record(path) for path in former.iterdir()}
    assert held == {name: records[name] for name in list(records)[4:]}, "the records are kept as they were"
    page = shoal.results(file).read_text(encoding="utf-8")
    assert "3 of 8 runs, the first of them qmix in matrix/climbing, gamma 0.99, are stale" in page
    assert "missing |" not in page

    runs.errors.clear()
    assert len(shoal.study(file).records) == 8 and runs.started == [*TITLES[4:6], *TITLES[5:]]
    assert "stale" not in shoal.results(file).read_text(encoding="utf-8")
    runs.started.clear()
    assert shoal.study(file, renew=True).ok and runs.started == [], "nothing is stale any more"
    monkeypatch.setitem(behaviour.ALGORITHMS, "qmix", 3)
    assert shoal.study(file, renew=True, only={"environment": "matrix/climbing"}).ok and runs.started == TITLES[4:6]
    assert len([*former.iterdir()]) == 6 and {record.behaviour["algorithm"] for record in held.values()} == {1}


def test_a_study_is_renewed_or_measured_again(runs: Runs, file: Path) -> None:
    with pytest.raises(InputError, match="--renew trains stale runs again in place, --again all runs with other seeds"):
        shoal.study(file, renew=True, again=100)
    assert runs.started == []


def test_the_same_run_with_other_axes_is_renewed_once(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tuned run is whose search found the values without tuning."""
    text = '[[variants]]\nname = "a"\n[[variants]]\nname = "b"\ntuned = true\n[tuning]\ntrials = 9\nsteps = 64\n'
    file = write_study_file(tmp_path / "studies", FEW + text + "[tuning.ranges]\ngamma = { low = 0.5, high = 0.99 }\n")
    monkeypatch.setattr(running, "winner", lambda *_: lambda one: {})
    assert len(shoal.study(file).records) == 16 and len(runs.started) == 8
    runs.started.clear()
    monkeypatch.setitem(behaviour.ALGORITHMS, "qmix", 2)
    assert len(shoal.study(file, renew=True).records) == 16 and len(runs.started) == 4
    assert len([*(file.parent / "records" / "demo" / "former").iterdir()]) == 4
