"""A field as a :class:`Scene`: agents are numbered discs, prey are rings, remaining numbers are in the caption."""

from typing import Any

import numpy as np
from jaxtyping import Array, Int

from shoal.environments.grid.field import GONE, Field
from shoal.environments.mpe.drawing import BLUE, GREEN, GREY, ORANGE
from shoal.environments.outlines import body
from shoal.types import Outline, Scene

CELL = 0.5
"""The side of a cell, so that the picture's grid lines are the borders of the cells."""
POST, AGENT, STAG, HARE = range(4)
COLOURS = np.array([GREY, BLUE, ORANGE, GREEN])
RADII = np.array([0.06, 0.17, 0.2, 0.12])


def scene(
    field: Field, agents: Int[Array | np.ndarray, " N"], prey: Int[Array | np.ndarray, " M"], stags: int
) -> Scene:
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


def outline(
    field: Field,
    agents: Int[Array | np.ndarray, " N"],
    prey: Int[Array | np.ndarray, " M"],
    stags: int,
    actions: tuple[str, ...],
    view: int,
) -> Outline:
    """One unbatched timestep in numbers; cells are unit squares, and who has left the field is absent."""
    cells, n = np.concatenate([np.asarray(agents), np.asarray(prey)]), len(agents)
    bodies = [body(f"agent_{i}", "disc", 0.34, BLUE, agent=i, text=str(i)) for i in range(n)]
    bodies += [body(f"stag_{i}", "square", 0.32, ORANGE) for i in range(stags)]
    bodies += [body(f"hare_{i}", "square", 0.2, GREEN) for i in range(len(prey) - stags)]
    kinds = ("agent", "stag", "hare")[: 2 + (len(prey) > stags)]
    features = view_features(view, kinds, ("up", "down"))
    left = (cells == GONE).astype(int)
    caption = f"{left[n:].sum()} of {len(prey)} animals captured, {n - left[:n].sum()} of {n} agents on the field"
    return cells_outline(field, cells, bodies, [list(actions)] * n, [features] * n, caption, upwards=False)


def cells_outline(
    field: Field,
    cells: Int[np.ndarray, " K"],
    bodies: list[dict[str, Any]],
    actions: list[list[str]],
    features: list[list[str]],
    caption: str,
    upwards: bool,
) -> Outline:
    """An outline of K ``bodies`` in the middle of their ``cells``; what is ``GONE`` is absent.

    ``upwards`` says whether rows are numbered from the bottom.
    """
    row, column = (np.where(cells == GONE, np.nan, place) for place in field.place(cells))
    fixed = {"box": [0, 0, field.columns, field.rows], "cell": 1, "bodies": bodies}
    fixed |= {"actions": actions, "features": features}
    y = row + 0.5 if upwards else field.rows - row - 0.5
    return Outline("bodies", fixed, {"x": column + 0.5, "y": y}, caption)


def view_features(view: int, kinds: tuple[str, ...], rows: tuple[str, str]) -> list[str]:
    """The names of the numbers that an agent observes in a square around it.

    Args:
        view: number of cells in each direction.
        kinds: what is observed of each cell.
        rows: where lower and higher rows are, for example ``("up", "down")``.
    """
    side = range(-view, view + 1)
    return [f"{kind} {_offset(row, right, rows)}" for row in side for right in side for kind in kinds]


def _offset(row: int, right: int, rows: tuple[str, str]) -> str:
    """A cell of a view in words."""
    words = [f"{abs(d)} {ways[d > 0]}" for d, ways in ((row, rows), (right, ("left", "right"))) if d]
    return ", ".join(words) or "here"
