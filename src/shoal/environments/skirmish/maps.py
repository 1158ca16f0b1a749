"""SMAC's 23 maps, COMA's 5m, and maps of one's own: armies and where they start, walkable cells, ways around cliffs.

Armies, positions, step limits and orders are those of the map archives and of ``smac_maps.py`` in oxwhirl/smac. All
maps have 32 × 32 cells; cell (i, j) is the square [i, i + 1) × [j, j + 1). The walkable cells are those whose lowest
bit in the map archive's ``t3CellFlags`` is clear, an interpretation that gives exactly the maps' visible cliffs.
"""

import functools
from dataclasses import dataclass

import numpy as np

from shoal.environments.options import check_count, check_number
from shoal.environments.skirmish.units import UNITS, Unit
from shoal.errors import InputError, shortened, unknown

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
    from scipy.sparse import coo_array  # the names of the maps are completed by the shell, which shall be quick
    from scipy.sparse.csgraph import dijkstra

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


Point = tuple[float, float]
GAP = 0.05
"""Between the units of a group at the start, in cells. How the game spreads units around a point is not known."""
LARGEST_GAP = 2.0


@dataclass(frozen=True)
class Group:
    """Units of one type that start around a point."""

    unit: str
    count: int
    at: Point


@dataclass(frozen=True)
class Map:
    """A battle: two armies, where they start, and what the enemy is ordered to do."""

    name: str
    allies: tuple[Group, ...]
    enemies: tuple[Group, ...]
    limit: int
    """Steps in an episode."""
    terrain: str = "band"
    goal: Point | tuple[Point, Point] | None = (9.0, 16.0)
    """What the enemies attack-move to; with two points, to a point drawn uniformly between them. None: they hold."""
    hunts: bool = False
    """The enemies attack the nearest ally wherever it is, instead of walking to ``goal``."""
    gap: float = GAP
    """Distance, from edge to edge, between neighbours of a group at the start, in cells."""

    @property
    def ally_units(self) -> tuple[Unit, ...]:
        """The type of each ally, in the order of the agents."""
        return tuple(UNITS[group.unit] for group in self.allies for _ in range(group.count))

    @property
    def enemy_units(self) -> tuple[Unit, ...]:
        """The type of each enemy."""
        return tuple(UNITS[group.unit] for group in self.enemies for _ in range(group.count))


LEFT, RIGHT = (9.0, 16.0), (23.0, 16.0)


def _army(text: str, at: Point) -> tuple[Group, ...]:
    """``3 stalker 5 zealot`` at one point."""
    words = text.split()
    return tuple(Group(unit, int(count), at) for count, unit in zip(words[::2], words[1::2], strict=True))


def _facing(name: str, allies: str, enemies: str, limit: int, terrain: str = "band") -> Map:
    """A map whose enemies start on the right and attack-move to the allies' start on the left."""
    return Map(name, _army(allies, LEFT), _army(enemies, RIGHT), limit, terrain)


