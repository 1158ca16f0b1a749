"""Runs on several hosts (``--hosts``), as processes of this machine whose collective operations go over its network."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.cli import hosts, main
from shoal.storage import checkpoint
from shoal.storage.log import read_log
from support import processes, trained

WORDS = ["--num-envs", "4", "--rollout-length", "8", "--hidden", "4", "--no-tensorboard", "--eval-episodes", "0"]
WORDS += ["--checkpoint-seconds", "0"]
FLAGS: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "hidden": (4,),
    "tensorboard": False,
    "eval_episodes": 0,
    "progress": False,
    "devices": 2,
}
"""Those of WORDS, in one process."""
ENDLESS = ["--steps", "3.2e7", "--rows", "1000000", "--schedule-steps", "1e4"]
TIMES = ("seconds", "steps_per_second", "greedy/seconds")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name not in TIMES} for row in read_log(folder)]


def arrays(folder: Path) -> dict[str, np.ndarray]:
    found = checkpoint.newest(folder / "checkpoints", pytest.fail)
    return checkpoint.read_named_arrays(found, list(found.leaves))


def check_equal(here: dict[str, np.ndarray], there: dict[str, np.ndarray]) -> None:
    assert here.keys() == there.keys()
    for name, x in here.items():
        np.testing.assert_array_equal(x, there[name], err_msg=name)


@contextlib.contextmanager
def command(*words: str) -> Iterator[subprocess.Popen]:
    """``shoal train``, with one device for each of its processes; everything that it started is gone afterwards."""
    environment = os.environ | trained.cache_environment() | {"JAX_NUM_CPU_DEVICES": "1"}
    program = [sys.executable, "-m", "shoal.cli", "train", *words]
    with subprocess.Popen(program, env=environment, text=True, stdout=-1, stderr=-1) as process:
        try:
            yield process
        finally:
            process.kill()


def until_trained(folder: Path, process: subprocess.Popen) -> None:
    """Until a run has some rows more than it has now."""
    log, end = folder / "metrics.jsonl", time.monotonic() + 300
    before = log.stat().st_size if log.exists() else 0
    while not log.exists() or log.stat().st_size <= before + 1000:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"{process.communicate()}")
        time.sleep(0.05)


def child(process: subprocess.Popen, index: int) -> int:
    """The process that trains as number ``index``."""
    found = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in processes.descendants(process.pid)}
    return next(pid for pid, words in found.items() if f'"index": {index}' in words)


@pytest.mark.slow
def test_two_processes_train_as_one_with_two_devices(tmp_path: Path) -> None:
    """A seed on each, so that process 0 has none of the other's: metrics, evaluations and all that is saved."""
    flags = {**FLAGS, "seeds": 2, "steps": 320, "eval_every": 64, "curve_episodes": 3}
    shoal.train("mappo", "mpe/simple_spread", folder=tmp_path / "one", **flags)
    words = ["--seeds", "2", "--steps", "320", "--eval-every", "64", "--curve-episodes", "3", "--hosts", "local:2"]
    with command("mappo", "mpe/simple_spread", *WORDS, *words, "--folder", str(tmp_path / "two")) as process:
        out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert out.count("mappo in mpe/simple_spread") == 1 and "[Gloo]" not in out + said
    assert rows(tmp_path / "two") == rows(tmp_path / "one")
    check_equal(arrays(tmp_path / "two"), arrays(tmp_path / "one"))
    with command("--resume", str(tmp_path / "two"), "--hosts", "local:2") as process:
        assert "This run has finished its 320 steps" in process.communicate(timeout=100)[1]
    assert process.returncode == 0


