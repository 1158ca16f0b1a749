"""What becomes of runs whose process, node or driver fails; Ray is a script, and nothing trains."""

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.errors import FolderTakenError, GameError, InputError, NonFiniteError
from shoal.studies import execution, ray_runs, running
from shoal.studies.plan import Cell
from shoal.studies.ray_runs import Outcome, Place
from support.small_studies import GRID, cells_of, made_record, write_study_file

ray = pytest.importorskip("ray")
errors = ray.exceptions
TITLES = ("mappo in matrix/climbing, gamma 0.9", "mappo in matrix/climbing, gamma 0.99")


class Scripted:
    """A library in place of Ray. The answers of each task are items, exceptions, and functions that are called."""

    exceptions = errors

    def __init__(self, answers: dict[str, list[list[Any]]]):
        self.answers, self.cancelled, self.alive = answers, [], True
        self.options: dict[str, Any] = {}

    def remote(self, **options: Any) -> Any:
        self.options = options
        return lambda function: SimpleNamespace(remote=self.start)

    def start(self, cell: Cell, place: Place) -> "Answers":
        assert cell.folder.is_absolute()
        left = self.answers[cell.title].pop(0)
        return Answers(cell, [Outcome(record=made_record(cell)) if one == "record" else one for one in left])

    def put(self, value: Any) -> Any:
        return value

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": self.alive, "Resources": {"CPU": 2.0}}]

    def wait(self, tasks: list, num_returns: int, timeout: float) -> tuple[list, list]:
        ready = [task for task in tasks if task.left]
        return ready[:1], []

    def get(self, answer: Any, timeout: float) -> Any:
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, task: Any, force: bool) -> None:
        self.cancelled.append((task.cell.title, force))
        task.left = [errors.TaskCancelledError()]


class Answers:
    """The generator of a task."""

    def __init__(self, cell: Cell, left: list[Any]):
        self.cell, self.left = cell, left

    def __next__(self) -> Any:
        return self.left.pop(0)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Scripted]]:
    """(answers of each attempt, by title) -> the report and the library."""
    monkeypatch.setattr(running, "check_built", lambda *_: None)
    monkeypatch.setattr("shoal.system.files.sync", lambda _: None)
    monkeypatch.chdir(tmp_path)

    def call(**answers: list[list[Any]]) -> tuple[Any, Scripted]:
        script = Scripted({TITLES[int(name[-1])]: attempts for name, attempts in answers.items()})

        @contextmanager
        def joined(cluster: Any) -> Iterator[Any]:
            yield script

        monkeypatch.setattr(ray_runs, "joined_cluster", joined)
        file = write_study_file(tmp_path, GRID)
        only = {"algorithm": "mappo", "environment": "matrix/climbing"}
        return running.study(file, only=only, workers="ray"), script

    return call


