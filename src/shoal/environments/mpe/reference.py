"""``mpe/simple_reference``: two agents, each of whom knows only where the *other* must go, walk and talk."""

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
    letters,
    of,
    offsets,
    one_hot,
    own,
    particle_environment,
    pick,
    relative,
    square,
)
from shoal.environments.options import (
    Convention,
    check_convention,
    check_flag,
    check_local_ratio,
    check_number,
    check_steps,
)
from shoal.environments.outlines import BLUE, ORANGE
from shoal.types import Environment

LANDMARKS = 3
WORDS = 10
COLOURS = 0.25 + 0.5 * np.eye(LANDMARKS)


def simple_reference(
    *,
    local_ratio: float | None = None,
    horizon: int = 25,
    continuous_actions: bool = False,
    convention: Convention = "mpe2",
    landmark_range: float = 1.0,
    channel: bool = True,
) -> Environment:
    """Reference game (Mordatch and Abbeel 2018).

    Agent i observes its velocity, the offsets of the 3 landmarks, the colour of the other agent's goal and its message.
    A discrete action is ``move + 5 · word``. The global state is positions, velocities, landmarks, both goals
    (one-hot, goal i being what agent i knows) and both words. With d_i the distance of the *other* agent from goal i:

    * ``mpe2``: agent i receives ``-(1 - local_ratio) · (d_0 + d_1) / 2 - local_ratio · d_i``; the score is the sum.
    * ``openai`` (the papers): both receive ``-d_0² - d_1²``; the score is one copy.

    Metrics, at the end: ``reached``, the share of the two agents that touch their goal, so that their distance is below
    the sum of both radii, 0.1; ``distance``, the mean of both agents' distances from their goals.

    Args:
        local_ratio: weight of an agent's own term in the ``mpe2`` reward; None means 0.5.
        horizon: steps in an episode.
        continuous_actions: five pushes and ten message entries in [0, 1] instead of 50 choices.
        convention: ``openai`` also integrates velocity before position, as the original does.
        landmark_range: landmarks start in [-r, r]²; 0.8 is what the official MAPPO code uses.
        channel: whether there are words. Without them agents only move, in five ways, and learn of their goals only if
            their networks exchange messages (``commnet``, ``tarmac``).

    Raises:
        InputError: an option is out of range, or ``local_ratio`` is given with ``openai``.
    """
    openai = check_convention(convention)
    ratio = check_local_ratio(local_ratio, openai)
    world = World(
        agents=(Agent("agent_0", 0, colour=BLUE, speaks=channel), Agent("agent_1", 0, colour=ORANGE, speaks=channel)),
        landmarks=tuple(Landmark(f"landmark_{i}") for i in range(LANDMARKS)),
        vocabulary=WORDS * check_flag("channel", channel),
        num_goals=2,
        landmark_range=check_number("landmark_range", landmark_range, 0.0, 10.0),
        continuous=check_flag("continuous_actions", continuous_actions),
        velocity_first=openai,
    )
    reach = world.agents[0].radius + world.landmarks[0].radius

    def observe(s: State) -> list[Float[Array, "2 D"]]:
        marks = offsets(s.pos, s.landmarks).reshape(2, -1)
        return [jnp.concatenate([s.vel, marks, pick(s.goal, COLOURS), s.comm[::-1]], axis=1)]

    def costs(s: State) -> Float[Array, " 2"]:
        return square(s.pos[::-1] - pick(s.goal, s.landmarks))

    def reward(s: State) -> Float[Array, " 2"]:
        cost = costs(s)
        if openai:
            return jnp.broadcast_to(-cost.sum(), (2,))
        distance = jnp.sqrt(cost)
        return -(1.0 - ratio) * distance.mean() - ratio * distance

    def features(s: State) -> Float[Array, " S"]:
        parts = [s.pos, s.vel, s.landmarks, one_hot(s.goal, LANDMARKS), s.comm]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def names(agent: int) -> list[str]:
        goal = f"goal of agent_{1 - agent}"
        return own("velocity") + relative(*landmarks(world)) + of((goal,), *COLOUR) + letters(world.vocabulary)

    return particle_environment(
        "simple_reference",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        shared_reward=openai or ratio == 0.0,
        score="mean" if openai else "sum",
        novel=range(2, 2 + 2 * LANDMARKS),
        metrics={
            "reached": lambda s: (jnp.sqrt(costs(s)) < reach).astype(float).mean(),
            "distance": lambda s: jnp.sqrt(costs(s)).mean(),
        },
        # A landmark is drawn in the colour of the agent that must reach it.
        colours=lambda s: highlighted(world, s.goal, (ORANGE, BLUE)),
    )
