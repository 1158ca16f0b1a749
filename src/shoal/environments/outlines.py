"""Outlines of worlds whose things are simple shapes on a plane (``Outline.kind`` is ``bodies``), and their colours.

An environment describes its world once, as an outline; :func:`scene_of` is what pictures show of it. An environment
that renders Scenes alone has outlines by :func:`of_scene`.

``Outline.fixed`` has

* ``box``: [left, bottom, right, top] of what is shown; y points up.
* ``cell``: side of the cells of a grid, whose lines pass through multiples of it; 0 without a grid.
* ``bodies`` [K]: each a dict of :func:`body`.

``Outline.moving`` has ``x`` and ``y`` [K], NaN for what is absent; ``turn`` [K], degrees anticlockwise from east, if
bodies face a way; and ``mark`` [K], 1 where a body is to stand out, with the reason in the body's ``marked``.
"""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from shoal.spec import Outline, Scene

Colour = tuple[float, float, float]

# Okabe and Ito's palette, which is safe for common forms of colour blindness.
BLUE: Colour = (0.0, 0.447, 0.698)
VERMILION: Colour = (0.835, 0.369, 0.0)
GREEN: Colour = (0.0, 0.620, 0.451)
ORANGE: Colour = (0.902, 0.624, 0.0)
SKY: Colour = (0.337, 0.706, 0.914)
PURPLE: Colour = (0.8, 0.475, 0.655)
GREY: Colour = (0.6, 0.6, 0.6)

Shape = Literal["disc", "ring", "square", "frame"]
SHAPES: dict[tuple[bool, bool], Shape] = {
    (False, False): "disc",
    (False, True): "ring",
    (True, False): "square",
    (True, True): "frame",
}
"""By (square, hollow)."""


def body(
    label: str,
    shape: Shape,
    radius: float,
    colour: Iterable[float],
    agent: int | None = None,
    marked: str = "",
    text: str = "",
) -> dict[str, Any]:
    """One thing.

    Args:
        label: its name, which pictures write beside it if it has no ``text``; may be empty.
        shape: a filled disc or square, or its outline.
        radius: half its width, in the units of the positions.
        colour: RGB in [0, 1].
        agent: the number of the agent that it is; None if it is none.
        marked: what it means that it is marked.
        text: a few letters that are written in it.
    """
    return {
        "label": label,
        "shape": shape,
        "radius": round(float(radius), 4),
        "colour": _hex(colour),
        "agent": agent,
        "marked": marked,
        "text": text,
    }


def _hex(colour: Iterable[float]) -> str:
    levels = np.clip(np.asarray(list(colour), np.float64) * 255 + 0.5, 0, 255).astype(int)
    return "#" + "".join(f"{level:02x}" for level in levels)


def of_scene(scene: Scene, agents: tuple[str, ...]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The bodies of a :class:`Scene`, each with a key that is the same in other scenes of its episode.

    Scenes need not have the same discs in each timestep. Discs of the same looks are told apart by their order.
    """
    found, seen = [], {}
    numbers = {str(i): i for i in range(len(agents))} | {name: i for i, name in enumerate(agents)}
    square = np.zeros(len(scene.radii), bool) if scene.square is None else scene.square
    rows = zip(scene.labels, scene.radii, scene.colours, scene.hollow, square, strict=True)
    for label, radius, colour, hollow, straight in rows:
        number = None if hollow else numbers.get(label)  # the label of an agent is its name or its number
        one = body(label, SHAPES[bool(straight), bool(hollow)], radius, colour, number)
        looks = tuple(one.values())
        seen[looks] = seen.get(looks, -1) + 1
        found.append(((*looks, seen[looks]), one))
    return found


_CELL = 0.5
"""The side of a cell in a Scene, whose grid lines are then the borders of the cells."""
_POST, _POST_COLOUR = 0.06, "#999999"
"""The posts that mark the corners of a grid, which may be smaller than the square picture: radius, colour."""


_MARK_COLOUR, _NOSE_COLOUR = "#d55e00", "#222222"
_MARK, _NOSE = 1.2, 0.3
"""The radius of the square below a marked body, and of that on the side to which a body faces, in those of the body."""


def scene_of(outline: Outline) -> Scene:
    """What pictures show of an outline: its bodies, and its caption or else what agents say.

    Marked bodies lie on an orange square, and bodies that face a way have a dark one on that side. A grid is in the
    middle, with posts at its corners. Other pictures widen where a body leaves the box.
    """
    bodies, centres = _with_signs(outline)
    cell = outline.fixed["cell"]
    left, bottom, right, top = outline.fixed["box"]
    radii, colours = [one["radius"] for one in bodies], [one["colour"] for one in bodies]
    hollow, square = ([one["shape"] in shapes for one in bodies] for shapes in (("ring", "frame"), ("square", "frame")))
    labels = [one["text"] or one["label"] for one in bodies]
    if cell:
        middle = np.array([(left + right) // (2 * cell), (bottom + top) // (2 * cell)]) * cell
        corners = np.array([(x, y) for x in (left, right) for y in (bottom, top)], float)
        centres, scale = np.concatenate([corners, centres]) - middle, _CELL / cell
        radii, colours = [_POST / scale] * 4 + radii, [_POST_COLOUR] * 4 + colours
        hollow, square, labels = [False] * 4 + hollow, [False] * 4 + square, [""] * 4 + labels
        extent = scale * cell * -(-max(right - left, top - bottom) // (2 * cell))
    else:
        scale, extent = 1.0, max(right, top, float(np.nanmax(np.abs(centres), initial=0.0)) + 0.1)
    said = (f"{name}: {text}" for name, text in zip(_speakers(bodies), outline.messages, strict=False) if text)
    return Scene(
        centres=centres * scale,
        radii=np.array(radii) * scale,
        colours=np.array([[int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in colours]) / 255,
        hollow=np.array(hollow, bool),
        labels=tuple(labels),
        extent=float(extent),
        caption=outline.caption or "   ".join(said),
        square=np.array(square, bool),
    )


def _with_signs(outline: Outline) -> tuple[list[dict[str, Any]], np.ndarray]:
    """The bodies with the signs of marks and directions, the same at all timesteps, and their centres."""
    bodies, moving = outline.fixed["bodies"], outline.moving
    centres = np.stack([moving["x"], moving["y"]], axis=1)
    marks, turns = moving.get("mark"), moving.get("turn")
    found, places = [], []
    for k, one in enumerate(bodies):
        blank = one | {"shape": "square", "label": "", "text": "", "agent": None}  # squares leave no trail
        if marks is not None and one["marked"]:
            found.append(blank | {"radius": _MARK * one["radius"], "colour": _MARK_COLOUR})
            places.append(centres[k] if marks[k] else np.full(2, np.nan))
        found.append(one)
        places.append(centres[k])
        if turns is not None and np.isfinite(turns[k]):
            found.append(blank | {"radius": _NOSE * one["radius"], "colour": _NOSE_COLOUR})
            angle = np.radians(turns[k])
            places.append(centres[k] + one["radius"] * np.array([np.cos(angle), np.sin(angle)]))
    return found, np.array(places)


def _speakers(bodies: list[dict[str, Any]]) -> list[str]:
    """The labels of the agents, in their order."""
    agents = {one["agent"]: one["label"] for one in bodies if one["agent"] is not None}
    return [agents[i] for i in sorted(agents)]
