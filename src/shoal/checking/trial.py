"""A short training in a one-step game with a known best joint action, as information about an algorithm."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.checking.specimen import fast, tiny
from shoal.environments.matrix import matrix_game
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.types import Algorithm, Environment, PyTree, Scale

PAYOFF = ((1.0, 0.0), (0.0, 0.0))
"""The team's reward is 1 if both agents choose their first action."""
CHANCE = float(np.mean(PAYOFF))
"""The mean reward of random actions."""
ENVS, LENGTH, UPDATES = 32, 4, 60
SIZES: dict[str, Any] = {
    "learning_rate": 1e-2,
    "adam_eps": 1e-5,
    "sequence_length": 1,
    "chunk_length": 1,
    "batch_size": 32,
    "buffer_size": 1024,
    "learning_starts": 128,
}
"""Options of this training, where the ``Config`` has fields of these names."""


class Result(NamedTuple):
    """The mean rewards after a short training."""

    greedy: float
    sampled: float

    def __str__(self) -> str:
        """Both mean rewards, with those of random actions and of the best joint action."""
        return (
            f"mean reward {self.greedy:.2f} with greedy and {self.sampled:.2f} with sampled actions after "
            f"{UPDATES * LENGTH * ENVS:,} steps (random {CHANCE:.2f}, best {np.max(PAYOFF):.2f})"
        )

    @property
    def worse(self) -> bool:
        """Whether both are far below the reward of random actions."""
        return max(self) < CHANCE / 2


def result(module: Any) -> Result:
    """The rewards of sampled and greedy actions after a short training.

    Raises:
        InputError: the algorithm does not support the game.
    """
    env = matrix_game(PAYOFF, name="a one-step game")
    algorithm = module.make(env.spec, tiny(module.Config(), **SIZES), Scale(ENVS, LENGTH, UPDATES))
    sampled, greedy = (float(x) for x in fast(lambda key: _trained(algorithm, env, key))(jax.random.key(0)))
    return Result(greedy, sampled)


def _trained(algorithm: Algorithm, env: Environment, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean rewards of sampled and of greedy actions after training."""
    rollout = fused.make(env, ENVS, LENGTH)
    key_learner, key_rollout, key_play, key = jax.random.split(key, 4)
    learner, state = algorithm.init(key_learner), rollout.init(key_rollout, algorithm.initial_carry(ENVS))
    shapes = jax.eval_shape(lambda: rollout.collect(algorithm.act, learner, state, key)[1])
    feed = feeds.make(algorithm.replay, shapes, ENVS, 1)

    def iterate(now: PyTree, key: jax.Array) -> tuple[PyTree, None]:
        learner, rolled, fed = now
        key_rollout, key_feed, key_update = jax.random.split(key, 3)
        rolled, trajectory, _ = rollout.collect(algorithm.act, learner, rolled, key_rollout)
        fed = feed.put(fed, trajectory)
        learned, _ = algorithm.update(learner, feed.take(fed, trajectory, key_feed), key_update)
        if feed.ready is not None:
            ready = feed.ready(fed)
            learned = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, learner)
        return (learned, rolled, fed), None

    (learner, rolled, _), _ = jax.lax.scan(iterate, (learner, state, feed.init()), jax.random.split(key, UPDATES))

    def earned(greedy: bool) -> jax.Array:
        action = algorithm.act(learner, rolled.carry, rolled.step, key_play, greedy)[1]
        return jnp.asarray(PAYOFF)[action[:, 0], action[:, 1]].mean()

    return earned(False), earned(True)
