"""Draw one timestep, a :class:`~shoal.types.Scene` or an RGB array, with Pillow."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from shoal.errors import InputError
from shoal.types import Scene

Frame = Scene | np.ndarray
"""A Scene, or an RGB picture [height, width, 3], uint8 or floats in [0, 1]."""
Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]
"""left, top, right, bottom."""

WHITE: Colour = (255, 255, 255)
PAPER: Colour = (250, 250, 247)
GRID: Colour = (233, 233, 228)
EDGE: Colour = (205, 205, 200)
INK: Colour = (38, 38, 38)
FAINT: Colour = (118, 118, 118)
OVERSAMPLING = 3
"""Shapes are drawn this many times larger and averaged, which smooths their edges; text is not."""
TRAIL = 8
"""Number of earlier positions in a trail."""
_SMALLEST = 3.0
"""Smallest radius of a disc in pixels."""


@cache
def font(size: int, bold: bool = False) -> Any:
    """matplotlib's DejaVu Sans (located without importing matplotlib), otherwise Pillow's default font."""
    spec = importlib.util.find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "mpl-data" / "fonts" / "ttf" / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
        if path.exists():
            return ImageFont.truetype(str(path), size)
    return ImageFont.load_default(size)


def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """``(1 - share) · colour + share · other``."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))
    return red, green, blue


def rgb(colour: np.ndarray) -> Colour:
    """A colour in [0, 1] as bytes."""
    red, green, blue = (int(x) for x in np.clip(np.asarray(colour, np.float64) * 255 + 0.5, 0, 255))
    return red, green, blue


def draw_frame(frame: Frame, size: int, past: Sequence[Scene] = (), extent: float | None = None) -> Image.Image:
    """A picture ``size`` pixels wide (a Scene is square; an array keeps its proportions).

    Args:
        frame: the Scene or array.
        size: width in pixels.
        past: earlier scenes of the episode, oldest first, for the trails of the solid discs; squares have none.
        extent: the picture shows [-extent, extent]²; by default the scene's extent.

    Raises:
        InputError: the frame is neither a Scene nor an array of height, width and 3 colours.
    """
    if isinstance(frame, Scene):
        return _scene(frame, size, past[-TRAIL:], extent or frame.extent)
    array = np.asarray(frame)
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise InputError(f"A frame must be a Scene or an array [height, width, 3], not an array {array.shape}.")
    if array.dtype != np.uint8:
        array = np.clip(array * (255.0 if np.issubdtype(array.dtype, np.floating) else 1), 0, 255).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(array))
    height = max(1, round(size * image.height / image.width))
    # Enlarged pixels, as of a grid world, stay sharp; a picture that is reduced is averaged.
    return image.resize((size, height), Image.Resampling.NEAREST if size >= image.width else Image.Resampling.LANCZOS)


def _scene(scene: Scene, size: int, past: Sequence[Scene], extent: float) -> Image.Image:
    big = size * OVERSAMPLING
    scale = big / (2 * extent)

    def at(centre: np.ndarray) -> tuple[float, float]:
        return big / 2 + float(centre[0]) * scale, big / 2 - float(centre[1]) * scale

    image = Image.new("RGB", (big, big), PAPER)
    pen = ImageDraw.Draw(image)
    apart = 0.5 * 2.0 ** max(0, math.ceil(math.log2(extent / 20)))  # at most 80 lines
    for tick in np.arange(-np.floor(extent / apart) * apart, extent, apart):
        place, width = big / 2 + tick * scale, OVERSAMPLING
        pen.line([(place, 0), (place, big)], GRID, width)
        pen.line([(0, place), (big, place)], GRID, width)
    there = np.flatnonzero(np.isfinite(scene.centres).all(1)).tolist()
    solid = [k for k in there if not scene.hollow[k]]
    rings = [k for k in there if scene.hollow[k]]
    square = np.zeros(len(scene.radii), bool) if scene.square is None else scene.square
    order = np.array([*rings, *solid], int)
    for k in rings:
        _body(pen, at(scene.centres[k]), scene.radii[k] * scale, rgb(scene.colours[k]), True, bool(square[k]))
    for k in (k for k in solid if not square[k]):
        known = (s for s in (*past, scene) if len(s.radii) > k and s.labels[k] == scene.labels[k])
        track = [at(s.centres[k]) for s in known if np.isfinite(s.centres[k]).all()]
        _trail(pen, track, max(0.35 * scene.radii[k] * scale, 2.0 * OVERSAMPLING), rgb(scene.colours[k]))
    for k in solid:
        _body(pen, at(scene.centres[k]), scene.radii[k] * scale, rgb(scene.colours[k]), False, bool(square[k]))
    for k in rings:  # outlined in white where discs cover them
        _covered_ring(pen, at, scene, k, scale, solid)
    image = image.reduce(OVERSAMPLING)
    pen = ImageDraw.Draw(image)
    x, y = (big / 2 + scale * np.asarray(scene.centres[order], float).reshape(-1, 2) * (1.0, -1.0)).T / OVERSAMPLING
    reach = np.asarray(scene.radii[order], float) * scale / OVERSAMPLING
    # Boxes that labels avoid: those of all bodies, then those of the labels so far; an empty box covers nothing.
    boxes = np.concatenate([np.stack([x - reach, y - reach, x + reach, y + reach], -1), np.zeros((len(order), 4))])
    for i in (*range(len(rings), len(order)), *range(len(rings))):
        k = order[i]
        text, ink, others = scene.labels[k].replace("_", " "), rgb(scene.colours[k]), np.delete(boxes, i, 0)
        disc = (x[i], y[i], reach[i])
        boxes[len(order) + i] = _label(pen, disc, text, ink, inside=i >= len(rings), avoid=others, size=size)
    pen.rectangle((0, 0, size - 1, size - 1), outline=EDGE)
    return image


