"""``mpe/simple_push``: an agent wants to stand on the goal, an adversary wants to push it away."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    COLOUR,
    Agent,
    Landmark,
    State,
    World,
    highlighted,
    landmarks,
    norm,
    of,
    offsets,
    one_hot,
    others,
    others_of,
    own,
    particle_environment,
    pick,
    relative,
)
from shoal.environments.options import check_flag, check_steps
from shoal.environments.outlines import BLUE, VERMILION
from shoal.types import Environment

LANDMARKS = 2
COLOURS = 0.1 + 0.8 * np.eye(3)[1:]
GOAL_COLOURS = 0.25 + 0.5 * np.eye(3)[1:]
"""The good agent's own colour, which tells it the goal."""


def simple_push(*, horizon: int = 25, continuous_actions: bool = False) -> Environment:
    """Keep-away (Lowe et al. 2017) with one adversary (agent 0), one good agent and two landmarks, one the goal.

    Both see their velocity, the landmarks' offsets and the other's offset; between them the good agent also sees the
    goal's offset, its own colour (the goal's) and the landmarks' colours. The good agent earns minus its distance from
    the goal, the adversary the good agent's distance minus its own. The global state is positions, velocities,
    landmarks and the goal (one-hot).

    Metrics, at the end: ``agent_reached``, 1 if the good agent touches the goal, so that its distance is below the sum
    of both radii, 0.1, otherwise 0; ``adversary_reached``, the same of the adversary.

    Args:
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.

    Raises:
        InputError: an option is out of range.
    """
    world = World(
        agents=(
            Agent("adversary_0", 0, colour=VERMILION, collides=True),
            Agent("agent_0", 1, colour=BLUE, collides=True),
        ),
        landmarks=tuple(Landmark(f"landmark_{i}") for i in range(LANDMARKS)),
        num_goals=1,
        continuous=check_flag("continuous_actions", continuous_actions),
    )

    reach = world.agents[0].radius + world.landmarks[0].radius

    def observe(s: State) -> list[Float[Array, "1 D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(2, -1)
        mate = others(offsets(s.pos, s.pos)).reshape(2, -1)
        goal = pick(s.goal, s.landmarks) - s.pos[1:]
        paint = jnp.asarray(COLOURS.reshape(1, -1), s.pos.dtype)
        seen = [s.vel[1:], goal, pick(s.goal, GOAL_COLOURS), marks[1:], paint, mate[1:]]
        return [jnp.concatenate([s.vel[:1], marks[:1], mate[:1]], axis=1), jnp.concatenate(seen, axis=1)]

    def distances(s: State) -> Float[Array, " 2"]:
        return norm(pick(s.goal, s.landmarks) - s.pos)

    def reward(s: State) -> Float[Array, " 2"]:
        distance = distances(s)
        return jnp.stack([distance[1] - distance[0], -distance[1]])

    def features(s: State) -> Float[Array, " 14"]:
        parts = [s.pos, s.vel, s.landmarks, one_hot(s.goal, LANDMARKS)]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def names(agent: int) -> list[str]:
        marks, mates = landmarks(world), relative(*others_of(world, agent))
        if agent == 0:
            return own("velocity") + relative(*marks) + mates
        goal = relative("goal") + of(("goal",), *COLOUR)
        return own("velocity") + goal + relative(*marks) + of(marks, *COLOUR) + mates

    return particle_environment(
        "simple_push",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=(*range(2, 11), 17, 18),
        metrics={
            "agent_reached": lambda s: (distances(s)[1] < reach).astype(float),
            "adversary_reached": lambda s: (distances(s)[0] < reach).astype(float),
        },
        colours=lambda s: highlighted(world, s.goal),
    )
