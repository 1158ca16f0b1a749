"""Battles in numbers, their pictures, and heat maps of where units were.

Allies are blue and enemies vermilion discs of their true radius, with a letter if the battle has several types of
units. Above a unit are its hit points (green), shield (cyan) and energy (violet). Lines are the attacks of the last
step, green ones heal; a beam is the rectangle that it covers, an explosion a fading disc, and a dead unit a cross.

A battle in numbers (``Outline.kind`` is ``units``), of which pictures and the viewer of replays draw the units.

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
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shoal.environments.skirmish.battle import Battle, State
from shoal.environments.skirmish.engine import TICKS
from shoal.environments.skirmish.maps import SIDE, climbable, walkable
from shoal.environments.skirmish.units import MAX_ENERGY, Unit
from shoal.types import Outline

Colour = tuple[int, int, int]
Ink = tuple[int, ...]
"""A colour, or one with its opacity from 0 to 255."""
Spot = tuple[float | int, float | int]
"""A point of the picture in fine pixels."""

# Okabe and Ito's palette, which is safe for common forms of colour blindness.
BLUE: Colour = (0, 114, 178)
VERMILION: Colour = (213, 94, 0)
GREEN: Colour = (0, 158, 115)
CYAN: Colour = (86, 180, 233)
VIOLET: Colour = (148, 87, 180)
ORANGE: Colour = (230, 159, 0)
WHITE: Colour = (255, 255, 255)
PAPER: Colour = (250, 250, 247)
INK: Colour = (38, 38, 38)
FAINT: Colour = (118, 118, 118)
BLOCKED: Colour = (201, 201, 196)
CLIFF: Colour = (226, 208, 176)
RAISED: Colour = (243, 238, 224)

FINE = 2
"""Fine pixels in a pixel: shapes are drawn this many times larger and averaged, which smooths their edges."""
WIDEST, HIGHEST = 960, 600
"""Pixels that the map fills at most."""
HEAD = 30
"""Height in pixels of the line of text above the map."""
FLYING_ROOM = 1.0
"""Cells that flying units may leave the walkable ground by."""
AROUND, SMALLEST_VIEW = 2.0, 8.0
"""Cells around all units in :func:`view_around`, and its smallest width and height."""
HIGH_GROUND: dict[str, tuple[int, int]] = {"ravine": (14, 20)}
"""First row of the high ground, and the row after its last, where the map archive has any."""


class View(NamedTuple):
    """A fixed part of a map, and its ground."""

    left: float
    """x of the left edge, in cells."""
    top: float
    """y of the upper edge of the map, in cells."""
    scale: float
    """Fine pixels in a cell."""
    ground: Image.Image
    """The empty map with room for the head, in fine pixels."""

    def at(self, x: float | int, y: float | int) -> Spot:
        """Where a point of the map is in the picture."""
        return (x - self.left) * self.scale, (self.top - y) * self.scale + HEAD * FINE


def view_of(battle: Battle) -> View:
    """The walkable part of the battle's map, with room for the largest unit at its border."""
    return _view(battle.terrain, *_edges(battle))


def view_around(battle: Battle, states: Sequence[State]) -> View:
    """The part of :func:`view_of` in which units are in some states, with a margin."""
    left, bottom, right, top = _edges(battle)

    def span(name: str, low: float, high: float) -> tuple[float, float]:
        places = np.stack([np.asarray(getattr(state, name)) for state in states])
        least, most = float(places.min()), float(places.max())
        more = max(AROUND, (SMALLEST_VIEW - (most - least)) / 2)
        return max(low, least - more), min(high, most + more)

    (west, east), (south, north) = span("x", left, right), span("y", bottom, top)
    return _view(battle.terrain, west, south, east, north)


def _edges(battle: Battle) -> tuple[float, float, float, float]:
    """left, bottom, right, top of what is shown of the whole map."""
    cells, margin = climbable(battle.terrain), max(unit.radius for unit in battle.types)
    room = FLYING_ROOM if any(unit.flies for unit in battle.types) else 0.0
    columns, rows = np.flatnonzero(cells.any(1)), np.flatnonzero(cells.any(0))
    bottom, top = rows[0] - margin - room, rows[-1] + 1 + margin + max(room, 0.4)  # bars
    return float(columns[0] - margin), float(bottom), float(columns[-1] + 1 + margin), float(top)


