"""``bps/…``, blind-particle spread: go to the landmark of your own type, with no way of seeing which type you are."""

import random
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    landmarks,
    norm,
    offsets,
    own,
    particle_environment,
    relative,
)
from shoal.environments.options import check_count, check_flag, check_steps
from shoal.environments.outlines import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from shoal.errors import InputError
from shoal.types import Environment

HORIZON = 50
LANDMARK_RANGE = 3.0
LOCAL_RATIO = 0.5
"""Share of an agent's own reward in what it receives; the rest would be a team reward, which these tasks leave at 0."""
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, GREY)


def blind_spread(
    *,
    num_agents: int | None = None,
    num_types: int | None = None,
    type_distribution: tuple[int, ...] | None = None,
    scrambled: bool = False,
    horizon: int = HORIZON,
    continuous_actions: bool = False,
) -> Environment:
    """Blind-particle spread (Christianos et al. 2021): each agent must reach the landmark of its own type.

    There is one landmark per type. An agent sees its velocity, its position and the offsets of all landmarks; neither
    colours nor other agents, and there are no collisions. The global state is all positions, all velocities, then the
    landmarks. Each agent receives ``-0.5`` times its distance from its own landmark at every step, and the score sums
    over agents. ``EnvSpec.roles`` are the types, which stand in blocks: agents of type 0 first.

    Agents start in [-1, 1]² and landmarks in [-3, 3]²; velocity is integrated before position.

    Args:
        num_agents: N; None for 15, or what ``type_distribution`` adds up to.
        num_types: number of types, at most N; None for 3, or the length of ``type_distribution``.
        type_distribution: number of agents of each type; None for an even distribution.
        scrambled: each type observes its features in a different order (the BPS-h tasks).
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.

    Raises:
        InputError: an option is out of range, or the numbers of agents and types contradict each other.
    """
    sizes = _sizes(num_agents, num_types, type_distribution)
    return _build("spread", sizes, scrambled, horizon, continuous_actions)


def _published(name: str, sizes: tuple[int, ...], scrambled: bool = False) -> Callable[..., Environment]:
    def task(*, horizon: int = HORIZON, continuous_actions: bool = False) -> Environment:
        return _build(name, sizes, scrambled, horizon, continuous_actions)

    how = ", each type seeing its features in another order" if scrambled else ""
    distribution = "-".join(map(str, sizes))
    task.__doc__ = f"""Blind-particle spread of {sum(sizes)} agents of {len(sizes)} types ({distribution}){how}.

    See :func:`blind_spread`.

    Args:
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.
    """
    return task


bps_1 = _published("1", (5, 5, 5))
bps_2 = _published("2", (10, 10, 10))
bps_3 = _published("3", (6, 6, 6, 6, 6))
bps_4 = _published("4", (2, 2, 2, 15, 9))
bps_h1 = _published("h1", (5, 5, 5), scrambled=True)
bps_h2 = _published("h2", (6, 6, 6, 6, 6), scrambled=True)
bps_h3 = _published("h3", (50, 50, 50, 50), scrambled=True)


def _sizes(num_agents: int | None, num_types: int | None, distribution: tuple[int, ...] | None) -> tuple[int, ...]:
    """How many agents there are of each type."""
    if distribution is None:
        agents = 15 if num_agents is None else check_count("num_agents", num_agents)
        types = min(3, agents) if num_types is None else check_count("num_types", num_types)
        if types > agents:
            raise InputError(f"{agents} agents cannot be of {types} types.")
        return tuple(agents // types + (i < agents % types) for i in range(types))
    if not isinstance(distribution, tuple | list) or not distribution:
        raise InputError(f"type_distribution must be numbers of agents such as (5, 5, 5), not {distribution!r}.")
    sizes = tuple(check_count("each number in type_distribution", size) for size in distribution)
    for name, asked, had in (("num_agents", num_agents, sum(sizes)), ("num_types", num_types, len(sizes))):
        if asked is not None and asked != had:
            raise InputError(f"type_distribution {sizes} has {name} {had}, not {asked}.")
    return sizes


def _order(kind: int, width: int) -> list[int]:
    """The order in which a scrambled type sees its features: the authors' own, which Python shuffles by the type."""
    order = list(range(width))
    random.Random(kind).shuffle(order)
    return order


def _build(name: str, sizes: tuple[int, ...], scrambled: bool, horizon: int, continuous: bool) -> Environment:
    check_flag("scrambled", scrambled)
    types = np.repeat(np.arange(len(sizes)), sizes)
    colours = [COLOURS[kind % len(COLOURS)] for kind in range(len(sizes))]
    world = World(
        agents=tuple(Agent(f"agent_{i}", int(kind), 0.15, colours[kind]) for i, kind in enumerate(types)),
        landmarks=tuple(Landmark(f"landmark_{kind}", colour=colour) for kind, colour in enumerate(colours)),
        landmark_range=LANDMARK_RANGE,
        continuous=check_flag("continuous_actions", continuous),
        velocity_first=True,
    )
    width = 4 + 2 * len(sizes)
    orders = np.array([_order(kind, width) for kind in range(len(sizes))])
    ends = np.cumsum((0, *sizes))

    def observe(s: State) -> list[Float[Array, "N D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(len(types), -1)
        seen = jnp.concatenate([s.vel, s.pos, marks], axis=1)
        if scrambled:
            seen = jnp.concatenate([seen[a:b, order] for a, b, order in zip(ends, ends[1:], orders, strict=False)])
        return [seen]

    def reward(s: State) -> Float[Array, " N"]:
        own = jnp.repeat(s.landmarks, np.array(sizes), axis=0, total_repeat_length=len(types))
        return -LOCAL_RATIO * norm(s.pos - own)

    def features(s: State) -> Float[Array, " S"]:
        return jnp.concatenate([s.pos.reshape(-1), s.vel.reshape(-1), s.landmarks.reshape(-1)])

    def names(agent: int) -> list[str]:
        plain = own("velocity", "position") + relative(*landmarks(world))
        return [plain[k] for k in orders[types[agent]]] if scrambled else plain

    return particle_environment(
        name,
        world,
        family="bps",
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=np.flatnonzero((orders >= 4).any(0)).tolist() if scrambled else range(4, width),
    )