def test_every_run_on_ray_is_recorded(study: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    report, script = study(run0=[["here", "record"]], run1=[["there", "record"]])
    assert report.ok and len(report.records) == 2 and len(list(Path("records/demo").iterdir())) == 2
    assert script.options["num_cpus"] == 2 and script.options["max_retries"] == 0 and script.options["max_calls"] == 1
    assert capsys.readouterr().err.splitlines() == [
        "2 runs on Ray, each with 2 CPUs.",
        f"Started: {TITLES[0]}, on here",
        f"Finished: {TITLES[0]}, 1 of 2; 0 active, 1 waiting",
        f"Started: {TITLES[1]}, on there",
        f"Finished: {TITLES[1]}, 2 of 2; 0 active, 0 waiting",
    ]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (errors.NodeDiedError("gone"), "its node was lost"),
        (errors.OutOfMemoryError("full"), "its node ran out of memory"),
        (errors.WorkerCrashedError(), "its process died"),
        (errors.GetTimeoutError("late"), "its node was lost"),
        (Outcome(), "its process was stopped by a signal"),
        (StopIteration(), "its process died"),
    ],
)
def test_a_lost_run_is_started_again_three_times(
    loss: Any, said: str, study: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    report, _ = study(run0=[["here", loss]] * 3 + [["there", "record"]], run1=[["here", loss]] * 4)
    assert [cell.title for cell, _ in report.failed] == [TITLES[1]] and len(report.records) == 1
    assert report.failed[0][1] == f"{said}; it was started 4 times."
    lines = capsys.readouterr().err.splitlines()
    for times in (1, 2, 3):
        assert f"Lost: {TITLES[0]}: {said}; it is restarted ({times} of 3 times)." in lines


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NonFiniteError("loss of seed 0 is nan."), "loss of seed 0 is nan."),
        (InputError("The disk\nis full."), "The disk is full."),
        (FolderTakenError("Another process is training in 'x'."), "Another process is training in 'x'."),
        (GameError("The game raised", None, "in reset", "its trace"), "The game raised in reset."),
        (MemoryError(), "There is not enough memory; reduce seeds"),
        (RuntimeError("RESOURCE_EXHAUSTED: out"), "There is not enough memory; reduce seeds"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Exception) else "",
)
def test_an_error_arrives_as_it_was_raised(
    error: Exception, said: str, study: Callable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the task itself, and pickled."""

    def run_cell(cell: Cell, progress: bool) -> Any:
        raise error

    monkeypatch.setattr(execution, "run_cell", run_cell)
    monkeypatch.setattr(ray_runs, "_prepare", lambda *_: None)
    monkeypatch.setattr(ray_runs, "PATIENCE", 0.0)
    cell = cells_of(write_study_file(Path("there")))[0]
    _, outcome = ray_runs.run_on_cluster(cell, Place("", [], ".", 0))
    report, _ = study(run0=[["here", pickle.loads(pickle.dumps(outcome))]], run1=[["here", "record"]])
    assert [cell.title for cell, _ in report.failed] == [TITLES[0]] and report.failed[0][1].startswith(said)
    err = capsys.readouterr().err
    assert ("Traceback" in err) == isinstance(error, KeyError) and ("in run_cell" in err) == isinstance(error, KeyError)
    assert ("its trace" in err) == isinstance(error, GameError)


def test_an_error_that_no_other_process_knows() -> None:
    class OddError(Exception):
        def __init__(self, one: int, other: int):
            super().__init__(f"{one} and {other}")

    copy = pickle.loads(pickle.dumps(ray_runs.portable(OddError(1, 2))))
    assert type(copy) is RuntimeError and str(copy) == "OddError: 1 and 2"


def test_a_task_that_cannot_begin_fails_at_once(study: Callable) -> None:
    error = errors.RuntimeEnvSetupError("no agent")
    report, _ = study(run0=[[error]], run1=[["here", "record"]])
    assert report.failed[0][1] == "RuntimeEnvSetupError: Failed to set up runtime environment. no agent"


def test_a_run_waits_until_its_folder_is_unlocked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cell, calls = cells_of(write_study_file(tmp_path))[0], []

    def run_cell(cell: Cell, progress: bool) -> Any:
        calls.append(progress)
        if len(calls) < 3:
            raise FolderTakenError("Another process trains.")
        return made_record(cell)

    monkeypatch.setattr(execution, "run_cell", run_cell)
    monkeypatch.setattr(ray_runs, "_prepare", lambda *_: None)
    monkeypatch.setattr(ray_runs.time, "sleep", lambda _: None)
    outcome = list(ray_runs.run_on_cluster(cell, Place("", [], ".", 0)))[1]
    assert isinstance(outcome, Outcome) and outcome.record == made_record(cell) and calls == [False] * 3


def test_another_version_is_refused(tmp_path: Path) -> None:
    outcome = list(ray_runs.run_on_cluster(cells_of(write_study_file(tmp_path))[0], Place("0.0.0", [], ".", 0)))[1]
    assert isinstance(outcome, Outcome) and "but the study was started with 0.0.0." in str(outcome.error)


def test_without_a_node_the_runs_are_given_up(study: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runs, "STRANDED", -1.0)
    nodes = Scripted.nodes
    asked: list[int] = []

    def fewer(self: Scripted) -> list[dict[str, Any]]:
        asked.append(1)
        return nodes(self) if len(asked) == 1 else []

    monkeypatch.setattr(Scripted, "nodes", fewer)
    report, _ = study(run0=[[]], run1=[["here", "record"]])
    assert len(report.records) == 1 and report.failed[0][1] == "no node of the cluster has 2 CPUs any more."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_all_and_keeps_what_arrives(
    number: int, study: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> str:
        os.kill(os.getpid(), number)
        return "here"

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match="Stopped with 0 of 2 runs recorded; the same command continues"):
        study(run0=[[stop]], run1=[[]])
    assert signal.getsignal(number) == before
    assert "Stopping; active runs are saved." in capsys.readouterr().err


def test_ctrl_c_prints_the_command_that_continues(
    shoal: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def outcomes(*_: Any) -> Iterator:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(running, "check_built", lambda *_: None)
    monkeypatch.setattr(ray_runs, "outcomes", outcomes)
    file = write_study_file(tmp_path)
    words = ["--workers", "ray", "--address", "head:6379", "--cpus-per-run", "2", "--gpus-per-run", "0.5"]
    code, _, err = shoal("study", file, *words)
    assert code == 130 and err.splitlines()[-1] == f"shoal study {file} {' '.join(words)}"
