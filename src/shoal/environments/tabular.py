"""Team games with finitely many states, as an :class:`Environment`; the public function is :func:`matrix_game`.

All agents receive the same reward and observe the state (one-hot), which is also the global state; with a single state
this is the constant 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.options import check_steps
from shoal.errors import InputError
from shoal.types import Discrete, Environment, EnvSpec, Step


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
    if table.ndim == 0 or table.size == 0 or not np.isfinite(table).all():
        raise InputError("payoff must hold finite numbers and have at least one axis, one per agent.")
    return game(
        name,
        actions=table.shape,
        num_cells=1,
        reward=lambda _, action: entry(table, action),
        follow=lambda cell, _: cell,
        horizon=horizon,
        ends=horizon == 1,
        roles=_roles(table),
    )


def game(
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


def _roles(table: np.ndarray) -> tuple[int, ...]:
    """Agents whose exchange does not change the payoff share a role."""
    roles: list[int] = []
    for i in range(table.ndim):
        twins = [roles[j] for j in range(i) if np.array_equal(table, table.swapaxes(i, j))]
        roles.append(twins[0] if twins else max(roles, default=-1) + 1)
    return tuple(roles)