@functools.lru_cache(64)
def _view(terrain: str, left: float, bottom: float, right: float, top: float) -> View:
    cells = climbable(terrain)
    scale = FINE * min(WIDEST / (right - left), HIGHEST / (top - bottom))
    wide, high = (FINE * round(length * scale / FINE) for length in (right - left, top - bottom))
    ground = Image.new("RGB", (wide, high + HEAD * FINE), BLOCKED)
    view = View(left, top, float(scale), ground)
    pen = ImageDraw.Draw(ground)
    first, after = HIGH_GROUND.get(terrain, (SIDE, SIDE))
    for (x, y), steps_over in np.ndenumerate(cells):
        if steps_over:
            tint = CLIFF if not walkable(terrain)[x, y] else RAISED if first <= y < after else PAPER
            low, high = view.at(x, y + 1), view.at(x + 1, y)
            pen.rectangle((*map(round, low), *(round(v) - 1 for v in high)), tint)
    pen.rectangle((0, 0, wide, HEAD * FINE - 1), WHITE)
    return view


@functools.cache
def font(size: int) -> Any:
    """Pillow's own font."""
    return ImageFont.load_default(size)


def write_label(
    pen: ImageDraw.ImageDraw, spot: Spot, text: str, colour: Colour, size: float | int, place: str = "m"
) -> None:
    """Write text with the middle of its ink at ``spot``; ``place`` l, m or r is where the spot is in the line.

    Args:
        pen: on a picture in fine pixels.
        spot: in fine pixels.
        text: one line.
        colour: of the text.
        size: in fine pixels.
        place: l, m or r.
    """
    face, stroke, shift = font(round(size)), 0, 0.0
    low, high = face.getbbox("H" if len(text) > 1 else text, anchor="ls")[1::2]
    if len(text) == 1:  # a bold letter in the middle of its disc
        left, _, right, _ = face.getbbox(text, anchor="ms")
        stroke, shift = round(size / 32), (left + right) / 2
    at = (spot[0] - shift, spot[1] - (low + high) / 2)
    pen.text(at, text, colour, face, anchor=f"{place}s", stroke_width=stroke, stroke_fill=colour)


@functools.cache
def disc(radius: float, colour: Colour, letter: str, opacity: int) -> Image.Image:
    """RGBA picture of a unit with a rim; ``radius`` is in fine pixels."""
    more = 2
    side = 2 * (int(radius) + 2)
    image = Image.new("RGBA", (side * more, side * more), (*colour, 0))
    pen = ImageDraw.Draw(image)
    middle, reach = side * more / 2, radius * more
    rim: Ink = (*(round(0.6 * part) for part in colour), 255)
    box = (middle - reach, middle - reach, middle + reach, middle + reach)
    pen.ellipse(box, (*colour, opacity), rim, max(2, round(0.09 * reach)))
    if letter:
        write_label(pen, (middle, middle), letter, WHITE, 1.45 * reach)
    return image.reduce(more)


SEEN = 3
"""Steps for which an explosion is seen."""
WAYS = ("north", "south", "east", "west")


def battle_outline(battle: Battle, state: State) -> Outline:
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
    exploded = explodes & (np.asarray(state.health) <= 0.0)
    age = np.asarray(state.calm) // TICKS + 1  # it explodes in the step of its end
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


COLOURS: tuple[Colour, Colour] = (BLUE, VERMILION)
"""Of the allies and the enemies."""
_BARS = (2, 4)
"""Least and largest height of a bar in pixels; between them it grows with the unit."""
_GAP = FINE
"""Between two bars, in fine pixels."""
_SPENT: Colour = (92, 92, 92)
"""What a bar has lost."""
_GLOW = (150, 80, 35)
"""Opacity of an explosion in each of the steps in which it is seen."""


class _Fighter(NamedTuple):
    """One unit in a picture."""

    unit: Unit
    side: int
    place: tuple[float, float]
    """On the map."""
    spot: Spot
    """In the picture."""
    radius: float
    """In fine pixels."""
    health: float
    shield: float
    energy: float
    shot: int
    """The unit that it attacked or healed in the last step; -1 for none."""
    burst: int
    """See :func:`explosion_ages`."""

    @property
    def alive(self) -> bool:
        return self.health > 0.0


