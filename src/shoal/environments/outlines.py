"""Outlines of worlds whose things are simple shapes on a plane (``Outline.kind`` is ``bodies``).

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

from shoal.spec import Scene

Shape = Literal["disc", "ring", "square", "frame"]


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
        label: its name.
        shape: a filled disc or square, or its outline.
        radius: half its width, in the units of the positions.
        colour: RGB in [0, 1].
        agent: the number of the agent that it is; None if it is none.
        marked: what it means that it is marked.
        text: a few letters that are written in it.
    """
    levels = np.clip(np.asarray(list(colour), np.float64) * 255 + 0.5, 0, 255).astype(int)
    return {
        "label": label,
        "shape": shape,
        "radius": round(float(radius), 4),
        "colour": "#" + "".join(f"{level:02x}" for level in levels),
        "agent": agent,
        "marked": marked,
        "text": text,
    }


def of_scene(scene: Scene, agents: tuple[str, ...]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The bodies of a :class:`Scene`, each with a key that is the same in other scenes of its episode.

    Scenes need not have the same discs in each timestep. Discs of the same looks are told apart by their order.
    """
    found, seen = [], {}
    numbers = {str(i): i for i in range(len(agents))} | {name: i for i, name in enumerate(agents)}
    rows = zip(scene.labels, scene.radii, scene.colours, scene.hollow, strict=True)
    for label, radius, colour, hollow in rows:
        # The label of an agent is its name, or its number as in grid worlds.
        number = numbers.get(label)
        one = body(label, "ring" if hollow else "disc", radius, colour, None if hollow else number)
        looks = tuple(one.values())
        seen[looks] = seen.get(looks, -1) + 1
        found.append(((*looks, seen[looks]), one))
    return found
