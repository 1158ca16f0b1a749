"""``mpe/simple_world_comm``: predator-prey with food, forests to hide in, and a leader who tells the predators."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from shoal.environments.mpe.tag import fence
from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    landmarks,
    letters,
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
from shoal.environments.outlines import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION
from shoal.types import Environment

WORDS = 4
CATCH, MEAL = 5.0, 2.0


def simple_world_comm(
    *,
    num_good: int = 2,
    num_adversaries: int = 4,
    num_obstacles: int = 1,
    num_food: int = 2,
    num_forests: int = 2,
    horizon: int = 25,
    continuous_actions: bool = False,
) -> Environment:
    """The largest particle world (Lowe et al. 2017's code). Agent 0 is the leader of the predators ("adversaries").

    An agent in a forest is seen only from within the same forest, and sees only what is there with it; the leader sees
    everything. What is not seen reads zero. All see their velocity and position, the offsets of obstacles, food and
    forests, and of the other agents; then predators the prey's velocities, the forests they stand in (1 or -1) and the
    leader's word; prey the forests they stand in and the other prey's velocities. A predator earns 5 for every
    (predator, prey) pair in touch, minus 0.1 of its distance from the nearest prey; prey lose 5 per predator touching
    them, twice :func:`~shoal.environments.mpe.tag.fence`, and 0.05 of the distance from the nearest food, and gain 2
    per piece of food touched. The leader's discrete action is ``move + 5 · word`` with 4 words. The global state is
    positions, velocities, all landmarks and the leader's word. The metric ``catches`` is the number of (predator, prey)
    pairs in touch, summed over all steps.

    Args:
        num_good: prey, at least 1.
        num_adversaries: predators with their leader, at least 1.
        num_obstacles: 0 or more. All landmarks start in [-0.9, 0.9]².
        num_food: at least 1.
        num_forests: 0 or more.
        horizon: steps in an episode.
        continuous_actions: pushes and messages in [0, 1] instead of choices.

    Raises:
        InputError: an option is out of range.
    """
    hunters, prey = check_count("num_adversaries", num_adversaries), check_count("num_good", num_good)
    obstacles, food = check_count("num_obstacles", num_obstacles, least=0), check_count("num_food", num_food)
    forests = check_count("num_forests", num_forests, least=0)
    num_agents = hunters + prey
    hunter = {"radius": 0.075, "collides": True, "acceleration": 3.0, "max_speed": 1.0}
    runner = {"radius": 0.045, "collides": True, "acceleration": 4.0, "max_speed": 1.3}
    world = World(
        agents=(
            Agent("leadadversary_0", 0, colour=ORANGE, speaks=True, **hunter),
            *(Agent(f"adversary_{i}", 1, colour=VERMILION, **hunter) for i in range(hunters - 1)),
            *(Agent(f"agent_{i}", min(hunters, 2), colour=BLUE, **runner) for i in range(prey)),
        ),
        landmarks=(
            *(Landmark(f"landmark_{i}", 0.2, GREY, collides=True) for i in range(obstacles)),
            *(Landmark(f"food_{i}", 0.03, SKY) for i in range(food)),
            *(Landmark(f"forest_{i}", 0.3, GREEN) for i in range(forests)),
        ),
        vocabulary=WORDS,
        landmark_range=0.9,
        continuous=check_flag("continuous_actions", continuous_actions),
    )
    radius = np.array([a.radius for a in world.agents])
    leads = np.arange(num_agents)[:, None] == 0

    def hidden(s: State) -> Bool[Array, "N F"]:
        return norm(offsets(s.pos, s.landmarks[obstacles + food :])) < radius[:, None] + 0.3

    def observe(s: State) -> list[Float[Array, "M D"]]:
        inside = hidden(s)
        together = (inside[:, None] & inside[None]).any(-1)
        open_air = ~inside.any(-1)
        sees = (together | (open_air[:, None] & open_air) | leads)[..., None]
        marks = offsets(s.pos, s.landmarks).reshape(num_agents, -1)
        mates = others(jnp.where(sees, offsets(s.pos, s.pos), 0.0)).reshape(num_agents, -1)
        common = jnp.concatenate([s.vel, s.pos, marks, mates], axis=1)
        fleeing = jnp.where(sees[:, hunters:], s.vel[None, hunters:], 0.0)
        shelter = jnp.where(inside, 1.0, -1.0).astype(s.pos.dtype)
        word = jnp.broadcast_to(s.comm[:1], (hunters, WORDS))
        pack = [common[:hunters], fleeing[:hunters].reshape(hunters, -1), shelter[:hunters], word]
        herd = [common[hunters:], shelter[hunters:], others(fleeing[hunters:]).reshape(prey, -1)]
        return [jnp.concatenate(pack, axis=1), jnp.concatenate(herd, axis=1)]

    def catches(gap: Float[Array, "P M"]) -> Float[Array, "P M"]:
        return (gap < np.add.outer(radius[:hunters], radius[hunters:])).astype(float)

    def gaps(s: State) -> Float[Array, "P M"]:
        return norm(offsets(s.pos[:hunters], s.pos[hunters:]))

    def reward(s: State) -> Float[Array, " N"]:
        gap = gaps(s)
        caught = catches(gap)
        meal = norm(offsets(s.pos[hunters:], s.landmarks[obstacles : obstacles + food]))
        eaten = (meal < radius[hunters:, None] + 0.03).astype(float).sum(1)
        graze = MEAL * eaten - 0.05 * meal.min(1) - CATCH * caught.sum(0) - 2.0 * fence(s.pos[hunters:])
        return jnp.concatenate([CATCH * caught.sum() - 0.1 * gap.min(1), graze])

    def features(s: State) -> Float[Array, " S"]:
        parts = [s.pos, s.vel, s.landmarks, s.comm[:1]]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    wide = 4 + 2 * len(world.landmarks) + 2 * (num_agents - 1) + 2 * prey + forests + WORDS

    def names(agent: int) -> list[str]:
        common = own("velocity", "position") + relative(*landmarks(world), *others_of(world, agent))
        fleeing = of(others_of(world, agent, hunters), "velocity x", "velocity y")
        shelter = [f"own presence in forest_{i}" for i in range(forests)]
        return common + (fleeing + shelter + letters(WORDS) if agent < hunters else shelter + fleeing)

    return particle_environment(
        "simple_world_comm",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=range(4, wide - WORDS),
        metrics={"catches": lambda s: jnp.asarray(s.tally)},
        count=lambda s: catches(gaps(s)).sum(),
    )
