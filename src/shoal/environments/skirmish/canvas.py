"""The frame of a battle's pictures: the part of the map that is shown, its ground, and discs for units."""

import functools
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shoal.environments.skirmish.battle import Battle
from shoal.environments.skirmish.terrain import SIDE, climbable, walkable

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
    around = max(unit.radius for unit in battle.types)
    return _view(battle.terrain, around, FLYING_ROOM if any(unit.flies for unit in battle.types) else 0.0)


@functools.cache
def _view(terrain: str, margin: float, room: float) -> View:
    cells = climbable(terrain)
    columns, rows = np.flatnonzero(cells.any(1)), np.flatnonzero(cells.any(0))
    left, right = columns[0] - margin, columns[-1] + 1 + margin
    bottom, top = rows[0] - margin - room, rows[-1] + 1 + margin + max(room, 0.4)  # bars
    scale = FINE * min(WIDEST / (right - left), HIGHEST / (top - bottom))
    wide, high = (FINE * round(length * scale / FINE) for length in (right - left, top - bottom))
    ground = Image.new("RGB", (wide, high + HEAD * FINE), BLOCKED)
    view = View(float(left), float(top), float(scale), ground)
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


def write(pen: ImageDraw.ImageDraw, spot: Spot, text: str, colour: Colour, size: float | int, place: str = "m") -> None:
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
        write(pen, (middle, middle), letter, WHITE, 1.45 * reach)
    return image.reduce(more)
