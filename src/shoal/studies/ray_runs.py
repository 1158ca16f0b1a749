"""Runs of a study as tasks on a Ray cluster, several at a time; their results are collected in this process.

Tasks whose process or node is lost are restarted here rather than by Ray, so that every loss is reported and counted. A
new task waits until the lost process has released the run's folder, and continues from the newest checkpoint.
"""

import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import shoal
from shoal import isolation, notices
from shoal.errors import InputError
from shoal.rollouts.ray_library import cause
from shoal.studies.plan import Cell
from shoal.studies.ray_cluster import Cluster, fits, joined, share, text, variables
from shoal.studies.ray_tasks import Outcome, Place, run
from shoal.studies.record import Record
from shoal.training.stopping import Stop

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
    with joined(cluster) as ray:
        cpus, gpus = share(cluster, ray.nodes())
        if progress:
            notices.warn(f"{len(cells)} runs on Ray, each with {text(cpus, gpus)}.")
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
        self.remote = ray.remote(**options, scheduling_strategy="SPREAD", runtime_env=variable)(run)
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
                yield task.cell, InputError(f"no node of the cluster has {text(self.cpus, self.gpus)} any more.")

    def _say(self, line: str) -> None:
        if self.progress:
            notices.warn(line)
