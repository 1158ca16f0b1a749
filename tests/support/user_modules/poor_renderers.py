"""Games that play well and whose renderers fail or draw into one array. Worker processes import this module, which
knows no JAX."""

import os
import subprocess
import time

import numpy as np

from counters import Counters
from shoal.game import Game


class Poor(Counters):
    """A game whose renderer fails in the third picture or returns the same array each time, and which plays well."""

    fault = ""
    canvas = np.zeros((20, 30, 3), np.uint8)

    def render(self) -> np.ndarray:
        print("noise of the renderer", flush=True)
        if self.t == 2:
            self.fail()
        if self.fault == "one canvas":
            self.canvas[...] = super().render()
            return self.canvas
        return super().render()

    def fail(self) -> None:
        if self.fault == "raise":
            raise RuntimeError("there is no\nscreen")
        if self.fault == "exit":
            raise SystemExit(3)
        if self.fault == "abort":
            os.abort()
        if self.fault == "hang":
            subprocess.Popen(["sleep", "600"])
            time.sleep(600)


def new(fault: str, render: bool = False) -> Game:
    if fault == "make" and render:
        os.abort()
    game = Poor(False, "", "")
    game.fault = fault if render else "raise"
    return game
