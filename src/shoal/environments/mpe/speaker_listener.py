"""``mpe/simple_speaker_listener``: one agent sees the goal and can only speak, the other can only walk."""

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
from shoal.environments.options import Convention, check_convention, check_flag, check_steps
from shoal.environments.outlines import BLUE, ORANGE
from shoal.types import Environment

LANDMARKS = 3
COLOURS = 0.15 + 0.5 * np.eye(LANDMARKS)
"""What the speaker sees of the goal: the landmark's colour."""


def simple_speaker_listener(
    *, horizon: int = 25, continuous_actions: bool = False, convention: Convention = "mpe2"
) -> Environment:
    """Cooperative communication (Lowe et al. 2017).

    The speaker sees the goal's colour and picks one of 3 words; the listener sees its velocity, the offsets of the
    3 landmarks and the message, and moves. The global state is the listener's position and velocity, the
    landmarks, the goal (one-hot) and the word. Each step costs d², the listener's squared distance from the goal:

    * ``mpe2``: both agents receive -d²; the score sums over agents, so it is -2 Σ_t d².
    * ``openai`` (the papers): both receive the team's sum, -2 d²; the score is one copy, so it is -2 Σ_t d² as well.

    A random team scores about -81 under both, one whose listener ignores the word at best about -29.

    Metrics, at the end: ``reached``, 1 if the listener touches the goal, so that its distance is below the sum of both
    radii, 0.115, otherwise 0; ``distance``, the listener's distance from the goal.

    Args:
        horizon: steps in an episode.
        continuous_actions: pushes and messages in [0, 1] instead of choices.
        convention: ``openai`` also integrates velocity before position, as the original does.

    Raises:
        InputError: an option is out of range.
    """
    openai = check_convention(convention)
    world = World(
        agents=(
            Agent("speaker_0", 0, 0.075, ORANGE, moves=False, speaks=True),
            Agent("listener_0", 1, 0.075, BLUE),
        ),
        landmarks=tuple(Landmark(f"landmark_{i}", 0.04) for i in range(LANDMARKS)),
        vocabulary=3,
        num_goals=1,
        continuous=check_flag("continuous_actions", continuous_actions),
        velocity_first=openai,
    )
    copies = 2.0 if openai else 1.0
    reach = world.agents[1].radius + world.landmarks[0].radius

    def observe(s: State) -> list[Float[Array, "1 D"]]:
        marks = offsets(s.pos[1:], s.landmarks).reshape(1, -1)
        return [pick(s.goal, COLOURS), jnp.concatenate([s.vel[1:], marks, s.comm[:1]], axis=1)]

    def costs(s: State) -> Float[Array, " 1"]:
        return square(s.pos[1:] - pick(s.goal, s.landmarks))

    def reward(s: State) -> Float[Array, " 2"]:
        cost = costs(s)
        return jnp.broadcast_to(-copies * cost, (2,))

    def features(s: State) -> Float[Array, " S"]:
        return jnp.concatenate([s.pos[1], s.vel[1], s.landmarks.reshape(-1), one_hot(s.goal, LANDMARKS), s.comm[0]])

    def names(agent: int) -> list[str]:
        if agent == 0:
            return of(("goal",), *COLOUR)
        return own("velocity") + relative(*landmarks(world)) + letters(world.vocabulary)

    return particle_environment(
        "simple_speaker_listener",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        shared_reward=True,
        score="mean" if openai else "sum",
        novel=range(2, 2 + 2 * LANDMARKS),
        metrics={
            "reached": lambda s: (jnp.sqrt(costs(s)) < reach).astype(float)[0],
            "distance": lambda s: jnp.sqrt(costs(s))[0],
        },
        colours=lambda s: highlighted(world, s.goal),
    )
