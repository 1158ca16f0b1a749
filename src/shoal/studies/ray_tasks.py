"""One run of a study as a task in a process of a Ray cluster. Does not import Ray."""

import contextlib
import io
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from typing import NamedTuple

import jax

import shoal
from shoal import isolation
from shoal.errors import FolderTakenError, GameError, InputError, NonFiniteError
from shoal.loading import trained_on
from shoal.studies import execution
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.training import program_cache, sharding

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


def run(cell: Cell, place: Place) -> Iterator[str | Outcome]:
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
