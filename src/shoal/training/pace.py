"""When checkpoints are saved during training."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.types import Seconds

SAVING = 20.0
"""The time between two checkpoints is at least this multiple of the time to write one."""


class Pace:
    """Wall time between checkpoints: ``pause`` seconds, and more where writing one is slow (a large replay buffer).

    With ``pause`` 0 every call is followed by a checkpoint.
    """

    def __init__(self, pause: Seconds):
        self._least = self._pause = pause
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._saved >= self._pause

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that the block takes to write a checkpoint."""
        began = time.monotonic()
        yield
        self._saved = time.monotonic()
        if self._least > 0:
            self._pause = max(self._least, SAVING * (self._saved - began))
