"""Walkable cells of the maps, and the ways around cliffs.

All maps have 32 × 32 cells; cell (i, j) is the square [i, i + 1) × [j, j + 1). The walkable cells are those whose
lowest bit in the map archive's ``t3CellFlags`` is clear, an interpretation that gives exactly the maps' visible cliffs.
"""

import functools

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from shoal.errors import unknown

SIDE = 32
Rectangle = tuple[int, int, int, int]
"""First and last row (y), first and last column (x), all included."""

_BLOCKS: dict[str, tuple[Rectangle, ...]] = {
    "open": ((0, 31, 0, 31),),
    "band": ((8, 23, 0, 31),),
    "octagon": ((6, 7, 10, 21), (8, 9, 8, 23), (10, 21, 6, 25), (22, 23, 8, 23), (24, 25, 10, 21)),
    "arena_a": ((8, 9, 10, 19), (10, 17, 8, 21), (18, 19, 10, 19)),
    "arena_b": ((8, 19, 8, 19), (20, 21, 10, 17), (22, 23, 12, 15)),
    # The archive's cells meet at corners only around (12, 12); the last four rectangles connect them by a neck that is
    # two to three cells wide.
    "corridor": (
        (2, 11, 2, 11),
        (12, 13, 12, 13),
        (14, 15, 14, 25),
        (16, 17, 14, 27),
        (18, 21, 12, 29),
        (22, 23, 14, 29),
        (24, 25, 16, 29),
        (26, 27, 18, 29),
        (28, 29, 20, 29),
        (12, 12, 11, 11),
        (11, 11, 12, 12),
        (13, 13, 14, 14),
        (14, 14, 13, 13),
    ),
    "diagonal": (
        (2, 3, 2, 7),
        (4, 7, 2, 11),
        (8, 11, 4, 15),
        (12, 15, 8, 19),
        (16, 17, 10, 19),
        (18, 21, 14, 25),
        (22, 23, 16, 29),
        (24, 27, 20, 29),
        (28, 29, 22, 29),
    ),
    "ravine": (
        (6, 7, 4, 27),
        (8, 9, 2, 29),
        (10, 11, 0, 31),
        (12, 13, 0, 3),
        (12, 13, 28, 31),
        (14, 15, 0, 31),
        (16, 17, 2, 29),
        (18, 19, 8, 23),
    ),
}
_CLIFFS: dict[str, tuple[Rectangle, ...]] = {"ravine": ((12, 13, 4, 27),)}
"""Cells that only climbing units enter."""

TERRAINS = tuple(_BLOCKS)
"""The names of all terrains."""


def _painted(rectangles: tuple[Rectangle, ...]) -> np.ndarray:
    cells = np.zeros((SIDE, SIDE), bool)
    for low, high, left, right in rectangles:
        cells[left : right + 1, low : high + 1] = True
    return cells


@functools.cache
def walkable(terrain: str) -> np.ndarray:
    """bool [x, y]: the cells on which units walk.

    Raises:
        InputError: there is no such terrain.
    """
    if terrain not in _BLOCKS:
        raise unknown("terrain", terrain, TERRAINS)
    return _painted(_BLOCKS[terrain])


@functools.cache
def climbable(terrain: str) -> np.ndarray:
    """bool [x, y]: the cells on which climbing units walk: also cliffs."""
    return walkable(terrain) | _painted(_CLIFFS.get(terrain, ()))


@functools.cache
def is_symmetric(terrain: str, axes: tuple[bool, bool]) -> bool:
    """Whether a terrain is its own image with its x and its y axis mirrored, or those of the two that are True."""
    mirrored = tuple(axis for axis, chosen in enumerate(axes) if chosen)
    return all((np.flip(cells, mirrored) == cells).all() for cells in (walkable(terrain), climbable(terrain)))


def is_band(terrain: str) -> bool:
    """Whether the walkable cells are one rectangle over the whole width, so that clipping keeps units inside."""
    rows = walkable(terrain).all(0)
    return bool((walkable(terrain) == rows).all() and (np.diff(np.flatnonzero(rows)) == 1).all())


def rows_of_band(terrain: str) -> tuple[int, int]:
    """The first and last row of a terrain for which :func:`is_band` is true."""
    rows = np.flatnonzero(walkable(terrain).all(0))
    return int(rows[0]), int(rows[-1])


@functools.cache
def waypoints(terrain: str) -> tuple[np.ndarray, np.ndarray]:
    """The first stop on the shortest way between any two walkable cells.

    Returns:
        (number of each cell among the walkable ones, int32 [x · 32 + y], for others that of the nearest one; the cell
        x · 32 + y to walk straight to, int16 [goal, own cell] over these numbers). The stop is the furthest cell of a
        shortest way that a straight line reaches; it is the goal itself if nothing is between.
    """
    cells = walkable(terrain)
    free = np.argwhere(cells)
    everywhere = np.argwhere(np.ones_like(cells))
    number = ((everywhere[:, None] - free[None]) ** 2).sum(-1).argmin(1).astype(np.int32)
    flat = free[:, 0] * SIDE + free[:, 1]
    ends, lengths = [], []
    for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
        there = free + np.array([dx, dy])
        inside = ((there >= 0) & (there < SIDE)).all(1)
        x, y = np.where(inside, there.T, 0)
        # A diagonal step needs both cells beside it.
        possible = inside & cells[x, y] & cells[x, free[:, 1]] & cells[free[:, 0], y]
        own = np.flatnonzero(possible)
        ends.append((own, number[x[own] * SIDE + y[own]]))
        lengths.append(np.full(len(own), np.hypot(dx, dy)))
    rows, columns = (np.concatenate(part) for part in zip(*ends, strict=True))
    graph = coo_array((np.concatenate(lengths), (rows, columns)), (len(free), len(free))).tocsr()
    # before[goal, cell]: the next cell on the way from `cell` to `goal`.
    before = dijkstra(graph, directed=False, return_predecessors=True)[1].clip(-1)
    clear = _clear_lines(cells, free)
    goal = np.arange(len(free))[:, None]
    own = np.arange(len(free))[None, :]
    stop = np.broadcast_to(own, before.shape).copy()
    onward = before.copy()
    while True:
        seen = (onward >= 0) & clear[own, onward] & (stop != goal)
        if not seen.any():
            break
        stop = np.where(seen, onward, stop)
        onward = np.where(seen, before[goal, stop], -1)
    # Without a clear line to any further cell, the next cell of the way itself.
    stop = np.where((stop == own) & (before >= 0), before, stop)
    return number, flat[stop].astype(np.int16)


def _clear_lines(cells: np.ndarray, free: np.ndarray) -> np.ndarray:
    """bool [cell, cell]: whether the straight line between two centres crosses walkable cells only."""
    centres = free + 0.5
    clear = np.ones((len(free), len(free)), bool)
    for part in np.linspace(0.0, 1.0, 4 * SIDE + 1)[1:-1]:
        at = (centres[:, None] * (1.0 - part) + centres[None] * part).astype(int)
        clear &= cells[at[..., 0], at[..., 1]]
    return clear
