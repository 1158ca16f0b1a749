"""A process that an environment is checked in, so that a crash or a hang is seen from outside. No JAX."""

import contextlib
import faulthandler
import json
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from shoal.checking.faults import PlayError, is_ours
from shoal.checking.subject import Here, Subject
from shoal.errors import InputError
from shoal.rollouts.stepping import importable
from shoal.rollouts.worker import end_with, read_block, write_block

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from shoal.checking import process; "
    "process.main(*map(int, sys.argv[1:]))"
)
_ASK = getattr(signal, "SIGUSR1", None)
"""Makes the process write where it is."""
_LOOK = 0.5
"""Seconds between two looks at whether the process is still there."""
_WRITING = 1.0
"""Seconds that it has for that."""


class Process:
    """A subject in a process of its own."""

    own = True

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                json.dumps(sys.path),
                *map(str, (orders, answers, self._trace.fileno())),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(orders, answers, self._trace.fileno()),
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ,
            start_new_session=True,  # so that it can be ended with all that the environment has started
        )
        os.close(orders)
        os.close(answers)
        self._ended = False

    def call(self, method: str, *arguments: Any, limit: float) -> Any:
        """Call a method of the subject and wait for at most ``limit`` seconds.

        Raises:
            PlayError: the environment raised, ended its process, or did not answer.
            InputError: it cannot be built.
        """
        if self._ended:
            raise PlayError("was not tried, since its process has ended", gone=True)
        with contextlib.suppress(BrokenPipeError):  # the process has ended, as its answer will say
            write_block(self._orders, (method, arguments))
        said = read_block(self._answers) if self._answered(limit) else None
        if said is None:
            raise self._lost(f"ended its process, with {self._how()}")
        kind, value = said
        if kind == "refused":
            raise InputError(value)
        if kind == "raised":
            raise PlayError(*value)
        return value

    def _answered(self, limit: float) -> bool:
        """Wait for an answer; False where the process has ended without one, though what it started may keep the pipe.

        Raises:
            PlayError: there is none after ``limit`` seconds.
        """
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        deadline = time.monotonic() + limit
        while not poll.poll(1000 * min(_LOOK, max(0.0, deadline - time.monotonic()))):
            if self._process.poll() is not None:
                return bool(poll.poll(0))
            if time.monotonic() >= deadline:
                os.kill(self._process.pid, _ASK or signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_WRITING)
                raise self._lost(f"did not return within {limit:g} s")
        return True

    def _how(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return f"signal {-code} ({signal.Signals(-code).name})"
        return f"signal {-code}"

    def _lost(self, what: str) -> PlayError:
        self._trace.seek(0)
        text = self._trace.read().decode(errors="replace")
        self.end()
        return PlayError(what, _stack(text), gone=True)

    def end(self) -> None:
        """End the process and all that the environment started; harmless twice."""
        if self._ended:
            return
        self._ended = True
        os.close(self._orders)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left; macOS says so otherwise
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._answers)
        self._trace.close()


def start(environment: Any, options: dict[str, Any], isolate: bool) -> Process | Here:
    """A process of its own where there can be one: ``environment`` has a name, or can be imported and pickled."""
    if not isolate or os.name != "posix":
        return Here()
    sendable = isinstance(environment, str) or importable(environment) is not None
    with contextlib.suppress(Exception):
        if sendable and pickle.dumps(options):
            return Process()
    return Here()


def _stack(text: str) -> str:
    """The environment's own frames of what :mod:`faulthandler` wrote last, the innermost last as in a traceback."""
    current = text[text.rfind("(most recent call first)") :]
    frames = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', current, re.MULTILINE)
    lines = [f'  File "{file}", line {line}, in {name}' for file, line, name in frames if not is_ours(file)]
    return "\n".join(reversed(lines))


def main(orders: int, answers: int, trace: int) -> None:
    """Serve until the orders end; the arguments are file descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what started this process decides
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    faulthandler.enable(trace, all_threads=False)
    if _ASK is not None:
        faulthandler.register(_ASK, trace, all_threads=False)
    # What the environment prints belongs to the user, but not among what the check prints.
    os.dup2(2, 1)
    here = Here()
    while (order := read_block(orders)) is not None:
        method, arguments = order
        try:
            said = ("done", here.call(method, *arguments))
        except InputError as error:
            said = ("refused", str(error))
        except PlayError as fault:
            said = ("raised", (fault.what, fault.trace))
        try:
            write_block(answers, said)
        except BrokenPipeError:
            return


__all__ = ["Process", "Subject", "main", "start"]
