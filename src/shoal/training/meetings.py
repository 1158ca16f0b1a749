"""Two algorithms in one environment, each heard for its own side: every seed of one with every seed of the other."""

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
from shoal.rollouts.recording import Width
from shoal.training.evaluation import ENVS, first_episodes
from shoal.training.stopping import call
from shoal.types import Algorithm, AnyEnvironment, Environment, Learner, PyTree, Step

Meeting = Callable[
    [Learner, Learner, Array],
    tuple[Float[Array | np.ndarray, "A B episodes 2"], Float[Array | np.ndarray, "A B episodes M"]],
]
"""(learners of one [A, ...], of the other [B, ...], key) -> both sides' returns, the means of their agents', and the
episodes' metrics."""


def meeting(
    env: AnyEnvironment,
    teams: tuple[Algorithm, Algorithm],
    side: tuple[int, ...],
    episodes: int,
    greedy: bool,
    num_workers: int | None,
) -> Meeting:
    """What plays ``episodes`` whole episodes of every pair; ``side`` are the agents of the first."""
    mine = np.isin(np.arange(env.spec.num_agents), side)
    act = _both(teams, mine)

    def carry(num_envs: int) -> tuple[PyTree, PyTree]:
        return teams[0].initial_carry(num_envs), teams[1].initial_carry(num_envs)

    if isinstance(env, Environment):
        return _on_device(env, act, carry(episodes), mine, episodes, greedy)
    return _on_host(env, act, carry, mine, episodes, greedy, num_workers)


def _both(teams: tuple[Algorithm, Algorithm], mine: np.ndarray) -> fused.Act:
    """Both teams decide for everybody, and each is heard for its own side."""
    one, two = teams

    def act(
        learners: tuple[Learner, Learner], carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        keys = jax.random.split(key)
        first, ours, _ = one.act(learners[0], carry[0], step, keys[0], greedy)
        second, theirs, _ = two.act(learners[1], carry[1], step, keys[1], greedy)
        heard = mine.reshape(-1, *(1,) * (ours.ndim - 2))
        return (first, second), jnp.where(heard, ours, theirs), {}

    return act


def _on_device(
    env: Environment, act: fused.Act, carry: PyTree, mine: np.ndarray, episodes: int, greedy: bool
) -> Meeting:
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
    num_workers: int | None,
) -> Meeting:
    def every_pair(ours: Learner, theirs: Learner, key: Array) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = (len(jax.tree.leaves(learner)[0]) for learner in (ours, theirs))
        pairs = (
            jax.tree.map(lambda x: jnp.repeat(x, columns, axis=0), ours),
            jax.tree.map(lambda x: jnp.concatenate([x] * rows), theirs),
        )
        width = Width(rows * columns, min(episodes, ENVS), num_workers)
        with closing(HostRollout(env, carry, width, 1)) as rollout:
            returns, _, metrics = rollout.play(act, pairs, jax.random.split(key, rows * columns), episodes, greedy)
        both = np.stack([returns[..., mine].mean(-1), returns[..., ~mine].mean(-1)], -1)
        return both.reshape(rows, columns, episodes, 2), metrics.reshape(rows, columns, episodes, -1)

    return every_pair
