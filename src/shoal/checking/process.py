"""The environment under check, in a process of its own so that crashes and hangs are detected. Does not import JAX.

Methods of :class:`Subject` are called by name with pickled arguments and results, and refer to instances of the
environment by number. The process imports JAX only if the environment needs it.
"""

import contextlib
import faulthandler
import os
import pickle
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any, NamedTuple

import numpy as np

from shoal.checking.findings import Finding
from shoal.checking.play import HostInstance, Instance, PlayError, fault_of, is_ours, own_traceback
from shoal.errors import BuildError, InputError, with_full_stop
from shoal.game import HostEnvironment, HostTimestep
from shoal.rollouts.worker import end_with, pickled, read_block, write_block
from shoal.security import isolation
from shoal.spec import EnvSpec

# The environment, in the process that builds and plays it.


class Built(NamedTuple):
    """Result of building an environment."""

    spec: EnvSpec
    device: bool
    findings: tuple[Finding, ...]
    described: bool
    """Whether its spec is valid."""
    playable: bool
    """Whether instance 0 can be played."""
    bounds: tuple[np.ndarray, np.ndarray] | None = None
    """Float [N, O], the smallest and the largest value of each observation by its space; None if that is unknown."""
    limit: int = 0
    """Steps after which an episode is over at the latest."""


def _unread_targets(spec: EnvSpec) -> list[Finding]:
    """Sets of entities in ``spec.targets`` that no agent observes, which training does not refuse: a wrapper may have
    taken them away."""
    seen = {part.name for own in spec.parts or () for part in own if len(part.shape) == 2}
    absent = [repr(name) for name, _ in spec.targets if name not in seen]
    text = f"spec.targets names {', '.join(absent)}, but no array of shape (K, F) in spec.parts has this name."
    return [Finding("warning", "spec", text)] if absent else []


class Subject:
    """An environment and its instances."""

    def __init__(self) -> None:
        self.env: Any = None
        self.instances: list[Instance] = []

    def build(self, given: Any, options: dict[str, Any]) -> Built:
        """Build the environment and its first instance. ``given`` is an environment, or the registry's argument.

        Raises:
            InputError: the environment is unknown, or its library is missing.
        """
        if isinstance(given, HostEnvironment) and not options:
            self.env = given
        else:
            from shoal.environments import registry

            try:
                self.env = registry.make(given, **options)
            except BuildError as error:
                raise (error.__cause__ or error) from None  # a finding, with its traceback
        device = not isinstance(self.env, HostEnvironment)
        findings: list[Finding] = []
        try:
            self._validate(device)
        except InputError as error:
            cause = error.__cause__
            findings.append(Finding("error", "interface", str(error), own_traceback(cause) if cause else ""))
            return Built(self.env.spec, device, tuple(findings), False, False)
        findings += _unread_targets(self.env.spec)
        try:
            self._first(device, findings)
        except Exception as error:
            fault = fault_of(error)
            text = with_full_stop(f"making the environment {fault.what}")
            findings.append(Finding("error", "exception", text, fault.trace))
        first, spec = self.instances[0] if self.instances else None, self.env.spec
        bounds, limit = getattr(first, "bounds", None), getattr(first, "limit", spec.horizon)
        return Built(spec, device, tuple(findings), True, first is not None, bounds, limit)

    def _validate(self, device: bool) -> None:
        if device:
            from shoal.environments.validation import validate

            validate(self.env)
        else:
            from shoal.environments.spec_rules import check_spec

            check_spec(self.env.spec)

    def _first(self, device: bool, findings: list[Finding]) -> None:
        """Make instance 0, as a worker process would."""
        if device:
            from shoal.checking.device import DeviceInstance

            self.instances.append(DeviceInstance(self.env))
            return
        maker = self.env.make
        try:
            maker = pickle.loads(pickle.dumps(maker))
        except Exception as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            text = (
                f"the function that makes the environment cannot be sent to worker processes ({type(error).__name__}: "
                f"{reason}); it must be a function of an importable module, or a functools.partial of one."
            )
            findings.append(Finding("error", "make", text))
        game, spec = maker(), self.env.spec
        if game.spec != spec:
            differs = [name for name, value in vars(spec).items() if getattr(game.spec, name, None) != value]
            text = f"the spec of the game differs from that of the environment: {', '.join(differs)}."
            findings.append(Finding("error", "spec", text))
            return
        self.instances.append(HostInstance(game, spec))

    def another(self) -> int:
        """Make another instance of a host environment; returns its number."""
        self.instances.append(HostInstance(self.env.make(), self.env.spec))
        return len(self.instances) - 1

    def reset(self, copy: int, seed: int) -> tuple[HostTimestep, float]:
        """Start an episode; returns (first timestep, seconds)."""
        before = time.perf_counter()
        return self.instances[copy].reset(seed), time.perf_counter() - before

    def step(self, copy: int, action: np.ndarray) -> tuple[HostTimestep, float]:
        """Play ``action``; returns (timestep, seconds)."""
        before = time.perf_counter()
        return self.instances[copy].step(action), time.perf_counter() - before

    def close(self, copy: int) -> float:
        """Close an instance; returns the seconds that it took."""
        before = time.perf_counter()
        self.instances[copy].close()
        return time.perf_counter() - before

    def overran(self, copy: int) -> int:
        """The number of episodes that went on after a limit that an attribute of the environment seems to hold."""
        return getattr(self.instances[copy], "overran", 0)

    def unread(self, copy: int) -> list[str]:
        """Parts of an instance's observations that their spaces lack."""
        return getattr(self.instances[copy], "unread", [])

    def empty(self, copy: int) -> list[tuple[int, int, int]]:
        """Seed, timestep and agent of each mask that allows nothing, see :class:`~shoal.checking.play.HostInstance`."""
        return getattr(self.instances[copy], "empty", [])

    def rate(self) -> tuple[float, float]:
        """Steps per second of many compiled copies, and the compile time in seconds."""
        from shoal.checking.device import vmapped_rate

        return vmapped_rate(self.env)


