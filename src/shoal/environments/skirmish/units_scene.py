"""A battle in numbers (``Outline.kind`` is ``units``), of which pictures and the viewer of replays draw the units.

``Outline.fixed`` has

* ``ground``: ``box`` [left, bottom, right, top] in cells of the map, y up; ``floor``, ``cliff`` and ``high``, the cells
  on which units walk, those on which only climbing units do, and those of the floor that lie higher, as runs
  [y, first x, number of cells].
* ``units`` [U], allies first: ``type``, ``letter``, ``side`` (0 or 1), ``agent`` (its number or null), ``radius``,
  ``flies``, ``climbs``, the largest ``health``, ``shield`` and ``energy`` (0 if it has none), ``attack`` (``shot``,
  ``beam``, ``explosion`` or ``heal``), ``beam`` [length across the line of fire, width along it], ``blast`` (radius).
* ``allies``, ``limit``: the number of allies, the step limit.

``Outline.moving`` has [U]: ``x``, ``y``, ``health`` (0: dead), ``shield``, ``energy``, ``shot`` (the unit that it
attacked or healed in the last step, -1 for none) and ``burst`` (steps since its explosion, from 1; 0 for none).
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.environments.skirmish.army import State
from shoal.environments.skirmish.battle import Battle
from shoal.environments.skirmish.canvas import FLYING_ROOM, HIGH_GROUND
from shoal.environments.skirmish.engine import TICKS
from shoal.environments.skirmish.terrain import SIDE, climbable, walkable
from shoal.environments.skirmish.units import MAX_ENERGY, Unit
from shoal.types import Outline

SEEN = 3
"""Steps for which an explosion is seen."""
WAYS = ("north", "south", "east", "west")


def outline(battle: Battle, state: State) -> Outline:
    """One state of one environment in numbers."""
    columns = {name: np.asarray(getattr(state, name)) for name in ("x", "y", "health", "shield", "energy")}
    units, shot = units_of(battle, state), np.asarray(state.shot)
    allies = np.arange(len(units)) < battle.num_allies
    heals, explodes = (np.array([unit.attack == what for unit in units]) for what in ("heal", "explosion"))
    struck = np.where(shot < 0, -1, shot + np.where(allies ^ heals, battle.num_allies, 0))
    moving = columns | {"shot": np.where(explodes, -1, struck), "burst": explosion_ages(units, state)}
    return Outline("units", _fixed(battle, units), moving)


def units_of(battle: Battle, state: State) -> tuple[Unit, ...]:
    """The types of all units [U], allies first, in one environment's state."""
    if battle.units is not None:
        return battle.units
    return tuple(battle.types[kind] for kind in np.asarray(state.kind).tolist())


def explosion_ages(units: Sequence[Unit], state: State) -> np.ndarray:
    """The step of each unit's explosion in which a state is: int [U], from 1 to :data:`SEEN`; 0 if none is seen.

    Args:
        units: see :func:`units_of`.
        state: of one environment.
    """
    explodes = np.array([unit.attack == "explosion" for unit in units])
    health, cooldown, calm = (np.asarray(values) for values in (state.health, state.cooldown, state.calm))
    exploded = explodes & (health <= 0.0) & (cooldown >= 0.0)
    # A unit that was killed bursts one tick later; the time since its last damage tells when.
    age = np.maximum(calm - 1.0, 0.0) // TICKS + 1
    return np.where(exploded & (age <= SEEN), age, 0).astype(int)


