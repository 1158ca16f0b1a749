"""``shoal train --hosts``: one run on several hosts. This process starts and watches those of its machine that train.

JAX ends the processes that survive a lost one, without a word to the user; so the process of the command does not
train itself. It starts one process, or several with ``local:N``, forwards signals to it, and says what happened if one
is lost.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from shoal.bounds import Bounds, check_value
from shoal.cli.flags import Flag, number_text
from shoal.errors import InputError, shortened
from shoal.security import isolation
from shoal.system import notices
from shoal.system.machine import cores

HOSTS = Flag(
    "hosts",
    str | None,
    None,
    "Train one run on several hosts (docs/hosts.md): auto where a cluster such as Slurm tells the processes of each "
    "other, HOST:PORT of process 0 with --host-count and --host-index, or local:N for N processes of this machine.",
)
COUNT = Flag("host_count", int | None, None, "With --hosts HOST:PORT: the number of processes.", bounds=Bounds(least=1))
INDEX = Flag(
    "host_index", int | None, None, "With --hosts HOST:PORT: which of them this is, from 0.", bounds=Bounds(least=0)
)
TIMEOUT = Flag(
    "host_timeout",
    float,
    60.0,
    "With --hosts: seconds without a sign of life after which a process is lost, which ends the run.",
    bounds=Bounds(least=1, most=1e6),
)
FLAGS = (HOSTS, COUNT, INDEX, TIMEOUT)

PROGRAM = """import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from shoal.cli.host_process import main
main()
"""

MOST = 1024
"""Largest number of processes on this machine."""
SETTLE = 3.0
"""Seconds in which the others end by themselves after one has ended."""
PARTING = 30.0
"""Seconds in which the others end after one has finished."""

LOST = 75
"""Exit code of a process that lost another one."""
SAID = (0, 1, 2, 130)
"""Exit codes of a process that has printed why it ended."""
BROKEN, INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Place:
    """What one of the processes is told; as JSON it is the argument of :mod:`shoal.cli.host_process`."""

    address: str | None
    """Host and port of process 0; None where a cluster tells it."""
    count: int | None
    index: int | None
    timeout: float
    local: bool
    """Whether all processes are on this machine, each with one accelerator or its part of the cores."""
    devices: int | None
    """Number of CPU devices of this process; None for one per core."""
    called: str
    """``sys.argv[0]`` of the command."""
    folder: str | None = None
    """The folder of a new run that the command has chosen; None where its words name one, or process 0 chooses it."""


inside: Place | None = None
"""Of a process that trains; None in the process of the command."""


def chosen_folder() -> Path | None:
    """The folder that the command has chosen for the new run that this process trains; None if it has not."""
    return Path(inside.folder) if inside is not None and inside.folder else None


def words_of(own: dict[str, Any]) -> str:
    """The flags of ``--hosts`` that a command that continues the run needs, with a leading space; empty for none."""
    given = [flag for flag in FLAGS if own[flag.name] not in (None, flag.default)]
    texts = {flag: number_text(own[flag.name]) if flag is TIMEOUT else own[flag.name] for flag in given}
    return "".join(f" {flag.spelt} {text}" for flag, text in texts.items())


def check(own: dict[str, Any]) -> None:
    """Refuse flags that are only for ``--hosts`` without it, and numbers out of their bounds.

    Raises:
        InputError: one is given.
    """
    for flag in (COUNT, INDEX, TIMEOUT):
        if own[HOSTS.name] is None and own[flag.name] != flag.default:
            raise InputError(f"{flag.spelt} is only for --hosts.")
        assert flag.bounds is not None
        check_value(flag.spelt, own[flag.name], flag.bounds)


def places(own: dict[str, Any], devices: int | None) -> list[Place]:
    """The processes to start on this machine.

    Args:
        own: values of :data:`FLAGS`.
        devices: of all processes together; None for as many as there are.

    Raises:
        InputError: the flags do not say how the processes find each other.
    """
    hosts, count, index, timeout = (own[flag.name] for flag in FLAGS)
    if sys.platform == "win32":
        raise InputError("--hosts does not work on Windows.")
    kind, _, number = hosts.rpartition(":")
    if hosts == "auto" or kind == "local":
        for flag in (COUNT, INDEX):
            if own[flag.name] is not None:
                raise InputError(f"{flag.spelt} is only for --hosts HOST:PORT.")
    if hosts == "auto":
        return [Place(None, None, None, timeout, False, None, sys.argv[0])]
    if not kind or not re.fullmatch("[0-9]{1,5}", number):
        raise InputError(f"--hosts takes auto, HOST:PORT or local:N, for example local:2, not {shortened(hosts)}.")
    if kind != "local":
        if count is None or index is None:
            raise InputError("--hosts HOST:PORT needs --host-count N and --host-index I, from 0 to N − 1.")
        if index >= count:
            raise InputError(f"--host-index {index} must be below --host-count {count}; the first is 0.")
        if not 0 < int(number) < 2**16:
            raise InputError(f"--hosts {hosts} has no port; ports are 1 to 65535.")
        return [Place(hosts, count, index, timeout, False, None, sys.argv[0])]
    here = int(number)
    if not 1 <= here <= MOST:
        raise InputError(f"--hosts local:N starts 1 to {MOST} processes, not {here}.")
    if devices is not None and devices % here:
        raise InputError(f"devices {devices} is not divisible by the {here} processes of --hosts.")
    each = max(1, cores() // here) if devices is None else devices // here
    address = f"127.0.0.1:{_free_port()}"
    return [Place(address, here, i, timeout, True, each, sys.argv[0]) for i in range(here)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen
    index: int | None
    log: IO[bytes]
    """What libraries print, and what a process that does not lead prints."""

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def supervise(which: Sequence[Place], words: Sequence[str], folder: Path | None, again: str) -> int:
    """Start processes that train, and watch them to their end; returns the exit code.

    Args:
        which: the processes.
        words: the command, after ``shoal``.
        folder: the run's; None if it is not known here.
        again: the command that continues the run.
    """
    reads, writes = os.pipe()  # closed when this process ends, which the others notice
    children: list[_Child] = []
    try:
        with _forwarding(children) as asked:
            for place in which:
                children.append(_start(place, words, reads))
            codes = _watched(children)
        if codes[0] in SAID:
            return codes[0]
        if asked:
            return INTERRUPTED
        saved = folder is None or any((folder / "checkpoints").glob("*"))
        then = f"Continue with\n{again}" if saved else "Nothing is saved yet."
        notices.warn(f"shoal: {what_happened(children, codes)} {then}")
        return BROKEN
    finally:
        for child in children:
            child.process.kill()
            child.process.wait()
            child.log.close()
        for end in (reads, writes):
            os.close(end)


def _start(place: Place, words: Sequence[str], life: int) -> _Child:
    out, err, log = os.dup(1), os.dup(2), tempfile.TemporaryFile()  # noqa: SIM115
    streams = json.dumps({"out": out, "err": err, "life": life})
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, json.dumps(sys.path), json.dumps(asdict(place)), streams, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(out, err, life),
            env=isolation.child_environment(),
            start_new_session=True,  # Ctrl-C reaches the process of the command only, which forwards it
        )
    finally:
        os.close(out)
        os.close(err)
    return _Child(process, place.index, log)


@contextlib.contextmanager
def _forwarding(children: Sequence[_Child]) -> Iterator[list[int]]:
    """Forward signals to the first child, which tells the others; a second Ctrl-C ends all at once."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    caught = [number for number in numbers if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    asked: list[int] = []

    def forward(number: int, frame: object) -> None:
        again = number == signal.SIGINT and signal.SIGINT in asked
        asked.append(number)
        for child in children if again else children[:1]:
            with contextlib.suppress(ProcessLookupError):
                child.process.kill() if again else child.process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in caught}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(children: Sequence[_Child]) -> list[int | None]:
    """Wait for the end of the first child or the failure of another; the exit codes, None where one still runs."""

    def codes() -> list[int | None]:
        return [child.process.poll() for child in children]

    found, end = codes(), None
    while True:
        first, *others = found
        failed = first not in (None, 0) or any(code not in (None, 0) for code in others)
        if None not in found:
            return found
        if end is None and (failed or first == 0):
            end = time.monotonic() + (SETTLE if failed else PARTING)
        if end is not None and time.monotonic() > end:
            return found
        time.sleep(0.05)
        found = codes()


