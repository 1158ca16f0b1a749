"""A field as a :class:`Scene`: agents are numbered discs, prey are rings, remaining numbers are in the caption."""

import numpy as np
from jaxtyping import Array, Int

from shoal.environments.grid.field import GONE, Field
from shoal.environments.mpe.drawing import BLUE, GREEN, GREY, ORANGE
from shoal.types import Scene

CELL = 0.5
"""The side of a cell, so that the picture's grid lines are the borders of the cells."""
POST, AGENT, STAG, HARE = range(4)
COLOURS = np.array([GREY, BLUE, ORANGE, GREEN])
RADII = np.array([0.06, 0.17, 0.2, 0.12])


def scene(field: Field, agents: Int[Array, " N"], prey: Int[Array, " M"], stags: int) -> Scene:
    """One unbatched timestep. Posts mark the corners of the field, which may be smaller than the square picture."""
    cells, n = np.concatenate([np.asarray(agents), np.asarray(prey)]), len(agents)
    there = cells != GONE
    kind = np.repeat([AGENT, STAG, HARE], [n, stags, len(prey) - stags])[there]
    corners = np.array([(r, c) for r in (0, field.rows) for c in (0, field.columns)])
    places = np.concatenate([corners, np.stack(field.place(cells[there]), 1) + 0.5])
    kind = np.append(np.full(len(corners), POST), kind)
    numbers = [str(i) for i in np.flatnonzero(there[:n])]
    before = [""] * len(corners)
    return Scene(
        centres=CELL * np.stack([places[:, 1] - field.columns // 2, field.rows // 2 - places[:, 0]], axis=1),
        radii=RADII[kind],
        colours=COLOURS[kind],
        hollow=kind >= STAG,
        labels=(*before, *numbers, *[""] * (len(kind) - len(before) - len(numbers))),
        extent=CELL * -(-max(field.rows, field.columns) // 2),
        caption=f"{(~there[n:]).sum()} of {len(prey)} animals captured, {there[:n].sum()} of {n} agents on the field",
    )
