"""What cannot be carried out on a cluster is refused in one sentence, before anything starts."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal as library
from shoal.errors import InputError
from shoal.rollouts import ray
from shoal.studies import ray_runs, running
from shoal.studies.ray_runs import Cluster, cluster_of, fits, joined_cluster, share, variables, without_preallocation
from support.small_studies import GRID, write_study_file

pytest.importorskip("ray")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "head:6379"], "address applies only to a cluster: set workers to ray as well."),
        (["--cpus-per-run", "2"], "cpus_per_run applies only to a cluster: set workers to ray as well."),
        (["--gpus-per-run", "1"], "gpus_per_run applies only to a cluster: set workers to ray as well."),
        (["--workers", "slurm"], "--workers cannot be 'slurm'"),
        (["--workers", "ray", "--cpus-per-run", "0"], "cpus_per_run must be at least 1 and at most 65536, not 0."),
        (
            ["--workers", "ray", "--gpus-per-run", "1.5"],
            "gpus_per_run must be a whole number or between 0 and 1, not 1.5.",
        ),
        (["--workers", "ray", "--address", "ray://head:10001"], "ray://head:10001 is the address of a Ray client"),
    ],
)
def test_flags_that_do_not_fit(words: list[str], said: str, shoal: Callable, tmp_path: Path) -> None:
    code, out, err = shoal("study", write_study_file(tmp_path), *words)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1, err


def test_options_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="workers must be 'ray', or None for this process, not 'dask'"):
        library.study("unused", workers="dask")
    with pytest.raises(InputError, match="cpus_per_run must be a whole number of at least 1, not 0"):
        Cluster(cpus_per_run=0)
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    with pytest.raises(InputError, match="http://head:8265 is the address of a Ray client"):
        Cluster()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Studies on a cluster need Ray: pip install 'ray>="):
        cluster_of("ray")


def test_runs_that_use_a_cluster_themselves(shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "check_built", lambda *_: pytest.fail("built"))
    file = write_study_file(tmp_path, GRID.replace("seeds = 2", 'seeds = 2\nworkers = "ray"'))
    code, _, err = shoal("study", file, "--workers", "ray", "--dry-run")
    assert code == 2 and "workers cannot be 'ray' if the runs are Ray tasks" in err
    assert str(file) in err and err.count("\n") == 1


def node(cpus: float, gpus: float = 0.0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": float(cpus), "memory": 1e9} | ({"GPU": float(gpus)} if gpus else {})}


def test_what_a_run_takes() -> None:
    nodes = [node(0), node(16, 4), node(8), node(2, alive=False)]
    assert share(Cluster(), nodes) == (8, 0) and share(Cluster(cpus_per_run=3), nodes) == (3, 0)
    assert share(Cluster(gpus_per_run=1.0), nodes) == (4, 1) and share(Cluster(gpus_per_run=0.01), nodes) == (1, 0.01)
    assert fits(nodes, 16, 4.0) and not fits(nodes, 17, 0.0)
    with pytest.raises(
        InputError,
        match=r"^A run requires 8 CPUs and 8 GPUs, but no node of the cluster has that; they have 0 CPUs, 16 CPUs and "
        r"4 GPUs, 8 CPUs\.$",
    ):
        share(Cluster(cpus_per_run=8, gpus_per_run=8.0), nodes)
    with pytest.raises(
        InputError, match="A run requires 1 CPU, but no node of the cluster has that; they have nothing"
    ):
        share(Cluster(), [node(4, alive=False)])


def test_what_a_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    cores = {"SHOAL_CORES": "4", "NPROC": "4", "OMP_NUM_THREADS": "4"}
    assert variables(4, 0.0) == cores | {"JAX_PLATFORMS": "cpu"} and variables(4, 2.0) == cores
    assert variables(4, 0.5)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.375"
    with without_preallocation():
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], str]]:
    """A server that is not Ray: what it says first -> its address."""
    monkeypatch.setattr(ray, "SILENCE", 0.5)
    servers = []

    def serve(words: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer() -> None:
            one, _ = server.accept()
            one.sendall(words)
            one.recv(100)
            servers.append(one)

        threading.Thread(target=answer, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()


def test_an_address_without_a_cluster(stranger: Callable[[bytes], str]) -> None:
    """Ray itself would try for minutes."""
    for address, said in (
        ("127.0.0.1:9", r"There is no Ray cluster at 127\.0\.0\.1:9: "),
        (stranger(b"HTTP/1.1 400 Bad Request\r\n"), "is not a Ray cluster"),
        (stranger(b""), r"Nothing answers at .* within 0\.5 s, so there is no Ray cluster\."),
    ):
        with pytest.raises(InputError, match=said), joined_cluster(Cluster(address)):
            pytest.fail("connected")


def test_nothing_to_run_needs_no_cluster() -> None:
    assert list(ray_runs.outcomes([], Cluster("127.0.0.1:9"), 3, True)) == []
