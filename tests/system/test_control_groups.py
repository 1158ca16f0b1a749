"""Limits of containers are those of the files that Linux shows, in both versions of control groups."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.system import control_groups, machine
from shoal.training import memory

GIB = 2**30
Groups = Callable[[str, dict[str, str]], None]


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """(what /proc/self/cgroup says, the files below /sys/fs/cgroup)."""

    def write(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "root")
    return write


def test_a_container_of_version_2(groups: Groups) -> None:
    groups(
        "0::/\n",
        {
            "cpu.max": "150000 100000",
            "memory.max": str(4 * GIB),
            "memory.current": str(3 * GIB),
            "memory.stat": f"anon 7\ninactive_file {GIB}\nactive_file 5",
        },
    )
    assert control_groups.core_quota() == 2
    assert control_groups.free_memory() == 2 * GIB


def test_the_least_limit_of_the_groups_above_counts(groups: Groups) -> None:
    groups(
        "0::/jobs/one\n",
        {
            "cpu.max": "max 100000",
            "jobs/cpu.max": "300000 100000",
            "jobs/one/cpu.max": "800000 100000",
            "jobs/memory.max": str(2 * GIB),
            "jobs/memory.current": str(3 * GIB),
            "jobs/one/memory.max": "max",
            "jobs/one/memory.current": "5",
        },
    )
    assert control_groups.core_quota() == 3
    assert control_groups.free_memory() == 0


def test_version_1_has_a_tree_for_each_resource(groups: Groups) -> None:
    groups(
        "5:memory:/pod\n4:cpu,cpuacct:/pod\n1:cpuset:/\n",
        {
            "cpu/pod/cpu.cfs_quota_us": "400000",
            "cpu/pod/cpu.cfs_period_us": "100000",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/pod/memory.limit_in_bytes": str(GIB),
            "memory/pod/memory.usage_in_bytes": "100",
            "memory/pod/memory.stat": "inactive_file 1\ntotal_inactive_file 40",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "0",
        },
    )
    assert control_groups.core_quota() == 4
    assert control_groups.free_memory() == GIB - 60


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpu.max": "max 100000", "memory.max": "max", "memory.current": "1"},
        {"cpu.max": "many", "memory.max": "", "memory.current": "x", "memory.stat": "?"},
        {"cpu.max": "--5 100000", "memory.max": "1_0", "memory.current": "²"},
        {"cpu.max": "0 0"},
    ],
)
def test_without_a_limit(files: dict[str, str], groups: Groups) -> None:
    for own in ("0::/\n", "0::/../elsewhere\n", "", "damaged"):
        groups(own, files)
        assert control_groups.core_quota() is None and control_groups.free_memory() is None


def test_cores_and_memory_are_those_of_the_container(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(machine.CORES_VARIABLE, raising=False)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(64), raising=False)
    groups("0::/\n", {"cpu.max": "1600000 100000", "memory.max": "900", "memory.current": "800"})
    assert machine.cores() == 16 and memory.free(SimpleNamespace(platform="cpu")) == 100
    monkeypatch.setenv(machine.CORES_VARIABLE, "3")
    assert machine.cores() == 3
