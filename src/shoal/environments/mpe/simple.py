"""``mpe/simple``: one agent must reach one landmark; a first test of any learner."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    offsets,
    own,
    particle_environment,
    relative,
    square,
)
from shoal.environments.options import check_flag, check_steps
from shoal.environments.outlines import BLUE, GREEN
from shoal.types import Environment


def simple(*, horizon: int = 25, continuous_actions: bool = False) -> Environment:
    """One agent and one landmark.

    It sees its velocity and the landmark's offset, and earns minus the squared distance. The global state is its
    position, its velocity and the landmark.

    Args:
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.

    Raises:
        InputError: an option is out of range.
    """
    world = World(
        agents=(Agent("agent_0", 0, colour=BLUE),),
        landmarks=(Landmark("landmark_0", colour=GREEN),),
        continuous=check_flag("continuous_actions", continuous_actions),
    )

    def observe(s: State) -> list[Float[Array, "1 4"]]:
        return [jnp.concatenate([s.vel, s.landmarks - s.pos], axis=1)]

    def reward(s: State) -> Float[Array, " 1"]:
        return -square(offsets(s.pos, s.landmarks))[:, 0]

    def features(s: State) -> Float[Array, " 6"]:
        return jnp.concatenate([s.pos[0], s.vel[0], s.landmarks[0]])

    def names(agent: int) -> list[str]:
        del agent
        return own("velocity") + relative("landmark_0")

    return particle_environment(
        "simple",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=(2, 3),
    )
