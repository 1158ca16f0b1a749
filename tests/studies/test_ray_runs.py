"""Studies on a local Ray cluster end with the records and tables of serial ones, also where a node is lost or the
driver is killed or stopped."""

import contextlib
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.studies import execution, ray_runs
from shoal.studies.record import Record
from shoal.studies.results import markdown_page
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study
from support import processes, trained
from support.small_studies import TINY, cells_of, toml, write_study_file

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # to start Ray's own programs

HEAD = """
title = "T"
question = "Q?"
[defaults]
"""
SMALL = f"""{HEAD}{toml(TINY)}
[grid]
algorithm = ["mappo"]
environment = ["matrix/climbing"]
seed = [0, 7]
[evaluation]
episodes = 4
"""
LONG = f"""{HEAD}{toml(TINY | {"seeds": 5, "steps": 6000 * 16, "rows": 100})}
[grid]
algorithm = ["mappo", "ippo"]
environment = ["matrix/climbing", "matrix/two_step"]
[evaluation]
episodes = 8
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    monkeypatch.setattr(
        ray_runs, "run_on_cluster", inspect.unwrap(ray_runs.run_on_cluster)
    )  # a checked function is not a generator's


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A node of one CPU."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        for name, value in variables().items():
            patch.setenv(name, value)
        own = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}}
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1} | own)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


def variables() -> dict[str, str]:
    """Environment variables with which other processes find modules and compiled programs."""
    found = trained.cache_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    del found["JAX_NUM_CPU_DEVICES"]
    return found


def scores(records: dict[str, Record]) -> dict[str, tuple]:
    return {name: (record.evaluation, record.curve, record.run, record.cell) for name, record in records.items()}


def final_page(path: Path) -> str:
    """The page of results with all times as 0, and one hardware."""
    study, cells = read_study(path), cells_of(path)
    records = records_of_cells(records_folder(study, None), cells)
    zero = {"training": 0, "other": 0}
    hardware = {"processor": "", "cores": 1, "memory_gib": 1, "devices": [], "product_gflops": None}
    still = {name: replace(record, seconds=zero, hardware=hardware) for name, record in records.items()}
    return markdown_page(study, cells, still)


def begin(path: Path, *words: str) -> subprocess.Popen[str]:
    words = ("study", str(path), "--out", str(path.parent / "runs"), *words)
    call = f"import sys; from shoal.cli import main; sys.exit(main({list(words)!r}))"
    environment = os.environ | variables()
    return subprocess.Popen([sys.executable, "-c", call], env=environment, text=True, stderr=subprocess.PIPE)


def until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def steps(folder: Path) -> int:
    """The newest checkpoint in a run's folder."""
    return Checkpoints(folder / "checkpoints").latest() or 0


