"""Episodes of two trained algorithms, each of which controls one side: every seed of one with every of the other."""

from collections.abc import Callable
from contextlib import closing
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.game import HostEnvironment
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout
from shoal.rollouts.recording import Parallelism, Workers
from shoal.training.evaluation import ENVS, first_episodes
from shoal.training.stopping import call
from shoal.types import Algorithm, AnyEnvironment, Environment, Learner, PyTree, Step

Matches = Callable[
    [Learner, Learner, Array],
    tuple[Float[Array | np.ndarray, "A B episodes 2"], Float[Array | np.ndarray, "A B episodes M"]],
]
"""(learners [A, ...] of one, learners [B, ...] of the other, key) -> (each side's returns, means over its agents; the
episodes' metrics)."""


def make_matches(
    env: AnyEnvironment,
    teams: tuple[Algorithm, Algorithm],
    side: tuple[int, ...],
    episodes: int,
    greedy: bool,
    workers: Workers,
) -> Matches:
    """A function that plays ``episodes`` whole episodes per pair; ``side`` holds the agents of the first algorithm."""
    mine = np.isin(np.arange(env.spec.num_agents), side)
    act = _both(teams, mine)

    def carry(num_envs: int) -> tuple[PyTree, PyTree]:
        return teams[0].initial_carry(num_envs), teams[1].initial_carry(num_envs)

    if isinstance(env, Environment):
        return _on_device(env, act, carry(episodes), mine, episodes, greedy)
    return _on_host(env, act, carry, mine, episodes, greedy, workers)


def _both(teams: tuple[Algorithm, Algorithm], mine: np.ndarray) -> fused.Act:
    """Both algorithms act for all agents; each agent's action is taken from the algorithm of its side."""
    one, two = teams

    def act(
        learners: tuple[Learner, Learner], carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        keys = jax.random.split(key)
        first, ours, _ = one.act(learners[0], carry[0], step, keys[0], greedy)
        second, theirs, _ = two.act(learners[1], carry[1], step, keys[1], greedy)
        ours_acts = mine.reshape(-1, *(1,) * (ours.ndim - 2))
        return (first, second), jnp.where(ours_acts, ours, theirs), {}

    return act


def _on_device(
    env: Environment, act: fused.Act, carry: PyTree, mine: np.ndarray, episodes: int, greedy: bool
) -> Matches:
    games = first_episodes(env, act, carry, episodes, greedy)

    def pair(ours: Learner, theirs: Learner, key: Array) -> tuple[Array, Array]:
        returns, _, metrics = games((ours, theirs), key)
        return jnp.stack([returns[:, mine].mean(-1), returns[:, ~mine].mean(-1)], -1), metrics

    def every_pair(ours: Learner, theirs: Learner, key: Array) -> tuple[Array, Array]:
        rows, columns = (jnp.arange(len(jax.tree.leaves(learner)[0])) for learner in (ours, theirs))

        def row(turn: tuple[Learner, Array]) -> tuple[Array, Array]:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, turn[1]), columns)
            return jax.vmap(pair, (None, 0, 0), axis_name=fused.SEEDS)(turn[0], theirs, keys)

        return jax.lax.map(row, (ours, rows))

    return partial(call, jax.jit(every_pair))


def _on_host(
    env: HostEnvironment,
    act: fused.Act,
    carry: Callable[[int], PyTree],
    mine: np.ndarray,
    episodes: int,
    greedy: bool,
    workers: Workers,
) -> Matches:
    def every_pair(ours: Learner, theirs: Learner, key: Array) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = (len(jax.tree.leaves(learner)[0]) for learner in (ours, theirs))
        pairs = (
            jax.tree.map(lambda x: jnp.repeat(x, columns, axis=0), ours),
            jax.tree.map(lambda x: jnp.concatenate([x] * rows), theirs),
        )
        parallelism = Parallelism(rows * columns, min(episodes, ENVS), *workers)
        with closing(HostRollout(env, carry, parallelism, 1)) as rollout:
            returns, _, metrics = rollout.play(act, pairs, jax.random.split(key, rows * columns), episodes, greedy)
        both = np.stack([returns[..., mine].mean(-1), returns[..., ~mine].mean(-1)], -1)
        return both.reshape(rows, columns, episodes, 2), metrics.reshape(rows, columns, episodes, -1)

    return every_pair