def _body(
    pen: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, colour: Colour, hollow: bool, square: bool
) -> None:
    """A disc or a square, or its outline."""
    (x, y), radius = centre, max(radius, _SMALLEST * OVERSAMPLING)
    box = (x - radius, y - radius, x + radius, y + radius)
    width = round(max(OVERSAMPLING * 1.5, min(radius * 0.3, OVERSAMPLING * 3.0)))
    draw = pen.rectangle if square else pen.ellipse
    if hollow:
        draw(box, fill=mix(colour, PAPER, 0.85), outline=colour, width=width)
    else:
        draw(box, fill=colour, outline=mix(colour, (0, 0, 0), 0.3), width=OVERSAMPLING)


def _covered_ring(
    pen: ImageDraw.ImageDraw,
    at: Callable[..., tuple[float, float]],
    scene: Scene,
    k: int,
    scale: float,
    solid: list[int],
) -> None:
    """Draw the outline of a ring whose centre a disc covers, in white on that disc."""
    if not solid:
        return
    gap = np.linalg.norm(scene.centres[solid] - scene.centres[k], axis=-1)
    if gap.min() > scene.radii[solid[int(gap.argmin())]]:
        return
    (x, y), radius = at(scene.centres[k]), max(scene.radii[k] * scale, _SMALLEST * OVERSAMPLING)
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=WHITE, width=OVERSAMPLING * 2)


def _trail(pen: ImageDraw.ImageDraw, track: list[tuple[float, float]], width: float, colour: Colour) -> None:
    """Draw a trail; older segments are thinner and paler."""
    for i, (start, end) in enumerate(pairwise(track)):
        age = (len(track) - 1 - i) / (TRAIL + 1)
        shade, thick = mix(colour, PAPER, 0.35 + 0.55 * age), max(OVERSAMPLING, width * (1 - 0.75 * age))
        pen.line([start, end], shade, round(thick))
        pen.ellipse((end[0] - thick / 2, end[1] - thick / 2, end[0] + thick / 2, end[1] + thick / 2), shade)


def _label(
    pen: Any,
    disc: tuple[float, float, float],
    text: str,
    colour: Colour,
    *,
    inside: bool,
    avoid: Float[np.ndarray, "boxes 4"],
    size: int,
) -> Box:
    """Draw a label inside its disc if it fits, else on the side (below, above, right, left) with the least overlap.

    Returns:
        The label's box.
    """
    (x, y, radius), face = disc, font(max(11, size // 38))
    left, top, right, bottom = pen.textbbox((0, 0), text, font=face, anchor="mm")
    wide, high = (right - left) / 2, (bottom - top) / 2
    if inside and wide < 0.85 * radius:
        bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 150
        pen.text((x, y), text, font=face, fill=INK if bright else WHITE, anchor="mm")
        return x - wide, y - high, x + wide, y + high
    radius = max(radius, _SMALLEST)
    places = []
    for gap in (5 + radius, 28 + radius):  # farther ones for a ring covered by a disc
        places += [(x, y + gap + high), (x, y - gap - high), (x + gap + wide, y), (x - gap - wide, y)]
    boxes = [(u - wide, v - high, u + wide, v + high) for u, v in places]
    frame_edges = (2.0, 2.0, size - 2.0, size - 2.0)
    outside = 4 * wide * high - _overlap(boxes, [frame_edges])[:, 0]
    best = int(np.argmin(np.round(outside + _overlap(boxes, avoid).sum(1), 1)))
    ink = mix(colour, (0, 0, 0), 0.45)
    pen.text(places[best], text, font=face, fill=ink, anchor="mm", stroke_width=2, stroke_fill=PAPER)
    return boxes[best]


def _overlap(a: ArrayLike, b: ArrayLike) -> Float[np.ndarray, "a b"]:
    """The areas that the boxes [a, 4] share with the boxes [b, 4]."""
    a, b = np.asarray(a)[:, None], np.asarray(b)
    return np.maximum(np.minimum(a[..., 2:], b[:, 2:]) - np.maximum(a[..., :2], b[:, :2]), 0.0).prod(-1)