def test_runs_on_ray_are_those_of_a_serial_study(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = (write_study_file(tmp_path / name, SMALL) for name in ("here", "there"))
    serial = shoal.study(here, out=tmp_path / "here" / "runs", progress=False)
    report = shoal.study(there, out=tmp_path / "there" / "runs", workers="ray", cpus_per_run=1)
    assert serial.ok and report.ok and len(report.records) == 2
    assert scores(report.records) == scores(serial.records) and final_page(there) == final_page(here)
    for record in report.records.values():  # of the process that trained it
        assert record.hardware["cores"] == 1 and record.hardware["product_gflops"] > 0
    err = capsys.readouterr().err
    for state in report.states:
        assert err.count(f"Started: {state.cell.title}, on ") == err.count(f"Finished: {state.cell.title}, ") == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a serial study that nothing disturbed."""
    return undisturbed(write_study_file(tmp_path_factory.mktemp("whole"), LONG))


def undisturbed(path: Path) -> str:
    process = begin(path)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return final_page(path)


def trained_in(pid: int) -> list[Path]:
    """Folders of runs that the descendants of a process train in: those whose locks they hold."""
    found = []
    for one in processes.descendants(pid):
        with contextlib.suppress(OSError):
            found += [path.readlink().parent for path in Path(f"/proc/{one}/fd").iterdir() if path.is_symlink()]
    return [folder for folder in found if (folder / ".lock").exists()]


@pytest.mark.slow
def test_a_lost_node_changes_no_table(
    cluster: Any, whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node is killed while it trains; its run goes on from its checkpoint on the other one."""
    path, node = write_study_file(tmp_path, LONG), cluster.add_node(num_cpus=1)
    raylet = node.all_processes["raylet"][0].process.pid
    lost: list[tuple[Path, int]] = []

    def lose() -> None:
        until(lambda: any(steps(folder) for folder in trained_in(raylet)))
        lost.extend((folder, steps(folder)) for folder in trained_in(raylet))
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    report = shoal.study(path, out=tmp_path / "runs", workers="ray", cpus_per_run=1)
    thread.join()
    err = capsys.readouterr().err
    assert report.ok, str(report)
    title = next(one.cell.title for one in report.states if lost[0][0].name == one.cell.name)
    lines = [line for line in err.splitlines() if line.startswith("Lost: ")]
    assert len(lines) == 1 and lines[0].startswith(f"Lost: {title}: its "), err
    assert lines[0].endswith("; it is restarted (1 of 3 times)."), err
    assert 0 < lost[0][1] < 6000
    assert final_page(path) == whole


@pytest.mark.slow
@pytest.mark.parametrize("then", [(), ("--workers", "ray")], ids=["serial", "ray"])
def test_a_killed_driver_takes_all_with_it_and_loses_nothing(then: tuple[str, ...], whole: str, tmp_path: Path) -> None:
    """It goes on at once, on Ray or without."""
    path = write_study_file(tmp_path, LONG)
    folders = [tmp_path / "runs" / "demo" / cell.name for cell in cells_of(path)]
    process = begin(path, "--workers", "ray", "--cpus-per-run", "1")
    until(lambda: max(map(steps, folders)) > 0, process)
    ours = processes.descendants(process.pid)
    process.kill()
    process.communicate()
    again = begin(path, *then)
    said = again.communicate()[1]
    assert again.returncode == 0, said
    # Ray's own agents notice within a minute or so that their node is gone.
    assert not processes.left(ours, 120.0) and len(ours) > 4
    assert final_page(path) == whole


@pytest.mark.slow
def test_a_run_of_two_devices_goes_on_where_it_has_one_core(tmp_path: Path) -> None:
    one = LONG.replace(', "ippo"', "").replace(', "matrix/two_step"', "").replace("devices = 1\n", "")
    path = write_study_file(tmp_path / "killed", one)
    folder = path.parent / "runs" / "demo" / cells_of(path)[0].name
    process = begin(path)
    until(lambda: steps(folder) > 0, process)
    process.kill()
    process.communicate()
    assert Checkpoints(folder / "checkpoints").load_meta()["shards"] == {"seed_shards": 1, "devices": 2}
    again = begin(path, "--workers", "ray", "--cpus-per-run", "1")
    said = again.communicate()[1]
    assert again.returncode == 0, said
    assert final_page(path) == undisturbed(write_study_file(tmp_path / "whole", one))


@pytest.mark.slow
def test_ctrl_c_saves_all_runs_under_way(tmp_path: Path) -> None:
    endless = LONG.replace("steps = 96000", "steps = 1e8").replace("rows = 100", "rows = 100_000")
    path = write_study_file(tmp_path, endless.replace("checkpoint_seconds = 0.0", "checkpoint_seconds = 1000"))
    folders = [tmp_path / "runs" / "demo" / cell.name for cell in cells_of(path)]
    process = begin(path, "--workers", "ray", "--cpus-per-run", "1")
    until(lambda: sum(bool(log_rows(folder)) for folder in folders) == 2, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    assert said.splitlines()[-2] == "Stopped with 0 of 4 runs recorded; the same command continues. Continue with"
    assert said.splitlines()[-1].endswith("--workers ray --cpus-per-run 1")
    saved = sorted(steps(folder) for folder in folders)
    assert saved[:2] == [0, 0] and saved[2] > 0 and saved[3] > 0


def log_rows(folder: Path) -> list:
    return log.read_log(folder) if (folder / log.LOG_FILE).exists() else []
