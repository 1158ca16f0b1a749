"""A process of ``shoal train --hosts`` that trains; :mod:`shoal.cli.hosts` starts it."""

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

from shoal.cli import hosts
from shoal.cli.output import leave

PATIENCE = 60.0
"""Seconds in which a process may save after the process of the command is gone."""


def main() -> None:
    """Train as process ``argv[1]`` with the streams ``argv[2]`` by the command in the other words."""
    place, streams, words = hosts.Place(**json.loads(sys.argv[1])), json.loads(sys.argv[2]), sys.argv[3:]
    hosts.inside, sys.argv = place, [place.called, *words]
    threading.Thread(target=_end_with, args=(streams["life"],), daemon=True).start()
    if place.index in (None, 0):
        _print_to(streams["out"], streams["err"])
    code = _trained(place, words)
    from shoal.training import hosts as training
    from shoal.training.stopping import busy

    crew = training.crew()
    if crew is None or not crew.ended or crew.abandoned or busy():  # JAX would wait for the other processes
        leave(code)
    sys.exit(code)


def _trained(place: hosts.Place, words: Sequence[str]) -> int:
    from shoal.cli import command_line
    from shoal.errors import InputError
    from shoal.system import notices

    try:
        _connect(place)
        return command_line.main(words)
    except InputError as error:
        notices.warn(f"shoal: {error}")
        return command_line.REFUSED
    except Exception as error:
        if not _lost(error):
            traceback.print_exc()
            return command_line.BROKEN
        traceback.print_exc(file=os.fdopen(os.dup(2), "w"))  # for the log
        return hosts.LOST


def _connect(place: hosts.Place) -> None:
    import jax

    from shoal.training import hosts as training
    from shoal.training.sharding import start_devices

    if place.local:
        os.environ["no_grpc_proxy"] = "127.0.0.1"  # noqa: SIM112
        jax.config.update("jax_check_proxy_envs", False)  # which would warn of this variable
    if place.devices:
        start_devices(place.devices)
    crew = training.connect(
        place.address, place.count, place.index, place.timeout, place.index if place.local else None
    )
    if place.index is None and not crew.leads:
        _print_to(1, 2)


def _print_to(out: int, err: int) -> None:
    """Let Python print to these files; what libraries print remains in the log."""
    sys.stdout = sys.__stdout__ = os.fdopen(out, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(err, "w", 1, "utf-8", "backslashreplace", closefd=False)


def _lost(error: Exception) -> bool:
    """Whether an exception is that of a collective operation in which another process no longer took part."""
    from shoal.training import hosts as training

    crew = training.crew()
    if crew is None or crew.ended or "RESOURCE_EXHAUSTED" in str(error):
        return False
    return "Gloo" in str(error) or "NCCL" in str(error) or type(error).__name__ == "JaxRuntimeError"


def _end_with(life: int) -> None:
    """Save and end once the process of the command is gone."""
    with contextlib.suppress(OSError):
        os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(PATIENCE)
    os._exit(hosts.LOST)
