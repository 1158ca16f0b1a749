"""``mpe/simple_spread``: N agents must cover all landmarks without bumping into each other."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    landmarks,
    letters,
    norm,
    offsets,
    others,
    others_of,
    own,
    particle_environment,
    relative,
)
from shoal.environments.options import (
    Convention,
    check_convention,
    check_count,
    check_flag,
    check_local_ratio,
    check_number,
    check_steps,
)
from shoal.environments.outlines import BLUE
from shoal.types import Environment

RADIUS = 0.15
NEAR = 0.1
"""A landmark is occupied if an agent is nearer than this, as in the ``benchmark_data`` of OpenAI's original."""
WORDS = 2
"""Width of each other agent's message in the observation; no agent speaks, so they are zero."""


def simple_spread(
    *,
    num_agents: int = 3,
    num_landmarks: int | None = None,
    local_ratio: float | None = None,
    horizon: int = 25,
    continuous_actions: bool = False,
    convention: Convention = "mpe2",
    landmark_range: float = 1.0,
) -> Environment:
    """Cooperative navigation (Lowe et al. 2017).

    Each agent sees its velocity, its position, the offsets of all landmarks and of the other agents, and 2 (N - 1)
    zeros. The global state is all positions, all velocities, then the landmarks.

    Reward, with cover = Σ_landmarks min_agents distance and hits_i the number of *other* agents touching i:

    * ``mpe2``: ``-(1 - local_ratio) · cover - local_ratio · hits_i``; the score sums over agents.
    * ``openai`` (the papers): all agents receive ``Σ_i (-cover - hits_i - 1)``. The -1 is an agent's collision with
      itself, which the original counts: -25 N in an episode of 25 steps. The score is one copy.

    Metrics: ``occupied``, the number of landmarks with an agent within 0.1 at the end; ``distance``, the sum over
    landmarks of the distance of the nearest agent (cover) at the end; ``collisions``, the number of pairs of agents in
    touch, summed over all steps. The first two are those of the ``benchmark_data`` of OpenAI's original, which counts
    collisions for each agent, with itself.

    Args:
        num_agents: N, at least 1.
        num_landmarks: defaults to ``num_agents``.
        local_ratio: weight of an agent's own collisions in the ``mpe2`` reward; None means 0.5.
        horizon: steps in an episode.
        continuous_actions: five pushes in [0, 1] instead of five choices.
        convention: ``openai`` also integrates velocity before position, as the original does.
        landmark_range: landmarks start in [-r, r]²; 0.8 is what the official MAPPO code uses.

    Raises:
        InputError: an option is out of range, or ``local_ratio`` is given with ``openai``.
    """
    openai = check_convention(convention)
    check_count("num_agents", num_agents)
    num_landmarks = num_agents if num_landmarks is None else check_count("num_landmarks", num_landmarks)
    ratio = check_local_ratio(local_ratio, openai)
    world = World(
        agents=tuple(Agent(f"agent_{i}", 0, RADIUS, BLUE, collides=True) for i in range(num_agents)),
        landmarks=tuple(Landmark(f"landmark_{i}") for i in range(num_landmarks)),
        landmark_range=check_number("landmark_range", landmark_range, 0.0, 10.0),
        continuous=check_flag("continuous_actions", continuous_actions),
        velocity_first=openai,
    )
    pairs = ~np.eye(num_agents, dtype=bool)

    def observe(s: State) -> list[Float[Array, "N D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(num_agents, -1)
        mates = others(offsets(s.pos, s.pos)).reshape(num_agents, -1)
        silence = jnp.zeros((num_agents, WORDS * (num_agents - 1)))
        return [jnp.concatenate([s.vel, s.pos, marks, mates, silence], axis=1)]

    def gaps(s: State) -> Float[Array, " L"]:
        return norm(offsets(s.pos, s.landmarks)).min(0)

    def hits_of(s: State) -> Float[Array, " N"]:
        touching = (norm(offsets(s.pos, s.pos)) < 2 * RADIUS) & pairs
        return touching.astype(float).sum(1)

    def reward(s: State) -> Float[Array, " N"]:
        cover, hits = gaps(s).sum(), hits_of(s)
        if openai:
            return jnp.broadcast_to(-num_agents * cover - hits.sum() - num_agents, (num_agents,))
        return -(1.0 - ratio) * cover - ratio * hits

    def features(s: State) -> Float[Array, " S"]:
        return jnp.concatenate([s.pos.reshape(-1), s.vel.reshape(-1), s.landmarks.reshape(-1)])

    def names(agent: int) -> list[str]:
        mates = others_of(world, agent)
        silence = [f"{mate} {word}" for mate in mates for word in letters(WORDS)]
        return own("velocity", "position") + relative(*landmarks(world), *mates) + silence

    return particle_environment(
        "simple_spread",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        shared_reward=openai or ratio == 0.0,
        score="mean" if openai else "sum",
        novel=range(4, 4 + 2 * num_landmarks + 2 * (num_agents - 1)),
        metrics={
            "occupied": lambda s: (gaps(s) < NEAR).astype(float).sum(),
            "distance": lambda s: gaps(s).sum(),
            "collisions": lambda s: jnp.asarray(s.tally),
        },
        count=lambda s: 0.5 * hits_of(s).sum(),
    )
