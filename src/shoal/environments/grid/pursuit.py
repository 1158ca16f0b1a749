"""``grid/pursuit``: pursuers must surround evaders that move at random.

The task of Gupta et al. 2017, "Cooperative Multi-Agent Control Using Deep Reinforcement Learning", in the form of
PettingZoo's ``sisl.pursuit_v5``, whose moves, captures, rewards and observations these are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.grid.field import (
    GONE,
    MAX_SIDE,
    Field,
    cells_outline,
    check_sides,
    scattered,
    view_features,
)
from shoal.environments.options import check_count, check_flag, check_number, check_steps
from shoal.environments.outlines import BLUE, GREY, ORANGE, body, scene_of
from shoal.errors import InputError
from shoal.spec import Part, equal_agents
from shoal.types import Environment, Outline, Step

# Pursuit as an :class:`Outline`: pursuers are numbered discs, evaders and walls squares.


Cells = Int[Array | np.ndarray, " _"]


def pursuit_outline(
    field: Field,
    building: Bool[np.ndarray, " C"],
    pursuers: Cells,
    evaders: Cells,
    actions: tuple[str, ...],
    view: int,
) -> Outline:
    """One unbatched timestep in numbers; cells are unit squares, and captured evaders are absent."""
    pursuers, evaders, walls = np.asarray(pursuers), np.asarray(evaders), field.cells[building]
    cells = np.concatenate([walls, evaders, pursuers])
    n = len(pursuers)
    bodies = [body("", "square", 0.5, GREY) for _ in walls]
    bodies += [body("", "square", 0.28, ORANGE) for _ in evaders]
    bodies += [body(f"pursuer_{i}", "disc", 0.34, BLUE, agent=i, text=str(i)) for i in range(n)]
    features = view_features(view, ("wall", "pursuers", "evaders"), ("down", "up"))
    caption = f"{(evaders == GONE).sum()} of {len(evaders)} evaders captured"
    return cells_outline(field, cells, bodies, [list(actions)] * n, [features] * n, caption, upwards=True)


# The environment.


LEFT, RIGHT, UP, DOWN, STAY = range(5)
ACTIONS = ("left", "right", "up", "down", "stay")
BORDER = (0.3, 0.2)
"""Width of the open border around the building, as a share of the columns and of the rows."""
MAX_REWARD = 1e6
"""Largest magnitude of a reward, for single precision."""


class State(NamedTuple):
    """Cells of pursuers and evaders (:class:`Field`; rows are numbered upwards); ``GONE`` for captured evaders."""

    pursuers: Int[Array, " N"]
    evaders: Int[Array, " M"]
    t: Int[Array, ""]
    """Steps taken."""


def pursuit(
    *,
    num_agents: int = 8,
    num_evaders: int = 30,
    grid: int | tuple[int, int] = (16, 16),
    view: int = 3,
    surround: bool = True,
    num_catch: int = 2,
    freeze_evaders: bool = False,
    catch_reward: float = 5.0,
    tag_reward: float = 0.01,
    urgency_reward: float = -0.1,
    shared_reward: bool = True,
    horizon: int = 500,
) -> Environment:
    """Pursuers surround evaders on a grid with a building in its middle (Gupta et al. 2017); defaults of PettingZoo.

    Actions are left, right, up, down and stay; a move into the building or out of the grid leaves one in place. Any
    number of pursuers and evaders may be in one cell. In each step the pursuers move. Then an evader is captured, and
    leaves the grid, if pursuers are in all adjacent cells that are neither building nor outside. Then each remaining
    evader moves by an action drawn uniformly from the five.

    In each step a pursuer receives ``catch_reward`` if it took part in a capture, ``urgency_reward``, and
    ``tag_reward`` for each evader in an adjacent cell, the mean of this number over the N moments after each pursuer's
    move (at the border of the grid, its own cell stands for the cell outside). With ``shared_reward`` all receive the
    mean of the pursuers' rewards.

    A pursuer observes an image of the cells around it: rows from low to high, columns from left to right, and three
    numbers for each cell: 1 for the building and for cells outside, the number of pursuers, the number of evaders. The
    global state is the same image of the whole grid. Neither contains the time or the pursuers' indices.

    An episode terminates when all evaders are captured; after ``horizon`` steps it is cut off. It has one metric,
    ``captured``, the share of evaders that were captured.

    Args:
        num_agents: N, the number of pursuers.
        num_evaders: M.
        grid: rows and columns of the grid, or one number for both; each from 3 to 256.
        view: number of cells that a pursuer sees in each direction.
        surround: if False, an evader is captured by ``num_catch`` pursuers in its own cell instead.
        num_catch: that number.
        freeze_evaders: whether evaders never move.
        catch_reward: reward of each pursuer that takes part in captures, once in a step.
        tag_reward: reward for each adjacent evader.
        urgency_reward: reward in every step, for example a cost of time.
        shared_reward: whether all pursuers receive the mean of their rewards.
        horizon: steps in an episode.

    Raises:
        InputError: an option is out of range.
    """
    n, m = check_count("num_agents", num_agents), check_count("num_evaders", num_evaders)
    rows, columns = check_sides(grid, least=3)
    view, horizon = check_count("view", view, most=MAX_SIDE), check_steps("horizon", horizon)
    surround, frozen = check_flag("surround", surround), check_flag("freeze_evaders", freeze_evaders)
    shared, num_catch = check_flag("shared_reward", shared_reward), check_count("num_catch", num_catch)
    catch, tag, urgency = (
        check_number(name, value, -MAX_REWARD, MAX_REWARD)
        for name, value in (
            ("catch_reward", catch_reward),
            ("tag_reward", tag_reward),
            ("urgency_reward", urgency_reward),
        )
    )
    field = Field(rows, columns, view)
    building = np.outer(_middle(rows, BORDER[1]), _middle(columns, BORDER[0])).reshape(-1)
    if max(n, m) > (~building).sum():
        raise InputError(
            f"{max(n, m)} {'pursuers' if n > m else 'evaders'} do not fit into the {(~building).sum()} open cells of a "
            f"grid of {rows} x {columns} cells."
        )
    blocked = _blocked(field, building)
    neighbours = np.array([-1, 1, field.stride, -field.stride], np.int32)
    moves = jnp.asarray(np.append(neighbours, 0))
    side = 2 * view + 1

    spec = equal_agents(
        "grid/pursuit",
        "pursuer",
        n,
        obs=side * side * 3,
        state=rows * columns * 3,
        actions=5,
        horizon=horizon,
        shared_reward=shared,
        metrics=("captured",),
        # The state does not say where one is; there is no building in one's own cell.
        novel=tuple(i for i in range(side * side * 3) if i != side * side // 2 * 3),
        parts=((Part((side, side, 3)),),) * n,
    )

    def make_step(state: State, reward: Float[Array, " N"], first: bool) -> Step:
        def image(cells: Int[Array, "*c"]) -> Float[Array, "*c 3"]:
            crowds = [(cells[..., None] == kind).sum(-1) for kind in (state.pursuers, state.evaders)]
            return jnp.stack([blocked(cells), *crowds], axis=-1).astype(float)

        over = (state.evaders == GONE).all()
        captured = jnp.where(over, 1.0, (state.evaders == GONE).mean())  # compiled, 41/41 is less than 1
        return Step(
            obs=image(state.pursuers[:, None] + field.window(view)).reshape(n, -1),
            state=image(jnp.asarray(field.cells)).reshape(-1),
            legal=jnp.ones((n, 5), bool),
            alive=jnp.ones(n, bool),
            reward=reward,
            discount=jnp.broadcast_to(1.0 - over, (n,)),
            first=jnp.asarray(first),
            last=over | (state.t >= horizon),
            metrics=captured[None],
        )

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        places = [scattered(k, field, ~building, count) for k, count in zip(jax.random.split(key), (n, m), strict=True)]
        state = State(*places, t=jnp.zeros((), jnp.int32))
        return state, make_step(state, jnp.zeros(n), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"]) -> tuple[State, Step]:
        goals = state.pursuers + moves[action]
        pursuers = jnp.where(blocked(goals), state.pursuers, goals)
        caught, catching = captures(pursuers, state.evaders)

        # Pursuer i is at its old cell after the moves of the i pursuers before it, then at its new one.
        before = jnp.arange(n)
        tags = (before * tagged(state.pursuers, state.evaders) + (n - before) * tagged(pursuers, state.evaders)) / n
        reward = tag * tags + catch * catching + urgency

        flight = jnp.full(m, STAY) if frozen else jax.random.randint(key, (m,), 0, 5)
        goals = state.evaders + moves[flight]
        evaders = jnp.where(blocked(goals), state.evaders, goals)
        left = caught | (state.evaders == GONE)
        state = State(pursuers, jnp.where(left, GONE, evaders), state.t + 1)
        return state, make_step(state, jnp.broadcast_to(reward.mean(), (n,)) if shared else reward, first=False)

    def tagged(pursuers: Int[Array, " N"], evaders: Int[Array, " M"]) -> Int[Array, " N"]:
        """The number of evaders in the cells adjacent to each pursuer."""
        beside = pursuers[:, None] + neighbours
        beside = jnp.where(field.inside(beside), beside, pursuers[:, None])
        return (beside[:, :, None] == evaders).sum((1, 2))

    def captures(pursuers: Int[Array, " N"], evaders: Int[Array, " M"]) -> tuple[Bool[Array, " M"], Bool[Array, " N"]]:
        """Which evaders are captured, and which pursuers take part in a capture."""
        if not surround:
            together = evaders[:, None] == pursuers
            caught = together.sum(1) >= num_catch
            return caught, (together & caught[:, None]).any(0)
        beside = evaders[:, None] + neighbours
        held = beside[:, :, None] == pursuers
        caught = (held.any(2) | blocked(beside)).all(1) & (evaders != GONE)
        return caught, (held & caught[:, None, None]).any((0, 1))

    def outline(state: State) -> Outline:
        return pursuit_outline(field, building, state.pursuers, state.evaders, ACTIONS, view)

    return Environment(spec, reset, step, render=lambda state: scene_of(outline(state)), outline=outline)


def _middle(cells: int, border: float) -> Bool[np.ndarray, " cells"]:
    """Which rows or columns the building covers."""
    share = np.arange(cells) / cells
    return (share > border) & (share < 1 - border)


def _blocked(field: Field, building: Bool[np.ndarray, " C"]) -> Callable[[Int[Array, "*k"]], Bool[Array, "*k"]]:
    """Whether a cell is in the building or outside, for cells within ``reach`` rows and columns of the grid."""
    margin = field.reach * (field.stride + 1)
    table = np.ones(field.rows * field.stride + 2 * margin, bool)
    table[margin + field.cells] = building
    return lambda cell: jnp.asarray(table)[cell + margin]
