"""Judging policies: whole episodes, counted once each, and one episode recorded for a picture."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.errors import InputError
from shoal.game import HostEnvironment
from shoal.records.intervals import interval, interval_text
from shoal.records.picture import Frame
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout
from shoal.rollouts.recording import Width
from shoal.types import Algorithm, AnyEnvironment, Box, Environment, EnvSpec, Learner, PyTree, Step

SHOWN = 1000
"""Most steps of an episode that a picture shows, where worker processes would step it: few look at more."""

ENVS = 32
"""Most environments side by side that worker processes play judged episodes in, for each seed."""


class Evaluation(NamedTuple):
    """Undiscounted returns of finished episodes."""

    returns: np.ndarray
    """[S, episodes, N] each agent's return."""
    lengths: np.ndarray
    """[S, episodes] steps."""
    scores: np.ndarray
    """[S, episodes] the number people quote: the sum over agents, or one copy (``EnvSpec.score``)."""
    success: float | None = None
    """``EnvSpec.success``."""

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that were won; None where nothing is."""
        return None if self.success is None else float((self.scores > self.success).mean())

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
        """95 % interval of the mean over seeds; over episodes where there is one seed. See
        :func:`shoal.records.intervals.interval`: with fewer than five values it is their range."""
        _, low, high = interval(self._judged)
        return low, high

    @property
    def _judged(self) -> np.ndarray:
        """What the interval is over."""
        return self.per_seed if len(self.scores) > 1 else self.scores[0]

    def as_json(self) -> dict[str, Any]:
        """The numbers, as ``evaluation.json`` keeps them."""
        low, high = self.interval
        won = {} if self.success_rate is None else {"success_rate": self.success_rate}
        return {"mean": self.mean, "low": low, "high": high, "per_seed": self.per_seed.tolist(), **won}

    def __str__(self) -> str:
        seeds, episodes = self.scores.shape
        low, high = self.interval
        over = f"{seeds} seeds × {episodes} episodes" if seeds > 1 else f"{episodes} episodes"
        won = "" if self.success_rate is None else f"; {100 * self.success_rate:.1f} % won"
        return f"{self.mean:.2f} ({interval_text(self._judged.size)} {low:.2f} … {high:.2f}, {over}){won}"


def evaluate(
    env: AnyEnvironment,
    algorithm: Algorithm,
    learner: Learner,
    key: Key[Array, ""],
    episodes: int,
    greedy: bool = True,
    num_workers: int | None = None,
) -> Evaluation:
    """Play ``episodes`` whole episodes with every seed's policy; learner leaves are [S, ...].

    Raises:
        InputError: there is no episode to play.
        GameError: an environment broke down.
    """
    check_episodes(episodes)
    if isinstance(env, HostEnvironment):
        seeds = len(jax.tree.leaves(learner)[0])
        width = Width(seeds, min(episodes, ENVS), num_workers)
        with closing(HostRollout(env, algorithm.initial_carry, width, 1)) as rollout:
            played = rollout.play(algorithm.act, learner, jax.random.split(key, seeds), episodes, greedy)
        return judged(env.spec, *played)
    one = first_episodes(env, algorithm.act, algorithm.initial_carry(episodes), episodes, greedy)
    seeds = len(jax.tree.leaves(learner)[0])
    run = jax.jit(jax.vmap(one, axis_name=fused.SEEDS))
    return judged(env.spec, *map(np.asarray, run(learner, jax.random.split(key, seeds))))


def judged(spec: EnvSpec, returns: np.ndarray, lengths: np.ndarray) -> Evaluation:
    """Returns [S, episodes, N] and lengths [S, episodes] with the scores that they make."""
    return Evaluation(returns, lengths, spec.scores(returns), spec.success)


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
    """A device environment's states, one more than there are steps."""
    frames: list[Frame] | None
    """What each moment looks like, one more than there are steps; None where nobody can draw it."""
    actions: np.ndarray
    """[T, N] or [T, N, A]."""
    rewards: np.ndarray
    """[T, N]."""


def record(
    env: AnyEnvironment, algorithm: Algorithm, learner: Learner, key: Key[Array, ""], episodes: int, greedy: bool = True
) -> list[Episode]:
    """Play ``episodes`` episodes with one seed's policy (learner leaves have no axis of seeds).

    Raises:
        InputError: there is no episode to play.
    """
    check_episodes(episodes)
    keys = jax.random.split(key, episodes)
    if isinstance(env, HostEnvironment):
        with closing(HostRollout(env, algorithm.initial_carry, Width(1, 1, 0), 1, render=True)) as rollout:
            return [_recorded(rollout, algorithm, learner, key, greedy) for key in keys]
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
        stands = [first] + [jax.tree.map(lambda x, t=t: x[t], states) for t in range(length)]
        frames = None if env.render is None else [env.render(state) for state in stands]
        return Episode(stands, frames, actions[:length], rewards[:length])

    run = jax.jit(play)  # compiled once, however many episodes
    return [cut(run(key)) for key in keys]


def _recorded(rollout: HostRollout, algorithm: Algorithm, learner: Learner, key: Array, greedy: bool) -> Episode:
    """One episode of the only game of ``rollout``."""
    one = jax.tree.map(lambda x: x[None], learner)
    frames, actions, rewards = [], [], []
    for look, action, reward in rollout.watch(algorithm.act, one, key[None], greedy):
        frames.append(look)
        if action is not None:
            actions.append(action)
            rewards.append(reward)
        if len(actions) == SHOWN:
            break
    seen = None if any(frame is None for frame in frames) else frames
    return Episode([], seen, np.stack(actions), np.stack(rewards))


def check_episodes(episodes: int) -> None:
    """Refuse to play none.

    Raises:
        InputError: there is no episode to play.
    """
    if episodes < 1:
        raise InputError(f"episodes must be at least 1, not {episodes}.")
