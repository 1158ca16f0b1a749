"""Heat maps of where units were, over many states."""

import numpy as np
from PIL import Image

from shoal.environments.skirmish.battle import Battle
from shoal.environments.skirmish.canvas import BLUE, FINE, HEAD, Colour, view_of
from shoal.environments.skirmish.terrain import SIDE

_BINS = 2
"""Squares along the side of a cell."""


def heat(battle: Battle, x: np.ndarray, y: np.ndarray, colour: Colour = BLUE) -> np.ndarray:
    """How often units were at each place, on the battle's map.

    Args:
        battle: whose map is drawn.
        x: positions of living units, in cells, of any shape; NaN values are left out.
        y: of the same shape.
        colour: of the most visited place; others are paler with the logarithm of their count.

    Returns:
        uint8 [height, width, 3].
    """
    view = view_of(battle)
    x, y = (np.asarray(values, float).ravel() for values in (x, y))
    here = np.isfinite(x) & np.isfinite(y)
    counts = np.log1p(np.histogram2d(x[here], y[here], SIDE * _BINS, ((0, SIDE), (0, SIDE)))[0])
    share = (255 * counts / max(counts.max(), 1.0)).astype(np.uint8).T[::-1]  # rows from the top
    ground = view.ground.reduce(FINE)
    side = round(SIDE * view.scale / FINE)
    left, top = (round(part / FINE) for part in view.at(0, SIDE))
    squares = Image.fromarray(np.ascontiguousarray(share)).resize((side, side), Image.Resampling.NEAREST)
    mask = Image.new("L", ground.size)
    mask.paste(squares, (left, top))
    ground.paste(colour, (0, 0, *ground.size), mask)
    return np.asarray(ground)[HEAD:]
