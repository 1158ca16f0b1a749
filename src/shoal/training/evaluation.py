"""Judging policies: whole episodes, counted once each, and one episode recorded for a picture."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.errors import InputError
from shoal.records.curves import interval
from shoal.rollouts import fused
from shoal.types import Algorithm, Box, Environment, Learner, PyTree, Step


class Evaluation(NamedTuple):
    """Undiscounted returns of finished episodes."""

    returns: np.ndarray
    """[S, episodes, N] each agent's return."""
    lengths: np.ndarray
    """[S, episodes] steps."""
    scores: np.ndarray
    """[S, episodes] the number people quote: the sum over agents, or one copy (``EnvSpec.score``)."""

    @property
    def per_seed(self) -> np.ndarray:
        """[S] mean score of each seed."""
        return self.scores.mean(1)

    @property
    def mean(self) -> float:
        """Mean score over seeds and episodes."""
        return float(self.scores.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Student-t interval of the mean over seeds; over episodes where there is one seed."""
        _, low, high = interval(self.per_seed if len(self.scores) > 1 else self.scores[0])
        return low, high

    def __str__(self) -> str:
        seeds, episodes = self.scores.shape
        low, high = self.interval
        over = f"{seeds} seeds × {episodes} episodes" if seeds > 1 else f"{episodes} episodes"
        return f"{self.mean:.2f} (95 % interval {low:.2f} … {high:.2f}, {over})"


def evaluate(
    env: Environment, algorithm: Algorithm, learner: Learner, key: Key[Array, ""], episodes: int, greedy: bool = True
) -> Evaluation:
    """Play ``episodes`` whole episodes with every seed's policy; learner leaves are [S, ...].

    Raises:
        InputError: there is no episode to play.
    """
    check_episodes(episodes)
    one = first_episodes(env, algorithm.act, algorithm.initial_carry(episodes), episodes, greedy)
    seeds = len(jax.tree.leaves(learner)[0])
    run = jax.jit(jax.vmap(one, axis_name=fused.SEEDS))
    returns, lengths = map(np.asarray, run(learner, jax.random.split(key, seeds)))
    return Evaluation(returns, lengths, returns.sum(-1) if env.spec.score == "sum" else returns.mean(-1))


def first_episodes(
    env: Environment, act: fused.Act, carry: PyTree, episodes: int, greedy: bool
) -> Callable[[PyTree, Array], tuple[Array, Array]]:
    """(policy, key) -> returns [episodes, N] and lengths [episodes] of whole episodes.

    One environment plays each of them, from recurrent state ``carry``; what comes after its first episode is not
    counted, since environments whose episodes are short would otherwise count more often.
    """
    rollout = fused.make(env, episodes, env.spec.horizon, greedy)

    def play(policy: PyTree, key: Array) -> tuple[Array, Array]:
        key_reset, key_play = jax.random.split(key)
        _, trajectory, _ = rollout.collect(act, policy, rollout.init(key_reset, carry), key_play)
        last = trajectory.outcome.last
        counted = (jnp.cumsum(last, 0) - last) == 0  # the first episode of each environment, to its last step
        return (trajectory.outcome.reward * counted[..., None]).sum(0), counted.sum(0)

    return play


class Episode(NamedTuple):
    """One episode, for a picture."""

    states: list[PyTree]
    """Environment states from the first to the last, one more than there are steps."""
    actions: np.ndarray
    """[T, N] or [T, N, A]."""
    rewards: np.ndarray
    """[T, N]."""


def record(
    env: Environment, algorithm: Algorithm, learner: Learner, key: Key[Array, ""], episodes: int, greedy: bool = True
) -> list[Episode]:
    """Play ``episodes`` episodes with one seed's policy (learner leaves have no axis of seeds).

    Raises:
        InputError: there is no episode to play.
    """
    check_episodes(episodes)
    space = env.spec.action

    def first_moment(key: Array) -> tuple[PyTree, Step, PyTree]:
        state, step = env.reset(key)
        return state, jax.tree.map(lambda x: x[None], step), algorithm.initial_carry(1)

    def moment(loop: tuple, key: Array) -> tuple[tuple, tuple]:
        state, step, carry = loop
        key_act, key_step = jax.random.split(key)
        carry, action, _ = algorithm.act(learner, carry, step, key_act, greedy)
        sent = jnp.clip(action, space.low, space.high) if isinstance(space, Box) else action
        state, outcome = env.step(key_step, state, sent[0])
        return (state, jax.tree.map(lambda x: x[None], outcome), carry), (state, sent[0], outcome.reward, outcome.last)

    def play(key: Array) -> tuple:
        key_reset, key_play = jax.random.split(key)
        start = first_moment(key_reset)
        return start[0], jax.lax.scan(moment, start, jax.random.split(key_play, env.spec.horizon))[1]

    def cut(played: tuple) -> Episode:
        first, (states, actions, rewards, last) = jax.device_get(played)
        length = int(np.argmax(last)) + 1 if last.any() else len(last)
        frames = [first] + [jax.tree.map(lambda x, t=t: x[t], states) for t in range(length)]
        return Episode(frames, actions[:length], rewards[:length])

    run = jax.jit(play)  # compiled once, however many episodes
    return [cut(run(key)) for key in jax.random.split(key, episodes)]


def check_episodes(episodes: int) -> None:
    """Refuse to play none.

    Raises:
        InputError: there is no episode to play.
    """
    if episodes < 1:
        raise InputError(f"episodes must be at least 1, not {episodes}.")