class BattlePictures(NamedTuple):
    """Draws the states of a battle: :attr:`shoal.types.Environment.render` of ``skirmish/…``."""

    battle: Battle

    def __call__(self, state: State) -> np.ndarray:
        """One state on the whole map; see :func:`battle_picture`."""
        return battle_picture(self.battle, state)

    def fitted(self, states: Sequence[State]) -> "functools.partial[np.ndarray]":
        """state -> its picture, in which only the part of the map is shown where units are in any of the states."""
        return functools.partial(battle_picture, self.battle, view=view_around(self.battle, states))


def battle_picture(battle: Battle, state: State, view: View | None = None) -> np.ndarray:
    """One state as a picture.

    Args:
        battle: the armies and the map.
        state: of one environment.
        view: the part of the map; None for all of it.

    Returns:
        uint8 [height, width, 3], of one size for all states of a battle.
    """
    view = view_of(battle) if view is None else view
    image = view.ground.copy()
    pen = ImageDraw.Draw(image, "RGBA")
    fighters = _fighters(battle, state, view)
    armies = [fighters[side] for side in battle.sides]
    lettered = len(battle.types) > 1
    for fighter in fighters:
        if not fighter.alive:
            _cross(pen, fighter)
    for fighter in fighters:
        _explosion(pen, view, fighter)
    aims = [(fighter, fighters[fighter.shot]) for fighter in fighters if fighter.shot >= 0]
    for fighter, target in aims:
        if fighter.unit.attack == "beam":
            _beam(pen, view, fighter, target)
    living = sorted((f for f in fighters if f.alive), key=lambda f: (f.unit.flies, f.unit.climbs, -f.place[1]))
    for fighter in living:
        sprite = disc(
            fighter.radius,
            COLOURS[fighter.side],
            fighter.unit.letter if lettered else "",
            215 if fighter.unit.flies else 255,
        )
        corner = tuple(round(part - sprite.width / 2) for part in fighter.spot)
        image.paste(sprite, (corner[0], corner[1]), sprite)
        _bars(pen, fighter)
    for fighter, target in aims:
        _line(pen, fighter, target)
    _head(pen, battle, armies, int(state.t), image.width)
    return np.asarray(image.reduce(FINE))


def _fighters(battle: Battle, state: State, view: View) -> list[_Fighter]:
    moving = battle_outline(battle, state).moving
    columns = (moving[name].tolist() for name in ("x", "y", "health", "shield", "energy", "shot", "burst"))
    rows = zip(units_of(battle, state), *columns, strict=True)
    return [
        _Fighter(unit, int(i >= battle.num_allies), (x, y), view.at(x, y), unit.radius * view.scale, *rest)
        for i, (unit, x, y, *rest) in enumerate(rows)
    ]


def _cross(pen: ImageDraw.ImageDraw, fighter: _Fighter) -> None:
    (x, y), arm = fighter.spot, 0.5 * fighter.radius
    for slope in (-1, 1):
        pen.line([(x - arm, y - slope * arm), (x + arm, y + slope * arm)], (*COLOURS[fighter.side], 90), 2 * FINE)


