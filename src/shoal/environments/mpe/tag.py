"""``mpe/simple_tag``: slow predators hunt fast prey between obstacles."""

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
    of,
    offsets,
    others,
    others_of,
    own,
    particle_environment,
    relative,
)
from shoal.environments.options import check_count, check_flag, check_steps
from shoal.environments.outlines import BLUE, VERMILION
from shoal.types import Environment

CATCH = 10.0


def fence(pos: Float[Array, "M 2"]) -> Float[Array, " M"]:
    """The penalty of leaving the arena, summed over both coordinates: 0 up to |x| = 0.9, 10 (|x| - 0.9) up to 1, then
    e^{2|x| - 2}, at most 10.
    """
    x = jnp.abs(pos)
    cost = jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, 10.0 * (x - 0.9), jnp.minimum(jnp.exp(2.0 * x - 2.0), 10.0)))
    return cost[:, 0] + cost[:, 1]


def simple_tag(
    *,
    num_good: int = 1,
    num_adversaries: int = 3,
    num_obstacles: int = 2,
    horizon: int = 25,
    continuous_actions: bool = False,
) -> Environment:
    """Predator-prey (Lowe et al. 2017); the predators ("adversaries") stand first in the agent order.

    All see their velocity and position, the offsets of obstacles and of the other agents, and the velocities of the
    prey (other than themselves). Each predator earns 10 for every (predator, prey) pair in touch; each prey loses 10
    per predator touching it, and what :func:`fence` says. The global state is positions, velocities and obstacles.

    The metric ``catches`` is the number of (predator, prey) pairs in touch, summed over all steps; Lowe et al. 2017
    call them prey touches.

    Args:
        num_good: prey, at least 1.
        num_adversaries: predators, at least 1.
        num_obstacles: 0 or more; they start in [-0.9, 0.9]².
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.

    Raises:
        InputError: an option is out of range.
    """
    hunters, prey = check_count("num_adversaries", num_adversaries), check_count("num_good", num_good)
    num_agents = hunters + prey
    world = World(
        agents=(
            *(
                Agent(f"adversary_{i}", 0, 0.075, VERMILION, collides=True, acceleration=3.0, max_speed=1.0)
                for i in range(hunters)
            ),
            *(Agent(f"agent_{i}", 1, 0.05, BLUE, collides=True, acceleration=4.0, max_speed=1.3) for i in range(prey)),
        ),
        landmarks=tuple(
            Landmark(f"landmark_{i}", 0.2, collides=True)
            for i in range(check_count("num_obstacles", num_obstacles, least=0))
        ),
        landmark_range=0.9,
        continuous=check_flag("continuous_actions", continuous_actions),
    )
    reach = np.add.outer([a.radius for a in world.agents[:hunters]], [a.radius for a in world.agents[hunters:]])

    def observe(s: State) -> list[Float[Array, "M D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(num_agents, -1)
        mates = others(offsets(s.pos, s.pos)).reshape(num_agents, -1)
        common = jnp.concatenate([s.vel, s.pos, marks, mates], axis=1)
        fleeing = s.vel[hunters:]
        seen = jnp.broadcast_to(fleeing.reshape(1, -1), (hunters, 2 * prey))
        known = others(jnp.broadcast_to(fleeing[None], (prey, prey, 2))).reshape(prey, -1)
        return [
            jnp.concatenate([common[:hunters], seen], axis=1),
            jnp.concatenate([common[hunters:], known], axis=1),
        ]

    def catches(s: State) -> Float[Array, "P M"]:
        return (norm(offsets(s.pos[:hunters], s.pos[hunters:])) < reach).astype(float)

    def reward(s: State) -> Float[Array, " N"]:
        caught = catches(s)
        hunt = jnp.broadcast_to(CATCH * caught.sum(), (hunters,))
        return jnp.concatenate([hunt, -CATCH * caught.sum(0) - fence(s.pos[hunters:])])

    def features(s: State) -> Float[Array, " S"]:
        return jnp.concatenate([s.pos.reshape(-1), s.vel.reshape(-1), s.landmarks.reshape(-1)])

    def names(agent: int) -> list[str]:
        places = relative(*landmarks(world), *others_of(world, agent))
        return own("velocity", "position") + places + of(others_of(world, agent, hunters), "velocity x", "velocity y")

    return particle_environment(
        "simple_tag",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=range(4, 4 + 2 * num_obstacles + 2 * (num_agents - 1)),
        metrics={"catches": lambda s: jnp.asarray(s.tally)},
        count=lambda s: catches(s).sum(),
    )
