"""Matrix games: team games from their tables, those with known optimum, on which algorithms have known limits, and
games of rivals with a payoff for each agent.

A game played once, and the two-step game, end by termination (discount 0). A repeated game is truncated by its time
limit (discount 1), so its values are those of infinite play. :func:`matrix_game` builds other games.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.options import check_choice, check_count, check_number, check_steps
from shoal.errors import InputError
from shoal.types import Discrete, Environment, EnvSpec, Step

# Team games with finitely many states, as an :class:`Environment`; the public function is :func:`matrix_game`.


class State(NamedTuple):
    """State of a game."""

    cell: Int[Array, ""]
    """Index of the state."""
    t: Int[Array, ""]
    """Number of steps."""


MAX_PAYOFF = 1e6
"""Largest magnitude of a reward, for single precision."""


def matrix_game(payoff: Sequence | np.ndarray, *, horizon: int = 1, name: str = "matrix/game") -> Environment:
    """A team game in one state: agent i's action indexes axis i of ``payoff`` (so agents may differ in their number).

    Args:
        payoff: the team's reward for each joint action; its number of axes is N.
        horizon: steps in an episode. A single step ends by termination, several by the time limit.
        name: name of the environment.

    Raises:
        InputError: the payoff is not an array of finite numbers with one axis per agent, or horizon is below 1.
    """
    try:
        table = np.asarray(payoff, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError("payoff must be a rectangular array of numbers with one axis per agent.") from error
    if table.ndim == 0 or table.size == 0 or not np.isfinite(table.astype(np.float32)).all():
        raise InputError("payoff must hold finite numbers and have at least one axis, one per agent.")
    return tabular_game(
        name,
        actions=table.shape,
        num_cells=1,
        reward=lambda _, action: entry(table, action),
        follow=lambda cell, _: cell,
        horizon=horizon,
        ends=horizon == 1,
        roles=_roles(np.broadcast_to(table, (table.ndim, *table.shape))),
    )


def tabular_game(
    name: str,
    *,
    actions: Sequence[int],
    num_cells: int,
    reward: Callable[[Int[Array, ""], Int[Array, " N"]], Float[Array, ""]],
    follow: Callable[[Int[Array, ""], Int[Array, " N"]], Int[Array, ""]],
    horizon: int,
    ends: bool,
    roles: tuple[int, ...],
    start: int = 0,
) -> Environment:
    """A game from its rules.

    Args:
        name: name of the environment.
        actions: each agent's number of actions.
        num_cells: number of states.
        reward: (state, joint action) -> the team's reward.
        follow: (state, joint action) -> the next state.
        horizon: steps in an episode.
        ends: whether the last step is a termination (discount 0) rather than a time limit.
        roles: role of each agent.
        start: the initial state.

    Raises:
        InputError: horizon is below 1.
    """
    check_steps("horizon", horizon)
    num_agents = len(actions)
    spec = EnvSpec(
        name=name,
        agents=tuple(f"agent_{i}" for i in range(num_agents)),
        obs_dims=(num_cells,) * num_agents,
        state_dim=num_cells,
        action=Discrete(max(actions)),
        action_dims=tuple(actions),
        roles=roles,
        horizon=horizon,
        shared_reward=True,
        score="mean",
        novel=(),
    )
    legal = np.arange(spec.action.width) < np.array(actions)[:, None]

    def make_step(state: State, earned: Float[Array, ""], first: bool) -> Step:
        seen = (state.cell == np.arange(num_cells)).astype(float)
        last = state.t >= horizon
        return Step(
            obs=jnp.broadcast_to(seen, (num_agents, num_cells)),
            state=seen,
            legal=jnp.asarray(legal),
            alive=jnp.ones(num_agents, bool),
            reward=jnp.broadcast_to(earned, (num_agents,)),
            discount=jnp.broadcast_to(1.0 - (last & ends), (num_agents,)),
            first=jnp.asarray(first),
            last=last,
        )

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        del key  # every episode starts alike
        state = State(cell=jnp.asarray(start, jnp.int32), t=jnp.zeros((), jnp.int32))
        return state, make_step(state, jnp.zeros(()), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"]) -> tuple[State, Step]:
        del key
        after = State(cell=follow(state.cell, action).astype(jnp.int32), t=state.t + 1)
        return after, make_step(after, reward(state.cell, action), first=False)

    return Environment(spec, reset, step)


def entry(table: np.ndarray, index: Int[Array, " D"]) -> Float[Array, ""]:
    """``table[index]`` as a masked sum, which fuses where a gather would not."""
    strides = np.cumprod((1, *table.shape[:0:-1]))[::-1]
    position = (index * strides.copy()).sum()
    return jnp.where(position == np.arange(table.size), table.reshape(-1), 0.0).sum()


def _roles(payoffs: np.ndarray) -> tuple[int, ...]:
    """Agents share a role if the payoffs [N, A_0, ..., A_(N-1)] stay the same when they change places."""

    def alike(i: int, j: int) -> bool:
        order = list(range(len(payoffs)))
        order[i], order[j] = j, i
        return np.array_equal(payoffs, payoffs.swapaxes(1 + i, 1 + j)[order])

    roles: list[int] = []
    for i in range(len(payoffs)):
        twins = [roles[j] for j in range(i) if alike(i, j)]
        roles.append(twins[0] if twins else max(roles, default=-1) + 1)
    return tuple(roles)


# The games.


__all__ = [
    "all_ones",
    "climbing",
    "coordination",
    "exploitability",
    "loud_agent",
    "matching_pennies",
    "matrix_game",
    "monotonicity",
    "payoff_game",
    "penalty",
    "proposition1",
    "rock_paper_scissors",
    "traffic_junction",
    "two_state",
    "two_step",
]

CLIMBING = ((11.0, -30.0, 0.0), (-30.0, 7.0, 0.0), (0.0, 6.0, 5.0))
MONOTONICITY = ((8.0, -12.0, -12.0), (-12.0, 0.0, 0.0), (-12.0, 0.0, 0.0))
TRAFFIC_JUNCTION = ((0.0, 1.0), (1.0, 0.0))
MATCHING_PENNIES = ((1.0, -1.0), (-1.0, 1.0))
ROCK_PAPER_SCISSORS = ((0.0, -1.0, 1.0), (1.0, 0.0, -1.0), (-1.0, 1.0, 0.0))
TWO_STEP = (((0.0, 0.0), (0.0, 0.0)), ((7.0, 7.0), (7.0, 7.0)), ((0.0, 1.0), (1.0, 8.0)))


def climbing(*, horizon: int = 25) -> Environment:
    """The climbing game (Claus and Boutilier 1998): the optimum 11 is next to two -30, so learners choose less.

    The 6 stands in row 2, column 1, as in the original; some code has it transposed. EPyMARL plays 25 steps.

    Args:
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: horizon is below 1.
    """
    return matrix_game(CLIMBING, horizon=horizon, name="matrix/climbing")


def penalty(*, k: float = -100.0, horizon: int = 25) -> Environment:
    """The penalty game (Claus and Boutilier 1998), [[k, 0, 10], [0, 2, 0], [10, 0, k]]: two optima of 10 to agree on.

    Args:
        k: reward of failing to agree; EPyMARL uses 0, -25, -50, -75 and -100, the hardest.
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: k is not a number from -10⁶ to 0, or horizon is below 1.
    """
    k = check_number("k", k, -MAX_PAYOFF, 0.0)
    return matrix_game(((k, 0.0, 10.0), (0.0, 2.0, 0.0), (10.0, 0.0, k)), horizon=horizon, name="matrix/penalty")


def monotonicity(*, horizon: int = 1) -> Environment:
    """Son et al. 2019 (QTRAN), table 1: the optimum 8 that no sum or monotone mixture of utilities can represent.

    Args:
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: horizon is below 1.
    """
    return matrix_game(MONOTONICITY, horizon=horizon, name="matrix/monotonicity")


def traffic_junction(*, horizon: int = 1) -> Environment:
    """The one-step traffic junction (Zhou et al. 2020, LICA): two agents wait (0) or go (1), and 1 is earned where
    exactly one of them goes.

    Both observe the same constant, so a shared policy without agent ids earns at most 1/2; the payoff is that of
    :func:`proposition1` with two agents, which have the same role here.

    Args:
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: horizon is below 1.
    """
    return matrix_game(TRAFFIC_JUNCTION, horizon=horizon, name="matrix/traffic_junction")


def two_step() -> Environment:
    """The two-step game (Rashid et al. 2018, QMIX), where a sum of utilities picks 7 and a monotone mixture 8.

    In state 0 the *first* agent's action leads to state 1 (every joint action earns 7) or 2 ([[0, 1], [1, 8]]).
    """
    table = np.array(TWO_STEP)
    return tabular_game(
        "matrix/two_step",
        actions=table.shape[1:],
        num_cells=len(table),
        reward=lambda cell, action: entry(table, jnp.concatenate([cell[None], action])),
        follow=lambda cell, action: jnp.where(cell == 0, 1 + action[0], cell),
        horizon=2,
        ends=True,
        roles=(0, 1),
    )


def two_state(*, reward: float = 1.0, horizon: int = 100) -> Environment:
    """The two-state game on which a sum of utilities diverges (Wang et al. 2021, QPLEX).

    The game starts in state 1. If both play 0 there, they earn ``reward``; if both play 1, they move to state 0, which
    is absorbing and has reward 0; otherwise nothing happens. With V the value of state 1 and joint actions visited
    uniformly, the additive least-squares fit of the Bellman target at (0, 0) is 3/4 r + 5/4 γ V: it grows without
    bound for γ > 4/5, while the true value is r / (1 - γ).

    Args:
        reward: r, earned by both playing 0.
        horizon: steps in an episode (100 in the paper).

    Raises:
        InputError: reward is not a number from -10⁶ to 10⁶, or horizon is below 1.
    """
    reward = check_number("reward", reward, -MAX_PAYOFF, MAX_PAYOFF)
    return tabular_game(
        "matrix/two_state",
        actions=(2, 2),
        num_cells=2,
        reward=lambda cell, action: jnp.where((cell == 1) & (action == 0).all(), reward, 0.0),
        follow=lambda cell, action: jnp.where((action == 1).all(), 0, cell),
        horizon=horizon,
        ends=False,
        roles=(0, 0),
        start=1,
    )


def proposition1(*, num_agents: int = 2, horizon: int = 1) -> Environment:
    """Kuba et al. 2022 (HAPPO/HATRPO), proposition 1: what sharing one policy costs.

    The reward is 1 where one half of the team (its first n/2 agents) plays 0 and the other half 1, either way round,
    and 0 otherwise. Agents of one role sharing a policy reach 1; one policy for all reaches at most 2 / 2^n.

    Args:
        num_agents: n, even.
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: n is not a positive even number, or horizon is below 1.
    """
    if check_count("num_agents", num_agents, least=2) % 2:
        raise InputError(f"num_agents must be even in matrix/proposition1, not {num_agents}.")
    half = num_agents // 2

    def reward(_: Int[Array, ""], action: Int[Array, " N"]) -> Float[Array, ""]:
        second = np.arange(num_agents) >= half
        return ((action == second).all() | (action == ~second).all()).astype(float)

    return tabular_game(
        "matrix/proposition1",
        actions=(2,) * num_agents,
        num_cells=1,
        reward=reward,
        follow=lambda cell, _: cell,
        horizon=horizon,
        ends=horizon == 1,
        roles=(0,) * half + (1,) * half,
    )


def all_ones(*, num_agents: int = 2, reward: Literal["all", "share"] = "all", horizon: int = 1) -> Environment:
    """Lowe et al. 2017 (MADDPG), proposition 1: the reward is 1 where all agents play 1, and 0 otherwise.

    With all probabilities at 1/2, one sample's policy gradient points the right way with probability 2^-N.

    Args:
        num_agents: N, at least 1.
        reward: ``all``, the paper's; or ``share``, the share of the agents that play 1, a dense reward with the same
            optimum.
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: a number is below 1, or the reward is unknown.
    """
    dense = check_choice("reward", reward, ("all", "share")) == "share"

    def earned(_: Int[Array, ""], action: Int[Array, " N"]) -> Float[Array, ""]:
        ones = (action == 1).astype(float)
        return ones.mean() if dense else ones.min()

    return tabular_game(
        "matrix/all_ones",
        actions=(2,) * check_count("num_agents", num_agents),
        num_cells=1,
        reward=earned,
        follow=lambda cell, _: cell,
        horizon=horizon,
        ends=horizon == 1,
        roles=(0,) * num_agents,
    )


def coordination(*, num_actions: int = 10, horizon: int = 1) -> Environment:
    """Two agents agree on one of many actions: 1 if both play the last one, 1/2 if both play the same other one.

    All equilibria with pure policies are strict, so a team leaves a worse one only by exploring, and the probability of
    agreeing by chance is 1/``num_actions``.

    Args:
        num_actions: actions of each agent, from 2 to 1000.
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: num_actions is not from 2 to 1000, or horizon is below 1.
    """
    payoffs = 0.5 * np.eye(check_count("num_actions", num_actions, least=2, most=1000))
    payoffs[-1, -1] = 1.0
    return matrix_game(payoffs, horizon=horizon, name="matrix/coordination")


# A single game in which one agent's actions hide what the others earn.


def loud_agent(*, num_quiet: int = 4, loudness: float = 60.0) -> Environment:
    """A single game in which one agent's actions hide what the others earn: a test of credit assignment.

    With a coin c = ±1 that only the state shows, the team earns Σ_j u_j over the quiet agents plus ``loudness`` · c
    (2 u_0 − 1) for the loud one, u ∈ {0, 1}: noise that Q(s, u) predicts and V(s) does not (Foerster et al. 2018,
    section 1). The metric ``quiet`` is the share of quiet agents that play 1; ½ is chance.

    Args:
        num_quiet: number of quiet agents, at least 1.
        loudness: size of the loud agent's part.

    Raises:
        InputError: num_quiet is below 1, or loudness is not a number from 0 to 10⁶.
    """
    num_agents, loudness = 1 + check_count("num_quiet", num_quiet), check_number("loudness", loudness, 0.0, MAX_PAYOFF)
    spec = EnvSpec(
        name="matrix/loud_agent",
        agents=("loud", *(f"quiet_{i}" for i in range(num_quiet))),
        obs_dims=(1,) * num_agents,
        state_dim=1,
        action=Discrete(2),
        action_dims=(2,) * num_agents,
        roles=(0, *(1,) * num_quiet),
        horizon=1,
        shared_reward=True,
        score="mean",
        novel=(),
        metrics=("quiet",),
    )

    def make_step(coin: Float[Array, ""], action: Int[Array, " N"], first: bool) -> Step:
        own, ends = action[1:].astype(float), not first
        earned = jnp.where(ends, own.sum() + loudness * coin * (2.0 * action[0] - 1.0), 0.0)
        return Step(
            obs=jnp.ones((num_agents, 1)),
            state=coin[None],
            legal=jnp.ones((num_agents, 2), bool),
            alive=jnp.ones(num_agents, bool),
            reward=jnp.broadcast_to(earned, (num_agents,)),
            discount=jnp.full(num_agents, 0.0 if ends else 1.0),
            first=jnp.asarray(first),
            last=jnp.asarray(ends),
            metrics=own.mean()[None],
        )

    def reset(key: PRNGKeyArray) -> tuple[Array, Step]:
        coin = 2.0 * jax.random.bernoulli(key).astype(float) - 1.0
        return coin, make_step(coin, jnp.zeros(num_agents, jnp.int32), first=True)

    def step(_: PRNGKeyArray, coin: Array, action: Int[Array, " N"]) -> tuple[Array, Step]:
        return coin, make_step(coin, action, first=False)

    return Environment(spec, reset, step)


# Games of rivals, with a payoff for each agent.


class Played(NamedTuple):
    """State of a game of rivals."""

    t: Int[Array, ""]
    """Number of steps."""
    counts: Float[Array, "N A"]
    """How often each agent has played each action in this episode."""


def payoff_game(payoffs: Sequence | np.ndarray, *, horizon: int = 100, name: str = "matrix/payoffs") -> Environment:
    """A game in one state in which each agent has its own payoff, and is a side of its own.

    Agents observe a constant. The metric ``exploitability`` is that of the frequencies with which the agents played
    their actions in the episode (:func:`exploitability`): 0 in a Nash equilibrium, up to the noise of ``horizon``
    draws.

    Args:
        payoffs: [N, A_0, ..., A_(N-1)]: ``payoffs[i]`` is agent i's payoff for each joint action.
        horizon: steps in an episode. A single step ends by termination, several by the time limit.
        name: name of the environment.

    Raises:
        InputError: the payoffs are not an array of finite numbers of magnitude up to 10⁶ with these axes, of at least
            two agents, or horizon is below 1.
    """
    try:
        tables = np.asarray(payoffs, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError("payoffs must be a rectangular array of numbers [N, A_0, ..., A_(N-1)].") from error
    if tables.size == 0 or tables.ndim < 3 or len(tables) != tables.ndim - 1:
        raise InputError(
            f"payoffs must have a table for each of at least two agents, with an axis for each agent's actions: the "
            f"shape is [N, A_0, ..., A_(N-1)], not {list(tables.shape)}."
        )
    if not (np.abs(tables) <= MAX_PAYOFF).all():
        raise InputError("payoffs must be numbers from -10⁶ to 10⁶.")
    check_steps("horizon", horizon)
    n, actions, ends = len(tables), tables.shape[1:], horizon == 1
    spec = EnvSpec(
        name=name,
        agents=tuple(f"agent_{i}" for i in range(n)),
        obs_dims=(1,) * n,
        state_dim=1,
        action=Discrete(max(actions)),
        action_dims=actions,
        roles=_roles(tables),
        horizon=horizon,
        shared_reward=False,
        score="mean",
        metrics=("exploitability",),
        novel=(),
        sides=tuple(range(n)),
    )
    legal = np.arange(spec.action.width) < np.array(actions)[:, None]

    def make_step(state: Played, earned: Float[Array, " N"], first: bool) -> Step:
        last = state.t >= horizon
        return Step(
            obs=jnp.ones((n, 1)),
            state=jnp.ones(1),
            legal=jnp.asarray(legal),
            alive=jnp.ones(n, bool),
            reward=earned,
            discount=jnp.broadcast_to(1.0 - (last & ends), (n,)),
            first=jnp.asarray(first),
            last=last,
            metrics=exploitability(tables, state.counts / jnp.maximum(state.t, 1))[None],
        )

    def reset(key: PRNGKeyArray) -> tuple[Played, Step]:
        del key  # every episode starts alike
        state = Played(jnp.zeros((), jnp.int32), jnp.zeros((n, spec.action.width)))
        return state, make_step(state, jnp.zeros(n), first=True)

    def step(key: PRNGKeyArray, state: Played, action: Int[Array, " N"]) -> tuple[Played, Step]:
        del key
        played = action[:, None] == np.arange(spec.action.width)
        after = Played(state.t + 1, state.counts + played)
        return after, make_step(after, jnp.stack([entry(table, action) for table in tables]), first=False)

    return Environment(spec, reset, step)


def exploitability(payoffs: Float[np.ndarray, "N ..."], policies: Float[Array, "N A"]) -> Float[Array, ""]:
    """How much an agent gains on average by playing a best response to the others' policies.

        1/N Σ_i [max_a u_i(a, π_-i) − u_i(π)],

    the sum of which is NashConv (Lanctot et al. 2017, section 4). It is 0 in a Nash equilibrium and positive elsewhere.

    Args:
        payoffs: [N, A_0, ..., A_(N-1)], as in :func:`payoff_game`.
        policies: each agent's probabilities, zero-padded to the largest number of actions.
    """
    n, actions, gains = len(payoffs), payoffs.shape[1:], []
    for i in range(n):
        worth = jnp.moveaxis(jnp.asarray(payoffs[i]), i, 0)
        for j in reversed([j for j in range(n) if j != i]):  # the last axis first
            worth = worth @ policies[j, : actions[j]]
        gains.append(worth.max() - worth @ policies[i, : actions[i]])
    return jnp.stack(gains).mean()


def rock_paper_scissors(*, horizon: int = 100) -> Environment:
    """Rock (0), paper (1), scissors (2): 1 for the winner, −1 for the loser. The equilibrium plays each with 1/3.

    Args:
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: horizon is below 1.
    """
    table = np.array(ROCK_PAPER_SCISSORS)
    return payoff_game((table, -table), horizon=horizon, name="matrix/rock_paper_scissors")


def matching_pennies(*, horizon: int = 100) -> Environment:
    """Two agents show a side of a coin; agent 0 earns 1 if they match and −1 otherwise, agent 1 the opposite.

    The equilibrium plays each side with 1/2.

    Args:
        horizon: steps in an episode; 1 is a single game.

    Raises:
        InputError: horizon is below 1.
    """
    table = np.array(MATCHING_PENNIES)
    return payoff_game((table, -table), horizon=horizon, name="matrix/matching_pennies")
