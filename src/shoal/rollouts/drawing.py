"""A game that is watched and drawn in a process of its own. Does not import JAX.

The renderer of a library can end its process (MuJoCo's does without a display), or never return.
"""

import importlib
import os
import sys
from functools import partial
from typing import Any

import numpy as np

from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.rollouts import worker as serving
from shoal.rollouts.pool import BUILDING, Pool
from shoal.rollouts.worker import Fault, Loss, Worker, how_it_ended, pickled

DRAWING = 30.0
"""Time-out in seconds for one picture."""

PREPARING = 120.0
"""Time-out in seconds for building a game that is drawn."""


class DrawingError(Exception):
    """The environment's renderer failed; the message continues a sentence, for example "its renderer raised …"."""


class WatchedGame(Pool):
    """One game in a process of its own, or in this process if it cannot be sent to another one.

    With ``draws``, whatever ends or stops that process is a :class:`DrawingError`, since it would not have happened in
    training; without, it is a :class:`GameError`.
    """

    def __init__(self, env: HostEnvironment, draws: bool):
        self.draws = draws
        if draws:
            env = HostEnvironment(env.spec, partial(env.make, render=True))
        found = sent(env.make)
        self.building = PREPARING if draws else BUILDING
        # What a renderer prints as it fails is replaced by one sentence.
        self.launch = {"quiet": draws, "environ": _off_screen() if draws else {}}
        try:
            super().__init__(env, 1, 1, int(found is not None), make=found)
        except InputError as error:
            if not draws:
                raise
            what = str(error).partition("\n")[0].removeprefix(f"{env.spec.name}: ")
            raise DrawingError(what.rstrip(".")) from None

    def play(self) -> None:
        """Play ``board.action``; the game stays in its last state if its episode ends.

        Raises:
            GameError: the game raised, or its process died or hung.
            DrawingError: its process died or hung, and it draws.
        """
        if self.here is None:
            self._order(0, serving.PLAY)
        else:
            self.here_fault[0] = self.here.play(0)
        self.wait(0)

    def picture(self) -> np.ndarray | None:
        """The picture of the current state; None without a renderer, or if the game does not draw.

        Raises:
            DrawingError: the renderer raised, ended its process, or did not return in time.
        """
        if not self.draws:
            return None
        if self.here is not None:
            found = self.here.picture(0)
            found = found.copy() if isinstance(found, np.ndarray) else found  # render may draw into it again
        else:
            (one,) = self.workers
            one.send(serving.DRAW, 0)
            found = one.read(DRAWING)
            if found is None:
                block = serving.read_block(one.answers)
                found = Loss.ENDED if block is None else block[0]
            if isinstance(found, Loss):
                raise DrawingError(f"its renderer {self._ended(one, found, DRAWING)}")
        if isinstance(found, Fault):
            raise DrawingError(f"its renderer raised {found.error}")
        return found

    def _restart(self, one: Worker, loss: Loss) -> None:
        how = self._ended(one, loss, self.timeout)
        if self.draws:
            raise DrawingError(f"its process {how}")
        raise GameError(f"{self.env.spec.name}: its process {how}", None, "", "")

    def _ended(self, one: Worker, loss: Loss, seconds: float) -> str:
        """How the process ended, as text; kills it if it is still running."""
        how = how_it_ended(one, loss, seconds)
        one.end()
        return how


def sent(make: Any) -> bytes | None:
    """``make`` pickled for another process; None if there is no way to send it.

    What another process cannot import, such as a function of a notebook, is sent by value if cloudpickle is installed.
    """
    if os.name != "posix":
        return None
    found = pickled(make)
    if found is None:
        try:
            found = importlib.import_module("cloudpickle").dumps(make)
        except Exception:  # not installed, or what it refers to cannot be pickled, of which it raises any exception
            return None
    return found


def _off_screen() -> dict[str, str]:
    """Environment variables of a process that draws: without a display, MuJoCo's default library ends the process."""
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        return {"MUJOCO_GL": "egl"}
    return {}