@functools.cache
def _fixed(battle: Battle, units: tuple[Unit, ...]) -> dict[str, Any]:
    lettered = len(battle.types) > 1
    agents = sum(battle.counts(side)[0] for side in battle.agent_sides)
    sides = [side for side in battle.agent_sides for _ in range(battle.counts(side)[0])]
    return {
        "ground": _ground(battle),
        "units": [
            {
                "type": unit.name,
                "letter": unit.letter if lettered else "",
                "side": int(i >= battle.num_allies),
                "agent": i if i < agents else None,
                "radius": unit.radius,
                "flies": unit.flies,
                "climbs": unit.climbs,
                "health": unit.hit_points,
                "shield": unit.shield,
                "energy": MAX_ENERGY if unit.heals else 0,
                "attack": unit.attack,
                "beam": list(unit.beam),
                "blast": unit.blast,
            }
            for i, unit in enumerate(units)
        ],
        "allies": battle.num_allies,
        "limit": battle.limit,
        "actions": [_actions(battle, side, units[i]) for i, side in enumerate(sides)],
        "features": [_features(battle, side, i - battle.sides[side].start) for i, side in enumerate(sides)],
    }


def _ground(battle: Battle) -> dict[str, Any]:
    floor, whole = walkable(battle.terrain), climbable(battle.terrain)
    first, after = HIGH_GROUND.get(battle.terrain, (SIDE, SIDE))
    rows = np.arange(SIDE)
    margin = max(unit.radius for unit in battle.types)
    room = margin + (FLYING_ROOM if any(unit.flies for unit in battle.types) else 0.0)
    columns, lines = np.flatnonzero(whole.any(1)), np.flatnonzero(whole.any(0))
    box = [columns[0] - margin, lines[0] - room, columns[-1] + 1 + margin, lines[-1] + 1 + max(room, margin + 0.4)]
    return {
        "box": [round(float(edge), 3) for edge in box],
        "floor": _runs(floor),
        "cliff": _runs(whole & ~floor),
        "high": _runs(floor & (first <= rows) & (rows < after)),
    }


def _runs(cells: np.ndarray) -> list[list[int]]:
    """The True cells [x, y] as runs [y, first x, number]."""
    found = []
    for y, row in enumerate(cells.T):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        found += [[y, int(start), int(stop - start)] for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return found


def _names(battle: Battle, side: int) -> list[str]:
    return [f"{('ally', 'enemy')[side]}_{i}" for i in range(battle.counts(side)[0])]


def _ways(battle: Battle, side: int) -> list[str]:
    """Where a side's four moves lead on the map, on which a mirrored axis is the other way round."""
    x, y = battle.axes(side)
    return [WAYS[i ^ (y if i < 2 else x)] for i in range(4)]


def _actions(battle: Battle, side: int, unit: Unit) -> list[str]:
    names = _names(battle, side if unit.heals else 1 - side)
    found = ["no-op", "stop", *_ways(battle, side), *(f"{'heal' if unit.heals else 'attack'} {name}" for name in names)]
    return found + ["none"] * (battle.num_actions(side) - len(found))


def _features(battle: Battle, side: int, own: int) -> list[str]:
    """What the numbers of an observation are, in the order of :mod:`shoal.environments.skirmish.observe`."""
    types = [f"is {unit.name}" for unit in battle.types] if battle.type_bits else []

    def looks(side: int) -> list[str]:
        return ["health", *(["shield"] if battle.has_shields(side) else []), *types]

    ways = _ways(battle, side)

    def of(name: str, first: str, shown: list[str]) -> list[str]:
        return [f"{name}: {what}" for what in (first, "distance", ways[2], ways[0], *shown)]

    mates, others = _names(battle, side), _names(battle, 1 - side)
    acted = [f"did action {i}" for i in range(battle.num_actions(side))] if battle.last_actions else []
    found = [f"can go {way}" for way in ways]
    for name in others:
        found += of(name, "attackable", looks(1 - side))
    for i, name in enumerate(mates):
        found += of(name, "visible", looks(side) + acted) if i != own else []
    at = 1 + battle.has_shields(side)
    mine = looks(side)
    if battle.own_position:
        mine = [*mine[:at], "x" if ways[2] == "east" else "1 - x", "y" if ways[0] == "north" else "1 - y", *mine[at:]]
    return [*found, *(f"own {what}" for what in mine), *(["time"] if battle.timestep else [])]
