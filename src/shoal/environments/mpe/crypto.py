"""``mpe/simple_crypto``: Alice must tell Bob a secret over a public channel without Eve understanding it."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shoal.environments.mpe.world import (
    Agent,
    Landmark,
    State,
    World,
    highlighted,
    letters,
    one_hot,
    particle_environment,
    pick,
)
from shoal.environments.options import check_flag, check_steps
from shoal.environments.outlines import BLUE, SKY, VERMILION
from shoal.types import Environment

LANDMARKS = 2
WORDS = 4
CODES = np.eye(LANDMARKS, WORDS)
EVE, BOB, ALICE = 0, 1, 2


def simple_crypto(*, horizon: int = 25, continuous_actions: bool = False) -> Environment:
    """Covert communication (Lowe et al. 2017). Agents do not move; each sends one of 4 words per step.

    A secret and a key are each one of 2 codes (4 wide, one-hot). Alice observes secret and key, Bob the key and Alice's
    message, Eve only Alice's message. The error of Bob or Eve is the squared distance of their own message from the
    secret, or 0 for an empty message. Eve's reward is minus her error; Alice and Bob each receive Eve's error minus
    Bob's. The global state is secret and key (one-hot of 2 each), then the messages of Eve, Bob and Alice.

    Metrics: ``bob_right`` and ``eve_right``, 1 if in their message of the last step the entry of the secret is larger
    than all others (of discrete words: if the word is the secret's), otherwise 0. A guess among the two codes is right
    in half of the episodes.

    Args:
        horizon: steps in an episode.
        continuous_actions: messages in [0, 1]⁴ instead of words.

    Raises:
        InputError: an option is out of range.
    """
    roles = (("eve_0", VERMILION), ("bob_0", BLUE), ("alice_0", SKY))
    world = World(
        agents=tuple(Agent(name, i, colour=tint, moves=False, speaks=True) for i, (name, tint) in enumerate(roles)),
        landmarks=tuple(Landmark(f"landmark_{i}") for i in range(LANDMARKS)),
        vocabulary=WORDS,
        num_goals=2,
        continuous=check_flag("continuous_actions", continuous_actions),
    )

    def observe(s: State) -> list[Float[Array, "1 D"]]:
        secret, key = jnp.split(pick(s.goal, CODES), 2)
        message = s.comm[ALICE:]
        return [message, jnp.concatenate([key, message], axis=1), jnp.concatenate([secret, key], axis=1)]

    def reward(s: State) -> Float[Array, " 3"]:
        guesses = s.comm[: BOB + 1]
        error = jnp.square(guesses - pick(s.goal[:1], CODES)).sum(1) * (guesses != 0.0).any(1)
        team = error[EVE] - error[BOB]
        return jnp.stack([-error[EVE], team, team])

    def right(s: State, agent: int) -> Float[Array, ""]:
        message, secret = s.comm[agent], s.goal[0] == np.arange(WORDS)
        return ((message * secret).sum() > jnp.where(secret, -1.0, message).max()).astype(float)

    def features(s: State) -> Float[Array, " 16"]:
        return jnp.concatenate([one_hot(s.goal, LANDMARKS), s.comm.reshape(-1)])

    def names(agent: int) -> list[str]:
        key, message, secret = (letters(WORDS, name) for name in ("key", "message", "secret"))
        return (message, key + message, secret + key)[agent]

    return particle_environment(
        "simple_crypto",
        world,
        observe=observe,
        reward=reward,
        features=features,
        names=names,
        horizon=check_steps("horizon", horizon),
        novel=(),
        metrics={"bob_right": lambda s: right(s, BOB), "eve_right": lambda s: right(s, EVE)},
        colours=lambda s: highlighted(world, s.goal[:1]),
    )