# Types stand in the order of SMAC's agents, which are sorted by the game's unit type.
_MMM = "2 marauder 7 marine 1 medivac"
MAPS: dict[str, Map] = {
    each.name: each
    for each in (
        _facing("3m", "3 marine", "3 marine", 60),
        _facing("5m", "5 marine", "5 marine", 70),
        _facing("8m", "8 marine", "8 marine", 120),
        _facing("25m", "25 marine", "25 marine", 150),
        _facing("5m_vs_6m", "5 marine", "6 marine", 70),
        _facing("8m_vs_9m", "8 marine", "9 marine", 120),
        _facing("10m_vs_11m", "10 marine", "11 marine", 150),
        _facing("27m_vs_30m", "27 marine", "30 marine", 180),
        _facing("MMM", _MMM, _MMM, 150),
        _facing("MMM2", _MMM, "3 marauder 8 marine 1 medivac", 180),
        _facing("2s3z", "2 stalker 3 zealot", "2 stalker 3 zealot", 120),
        _facing("3s5z", "3 stalker 5 zealot", "3 stalker 5 zealot", 150),
        _facing("3s5z_vs_3s6z", "3 stalker 5 zealot", "3 stalker 6 zealot", 170),
        _facing("3s_vs_3z", "3 stalker", "3 zealot", 150, "open"),
        _facing("3s_vs_4z", "3 stalker", "4 zealot", 200, "open"),
        _facing("3s_vs_5z", "3 stalker", "5 zealot", 250, "open"),
        _facing("1c3s5z", "1 colossus 3 stalker 5 zealot", "1 colossus 3 stalker 5 zealot", 180),
        Map(
            "2m_vs_1z",
            (Group("marine", 1, (13.0, 12.0)), Group("marine", 1, (19.0, 12.0))),
            _army("1 zealot", (16.0, 19.0)),
            150,
            "octagon",
            goal=((13.0, 12.0), (19.0, 12.0)),
        ),
        Map(
            "6h_vs_8z",
            _army("6 hydralisk", (14.60, 9.49)),
            _army("8 zealot", (14.41, 16.76)),
            150,
            "arena_a",
            goal=(14.60, 9.49),
        ),
        Map(
            "2s_vs_1sc",
            (Group("stalker", 1, (11.12, 10.34)), Group("stalker", 1, (16.98, 10.37))),
            _army("1 spine_crawler", (13.92, 20.04)),
            300,
            "arena_b",
            goal=None,
        ),
        Map(
            "corridor",
            _army("6 zealot", (19.04, 19.12)),
            _army("24 zergling", (27.91, 28.24)),
            400,
            "corridor",
            goal=(4.47, 4.33),
        ),
        Map(
            "so_many_baneling",
            _army("7 zealot", (11.47, 12.02)),
            _army("32 baneling", (27.91, 28.24)),
            100,
            "diagonal",
            goal=(4.47, 4.33),
        ),
        Map(
            "bane_vs_bane",
            (Group("baneling", 4, (16.0, 8.0)), Group("zergling", 20, (16.0, 11.0))),
            (Group("baneling", 4, (16.0, 24.0)), Group("zergling", 20, (16.0, 21.0))),
            200,
            "octagon",
            goal=(16.0, 8.0),
        ),
        Map(
            "2c_vs_64zg",
            _army("2 colossus", (16.0, 16.0)),
            _army("64 zergling", (16.0, 9.0)),
            400,
            "ravine",
            goal=None,
            hunts=True,
        ),
    )
}
"""By name."""


def check_map(chosen: Map) -> None:
    """Check a map.

    Raises:
        InputError: a unit, terrain or number is unknown or out of range, an army is empty, or a group does not fit.
    """
    if not chosen.name or not isinstance(chosen.name, str):
        raise InputError("A map needs a name.")
    if chosen.terrain not in TERRAINS:
        raise unknown("terrain", str(chosen.terrain), TERRAINS)
    check_count("limit", chosen.limit, most=10_000)
    check_number("gap", chosen.gap, 0.0, LARGEST_GAP)
    if chosen.goal is not None:
        try:
            points = np.asarray(chosen.goal, float)
        except (TypeError, ValueError):
            points = np.zeros(0)
        if points.shape not in ((2,), (1, 2), (2, 2)):
            raise InputError(f"goal must be one or two points of two numbers, not {chosen.goal!r}.")
        for coordinate in points.ravel().tolist():
            check_number("a goal's position", coordinate, 0.0, SIDE - 1e-3)
    for side in ("allies", "enemies"):
        groups = getattr(chosen, side)
        if not groups:
            raise InputError(f"The map {chosen.name} has no {side}.")
        if not isinstance(groups, tuple | list) or not all(isinstance(group, Group) for group in groups):
            raise InputError(f"The {side} of the map {chosen.name} must be a tuple of Group, not {shortened(groups)}.")
        for group in groups:
            if not isinstance(group.unit, str) or group.unit not in UNITS:
                raise unknown("unit", str(group.unit), UNITS)
            check_count(f"the count of {group.unit}", group.count, most=100)
            if not isinstance(group.at, tuple) or len(group.at) != 2:
                raise InputError(f"The place of a group must be a tuple of two numbers, not {shortened(group.at)}.")
            for coordinate in group.at:
                check_number("a group's position", coordinate, 0.0, SIDE - 1e-3)
        starts(chosen, side)


