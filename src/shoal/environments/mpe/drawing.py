"""A particle world as a :class:`Scene`: agents are discs, landmarks rings, messages the caption."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Int

from shoal.environments.mpe.core import State, World
from shoal.types import Scene

Colour = tuple[float, float, float]

# Okabe and Ito's palette, which is safe for common forms of colour blindness.
BLUE: Colour = (0.0, 0.447, 0.698)
VERMILION: Colour = (0.835, 0.369, 0.0)
GREEN: Colour = (0.0, 0.620, 0.451)
ORANGE: Colour = (0.902, 0.624, 0.0)
SKY: Colour = (0.337, 0.706, 0.914)
PURPLE: Colour = (0.8, 0.475, 0.655)
GREY: Colour = (0.6, 0.6, 0.6)


def highlighted(world: World, goals: Int[Array, " G"] | np.ndarray, colours: Sequence[Colour] = (GREEN,)) -> np.ndarray:
    """[L, 3]: the landmarks' own colours, except that goal g has ``colours[g]``; a goal of several is green."""
    painted = np.array([mark.colour for mark in world.landmarks]).reshape(-1, 3)
    chosen = np.asarray(goals).tolist()
    for goal, colour in zip(chosen, colours, strict=True):
        painted[goal] = colour if chosen.count(goal) == 1 else GREEN
    return painted


def scene(world: World, state: State, colours: Callable[[State], np.ndarray] | None) -> Scene:
    """One unbatched state as discs. The picture widens where an agent leaves the arena."""
    centres = np.concatenate([np.asarray(state.pos), np.asarray(state.landmarks)])
    marks = colours(state) if colours else np.array([mark.colour for mark in world.landmarks]).reshape(-1, 3)
    bodies = (*world.agents, *world.landmarks)
    return Scene(
        centres=centres,
        radii=np.array([body.radius for body in bodies]),
        colours=np.concatenate([np.array([agent.colour for agent in world.agents]), marks]),
        hollow=np.arange(len(bodies)) >= len(world.agents),
        labels=tuple(body.name for body in bodies),
        extent=float(max(1.2, np.abs(centres).max() + 0.1)),
        caption=_caption(world, np.asarray(state.comm)),
    )


def _caption(world: World, comm: np.ndarray) -> str:
    def message(word: np.ndarray) -> str:
        if not word.any():
            return "nothing"
        if world.continuous:
            return "[" + " ".join(f"{value:.2f}" for value in word) + "]"
        return chr(ord("A") + int(word.argmax()))

    return "   ".join(f"{agent.name}: {message(comm[i])}" for i, agent in enumerate(world.agents) if agent.speaks)