def _explosion(pen: ImageDraw.ImageDraw, view: View, fighter: _Fighter) -> None:
    if fighter.burst:
        (x, y), reach = fighter.spot, fighter.unit.blast * view.scale
        box, glow = (x - reach, y - reach, x + reach, y + reach), _GLOW[fighter.burst - 1]
        pen.ellipse(box, (*ORANGE, glow // 3), (*COLOURS[fighter.side], glow), 2 * FINE)


def _ahead(start: Spot, end: Spot) -> tuple[float, float, float]:
    """The direction of one spot from another, and their distance."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = float(np.hypot(dx, dy))
    return (dx / length, dy / length, length) if length > 0.0 else (0.0, -1.0, 0.0)


def _beam(pen: ImageDraw.ImageDraw, view: View, fighter: _Fighter, target: _Fighter) -> None:
    """The rectangle across the line of fire, centred on the target, in which units are hit."""
    ahead_x, ahead_y, _ = _ahead(fighter.spot, target.spot)
    across, along = (0.5 * length * view.scale for length in fighter.unit.beam)
    x, y = target.spot
    corners = [
        (x + i * along * ahead_x - j * across * ahead_y, y + i * along * ahead_y + j * across * ahead_x)
        for i, j in ((-1, -1), (-1, 1), (1, 1), (1, -1))
    ]
    pen.polygon(corners, (*COLOURS[fighter.side], 110), (*COLOURS[fighter.side], 255), FINE)


def _line(pen: ImageDraw.ImageDraw, fighter: _Fighter, target: _Fighter) -> None:
    """From the rim of the attacker into the disc of its target, where it ends in a dot."""
    ahead_x, ahead_y, length = _ahead(fighter.spot, target.spot)
    colour = GREEN if fighter.unit.heals else COLOURS[fighter.side]
    begin = 0.9 * fighter.radius
    stop = max(length - 0.75 * target.radius, begin + 2 * FINE)
    (x, y), dot = fighter.spot, 2.5 * FINE
    ends = [(x + part * ahead_x, y + part * ahead_y) for part in (begin, stop)]
    tip_x, tip_y = ends[1]
    for ink, more in (((*WHITE, 190), FINE), ((*colour, 255), 0)):
        pen.line(ends, ink, 2 * FINE + 2 * more)
        pen.ellipse((tip_x - dot - more, tip_y - dot - more, tip_x + dot + more, tip_y + dot + more), ink)


def _bars(pen: ImageDraw.ImageDraw, fighter: _Fighter) -> None:
    """Hit points and shield in one bar on the scale of both, and above it the energy of a healer."""
    unit = fighter.unit
    whole = unit.hit_points + unit.shield
    bars: list[tuple[tuple[float, Colour], ...]] = [((fighter.health / whole, GREEN), (fighter.shield / whole, CYAN))]
    if unit.heals:
        bars.append(((fighter.energy / MAX_ENERGY, VIOLET),))
    half, high = 0.9 * fighter.radius, FINE * round(min(max(0.2 * fighter.radius / FINE, _BARS[0]), _BARS[1]))
    # On whole pixels, so that the bars' colours are pure.
    left, right = (FINE * round((fighter.spot[0] + edge) / FINE) for edge in (-half, half))
    bottom = FINE * round((fighter.spot[1] - fighter.radius) / FINE) - FINE
    for parts in bars:
        pen.rectangle((left - 1, bottom - high - 1, right, bottom), (*PAPER, 200))
        pen.rectangle((left, bottom - high, right - 1, bottom - 1), _SPENT)
        start, total = left, 0.0
        for share, colour in parts:
            total += share
            stop = max(left + FINE * round((right - left) * total / FINE), start + FINE)  # at least one pixel
            if share > 0.0 and start < (stop := min(stop, right)):
                pen.rectangle((start, bottom - high, stop - 1, bottom - 1), colour)
                start = stop
        bottom -= high + _GAP


def _head(pen: ImageDraw.ImageDraw, battle: Battle, armies: list[list[_Fighter]], t: int, width: int) -> None:
    """The living of both sides, the step, and the result of a battle that is over."""
    middle, size = HEAD * FINE / 2, 15 * FINE
    left, right = (f"{sum(f.alive for f in army)} of {len(army)}" for army in armies)
    write_label(pen, (5 * FINE, middle), f"allies {left}", BLUE, size, "l")
    write_label(pen, (width - 5 * FINE, middle), f"enemies {right}", VERMILION, size, "r")
    result = _result(battle, armies, t)
    text = f"{result} at step {t} of {battle.limit}" if result else f"step {t} of {battle.limit}"
    write_label(pen, (width / 2, middle), text, INK if result else FAINT, size)


def _result(battle: Battle, armies: list[list[_Fighter]], t: int) -> str:
    """How the battle ended, as in :mod:`shoal.environments.skirmish.tasks`; empty if it goes on."""
    fights = [any(f.alive and not f.unit.heals for f in army) for army in armies]
    if all(fights):
        return "TIME" if t >= battle.limit else ""
    if battle.commanded:
        return "ALLIES WON" if fights[0] else "ENEMIES WON" if fights[1] else "DRAW"
    return "WON" if fights[0] else "LOST"


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
