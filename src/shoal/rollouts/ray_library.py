"""Import, start and join Ray, and convert its errors. The only file that imports Ray."""

import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.errors import GameError, InputError
from shoal.extras import install, lacking
from shoal.rollouts.pool import spread
from shoal.rollouts.recording import Parallelism

SILENCE = 10.0
"""Seconds within which the head of a cluster has to answer."""


def library(what: str = "Rollouts") -> Any:
    """The module ``ray``, for ``what`` on a cluster.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError(
            lacking(f"{what} on a cluster", "Ray", error, install("ray"), ("ray",), needs="need")
        ) from None
    return ray


def actors(parallelism: Parallelism) -> int:
    """W, the number of actors; by default the largest number up to one per core that divides E.

    Raises:
        InputError: the number of environments is not divisible by it.
    """
    count = spread(parallelism.num_envs, parallelism.num_workers) or 1
    if parallelism.num_workers is None:
        return next(n for n in range(count, 0, -1) if parallelism.num_envs % n == 0)
    if parallelism.num_envs % count:
        raise InputError(f"num_envs {parallelism.num_envs} is not divisible by the {count} Ray actors.")
    return count


def connect(address: str | None, workers: int) -> None:
    """Join the cluster at ``address`` (or ``RAY_ADDRESS``), or start a local one with ``workers`` cores.

    Raises:
        InputError: the cluster cannot be reached or started.
    """
    ray = library()
    address = address or os.environ.get("RAY_ADDRESS")
    _check_there(address)
    # Niceness 0, since this process waits for the others.
    own = {"num_cpus": workers, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    size = {} if address else own
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # if several actors raise, the first error is reported
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():  # Ray forks only to execute another program
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
            # "local", since without an address Ray would join any cluster on this machine
            job = None if (address or "").startswith("ray://") else _job(ray)
            ray.init(address=address or "local", job_config=job, log_to_driver=False, logging_level="ERROR", **size)
    except ConnectionError as error:
        raise InputError(f"Ray cannot reach a cluster at {address}: {_first_line(error)}.") from None
    except Exception as error:  # for example no space, no port, or a folder that cannot be written
        where = f"at {address}" if address else "on this machine"
        raise InputError(f"Ray cannot start {where}: {type(error).__name__}: {_first_line(error)}.") from error
    finally:  # Ray's handler would end the process without saving
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


class _SearchPath(list[str]):
    """Folders in which the processes of a job search for modules first.

    Ray adds the driver's script folder and its working directory. The latter is left out unless the script is there,
    since its files would come before Python's own and the libraries'; what the driver searches is sent to each process
    and searched last (``ray_actor.py``, ``studies/ray_tasks.py``).
    """

    def extend(self, folders: Iterable[str]) -> None:
        script = os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120
        searched = script if script in sys.path else None
        super().extend(folder for folder in folders if folder == searched or folder != str(Path.cwd()))


def _job(ray: Any) -> Any:
    """The configuration of this process's job on the cluster; a client of Ray does not send its working directory."""
    job = ray.job_config.JobConfig()
    job._py_driver_sys_path = _SearchPath()
    return job


def _check_there(address: str | None) -> None:
    """Check the address first, since Ray would retry for minutes.

    The head of a cluster speaks HTTP/2, whose servers answer a client's first frame by one of settings, type 4.
    """
    host, colon, port = (address or "").rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or "/" in host:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SILENCE) as head:
            if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
                return
            head.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            if head.recv(9)[3:4] != b"\x04":
                raise InputError(f"The server at {address} is not a Ray cluster.")
    except TimeoutError:
        raise InputError(f"Nothing answers at {address} within {SILENCE:g} s, so there is no Ray cluster.") from None
    except OSError as error:
        raise InputError(f"There is no Ray cluster at {address}: {error}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["it does not say why"])[0].rstrip(".")


def cause(error: Any) -> Exception:
    """The exception raised in an actor; with the actor's traceback unless it is one of Shoal's errors."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, GameError | InputError):
        return inner
    return error.as_instanceof_cause() if hasattr(error, "as_instanceof_cause") else error
