"""Runs of a study as tasks on a Ray cluster, several at a time; their results are collected in this process.

Tasks whose process or node is lost are restarted here rather than by Ray, so that every loss is reported and counted. A
new task waits until the lost process has released the run's folder, and continues from the newest checkpoint.
"""

import contextlib
import io
import math
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

import shoal
from shoal.errors import FolderTakenError, GameError, InputError, NonFiniteError
from shoal.rollouts.ray import cause, connect, library
from shoal.runs.load import trained_on
from shoal.security import isolation
from shoal.studies import execution
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile
from shoal.system import machine, notices
from shoal.training import program_cache, sharding
from shoal.training.stopping import Stop

# The Ray cluster of a study: the resources of its runs, and the nodes that have them.


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
def joined_cluster(cluster: Cluster) -> Iterator[Any]:
    """Join the cluster, or start a local one that ends with the block; yields the module ``ray``.

    A connection that this process already has is used and kept.

    Raises:
        InputError: the cluster cannot be reached or started.
    """
    ray = library("Studies")
    started = not ray.is_initialized()
    if started:
        connect(cluster.address, machine.cores())
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
        each = ", ".join(sorted({resources_text(int(cpus), gpus) for cpus, gpus in alive})) or "nothing"
        raise InputError(
            f"A run requires {resources_text(cpus, gpus)}, but no node of the cluster has that; they have {each}."
        )
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


def resources_text(cpus: int, gpus: float) -> str:
    """For example ``8 CPUs and 1 GPU``."""
    words = f"{cpus} CPU{'s' * (cpus != 1)}"
    return f"{words} and {gpus:g} GPU{'s' * (gpus != 1)}" if gpus else words


def variables(cpus: int, gpus: float) -> dict[str, str]:
    """Environment variables of a run's process.

    ``SHOAL_CORES`` sets the number of cores for Shoal, which starts that many devices and worker processes, and
    ``NPROC`` for XLA, which starts that many threads.
    """
    found = {machine.CORES_VARIABLE: str(cpus), "NPROC": str(cpus), "OMP_NUM_THREADS": str(cpus)}
    if not gpus:
        return found | {"JAX_PLATFORMS": "cpu"}
    # JAX allocates three quarters of a GPU's memory by default.
    return found | ({"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.75 * gpus:.3f}"} if gpus < 1 else {})


# One run of a study as a task in a process of a Ray cluster.


PATIENCE = 180.0
"""Seconds to wait for the folder of a run in which an earlier process is still training, for example one that Ray has
given up but that has not ended. A file server that lost a client holds its locks for a minute or two."""


class Place(NamedTuple):
    """Facts about the process that submits a task."""

    version: str
    """Version of Shoal."""
    paths: list[str]
    """Where Python finds modules there."""
    folder: str
    """Its working directory, to which options of environments may be relative."""
    gpus: float
    """GPUs that the task has."""


class Outcome(NamedTuple):
    """The result of a run; neither a record nor an error if a signal stopped it, in which case it is saved."""

    record: Record | None = None
    error: Exception | None = None
    said: tuple[str, ...] = ()
    """Lines that the run printed: warnings."""


def run_on_cluster(cell: Cell, place: Place) -> Iterator[str | Outcome]:
    """Yield the name of this machine, and the outcome once the run has ended."""
    yield socket.gethostname()
    yield _outcome(cell, place)


def _outcome(cell: Cell, place: Place) -> Outcome:
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else Ray could not interrupt this task
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            _prepare(cell, place)
            return Outcome(record=_record(cell), said=_lines(heard))
    except KeyboardInterrupt:
        return Outcome()
    except Exception as error:
        return Outcome(error=portable(error), said=_lines(heard))


def _prepare(cell: Cell, place: Place) -> None:
    """Make this process as similar as possible to the one that submitted the run.

    Raises:
        InputError: this machine lacks a requirement of the run.
    """
    host = socket.gethostname()
    if shoal.__version__ != place.version:
        raise InputError(f"{host} has Shoal {shoal.__version__}, but the study was started with {place.version}.")
    isolation.guard_libraries()
    sys.path[:] = [*place.paths, *(path for path in sys.path if path not in place.paths)]
    with contextlib.suppress(OSError):  # on a machine without that folder
        os.chdir(place.folder)
    program_cache.use()
    if not place.gpus:
        _start_devices(cell)
    elif jax.default_backend() == "cpu":
        raise InputError(f"Ray assigned a GPU of {host} to the run, but JAX finds none there; install jax[cuda13].")


