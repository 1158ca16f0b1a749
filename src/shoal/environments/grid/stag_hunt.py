"""``grid/stag_hunt``: agents must catch stags in pairs, and may be punished for trying alone.

The predator-prey task of Böhmer et al. 2020, "Deep Coordination Graphs", on which a penalty makes monotone
mixtures fail (relative overgeneralisation). Moves, captures and observations are those of the authors' code,
which PyMARL2 runs too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.grid.field import GONE, MAX_SIDE, Field, check_sides, distinct, field_outline
from shoal.environments.options import check_count, check_number, check_steps
from shoal.environments.outlines import scene_of
from shoal.errors import InputError
from shoal.spec import equal_agents
from shoal.types import Environment, Outline, Step

RIGHT, DOWN, LEFT, UP, STAY, CATCH = range(6)
ACTIONS = ("right", "down", "left", "up", "stay", "catch")
STAG, HARE = 10.0, 1.0
"""The team's reward for one animal."""
UNROLL = 4
"""Turns per iteration of a compiled loop; as fast as full unrolling, and compiles faster for large teams."""
MAX_REWARD = 1e6
"""Largest magnitude of the penalty, for single precision."""


class State(NamedTuple):
    """Cells of agents and prey (:class:`Field`); ``GONE`` for frozen agents and captured animals."""

    agents: Int[Array, " N"]
    prey: Int[Array, " M"]
    """Stags first, then hares."""
    t: Int[Array, ""]
    """Steps taken."""


