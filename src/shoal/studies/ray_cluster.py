"""The Ray cluster of a study: the resources of its runs, and the nodes that have them."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal import cores
from shoal.errors import InputError
from shoal.rollouts.ray_library import connect, library
from shoal.studies.plan import Cell
from shoal.studies.study_file import StudyFile

_MEMORY = "XLA_PYTHON_CLIENT_PREALLOCATE"


@dataclass(frozen=True)
class Cluster:
    """Where the runs of a study are executed, and the resources of each run."""

    address: str | None = None
    """Address of the cluster; None starts a local one."""
    cpus_per_run: int | None = None
    """CPUs of each run; None for those of the smallest node."""
    gpus_per_run: float = 0.0
    """GPUs of each run: a whole number, or a fraction of one."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InputError: one is invalid, or Ray is not installed.
        """
        library("Studies")
        address = self.address or os.environ.get("RAY_ADDRESS") or ""
        if "://" in address:
            raise InputError(
                f"{address} is the address of a Ray client, which studies do not support: start the study on a node of "
                f"the cluster with address HOST:PORT, or by `ray job submit`."
            )
        cpus, gpus = self.cpus_per_run, self.gpus_per_run
        if cpus is not None and (type(cpus) is not int or cpus < 1):
            raise InputError(f"cpus_per_run must be a whole number of at least 1, not {cpus}.")
        if not (0 <= gpus < math.inf) or (gpus > 1 and gpus != int(gpus)):
            raise InputError(f"gpus_per_run must be a whole number or between 0 and 1, not {gpus}.")


def cluster_of(workers: str | None, **options: Any) -> Cluster | None:
    """The cluster specified by ``workers`` and the fields of :class:`Cluster`; None for this process.

    Raises:
        InputError: they cannot be combined, one is invalid, or Ray is not installed.
    """
    if workers == "ray":
        return Cluster(**options)
    if workers is not None:
        raise InputError(f"workers must be 'ray', or None for this process, not {workers!r}.")
    for name, value in options.items():
        if value:
            raise InputError(f"{name} applies only to a cluster: set workers to ray as well.")
    return None


def check_cells(study: StudyFile, cells: list[Cell]) -> None:
    """Check that no run uses a cluster itself.

    Raises:
        InputError: one does.
    """
    for cell in cells:
        if cell.flags.get("workers") == "ray":
            raise study.error(
                f"{cell.title}: workers cannot be 'ray' if the runs are Ray tasks; remove it, so that each run steps "
                f"its environments with processes on its node."
            )


@contextmanager
def without_preallocation() -> Iterator[None]:
    """If JAX starts inside the block, it does not preallocate GPU memory, so that the runs can use it."""
    if _MEMORY in os.environ:
        yield
        return
    os.environ[_MEMORY] = "false"
    try:
        yield
    finally:
        del os.environ[_MEMORY]


@contextmanager
def joined(cluster: Cluster) -> Iterator[Any]:
    """Join the cluster, or start a local one that ends with the block; yields the module ``ray``.

    A connection that this process already has is used and kept.

    Raises:
        InputError: the cluster cannot be reached or started.
    """
    ray = library("Studies")
    started = not ray.is_initialized()
    if started:
        connect(cluster.address, cores.cores())
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def share(cluster: Cluster, nodes: list[dict[str, Any]]) -> tuple[int, float]:
    """The CPUs and GPUs of each run. With GPUs, the default of CPUs is a GPU's share of its node's.

    Raises:
        InputError: no node has as many.
    """
    gpus, alive = cluster.gpus_per_run, _alive(nodes)
    cpus = cluster.cpus_per_run or 1
    if not (fitting := [node for node in alive if _fits(node, cpus, gpus)]):
        each = ", ".join(sorted({text(int(cpus), gpus) for cpus, gpus in alive})) or "nothing"
        raise InputError(f"A run requires {text(cpus, gpus)}, but no node of the cluster has that; they have {each}.")
    if cluster.cpus_per_run is None:
        cpus = min(int(cpus * gpus / has) if gpus else int(cpus) for cpus, has in fitting)
    return max(1, cpus), gpus


def fits(nodes: list[dict[str, Any]], cpus: int, gpus: float) -> bool:
    """Whether a node that is alive has as many CPUs and GPUs, used or not."""
    return any(_fits(node, cpus, gpus) for node in _alive(nodes))


def _alive(nodes: list[dict[str, Any]]) -> list[tuple[float, float]]:
    found = [node["Resources"] for node in nodes if node["Alive"]]
    return [(has.get("CPU", 0.0), has.get("GPU", 0.0)) for has in found]


def _fits(node: tuple[float, float], cpus: int, gpus: float) -> bool:
    return node[0] >= cpus and node[1] >= gpus


def text(cpus: int, gpus: float) -> str:
    """For example ``8 CPUs and 1 GPU``."""
    words = f"{cpus} CPU{'s' * (cpus != 1)}"
    return f"{words} and {gpus:g} GPU{'s' * (gpus != 1)}" if gpus else words


def variables(cpus: int, gpus: float) -> dict[str, str]:
    """Environment variables of a run's process.

    ``SHOAL_CORES`` sets the number of cores for Shoal, which starts that many devices and worker processes, and
    ``NPROC`` for XLA, which starts that many threads.
    """
    found = {cores.VARIABLE: str(cpus), "NPROC": str(cpus), "OMP_NUM_THREADS": str(cpus)}
    if not gpus:
        return found | {"JAX_PLATFORMS": "cpu"}
    # JAX allocates three quarters of a GPU's memory by default.
    return found | ({"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.75 * gpus:.3f}"} if gpus < 1 else {})