def mirrored_axes(chosen: Map) -> tuple[bool, bool]:
    """Whether mirroring x, and y, exchanges the sides: the terrain stays, and the points at which armies start swap.

    Of several ways the one that mirrors least; (False, False) if there is none. The armies may differ.
    """
    own, others = (sorted({group.at for group in groups}) for groups in (chosen.allies, chosen.enemies))
    for axes in ((False, False), (True, False), (False, True), (True, True)):
        images = sorted(tuple(SIDE - v if m else v for v, m in zip(at, axes, strict=True)) for at in own)
        if is_symmetric(chosen.terrain, axes) and np.shape(images) == np.shape(others) and np.allclose(images, others):
            return axes
    return False, False


def starts(chosen: Map, side: str, mirrored: tuple[bool, bool] | None = None) -> np.ndarray:
    """float64 [units, 2]: where the units of one side start, in the order of the agents.

    All groups around one point share a square lattice: units stand on its walkable points on the same side of cliffs,
    in the order of the groups from the nearest to the point outwards. Within a type they are then ordered by x and y,
    as SMAC orders agents.

    Args:
        chosen: the map.
        side: ``allies`` or ``enemies``.
        mirrored: axes on which lattice and order are mirrored; None: the enemies' lattice on x, and no order.

    Raises:
        InputError: there is no room for a group.
    """
    lattice = np.where((side == "enemies", False) if mirrored is None else mirrored, -1.0, 1.0)
    order = np.ones(2) if mirrored is None else lattice
    groups: tuple[Group, ...] = getattr(chosen, side)
    placed: dict[int, np.ndarray] = {}
    for point in dict.fromkeys(group.at for group in groups):
        here = [i for i, group in enumerate(groups) if group.at == point]
        units = [UNITS[groups[i].unit] for i in here]
        wide = max(unit.body for unit in units) * 2.0 + chosen.gap
        spots = _spots(chosen.terrain, point, units, sum(groups[i].count for i in here), lattice * wide)
        for i in here:
            own, spots = spots[: groups[i].count], spots[groups[i].count :]
            placed[i] = own[np.lexsort((order[1] * own[:, 1], order[0] * own[:, 0]))]
    return np.concatenate([placed[i] for i in range(len(groups))])


def _spots(terrain: str, point: Point, units: list[Unit], count: int, width: np.ndarray) -> np.ndarray:
    """The ``count`` points nearest to a point, on a lattice of a width along x and y, on which such units can stand."""
    side = int(np.ceil(np.sqrt(count)))
    shift = 0.0 if side % 2 else 0.5
    line = np.arange(-SIDE, SIDE + 1) + shift
    across, along = np.meshgrid(line, line, indexing="ij")
    offsets = np.stack([across.ravel(), along.ravel()], 1)
    # A square grows around the point; within one ring, the nearest first.
    ring = np.abs(offsets).max(1).round(6)
    distance = np.hypot(*offsets.T).round(6)
    offsets = offsets[np.lexsort((offsets[:, 0], offsets[:, 1], distance, ring))]
    spots = np.array(point) + offsets * width
    ground = climbable(terrain) if all(unit.climbs for unit in units) else walkable(terrain)
    spots = spots[((spots >= 0.0) & (spots < SIDE)).all(1)]
    spots = spots[ground[*spots.astype(int).T]]
    # No cliff divides a group: straight lines over the ground lead to all units from their point, which may lie in one.
    ways = np.array(point) + np.linspace(0.0, 1.0, 4 * SIDE + 1)[:, None, None] * (spots - np.array(point))
    cells = ways.astype(int)
    spots = spots[(ground[cells[..., 0], cells[..., 1]] | (cells == np.array(point, int)).all(-1)).all(0)]
    if len(spots) < count:
        raise InputError(f"There is no room for {count} units around {point} on {terrain}.")
    return spots[:count]
