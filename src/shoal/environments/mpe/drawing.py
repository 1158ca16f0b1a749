"""A particle world as an :class:`Outline`: agents are discs, landmarks rings."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Int

from shoal.environments.mpe.core import Agent, State, World, letter, letters
from shoal.environments.outlines import body
from shoal.types import Outline

Colour = tuple[float, float, float]

# Okabe and Ito's palette, which is safe for common forms of colour blindness.
BLUE: Colour = (0.0, 0.447, 0.698)
VERMILION: Colour = (0.835, 0.369, 0.0)
GREEN: Colour = (0.0, 0.620, 0.451)
ORANGE: Colour = (0.902, 0.624, 0.0)
SKY: Colour = (0.337, 0.706, 0.914)
PURPLE: Colour = (0.8, 0.475, 0.655)
GREY: Colour = (0.6, 0.6, 0.6)
PUSHES = ("stay", "left", "right", "down", "up")
"""The names of the moves."""
FORCES = ("no effect", *PUSHES[1:])
"""The names of the components of a continuous move."""


def highlighted(world: World, goals: Int[Array, " G"] | np.ndarray, colours: Sequence[Colour] = (GREEN,)) -> np.ndarray:
    """[L, 3]: the landmarks' own colours, except that goal g has ``colours[g]``; a goal of several is green."""
    painted = np.array([mark.colour for mark in world.landmarks]).reshape(-1, 3)
    chosen = np.asarray(goals).tolist()
    for goal, colour in zip(chosen, colours, strict=True):
        painted[goal] = colour if chosen.count(goal) == 1 else GREEN
    return painted


def outline(
    world: World, state: State, colours: Callable[[State], np.ndarray] | None, features: list[list[str]]
) -> Outline:
    """One unbatched state in numbers; ``features`` [N][O] are names of what each agent observes."""
    marks = colours(state) if colours else [mark.colour for mark in world.landmarks]
    bodies = [body(agent.name, "disc", agent.radius, agent.colour, i) for i, agent in enumerate(world.agents)]
    bodies += [
        body(mark.name, "ring", mark.radius, colour) for mark, colour in zip(world.landmarks, marks, strict=True)
    ]
    comm = np.asarray(state.comm)
    said = tuple(_message(world, comm[i]) if agent.speaks else "" for i, agent in enumerate(world.agents))
    fixed = {
        "box": [-1.2, -1.2, 1.2, 1.2],
        "cell": 0,
        "bodies": bodies,
        "actions": _actions(world),
        "features": features,
    }
    centres = np.concatenate([np.asarray(state.pos), np.asarray(state.landmarks)])
    moving = {"x": centres[:, 0], "y": centres[:, 1]}
    return Outline("bodies", fixed, moving, messages=said if any(agent.speaks for agent in world.agents) else ())


def _actions(world: World) -> list[list[str]]:
    """The names of each agent's actions, or of the components of continuous ones (:meth:`World.action_dims`)."""
    if world.continuous:
        parts = letters(world.vocabulary)
        return [[*FORCES] * agent.moves + parts * agent.speaks for agent in world.agents]
    words = letters(world.vocabulary, "say")

    def names(agent: Agent) -> list[str]:
        if not agent.speaks:
            return list(PUSHES if agent.moves else ("nothing",))
        return [f"{push}, {word}" for word in words for push in PUSHES] if agent.moves else words

    return [names(agent) for agent in world.agents]


def _message(world: World, word: np.ndarray) -> str:
    if not word.any():
        return "nothing"
    if world.continuous:
        return "[" + " ".join(f"{value:.2f}" for value in word) + "]"
    return letter(int(word.argmax()))