class Here:
    """A subject in this process."""

    own = False

    def __init__(self) -> None:
        self.subject = Subject()

    def call(self, method: str, *arguments: Any, limit: float = 0.0) -> Any:
        """Call a method of the subject; ``limit`` is ignored.

        Raises:
            PlayError: the environment raised.
            InputError: it cannot be built.
        """
        try:
            return getattr(self.subject, method)(*arguments)
        except (Exception, SystemExit) as error:
            if isinstance(error, InputError) and method == "build":
                raise
            raise fault_of(error) from None

    def end(self) -> None:
        """Do nothing: there is no process to end."""


# The process.


_ASK = getattr(signal, "SIGUSR1", None)
"""Signal on which the process writes its stack."""
_LOOK = 0.5
"""Seconds between two checks that the process is alive."""
_WRITING = 1.0
"""Seconds to wait for the stack."""


class Process:
    """A subject in a separate process."""

    own = True

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            isolation.child_command(__name__, orders, answers, self._trace.fileno()),
            stdin=subprocess.DEVNULL,
            pass_fds=(orders, answers, self._trace.fileno()),
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | isolation.child_environment(),
            start_new_session=True,  # so that it can be killed with the processes of the environment
        )
        os.close(orders)
        os.close(answers)
        self._ended = False

    def call(self, method: str, *arguments: Any, limit: float) -> Any:
        """Call a method of the subject with a time-out of ``limit`` seconds.

        Raises:
            PlayError: the environment raised, ended its process, or did not return.
            InputError: it cannot be built.
        """
        if self._ended:
            raise PlayError("was not called, since its process has ended", gone=True)
        with contextlib.suppress(BrokenPipeError):  # the process has ended; reading the answer reports it
            write_block(self._orders, (method, arguments))
        answer = read_block(self._answers) if self._answered(limit) else None
        if answer is None:
            raise self._lost(f"ended its process, with {self._how()}")
        kind, value = answer
        if kind == "refused":
            raise InputError(value)
        if kind == "raised":
            raise PlayError(*value)
        return value

    def _answered(self, limit: float) -> bool:
        """Wait for an answer; False if the process has ended without one (its children may keep the pipe open).

        Raises:
            PlayError: there is no answer after ``limit`` seconds.
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
        """Kill the process and its children; idempotent."""
        if self._ended:
            return
        self._ended = True
        os.close(self._orders)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left; macOS raises the second
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._answers)
        self._trace.close()


def start(environment: Any, options: dict[str, Any], isolate: bool) -> Process | Here:
    """A separate process if ``environment`` has a name or can be pickled and imported; otherwise this process."""
    if not isolate or os.name != "posix":
        return Here()
    sendable = isinstance(environment, str) or pickled(environment) is not None
    with contextlib.suppress(Exception):
        if sendable and pickle.dumps(options):
            return Process()
    return Here()


def _stack(text: str) -> str:
    """The environment's own frames of the last stack written by :mod:`faulthandler`, innermost last."""
    # From Python 3.14 on the stack of C follows that of Python.
    current = re.split(r"(?<!C stack trace )\(most recent call first\)", text)[-1]
    frames = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', current, re.MULTILINE)
    lines = [f'  File "{file}", line {line}, in {name}' for file, line, name in frames if not is_ours(file)]
    return "\n".join(reversed(lines))


def main(orders: int, answers: int, trace: int) -> None:
    """Serve calls until the pipe is closed; the arguments are file descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    faulthandler.enable(trace, all_threads=False)
    isolation.guard_libraries()
    if _ASK is not None:
        faulthandler.register(_ASK, trace, all_threads=False)
    # The environment's output goes to stderr, apart from the report of the check.
    os.dup2(2, 1)
    here = Here()
    while (order := read_block(orders)) is not None:
        method, arguments = order
        try:
            answer = ("done", here.call(method, *arguments))
        except InputError as error:
            answer = ("refused", str(error))
        except PlayError as fault:
            answer = ("raised", (fault.what, fault.trace))
        try:
            write_block(answers, answer)
        except BrokenPipeError:
            return
