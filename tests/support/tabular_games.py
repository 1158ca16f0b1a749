"""Tabular team games, solved exactly: values by a linear system, episodes by listing every one of them.

Agents' policies are arrays [S, A_i] of probabilities; a joint quantity has the axes [S, A_1, …, A_n].
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from shoal.models.actor_critic import Carry
from shoal.types import Discrete, EnvSpec, Step, Trajectory
from toys import spec_of

Policies = Sequence[np.ndarray]


class Game(NamedTuple):
    reward: np.ndarray
    """[S, A_1, …, A_n]."""
    transition: np.ndarray
    """[S, A_1, …, A_n, S]; what a row lacks to 1 is the probability that the episode ends."""
    start: np.ndarray
    """[S]."""
    gamma: float
    horizon: int = 0
    """Steps of every episode, for games that have an end."""

    @property
    def agents(self) -> int:
        return self.reward.ndim - 1


class Solution(NamedTuple):
    ret: float
    """J = Σ_s start(s) V(s)."""
    v: np.ndarray
    q: np.ndarray
    advantage: np.ndarray
    visits: np.ndarray
    """[S] Σ_t γ^t P(s_t = s)."""


def endless(rng: np.random.Generator, actions: Sequence[int], states: int, gamma: float = 0.9) -> Game:
    """Random rewards and a random place to go after every joint action."""
    transition = rng.dirichlet(np.ones(states), (states, *actions))
    return Game(rng.normal(size=(states, *actions)), transition, rng.dirichlet(np.ones(states)), gamma)


def episodic(rng: np.random.Generator, actions: Sequence[int], states: int, horizon: int) -> Game:
    """The same for ``horizon`` steps, undiscounted: S = horizon · states, one layer of states for each step."""
    total = horizon * states
    transition, start = np.zeros((total, *actions, total)), np.zeros(total)
    for t in range(horizon - 1):
        here, there = slice(t * states, (t + 1) * states), slice((t + 1) * states, (t + 2) * states)
        transition[here, ..., there] = rng.dirichlet(np.ones(states), (states, *actions))
    start[:states] = rng.dirichlet(np.ones(states))
    return Game(rng.normal(size=(total, *actions)), transition, start, 1.0, horizon)


def random_policies(rng: np.random.Generator, game: Game) -> list[np.ndarray]:
    states, *actions = game.reward.shape
    return [rng.dirichlet(np.ones(n), states) for n in actions]


def average(x: np.ndarray, policies: Policies, agents: Sequence[int]) -> np.ndarray:
    """E over the actions of ``agents`` of x [S, A_1, …, A_n, ...]; their axes stay, with length 1."""
    for i in agents:
        shape = [1] * x.ndim
        shape[0], shape[1 + i] = policies[i].shape
        x = (x * policies[i].reshape(shape)).sum(1 + i, keepdims=True)
    return x


def solve(game: Game, policies: Policies) -> Solution:
    """V = (I − γ P_π)⁻¹ r_π."""
    everyone, states = range(game.agents), len(game.start)
    rewards = average(game.reward, policies, everyone).reshape(states)
    moves = average(game.transition, policies, everyone).reshape(states, states)
    system = np.eye(states) - game.gamma * moves
    v, visits = np.linalg.solve(system, rewards), np.linalg.solve(system.T, game.start)
    q = game.reward + game.gamma * game.transition @ v
    return Solution(float(game.start @ v), v, q, q - v.reshape(states, *(1,) * game.agents), visits)


def spec(game: Game) -> EnvSpec:
    """All agents see the state, one-hot."""
    states, *actions = game.reward.shape
    return spec_of(
        "toys/tabular",
        (states,) * len(actions),
        Discrete(max(actions)),
        game.horizon,
        state_dim=states,
        action_dims=tuple(actions),
        roles=tuple(range(len(actions))),
    )


def episodes(game: Game, policies: Policies, count: int) -> Trajectory:
    """``count`` episodes, each path as often as its probability says: no more than one episode too many or too few.

    What is learned from them is an expectation, with hardly any sampling error.
    """
    actions = game.reward.shape[1:]
    joint = np.ones(game.reward.shape)
    for i, policy in enumerate(policies):
        joint = joint * policy.reshape(-1, *(policy.shape[1] if i == j else 1 for j in range(game.agents)))
    paths = [((s,), (), p) for s, p in enumerate(game.start) if p > 0]
    for t in range(game.horizon):
        paths = [
            (states, (*done, a), p * joint[states[-1]][a]) for states, done, p in paths for a in np.ndindex(*actions)
        ]
        if t + 1 < game.horizon:
            paths = [
                ((*states, s), done, p * chance)
                for states, done, p in paths
                for s, chance in enumerate(game.transition[states[-1]][done[-1]])
                if chance > 0
            ]
    ends = np.cumsum([p for *_, p in paths])
    chosen = np.searchsorted(ends / ends[-1], (np.arange(count) + 0.5) / count)
    cells = np.array([states for states, _, _ in paths])[chosen].T  # [T, E]
    action = np.array([done for _, done, _ in paths], np.int32)[chosen].swapaxes(0, 1)  # [T, E, N]
    return _trajectory(game, policies, cells, action)


def _trajectory(game: Game, policies: Policies, cells: np.ndarray, action: np.ndarray) -> Trajectory:
    (length, envs, _), states = action.shape, len(game.start)
    after = np.concatenate([cells[1:], np.full((1, envs), states)])  # the void after the end
    end = np.broadcast_to(np.arange(length)[:, None] == length - 1, (length, envs))
    first = np.broadcast_to(np.arange(length)[:, None] == 0, (length, envs))
    earned = game.reward[(cells, *np.moveaxis(action, -1, 0))]
    log_prob = np.stack([np.log(p[cells, action[..., i]]) for i, p in enumerate(policies)], -1)
    nothing = np.zeros((length, envs))
    now, then = _step(game, cells, nothing, nothing > 0, first), _step(game, after, earned, end, nothing > 0)
    extras = {"log_prob": jnp.asarray(log_prob, jnp.float32)}
    return Trajectory(now, jnp.asarray(action), extras, then, Carry((), ()))


def everywhere(game: Game) -> Step:
    """Every state at once: T = 1, E = S."""
    cells = np.arange(len(game.start))[None]
    return _step(game, cells, 0.0 * cells, cells < 0, cells >= 0)


def _step(game: Game, cells: np.ndarray, reward: np.ndarray, last: np.ndarray, first: np.ndarray) -> Step:
    states, *actions = game.reward.shape
    look = np.eye(states + 1, states)[cells]
    own = np.arange(max(actions)) < np.array(actions)[:, None]

    def each(x: np.ndarray) -> np.ndarray:
        """One copy for each agent."""
        return np.repeat(np.expand_dims(x, 2), len(actions), 2)

    return Step(
        obs=jnp.asarray(each(look), jnp.float32),
        state=jnp.asarray(look, jnp.float32),
        legal=jnp.asarray(np.broadcast_to(own, (*cells.shape, *own.shape))),
        alive=jnp.ones((*cells.shape, len(actions)), bool),
        reward=jnp.asarray(each(reward), jnp.float32),
        discount=jnp.asarray(each(1.0 - last), jnp.float32),
        first=jnp.asarray(first),
        last=jnp.asarray(last),
    )
