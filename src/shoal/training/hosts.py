"""The processes of one run on several hosts (``shoal train --hosts``): how they connect, and who tells whom what to do.

Process 0, the leader, has the only :class:`~shoal.training.trainer.Trainer` that runs: it decides, evaluates, writes
and prints as in a run of one process. Before each step in which the others take part it sends them an order, and they
do the same step of the compiled program (:mod:`shoal.training.follower`). So nothing but the leader needs to know when
a run ends, saves or evaluates. The answer to an order says whether a process received a signal.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import jax
import numpy as np

from shoal.errors import InputError, told
from shoal.types import PyTree

PIECE = 2**28
"""Bytes of an array that are gathered at once; each device holds a copy of a piece."""
CONNECT = 300
"""Seconds in which all processes must have started."""


class Order(IntEnum):
    """What the leader tells the other processes to do."""

    END = 0
    """Training has ended."""
    AHEAD = 1
    """Begin to compile."""
    INIT = 2
    """Make the state of a new run."""
    RESTORE = 3
    """Restore the checkpoint of this update."""
    START = 4
    """Compile for the state."""
    ADVANCE = 5
    """Make so many updates."""
    GATHER = 6
    """Gather this leaf of the state."""


class Crew:
    """The processes of a run, as one of them sees it."""

    def __init__(self, heard: Callable[[int], None] = lambda number: None):
        self.count, self.index = jax.process_count(), jax.process_index()
        self.ended, self.abandoned = False, False
        self.heard = heard
        """Called in the leader with the number of a signal that another process received."""

    @property
    def leads(self) -> bool:
        """Whether this process decides and writes."""
        return self.index == 0

    def order(self, what: Order, number: int = 0) -> None:
        """As the leader, tell the others what to do next; no effect once the run has ended."""
        if not self.ended:
            signals = _exchanged(what, number)[1:, 2]
            if signals.any():
                self.heard(int(signals.max()))

    def next(self, signal: int) -> tuple[Order, int]:
        """Wait for the next order, and tell the leader the number of the signal that arrived here; 0 for none."""
        what, number, _ = _exchanged(0, 0, signal)[0]
        return Order(what), int(number)

    def end(self) -> None:
        """Part from the other processes, which all do this after the order to end."""
        if not self.ended:
            self.ended = True
            jax.distributed.shutdown()

    def dismiss(self) -> None:
        """As the leader, end the other processes."""
        if not self.ended:
            self.order(Order.END)
            self.end()

    def abandon(self) -> None:
        """Leave without telling the others, which may be in the midst of an order."""
        self.ended = self.abandoned = True

    def share(self, arrays: PyTree) -> PyTree:
        """The leader's arrays in place of those of this process, which have the same shapes; all call this at once."""
        from jax.experimental import multihost_utils

        words = jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, arrays)
        found = multihost_utils.broadcast_one_to_all(words, is_source=self.leads)

        def like(x: Any, own: Any) -> Any:
            return jax.random.wrap_key_data(x, impl=jax.random.key_impl(own)) if _is_key(own) else x.astype(own.dtype)

        return jax.tree.map(like, found, arrays)

    def read(self, state: PyTree, leaves: Sequence[Any]) -> list[np.ndarray]:
        """As the leader, some leaves of the state in host memory; PRNG keys as their words."""
        places = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(state))}
        found = []
        for leaf in leaves:
            if not _is_here(leaf):
                if self.ended:
                    raise InputError("Training on several hosts has ended, so policies of other hosts cannot be read.")
                self.order(Order.GATHER, places[id(leaf)])
            found.append(gathered(leaf))
        return found


def _exchanged(*numbers: int) -> np.ndarray:
    """[processes, 3] the numbers of all processes."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(np.array([*numbers, 0, 0, 0][:3], np.int32))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_here(leaf: Any) -> bool:
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


def gathered(leaf: Any) -> np.ndarray:
    """A whole array [S, E, M, ...] in host memory; all processes take part if parts of it are elsewhere."""
    from jax.experimental import multihost_utils

    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if _is_here(leaf):
        return np.asarray(leaf)
    pieces = math.ceil(leaf.nbytes / PIECE)
    if pieces <= 1 or leaf.ndim < 3:
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    step, length = max(1, leaf.shape[2] // pieces), leaf.shape[2]  # an axis that is not cut over devices
    whole = np.empty(leaf.shape, leaf.dtype)
    for start in range(0, length, step):
        piece = jax.lax.slice_in_dim(leaf, start, min(start + step, length), axis=2)
        whole[:, :, start : start + step] = multihost_utils.process_allgather(piece, tiled=True)
    return whole


# The crew of this process.

_crew: Crew | None = None


def crew() -> Crew | None:
    """The processes of the run that this process is a part of; None without ``--hosts``."""
    return _crew


def follows() -> bool:
    """Whether this process only does what another one orders."""
    return _crew is not None and not _crew.leads


def devices() -> list[Any]:
    """The devices that a run may use: those of this process, or of all processes of the run."""
    return jax.local_devices() if _crew is None else jax.devices()


def connect(
    address: str | None, count: int | None, index: int | None, timeout: float, local_device: int | None = None
) -> Crew:
    """Connect this process with the others of its run, before JAX starts its devices.

    Args:
        address: host and port of process 0; None where a cluster tells it, as well as ``count`` and ``index``.
        count: number of processes.
        index: which of them this one is.
        timeout: seconds without a sign of life after which a process is lost.
        local_device: the only accelerator that this process uses; None for all of its machine.

    Raises:
        InputError: they do not find each other.
    """
    global _crew
    jax.config.update("jax_enable_preemption_service", False)  # it would handle SIGTERM
    try:
        jax.distributed.initialize(
            address,
            count,
            index,
            local_device_ids=local_device,
            cluster_detection_method=None if address is None else "deactivate",
            initialization_timeout=CONNECT,
            heartbeat_timeout_seconds=math.ceil(timeout),
        )
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise InputError(f"The processes of --hosts do not find each other: {told(error)}") from error
    _crew = Crew()
    return _crew
