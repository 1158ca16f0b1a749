"""Pursuit as a :class:`Scene` and an :class:`Outline`: pursuers are numbered discs, evaders rings, walls squares."""

import numpy as np
from jaxtyping import Array, Bool, Int

from shoal.environments.grid.drawing import CELL, cells_outline, view_features
from shoal.environments.grid.field import GONE, Field
from shoal.environments.mpe.drawing import BLUE, GREY, ORANGE
from shoal.environments.outlines import body
from shoal.types import Outline, Scene

Cells = Int[Array | np.ndarray, " _"]


def scene(field: Field, building: Bool[np.ndarray, " C"], pursuers: Cells, evaders: Cells) -> Scene:
    """One unbatched timestep; the building is drawn as grey discs, and posts mark the corners of the grid."""
    pursuers, evaders, walls = np.asarray(pursuers), np.asarray(evaders), field.cells[building]
    left = evaders[evaders != GONE]
    corners = np.array([(x, y) for x in (0, field.columns) for y in (0, field.rows)])
    rows, columns = field.place(np.concatenate([walls, left, pursuers]))
    places = np.concatenate([corners, np.stack([columns, rows], 1) + 0.5])
    kind = np.repeat(np.arange(4), [len(corners), len(walls), len(left), len(pursuers)])
    numbers = [str(i) for i in range(len(pursuers))]
    return Scene(
        centres=CELL * (places - np.array([field.columns, field.rows]) // 2),
        radii=np.array([0.06, 0.25, 0.2, 0.15])[kind],
        colours=np.array([GREY, GREY, ORANGE, BLUE])[kind],
        hollow=kind == 2,
        labels=(*[""] * (len(kind) - len(numbers)), *numbers),
        extent=CELL * -(-max(field.rows, field.columns) // 2),
        caption=_caption(evaders),
    )


def outline(
    field: Field,
    building: Bool[np.ndarray, " C"],
    pursuers: Cells,
    evaders: Cells,
    actions: tuple[str, ...],
    view: int,
) -> Outline:
    """One unbatched timestep in numbers; cells are unit squares, and captured evaders are absent."""
    pursuers, evaders, walls = np.asarray(pursuers), np.asarray(evaders), field.cells[building]
    cells = np.concatenate([walls, evaders, pursuers])
    n = len(pursuers)
    bodies = [body("building", "square", 0.5, GREY) for _ in walls]
    bodies += [body(f"evader_{i}", "square", 0.28, ORANGE) for i in range(len(evaders))]
    bodies += [body(f"pursuer_{i}", "disc", 0.34, BLUE, agent=i, text=str(i)) for i in range(n)]
    features = view_features(view, ("wall", "pursuers", "evaders"), ("down", "up"))
    caption = _caption(evaders)
    return cells_outline(field, cells, bodies, [list(actions)] * n, [features] * n, caption, upwards=True)


def _caption(evaders: Int[np.ndarray, " M"]) -> str:
    return f"{(evaders == GONE).sum()} of {len(evaders)} evaders captured"