def what_happened(children: Sequence[Any], codes: Sequence[int | None]) -> str:
    """One sentence on the process that ended first, as far as it is known.

    Args:
        children: the processes, with ``index`` and ``said()``.
        codes: their exit codes; None where one still ran.
    """
    followed = (None, 0, LOST, -signal.SIGABRT)  # JAX aborts the processes that lost another one
    who = next((i for i, code in enumerate(codes) if code not in followed), None)
    of = f" of {len(children)}" if len(children) > 1 else ""
    if who is None:
        found = re.findall(r"task:(\d+)", "".join(child.said() for child in children))
        lost = f"process {found[-1]}" if found else "another process"
        return f"The connection to {lost} of the run is lost, so training has ended."
    name, code = f"Process {children[who].index if children[who].index is not None else ''}".strip() + of, codes[who]
    assert code is not None
    if code < 0:
        by = signal.Signals(-code).name
        why = ", as by a system that is out of memory" if by == "SIGKILL" else ""
        return f"{name} was killed ({by}{why}), so training has ended."
    lines = [line for line in children[who].said().splitlines() if line.strip() and not line.startswith("[Gloo]")]
    said = f": {lines[-1].strip().removeprefix('shoal: ').rstrip('.')}" if lines else ""
    return f"{name} ended with exit code {code}{said}."
