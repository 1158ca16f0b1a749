"""What worker processes leave behind: nothing, whatever their games have started and however they end."""

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import counters
import shoal
from shoal.errors import GameError, InputError
from shoal.rollouts.pool import CLOSING, Pool, cores
from shoal.rollouts.worker import Worker
from support import processes


def play(pool: Pool, steps: int) -> None:
    pool.board.seed[:] = 81  # counters at 1 and 5, which never agree
    for t in range(steps + 1):
        for group in range(len(pool.rows)):
            pool.step(group) if t else pool.reset(group)
        for group in range(len(pool.rows)):
            pool.wait(group)


def test_processes_of_a_game_end_with_its_worker(tmp_path: Path) -> None:
    """With one that hangs and is started again, and with all in the end."""
    before, said = processes.descendants(os.getpid()), []
    with closing(Pool(counters.hosted(False, "program", str(tmp_path)), 1, 2, 2, 0.5, said.append)) as pool:
        first = processes.descendants(os.getpid()) - before
        play(pool, 4)
        then = processes.descendants(os.getpid()) - before
        assert len(said) == 1 and len(first) == 4 and len(first & then) == 2 and not processes.left(first - then)
    assert not processes.left(first | then)


def test_a_worker_whose_pipes_are_closed_has_died(tmp_path: Path) -> None:
    """Also if its process has no exit code yet, as one whose memory is still being written to a file."""
    said: list[str] = []
    with closing(Pool(counters.hosted(False, "close its pipes", str(tmp_path)), 1, 2, 1, warn=said.append)) as pool:
        play(pool, 4)
    assert said == ["Worker 0 died and is started again; 2 episodes were cut off."]


def test_games_are_closed_after_a_fault(tmp_path: Path) -> None:
    """Those of workers that were at a step too, and at once."""
    with closing(Pool(counters.hosted(False, "raise", str(tmp_path)), 2, 3, 2)) as pool:
        with pytest.raises(GameError, match="the counter is stuck"):
            play(pool, 4)
        assert any(one.asked for one in pool.workers)
        began = time.monotonic()
    assert len(list(tmp_path.glob("closed *"))) == 6 and time.monotonic() - began < CLOSING


@pytest.mark.parametrize("workers", [0, 2])
def test_games_that_raise_when_they_are_closed_are_all_closed_with_one_warning(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.rollouts.pool._badly_closed", set())
    said: list[str] = []
    for _ in range(2):
        with closing(Pool(counters.hosted(False, "close", str(tmp_path)), 2, 3, workers, warn=said.append)) as pool:
            play(pool, 2)
        closed = list(tmp_path.glob("closed *"))
        assert len(closed) == 6
        for path in closed:
            path.unlink()
    assert not capfd.readouterr().err
    assert said == ["toys/counters raised RuntimeError: the lid is stuck while it was closed, which changes no result."]


def test_games_of_this_process_that_hang_when_they_are_closed_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.rollouts.pool.CLOSING", 0.1)
    said: list[str] = []
    with closing(Pool(counters.hosted(False, "hang at the end"), 1, 2, 0, warn=said.append)) as pool:
        play(pool, 2)
    assert said == ["toys/counters is left open, since its close() did not return within 2 seconds."]


def test_a_run_whose_games_raise_when_they_are_closed_keeps_its_evaluation(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"steps": 8, "num_envs": 2, "rollout_length": 4, "hidden": (4,), "eval_episodes": 2}
    quiet: dict[str, Any] = {"progress": False, "tensorboard": False, "num_workers": 0}
    run = shoal.train("ippo", counters.hosted(False, "close"), folder=tmp_path / "run", **sizes, **quiet)
    assert run.finished and run.evaluation is not None and (tmp_path / "run" / "evaluation.json").exists()


def test_a_path_among_the_folders_of_modules_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python does, which searches only folders named by text."""
    monkeypatch.setattr(sys, "path", [*sys.path, Path("elsewhere")])
    with closing(Pool(counters.hosted(False), 1, 2, 1)) as pool:
        play(pool, 1)


def test_processes_that_cannot_be_started_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("shoal.rollouts.worker.subprocess.Popen", full)
    with pytest.raises(InputError, match=r"^2 worker processes cannot be started: Too many open files; lower num_wor"):
        Pool(counters.hosted(False), 1, 4, 2)
    before = set(Path("/dev/fd").iterdir())
    with pytest.raises(OSError, match="Too many open files"):
        Worker(0, [range(1)]).start(0, {})
    assert set(Path("/dev/fd").iterdir()) == before


def test_far_more_processes_than_cores_are_refused() -> None:
    with pytest.raises(InputError, match=rf"^{65 * cores()} worker processes are more than 64 per core"):
        Pool(counters.hosted(False), 1, 65 * cores(), 65 * cores())


def test_missing_shared_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shoal.rollouts.pool.memory_file", full)
    with pytest.raises(InputError, match=r"^4 environments need [0-9]+ bytes of shared memory: .*No space"):
        Pool(counters.hosted(False), 1, 4, 2)
