"""Pictures of battles.

Allies are blue and enemies vermilion discs of their true radius, with a letter if the battle has several types of
units. Above a unit are its hit points (green), shield (cyan) and energy (violet). Lines are the attacks of the last
step, green ones heal; a beam is the rectangle that it covers, an explosion a fading disc, and a dead unit a cross.
"""

from typing import NamedTuple

import numpy as np
from PIL import ImageDraw

from shoal.environments.skirmish.army import State
from shoal.environments.skirmish.battle import Battle
from shoal.environments.skirmish.canvas import (
    BLUE,
    CYAN,
    FAINT,
    FINE,
    GREEN,
    HEAD,
    INK,
    ORANGE,
    PAPER,
    VERMILION,
    VIOLET,
    WHITE,
    Colour,
    Spot,
    View,
    disc,
    view_of,
    write,
)
from shoal.environments.skirmish.units import MAX_ENERGY, Unit
from shoal.environments.skirmish.units_scene import outline, units_of

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


def picture(battle: Battle, state: State) -> np.ndarray:
    """One state as a picture.

    Args:
        battle: the armies and the map.
        state: of one environment.

    Returns:
        uint8 [height, width, 3], of one size for all states of a battle.
    """
    view = view_of(battle)
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
    moving = outline(battle, state).moving
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
    write(pen, (5 * FINE, middle), f"allies {left}", BLUE, size, "l")
    write(pen, (width - 5 * FINE, middle), f"enemies {right}", VERMILION, size, "r")
    result = _result(battle, armies, t)
    text = f"{result} at step {t} of {battle.limit}" if result else f"step {t} of {battle.limit}"
    write(pen, (width / 2, middle), text, INK if result else FAINT, size)


def _result(battle: Battle, armies: list[list[_Fighter]], t: int) -> str:
    """How the battle ended, as in :mod:`shoal.environments.skirmish.rewards`; empty if it goes on."""
    fights = [any(f.alive and not f.unit.heals for f in army) for army in armies]
    if all(fights):
        return "TIME" if t >= battle.limit else ""
    if battle.commanded:
        return "ALLIES WON" if fights[0] else "ENEMIES WON" if fights[1] else "DRAW"
    return "WON" if fights[0] else "LOST"
