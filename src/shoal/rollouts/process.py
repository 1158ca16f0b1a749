"""A worker process as the training process holds it: started, spoken to, killed. No JAX."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Literal

from shoal.errors import WriteError
from shoal.rollouts import worker as serving
from shoal.rollouts.stepping import Fault

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from shoal.rollouts import worker; "
    "worker.main(*map(int, sys.argv[1:]))"
)


class Worker:
    """A process and what it was asked."""

    def __init__(self, number: int, groups: list[range]):
        self.number, self.groups = number, groups
        self.process: subprocess.Popen | None = None
        self.orders = self.answers = -1
        self.asked: list[int] = []
        """Groups that it has not answered for, in the order of asking."""
        self.lost = [False] * len(groups)
        """Groups whose episodes ended with the process that was here before."""
        self.restarts = 0
        """Since it last played a step."""

    def start(self, memory: int, setup: dict[str, Any]) -> None:
        """Start a process that builds its games; its answer is read later, so that several build at once.

        The program is not this one (no ``multiprocessing``): a script without a main guard would be run again.
        """
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        self.process = subprocess.Popen(
            # Without -P the working directory would come first, also for the standard library.
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(orders), str(answers), str(memory)],
            stdin=subprocess.DEVNULL,
            pass_fds=(orders, answers, memory),
            env=dict.fromkeys(serving.LIMITS, "1") | os.environ,
            start_new_session=True,  # so that it can be ended with all that its games have started
        )
        os.close(orders)
        os.close(answers)
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            serving.write_block(self.orders, setup)

    def send(self, order: bytes, group: int) -> None:
        """Order something in one group."""
        with contextlib.suppress(BrokenPipeError):  # noticed where its answer is awaited
            os.write(self.orders, order + bytes([group]))

    def read(self, seconds: float) -> Fault | Literal[False] | None:
        """The next answer: None for OK, or a fault; False where the process is gone, or silent for so long."""
        poll = select.poll()
        poll.register(self.answers, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return False
        said = os.read(self.answers, 1)
        if said == serving.OK:
            return None
        return serving.read_block(self.answers) or False if said else False

    def exit_code(self) -> int | None:
        """How the process ended; None if it has not."""
        if self.process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe closes shortly before it exits
            return self.process.wait(0.5)
        return None

    def end(self, seconds: float = 0.0) -> None:
        """Kill the process if it has not ended by itself within so many seconds, and what its games left running."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left; macOS says so otherwise
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.orders)
        os.close(self.answers)
        self.process = None


def how_it_ended(code: int | None, seconds: float) -> str:
    """In words, from its exit code."""
    if code is None:
        return f"did not answer for {seconds:g} s"
    return f"died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def memory_file(size: int) -> IO[bytes]:
    """A file of ``size`` zeros without a name, so that nothing is left behind; in memory if there is room."""
    folder = Path("/dev/shm")
    there = os.statvfs(folder) if folder.is_dir() else None
    roomy = there is not None and there.f_bavail * there.f_frsize > 2 * size
    file = tempfile.TemporaryFile(dir=folder if roomy else None)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):  # a file with holes would end the process where the disk is full
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        file.close()
        raise WriteError(f"The workers' shared memory of {size} bytes cannot be made: {error.strerror}.") from error
    return file