def _start_devices(cell: Cell) -> None:
    """Start as many devices as the run was trained on, which continuing it requires, also on fewer cores."""
    with contextlib.suppress(InputError, KeyError):  # no valid checkpoint: running it raises the error
        if (before := trained_on(cell.folder) or 1) > 1:
            sharding.one_device_per_core(before)


def _record(cell: Cell) -> Record:
    """Run a cell once no other process trains in its folder."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return execution.run_cell(cell, progress=False)
        except FolderTakenError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def _lines(heard: io.StringIO) -> tuple[str, ...]:
    return tuple(line for line in heard.getvalue().splitlines() if line.strip())[-20:]


def portable(error: Exception) -> Exception:
    """``error``, or a RuntimeError with its text, which every process can unpickle; with the traceback as a note."""
    text = "".join(traceback.format_exception(error)).rstrip()
    known = isinstance(error, InputError | NonFiniteError | GameError) or type(error).__module__ == "builtins"
    try:
        copy = pickle.loads(pickle.dumps(error)) if known else None
    except Exception:
        copy = None
    if copy is None:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(text)
    return copy


# The runs of a study, in the process that submits them.


RETRIES = 3
"""How often a run is restarted whose process or node was lost."""
SAVING = 60.0
"""Seconds that runs have to save after Ctrl-C; checkpoints that exist are kept in any case."""
STRANDED = 300.0
"""Seconds to wait for a node with the resources of a run, once the last such node is lost."""
ANSWER = 60.0
"""Seconds to wait for a result that a node says it has."""


@dataclass
class Task:
    """A run that is waiting or active."""

    cell: Cell
    host: str | None = None
    """Where it runs; None as long as it waits for a node."""
    losses: int = 0
    """How many processes it has lost."""


def outcomes(
    cells: list[Cell], cluster: Cluster, total: int, progress: bool
) -> Generator[tuple[Cell, Any], None, None]:
    """Execute runs on a cluster; yields each with its record, or with the exception that ended it.

    Args:
        cells: the runs.
        cluster: the cluster and the resources of each run.
        total: number of runs of the study, for the progress.
        progress: print which runs start and end.

    Raises:
        InputError: the cluster cannot be reached or started, or no node has the resources of a run.
        KeyboardInterrupt: a signal stopped this process; active runs are saved.
    """
    if not cells:
        return
    stop = Stop(lambda _: notices.warn("Stopping; active runs are saved. Press Ctrl-C again to stop without waiting."))
    with joined_cluster(cluster) as ray:
        cpus, gpus = share(cluster, ray.nodes())
        if progress:
            notices.warn(f"{len(cells)} runs on Ray, each with {resources_text(cpus, gpus)}.")
        runs = _Runs(ray, cpus, gpus, total, progress)
        try:
            with stop.listening():
                for cell in cells:
                    runs.start(Task(replace(cell, folder=cell.folder.absolute())))
                yield from runs.finish(stop)
        finally:
            runs.cancel()
    if stop.asked:
        raise KeyboardInterrupt


class _Runs:
    """Tasks of the cluster that have not ended."""

    def __init__(self, ray: Any, cpus: int, gpus: float, total: int, progress: bool):
        self.ray, self.cpus, self.gpus, self.total, self.progress = ray, cpus, gpus, total, progress
        # max_calls: a new process for each run, so that memory and compiled programs of the one before are freed.
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0, "max_calls": 1}
        variable = {"env_vars": {isolation.SAFE_PATH: "1"} | variables(cpus, gpus)}
        self.remote = ray.remote(**options, scheduling_strategy="SPREAD", runtime_env=variable)(run_on_cluster)
        paths = [str(Path(path).absolute()) for path in sys.path]
        self.place = ray.put(Place(shoal.__version__, paths, str(Path.cwd()), gpus))
        self.tasks: dict[Any, Task] = {}
        """Generator of a task's answers -> task."""
        self.usable = time.monotonic()
        """The last time at which a run was active, or a node had its resources."""

    def start(self, task: Task) -> None:
        """Start a run, or start it again."""
        self.tasks[self.remote.remote(task.cell, self.place)] = replace(task, host=None)

    def finish(self, stop: Stop) -> Iterator[tuple[Cell, Record | Exception]]:
        """Wait for all tasks. Once a stop is requested, interrupt them and wait until they are saved."""
        until: float | None = None
        while self.tasks:
            if stop.asked and until is None:
                until = time.monotonic() + SAVING
                self.cancel()
            if until is not None and time.monotonic() > until:
                self.cancel(force=True)
                return
            ready, _ = self.ray.wait(list(self.tasks), num_returns=1, timeout=0.5)
            for answers in ready:
                yield from self._attend(answers, stop.asked)
            if not ready and until is None:
                yield from self._stranded()

    def cancel(self, force: bool = False) -> None:
        """Interrupt all tasks; first those that wait, which could otherwise begin when others end."""
        for answers in sorted(self.tasks, key=lambda one: self.tasks[one].host is not None):
            self.ray.cancel(answers, force=force)

    def _attend(self, answers: Any, stopping: bool) -> Iterator[tuple[Cell, Record | Exception]]:
        """Read one answer: where a task has begun, or how it ended."""
        failures, task = self.ray.exceptions, self.tasks[answers]
        try:
            answer = self.ray.get(next(answers), timeout=ANSWER)
        except failures.TaskCancelledError:  # also raised as a RayTaskError
            answer = Outcome()
        except (failures.RayTaskError, failures.RuntimeEnvSetupError, failures.TaskUnschedulableError) as error:
            answer = Outcome(error=cause(error))  # not raised by the run: it could not start
        except (failures.RayError, StopIteration) as error:
            answer = Outcome() if stopping else error
        if isinstance(answer, str):
            task.host = answer
            self._say(f"Started: {task.cell.title}, on {answer}")
            return
        del self.tasks[answers]
        if not isinstance(answer, Outcome) or (answer.record is None and answer.error is None):
            if not stopping:
                yield from self._lost(task, answer)
            return
        for line in answer.said:
            notices.warn(f"{task.cell.title}: {line}")
        if answer.record is not None:
            begun = sum(one.host is not None for one in self.tasks.values())
            left = f"{begun} active, {len(self.tasks) - begun} waiting"
            self._say(f"Finished: {task.cell.title}, {self.total - len(self.tasks)} of {self.total}; {left}")
        yield task.cell, answer.record or answer.error or RuntimeError()

    def _lost(self, task: Task, answer: Any) -> Iterator[tuple[Cell, Exception]]:
        """Restart a run whose process is lost, unless that has happened too often."""
        how, losses = self._loss(answer), task.losses + 1
        if losses > RETRIES:
            yield task.cell, InputError(f"{how}; it was started {losses} times.")
            return
        notices.warn(f"Lost: {task.cell.title}: {how}; it is restarted ({losses} of {RETRIES} times).")
        self.start(replace(task, losses=losses))

    def _loss(self, answer: Any) -> str:
        """Why a process was lost."""
        failures = self.ray.exceptions
        if isinstance(answer, failures.OutOfMemoryError):
            return "its node ran out of memory"
        if isinstance(answer, failures.NodeDiedError | failures.ObjectLostError | failures.GetTimeoutError):
            return "its node was lost"
        return "its process was stopped by a signal" if isinstance(answer, Outcome) else "its process died"

    def _stranded(self) -> Iterator[tuple[Cell, Exception]]:
        """Give up all runs if none is active and no node has had the resources of a run for a long time."""
        now = time.monotonic()
        if any(task.host for task in self.tasks.values()) or fits(self.ray.nodes(), self.cpus, self.gpus):
            self.usable = now
        if now - self.usable > STRANDED:
            tasks = list(self.tasks.values())
            self.cancel()
            self.tasks.clear()
            for task in tasks:
                yield (
                    task.cell,
                    InputError(f"no node of the cluster has {resources_text(self.cpus, self.gpus)} any more."),
                )

    def _say(self, line: str) -> None:
        if self.progress:
            notices.warn(line)
