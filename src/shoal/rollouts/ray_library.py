"""Ray itself: found, started or joined, and what it raises. The only file that imports it."""

import os
import signal
import socket
import threading
import warnings
from typing import Any

from shoal.errors import GameError, InputError
from shoal.extras import install
from shoal.rollouts.pool import spread
from shoal.rollouts.recording import Width


def library() -> Any:
    """Ray itself.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(f"Rollouts on a cluster need Ray: {install('ray')}.") from None
    return ray


def actors(width: Width) -> int:
    """W; unless said otherwise, as many as there are cores and the environments divide over.

    Raises:
        InputError: the environments do not divide over them.
    """
    count = spread(width.num_envs, width.num_workers) or 1
    if width.num_workers is None:
        return next(n for n in range(count, 0, -1) if width.num_envs % n == 0)
    if width.num_envs % count:
        raise InputError(f"num_envs {width.num_envs} does not divide over {count} Ray actors.")
    return count


def connect(address: str | None, workers: int) -> None:
    """Join the cluster at ``address`` (or at ``RAY_ADDRESS``), or start one of so many cores here.

    Raises:
        InputError: there is none.
    """
    ray = library()
    address = address or os.environ.get("RAY_ADDRESS")
    _check_there(address)
    # Not nice: the actors do the work, and the learner waits for them.
    own = {"num_cpus": workers, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    size = {} if address else own
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of several actors that raise, one is heard
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():  # Ray forks to start a program of its own at once, which is harmless
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
            # "local", since without an address Ray would join whatever else it finds on this machine
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **size)
    except ConnectionError as error:
        raise InputError(f"Ray cannot reach a cluster at {address}: {_first_line(error)}.") from None
    except Exception as error:  # Ray raises what its own parts do: no space, no port, a folder that cannot be written
        where = f"at {address}" if address else "on this machine"
        raise InputError(f"Ray cannot start {where}: {type(error).__name__}: {_first_line(error)}.") from error
    finally:  # Ray's own would end the process, unsaved
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _check_there(address: str | None) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10.0).close()
    except OSError as error:
        raise InputError(f"There is no Ray cluster at {address}: {error}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["it does not say why"])[0].rstrip(".")


def cause(error: Any) -> Exception:
    """What was raised in an actor; with the actor's traceback, unless it is an error that says all there is to say."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, GameError | InputError):
        return inner
    return error.as_instanceof_cause() if hasattr(error, "as_instanceof_cause") else error
