"""What reads images and sets of entities among a network's features, before its fully connected layers.

Where a network reads several agents' features, all agents' images and entities go through the same layers, and what
comes out stands side by side.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.networks.layout import InputPart, Layout
from shoal.types import PyTree


class Encoder(NamedTuple):
    """From features to others, as functions of rows."""

    width: int
    """E."""
    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Float[Array, "R F"]], Float[Array, "R E"]]


class Alike(NamedTuple):
    """Parts of a layout that go through the same layers: one for each agent that has it."""

    shape: tuple[int, ...]
    where: tuple[int, ...]
    """Indices of the parts."""


def alike(layout: Layout, rank: int) -> list[Alike]:
    """The observations' parts of ``rank`` axes, those of the same name and shape together."""
    found: dict[tuple, list[int]] = {}
    for index, part in enumerate(layout.parts):
        if part.kind == "observation" and len(part.shape) == rank and part.size:
            found.setdefault((part.name, part.shape, _place(layout, index)), []).append(index)
    return [Alike(shape, tuple(where)) for (_, shape, _), where in found.items()]


def _place(layout: Layout, index: int) -> int:
    """How many parts of the same agent, name and shape come before: those without names are told apart by order."""
    part = layout.parts[index]
    return sum(part == earlier for earlier in layout.parts[:index])


def together(parts: list[Array], group: Alike) -> Float[Array, "R G ..."]:
    """The arrays of a group side by side."""
    return jnp.stack([parts[index] for index in group.where], axis=1)


def rest(layout: Layout, groups: list[Alike]) -> list[int]:
    """Indices of the parts that are in no group."""
    taken = {index for group in groups for index in group.where}
    return [index for index in range(len(layout.parts)) if index not in taken]


def flat(parts: list[Array], which: list[int]) -> list[Array]:
    """Some parts as rows [R, size]."""
    return [parts[index].reshape(parts[index].shape[0], -1) for index in which]


def size_of(layout: Layout, which: list[int]) -> int:
    """Number of features of some parts."""
    return sum(layout.parts[index].size for index in which)


def observes(layout: Layout) -> bool:
    """Whether a layout has parts of observations."""
    return any(part.kind == "observation" for part in layout.parts)


def shapes_in_words(layout: Layout) -> str:
    """The shapes of the observations' parts, for messages."""

    def named(part: InputPart) -> str:
        return f"{part.name} {part.shape}" if part.name else f"{part.shape}"

    own = dict.fromkeys(named(part) for part in layout.parts if part.kind == "observation")
    return ", ".join(own)
