"""Where images, entities and vectors are among the features that a network reads."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from shoal.spec import EnvSpec


class InputPart(NamedTuple):
    """One array among the features of a network's input."""

    shape: tuple[int, ...]
    """Its shape: (height, width, channels) of an image, (entities, features) of a set of entities, (features,) of a
    vector."""
    kind: Literal["observation", "state", "id", "action"] = "observation"
    """``state`` is the environment's global state, ``id`` the agent's one-hot number."""
    name: str = ""
    """Its key where the observation is a dictionary."""
    agent: int | None = None
    """Index of the agent that it belongs to, where a network reads several agents' features; None: the network's own
    agent, or the team."""

    @property
    def size(self) -> int:
        """Number of its features."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The arrays that make up a network's input, flattened and in this order."""

    parts: tuple[InputPart, ...]

    @property
    def width(self) -> int:
        """F, the number of features."""
        return sum(part.size for part in self.parts)

    def split(self, x: Float[Array, "*b F"]) -> list[Array]:
        """The parts of features [*b, F], each in its own shape [*b, *shape]."""
        ends = np.cumsum([part.size for part in self.parts]).tolist()
        return [
            x[..., end - part.size : end].reshape(*x.shape[:-1], *part.shape)
            for part, end in zip(self.parts, ends, strict=True)
        ]

    def __add__(self, other: "Layout") -> "Layout":
        """The features of both, one after the other."""
        return Layout(self.parts + other.parts)


def vector(
    width: int, kind: Literal["observation", "state", "id", "action"] = "observation", agent: int | None = None
) -> Layout:
    """``width`` numbers."""
    return Layout((InputPart((width,), kind, agent=agent),))


def observed(spec: EnvSpec) -> Layout:
    """An agent's observation; one vector where the agents' observations consist of different arrays."""
    if spec.parts is None or len(set(spec.parts)) > 1:
        return vector(spec.feature_dim)
    return Layout(tuple(InputPart(part.shape, "observation", part.name) for part in spec.parts[0]))


def of_all(layout: Layout, agents: Iterable[int]) -> Layout:
    """The layout once for each agent."""
    return Layout(tuple(part._replace(agent=agent) for agent in agents for part in layout.parts))
