"""``mpe/simple_adversary``: a team must reach the goal while an adversary, who does not know it, guesses."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    highlighted,
    landmarks,
    norm,
    offsets,
    one_hot,
    others,
    others_of,
    particle_environment,
    pick,
    relative,
)
from shoal.environments.options import check_count, check_flag, check_steps
from shoal.environments.outlines import BLUE, VERMILION
from shoal.types import Environment

RADIUS = 0.08
"""Of the landmarks."""
NEAR = 2.0 * RADIUS
"""A goal is reached below this distance, as in the binary reward that OpenAI's original has as an option."""


def simple_adversary(*, num_good: int = 2, horizon: int = 25, continuous_actions: bool = False) -> Environment:
    """Physical deception (Lowe et al. 2017): agent 0 is the adversary, N good agents and N landmarks, one the goal.

    All see the offsets of the landmarks and of the other agents; good agents see the goal's offset before them. The
    adversary earns minus its distance from the goal; each good agent the adversary's distance minus the nearest good
    agent's. Agents pass through each other. The global state is positions, velocities, landmarks, the goal (one-hot).

    Metrics, at the end: ``agent_reached``, 1 if a good agent is within 0.16 of the goal, twice its radius, otherwise 0;
    ``adversary_reached``, the same of the adversary.

    Args:
        num_good: N, at least 1.
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.

    Raises:
        InputError: an option is out of range.
    """
    check_count("num_good", num_good)
    num_agents = num_good + 1
    world = World(
        agents=(
            Agent("adversary_0", 0, 0.15, VERMILION),
            *(Agent(f"agent_{i}", 1, 0.15, BLUE) for i in range(num_good)),
        ),
        landmarks=tuple(Landmark(f"landmark_{i}", RADIUS) for i in range(num_good)),
        num_goals=1,
        continuous=check_flag("continuous_actions", continuous_actions),
    )

    def observe(s: State) -> list[Float[Array, "M D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(num_agents, -1)
        mates = others(offsets(s.pos, s.pos)).reshape(num_agents, -1)
        common = jnp.concatenate([marks, mates], axis=1)
        goal = pick(s.goal, s.landmarks) - s.pos
        return [common[:1], jnp.concatenate([goal[1:], common[1:]], axis=1)]

    def distances(s: State) -> Float[Array, " N"]:
        return norm(pick(s.goal, s.landmarks) - s.pos)

    def reward(s: State) -> Float[Array, " N"]:
        distance = distances(s)
        good = distance[0] - distance[1:].min()
        return jnp.concatenate([-distance[:1], jnp.broadcast_to(good, (num_good,))])

    def features(s: State) -> Float[Array, " S"]:
        parts = [s.pos, s.vel, s.landmarks, one_hot(s.goal, num_good)]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def names(agent: int) -> list[str]:
        goal = ("goal",) if agent > 0 else ()
        return relative(*goal, *landmarks(world), *others_of(world, agent))

    return particle_environment(
        "simple_adversary",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=range(2 + 2 * num_good + 2 * num_good),
        metrics={
            "agent_reached": lambda s: (distances(s)[1:].min() < NEAR).astype(float),
            "adversary_reached": lambda s: (distances(s)[0] < NEAR).astype(float),
        },
        colours=lambda s: highlighted(world, s.goal),
    )
