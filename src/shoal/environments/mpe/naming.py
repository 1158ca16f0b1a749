"""Names of the numbers in observations, and of words."""

from shoal.environments.mpe.core import World

COLOUR = ("red", "green", "blue")


def own(*what: str) -> list[str]:
    """An agent's own vectors, for example ``own velocity x`` and ``own velocity y``."""
    return [f"own {name} {axis}" for name in what for axis in "xy"]


def relative(*names: str) -> list[str]:
    """The offsets of things from the agent, for example ``landmark_0 dx`` and ``landmark_0 dy``."""
    return of(names, "dx", "dy")


def of(names: tuple[str, ...], *what: str) -> list[str]:
    """Each of ``what`` of each thing, for example ``agent_1 velocity x`` and ``agent_1 velocity y``."""
    return [f"{name} {each}" for name in names for each in what]


def landmarks(world: World) -> tuple[str, ...]:
    """The landmarks' names."""
    return tuple(mark.name for mark in world.landmarks)


def others_of(world: World, i: int, first: int = 0) -> tuple[str, ...]:
    """The names of the agents but agent ``i``, beginning with agent ``first``."""
    return tuple(agent.name for j, agent in enumerate(world.agents) if j != i and j >= first)


def letter(word: int) -> str:
    """A word's name."""
    return chr(ord("A") + word)


def letters(count: int, name: str = "message") -> list[str]:
    """The components of a message or code, for example ``message A`` and ``message B``."""
    return [f"{name} {letter(word)}" for word in range(count)]