def stag_hunt(
    *,
    num_agents: int = 8,
    num_stags: int = 8,
    num_hares: int = 0,
    grid: int | tuple[int, int] = (10, 10),
    penalty: float = 0.0,
    view: int = 2,
    horizon: int = 200,
) -> Environment:
    """Predator-prey with a penalty for catching alone (Böhmer et al. 2020); the defaults are PyMARL2's task.

    Actions are right, down, left, up, stay and catch. In each step the agents move first, one after another in random
    order, each into its target cell if that is free. Then each animal acts, in random order: a stag is captured if at
    least two adjacent agents catch, a hare if one does; otherwise it moves to a uniformly random adjacent free cell, if
    there is one. The team's reward is 10 for a stag, 1 for a hare, and ``penalty`` for a stag that a single agent tries
    to catch. Agents that captured an animal are frozen: they leave the field with it.

    An agent observes a square around it: for each cell, row by row, whether an agent, a stag, and (if there are hares)
    a hare is there. Neither walls nor the agents' indices are observed. The global state holds the same for the whole
    field. Moving into a wall is illegal, and so is catching without an adjacent animal. A frozen agent is not
    ``alive``: it observes zeros and can only stay, while the team's reward goes on.

    An episode ends when all agents are frozen or all prey is captured; after ``horizon`` steps it is cut off.

    Args:
        num_agents: N, at least 2.
        num_stags: stags, 0 or more, but at least one animal in all.
        num_hares: hares, 0 or more.
        grid: rows and columns of the grid, or one number for both; each at most 256.
        penalty: reward for a single agent's attempt on a stag, 0 or less; -2 in the authors' configuration.
        view: number of cells that an agent sees in each direction.
        horizon: steps in an episode.

    Raises:
        InputError: an option is out of range, or the field is too small for all agents and animals.
    """
    n, stags = check_count("num_agents", num_agents, least=2), check_count("num_stags", num_stags, least=0)
    m = stags + check_count("num_hares", num_hares, least=0)
    rows, columns = check_sides(grid)
    penalty = check_number("penalty", penalty, -MAX_REWARD, 0.0)
    horizon, view = check_steps("horizon", horizon), check_count("view", view, least=0)
    if view > MAX_SIDE:
        raise InputError(f"view must be at most {MAX_SIDE}, not {view}.")
    if m == 0:
        raise InputError("grid/stag_hunt needs at least one animal: num_stags and num_hares are both 0.")
    if n + m > rows * columns:
        raise InputError(f"{n} agents and {m} animals do not fit on a field of {rows} x {columns} cells.")
    field = Field(rows, columns, max(view, 1))
    is_stag = np.arange(m) < stags
    planes = 2 + (num_hares > 0)
    width, own = len(field.window(view)) * planes, len(field.window(view)) // 2 * planes

    spec = equal_agents(
        "grid/stag_hunt",
        "agent",
        n,
        obs=width,
        state=rows * columns * planes,
        actions=6,
        horizon=horizon,
        shared_reward=True,
        score="mean",
        # The state does not say which of the agents one is; one's own cell always holds just oneself.
        novel=tuple(i for i in range(width) if i not in range(own, own + planes)),
    )

    def make_step(state: State, earned: Float[Array, ""], first: bool) -> Step:
        alive, left = state.agents != GONE, state.prey != GONE
        over = ~alive.any() | ~left.any()
        kinds = (state.agents, state.prey[:stags], state.prey[stags:])[:planes]
        seen = _planes(state.agents[:, None] + field.window(view), kinds)
        return Step(
            obs=jnp.where(alive[:, None], seen.reshape(n, -1), 0.0),
            state=_planes(jnp.asarray(field.cells), kinds).reshape(-1),
            legal=_legal(field, state),
            alive=alive,
            reward=jnp.broadcast_to(earned, (n,)),
            discount=jnp.broadcast_to(1.0 - over, (n,)),
            first=jnp.asarray(first),
            last=over | (state.t >= horizon),
        )

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        spots = distinct(jax.random.uniform(key, (n + m,)), rows * columns)
        spots = spots // columns * field.stride + spots % columns
        state = State(agents=spots[:n], prey=spots[n:], t=jnp.zeros((), jnp.int32))
        return state, make_step(state, jnp.zeros(()), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"]) -> tuple[State, Step]:
        # One draw for all: each further one costs more than the rest of the step.
        agent_turn, prey_turn, luck = jnp.split(jax.random.uniform(key, (n + 2 * m,)), [n, n + m])
        moved = state._replace(agents=walk(field, state, action, distinct(agent_turn, n)), t=state.t + 1)
        state, captured, failed = hunt(field, moved, action == CATCH, is_stag, distinct(prey_turn, m), luck)
        earned = jnp.where(captured, np.where(is_stag, STAG, HARE), 0.0).sum() + penalty * failed.sum()
        return state, make_step(state, earned, first=False)

    def outline(state: State) -> Outline:
        return field_outline(field, state.agents, state.prey, stags, ACTIONS, view)

    return Environment(
        spec,
        reset,
        step,
        render=lambda state: scene_of(outline(state)),
        outline=outline,
    )


def walk(field: Field, state: State, action: Int[Array, " N"], order: Int[Array, " N"]) -> Int[Array, " N"]:
    """The agents' cells after moving one after another, each into its target cell if that is free."""
    goal = state.agents + jnp.where(action[:, None] == np.arange(STAY), field.moves, 0).sum(1)
    goal = jnp.where(field.inside(goal), goal, state.agents)

    def move(turn: Int[Array, ""], agents: Int[Array, " N"]) -> Int[Array, " N"]:
        mine = order[turn] == np.arange(order.shape[0])
        wanted = jnp.where(mine, goal, 0).sum()
        taken = (agents == wanted).any() | (state.prey == wanted).any()
        return jnp.where(mine & ~taken, goal, agents)

    return jax.lax.fori_loop(0, order.shape[0], move, state.agents, unroll=UNROLL)


def hunt(
    field: Field,
    state: State,
    catching: Bool[Array, " N"],
    is_stag: Bool[np.ndarray, " M"],
    order: Int[Array, " M"],
    luck: Float[Array, " M"],
) -> tuple[State, Bool[Array, " M"], Bool[Array, " M"]]:
    """The prey's turns: each animal is captured, or moves by its random number ``luck`` in [0, 1).

    Returns the next state, which animals were captured, and which a single agent failed to catch.
    """

    def act(turn: Int[Array, ""], carry: tuple[Array, ...]) -> tuple[Array, ...]:
        agents, prey, captured, failed = carry
        mine = order[turn] == np.arange(order.shape[0])
        cell = jnp.where(mine, prey, 0).sum()
        exits = cell + field.moves
        occupied = (agents[:, None] == exits).any(0) | (prey[:, None] == exits).any(0)
        hunters = catching & (agents[:, None] == exits).any(1)
        hit = hunters.sum() >= jnp.where(mine & is_stag, 2, 1).max()
        free = field.inside(exits) & ~occupied
        chosen = free & (jnp.cumsum(free) == 1 + jnp.floor(luck[turn] * free.sum()))
        agents = jnp.where(hunters & hit, GONE, agents)
        prey = jnp.where(mine, jnp.where(hit, GONE, cell + jnp.where(chosen, field.moves, 0).sum()), prey)
        return agents, prey, captured | (mine & hit), failed | (mine & hunters.any() & ~hit)

    nothing = jnp.zeros(order.shape, bool)
    start = (state.agents, state.prey, nothing, nothing)
    agents, prey, captured, failed = jax.lax.fori_loop(0, order.shape[0], act, start, unroll=UNROLL)
    return state._replace(agents=agents, prey=prey), captured, failed


def _legal(field: Field, state: State) -> Bool[Array, "N 6"]:
    """Legal: moves inside the field, staying, and catching next to an animal; for ``GONE`` only staying."""
    beside = state.agents[:, None] + field.moves
    tempted = (beside[:, :, None] == state.prey).any((1, 2))
    return jnp.concatenate([field.inside(beside), jnp.ones_like(tempted)[:, None], tempted[:, None]], axis=1)


def _planes(cells: Int[Array, "*c"], kinds: tuple[Array, ...]) -> Float[Array, "*c P"]:
    """For each cell, whether it is occupied by each kind, given by its cells [K]."""
    return jnp.stack([(cells[..., None] == kind).any(-1) for kind in kinds], axis=-1).astype(float)