@pytest.mark.slow
def test_a_run_whose_process_is_killed_resumes_with_two_and_with_one(tmp_path: Path) -> None:
    """With the numbers of a run that nothing disturbed; each process holds half of the replay buffer."""
    run, own = str(tmp_path / "run"), {"buffer_size": 400, "batch_size": 8, "learning_starts": 64}
    words = [word for name, value in own.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    again = f"Continue with\nshoal train --resume {run} --hosts local:2\n"
    with command(
        "maddpg", "mpe/simple_spread", *WORDS, *words, *ENDLESS, "--hosts", "local:2", "--folder", run
    ) as process:
        until_trained(Path(run), process)
        others, began = processes.descendants(process.pid), time.monotonic()
        os.kill(child(process, 1), signal.SIGKILL)
        said = process.communicate(timeout=20)[1]
        assert time.monotonic() - began < 20
    assert process.returncode == 1 and not processes.left(others)
    why = "Process 1 of 2 was killed (SIGKILL, as by a system that is out of memory), so training has ended."
    assert said.endswith(f"shoal: {why} {again}") and "Traceback" not in said

    with command("--resume", run, "--hosts", "local:2") as process:
        until_trained(Path(run), process)
        others = processes.descendants(process.pid)
        os.kill(child(process, 1), signal.SIGTERM)  # that tells the other one
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and not processes.left(others)
    assert said.endswith(f"Stopped; continue with\nshoal train --resume {run} --hosts local:2\n")

    end = read_log(tmp_path / "run")[-1]["step"] + 5 * 32
    shoal.resume(run, steps=end, progress=False)
    flags = {**FLAGS, **own, "steps": end, "rows": 1000000, "schedule_steps": 1e4}
    shoal.train("maddpg", "mpe/simple_spread", folder=tmp_path / "whole", **flags)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    check_equal(arrays(tmp_path / "run"), arrays(tmp_path / "whole"))


@pytest.mark.slow
def test_each_host_says_that_the_first_is_lost(tmp_path: Path) -> None:
    """Two commands, as on two hosts; the first one's process is killed."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    words = [*WORDS, *ENDLESS, "--hosts", address, "--host-count", "2", "--folder", str(tmp_path / "run")]
    start = ["ippo", "mpe/simple_spread", *words, "--host-index"]
    with command(*start, "0") as first, command(*start, "1") as second:
        until_trained(tmp_path / "run", first)
        os.kill(child(first, 0), signal.SIGKILL)
        said = [process.communicate(timeout=20)[1] for process in (first, second)]
    assert first.returncode == second.returncode == 1
    assert "shoal: Process 0 was killed (SIGKILL" in said[0]
    assert said[1].startswith("shoal: The connection to ") and "so training has ended. Continue with\n" in said[1]
    assert f"--hosts {address} --host-count 2 --host-index 1\n" in said[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--hosts", "here"], "--hosts takes auto, HOST:PORT or local:N, for example local:2, not 'here'."),
        (["--hosts", "a:1"], "--hosts HOST:PORT needs --host-count N and --host-index I, from 0 to N − 1."),
        (["--hosts", "a:1", "--host-count", "2", "--host-index", "2"], "--host-index 2 must be below --host-count 2"),
        (["--hosts", "a:0", "--host-count", "2", "--host-index", "0"], "has no port; ports are 1 to 65535."),
        (["--hosts", "local:0"], "--hosts local:N starts 1 to 1024 processes, not 0."),
        (["--hosts", "local:2", "--host-count", "2"], "--host-count is only for --hosts HOST:PORT."),
        (["--hosts", "local:2", "--devices", "3"], "devices 3 is not divisible by the 2 processes of --hosts."),
        (["--host-index", "1"], "--host-index is only for --hosts."),
        (["--hosts", "local:2", "--init-from", "x"], "--hosts cannot start from another run (init_from)."),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "_start", lambda *_: pytest.fail("A process is started."))
    assert main(["train", "mappo", "matrix/penalty", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_host_environment_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(hosts, "_start", lambda *_: pytest.fail("A process is started."))
    assert main(["train", "mappo", "counters:hosted", "--hosts", "local:2"]) == 2
    assert "is stepped on the host, and --hosts is for environments that are compiled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("codes", "logs", "sentence"),
    [
        ([hosts.LOST, -9], ["", ""], "Process 1 of 2 was killed (SIGKILL, as by a system that is out of memory), so"),
        ([-6, -11], ["", ""], "Process 1 of 2 was killed (SIGSEGV), so training has ended."),
        ([None, 2], ["", "noise\nshoal: No such map.\n"], "Process 1 of 2 ended with exit code 2: No such map."),
        ([-6], ["heartbeat of /job:jax_worker/replica:0/task:3"], "The connection to process 3 of the run is lost, so"),
        ([hosts.LOST], ["Gloo"], "The connection to another process of the run is lost, so training has ended."),
    ],
)
def test_the_process_that_was_lost_first_is_named(codes: list[int | None], logs: list[str], sentence: str) -> None:
    children = [SimpleNamespace(index=i, said=lambda log=log: log) for i, log in enumerate(logs)]
    assert hosts.what_happened(children, codes).startswith(sentence)


@pytest.mark.parametrize("more", [[], ["--folder", "None"], ["--"]])
def test_all_processes_read_the_words_of_the_command(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the one that leads trains in the folder that the command has chosen."""
    words, started = ["train", "mappo", "matrix/penalty", "--hosts", "local:2", *more], []

    def supervise(places: list[hosts.Place], given: list[str], folder: Path, again: str) -> int:
        started.extend([places, given, folder, again])
        return 0

    monkeypatch.setattr(hosts, "supervise", supervise)
    assert main(words) == 0
    places, given, folder, again = started
    assert given == words and again == f"shoal train --resume {folder} --hosts local:2"
    monkeypatch.setattr(hosts, "inside", places[0])
    monkeypatch.setattr("shoal.cli.train._follows", lambda: False)
    monkeypatch.setattr("shoal.cli.train.train_and_show", lambda where, *_: started.append(where) or 0)
    assert main(given) == 0 and started[-1] == folder


def test_places_share_the_devices_of_this_machine() -> None:
    own = {"hosts": "local:2", "host_count": None, "host_index": None, "host_timeout": 9.0}
    first, second = hosts.places(own, 6)
    assert first.devices == second.devices == 3 and (first.index, second.index) == (0, 1)
    assert first.address == second.address and first.timeout == 9.0
    assert hosts.words_of(own) == " --hosts local:2 --host-timeout 9"
