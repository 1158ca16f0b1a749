"""A worker process from the training process's side: start, send, read, kill. Does not import JAX."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

from shoal.errors import WriteError
from shoal.rollouts import worker as serving
from shoal.rollouts.stepping import Fault
from shoal.security import isolation

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from shoal.rollouts import worker; "
    "worker.main(*map(int, sys.argv[1:]))"
)


class Worker:
    """A worker process and its pending orders."""

    def __init__(self, number: int, groups: list[range]):
        self.number, self.groups = number, groups
        self.process: subprocess.Popen | None = None
        self.orders = self.answers = -1
        self.asked: list[int] = []
        """Groups with a pending order, in the order in which they were sent."""
        self.lost = [False] * len(groups)
        """Groups whose episodes were lost with the previous process."""
        self.restarts = 0
        """Restarts since the last step."""

    def start(
        self, memory: int, setup: dict[str, Any], quiet: bool = False, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start a process that builds its games; its answer is read later, so that workers build in parallel.

        ``quiet`` discards its output; ``environ`` are defaults of environment variables.

        ``multiprocessing`` is not used, since it would run a script without a main guard again.
        """
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        self.process = subprocess.Popen(
            # Without -P the working directory would precede the standard library on the path.
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(orders), str(answers), str(memory)],
            stdin=subprocess.DEVNULL,
            pass_fds=(orders, answers, memory),
            stdout=subprocess.DEVNULL if quiet else None,
            stderr=subprocess.DEVNULL if quiet else None,
            env=dict.fromkeys(serving.LIMITS, "1") | dict(environ) | isolation.child_environment(),
            start_new_session=True,  # so that it can be killed with the processes of its games
        )
        os.close(orders)
        os.close(answers)
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            serving.write_block(self.orders, setup)

    def send(self, order: bytes, group: int) -> None:
        """Send an order for one group."""
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            os.write(self.orders, order + bytes([group]))

    def read(self, seconds: float) -> Fault | Literal[False] | None:
        """The next answer: None for OK, or a fault; False if the process has ended or does not answer in time."""
        poll = select.poll()
        poll.register(self.answers, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return False
        answer = os.read(self.answers, 1)
        if answer == serving.OK:
            return None
        return serving.read_block(self.answers) or False if answer else False

    def exit_code(self) -> int | None:
        """Exit code of the process; None if it is running."""
        if self.process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe closes shortly before it exits
            return self.process.wait(0.5)
        return None

    def end(self, seconds: float = 0.0) -> None:
        """Kill the process unless it exits within ``seconds``, and kill the processes that its games started."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises the second
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.orders)
        os.close(self.answers)
        self.process = None


def how_it_ended(code: int | None, seconds: float) -> str:
    """How a process ended, as text; ``code`` is None if it did not answer for ``seconds``."""
    if code is None:
        return f"did not answer for {seconds:g} s"
    return f"died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def memory_file(size: int) -> IO[bytes]:
    """An unnamed file of ``size`` zeros, which leaves nothing behind; in memory if there is room."""
    folder = Path("/dev/shm")
    there = os.statvfs(folder) if folder.is_dir() else None
    roomy = there is not None and there.f_bavail * there.f_frsize > 2 * size
    file = tempfile.TemporaryFile(dir=folder if roomy else None)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):  # writing to a sparse file on a full disk would kill the process
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        file.close()
        raise WriteError(f"The workers' shared memory of {size} bytes cannot be made: {error.strerror}.") from error
    return file
