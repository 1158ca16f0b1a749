"""``rware/…`` on the device: robots bring requested shelves to the goals and put them back.

The multi-robot warehouse of Papoudakis et al. 2021, "Benchmarking Multi-Agent Deep Reinforcement Learning Algorithms in
Cooperative Tasks", with the rules of the authors' package rware; with colours, that of Christianos et al. 2021,
"Scaling Multi-Agent Reinforcement Learning with Selective Parameter Sharing", with the rules of the branch ``color`` of
rware's repository.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.grid.field import Field, cells_outline, distinct, view_features
from shoal.environments.outlines import BLUE, GREEN, GREY, ORANGE, PURPLE, body, scene_of
from shoal.spec import EnvSpec, equal_agents
from shoal.types import Environment, Outline, Step

NOOP, FORWARD, LEFT, RIGHT, TOGGLE = range(5)
ACTIONS = ("none", "forward", "left", "right", "load or unload")
DIRECTIONS = ("up", "down", "left", "right")
TURNED_LEFT, TURNED_RIGHT = np.array([2, 3, 1, 0]), np.array([3, 2, 0, 1])
"""[4], the direction after a turn, by :data:`DIRECTIONS`."""
FACING = np.array([90.0, 270.0, 180.0, 0.0])
"""[4], degrees of each direction, anticlockwise from east."""
OWN = 8
"""Numbers about the robot itself in an observation."""
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
"""Of robots and their shelves in pictures."""


class State(NamedTuple):
    """Cells are numbered as in :class:`Field`, shelves row by row from 0."""

    robots: Int[Array, " N"]
    """The robots' cells."""
    facing: Int[Array, " N"]
    """Directions, indices of :data:`DIRECTIONS`."""
    load: Int[Array, " N"]
    """The shelf that each robot carries; -1 without one."""
    standing: Int[Array, " P"]
    """The number of the shelf that stands in each cell, plus 1, or 0; cells begin at :attr:`Plan.before`."""
    requested: Bool[Array, " S"]
    colour: Int[Array, " S"]
    """The colour of each shelf; 0 without colours."""
    t: Int[Array, ""]


class Plan(NamedTuple):
    """The floor of a warehouse."""

    field: Field
    highway: Bool[np.ndarray, " P"]
    """Where no shelf may be put down, also beyond the walls."""
    shelves: Int[np.ndarray, " S"]
    """The cells in which shelves stand at the start."""
    goals: tuple[int, int]
    before: int
    """Number of entries of ``highway`` before the first cell."""


def plan_of(rows: int, columns: int, height: int) -> Plan:
    """The floor with ``rows`` x ``columns`` blocks of shelves, each two wide and ``height`` high.

    The lowest block of the middle column is left out, so that robots can queue before the two goals.
    """
    field = Field((height + 1) * rows + 2, 3 * columns + 1, reach=1)
    y, x = np.indices((field.rows, field.columns))
    middle = field.columns // 2
    queue = (y > field.rows - (height + 3)) & ((x == middle - 1) | (x == middle))
    free = (x % 3 == 0) | (y % (height + 1) == 0) | (y == field.rows - 1) | queue
    before = field.stride + 1
    highway = np.ones(field.rows * field.stride + 2 * before, bool)
    highway[field.cells + before] = free.reshape(-1)
    bottom = (field.rows - 1) * field.stride
    return Plan(field, highway, field.cells[~free.reshape(-1)], (bottom + middle - 1, bottom + middle), before)


def warehouse_spec(name: str, robots: int, colours: int, horizon: int, shared: bool) -> EnvSpec:
    """The description; ``colours`` is 0 without them. Robots of one colour have one role."""
    width = OWN + 9 * (2 + colours if colours else 7)
    spec = equal_agents(
        name,
        "robot",
        robots,
        obs=width,
        state=width * robots,
        actions=len(ACTIONS),
        horizon=horizon,
        shared_reward=shared,
        score="mean" if shared else "sum",
        novel=(),
    )
    return replace(spec, roles=tuple(colours_of(robots, colours).tolist()))


def colours_of(robots: int, colours: int) -> Int[np.ndarray, " N"]:
    """The robots' colours: equally many of each, and what is left over has the first."""
    each, more = divmod(robots, max(colours, 1))
    return np.repeat(np.arange(max(colours, 1)), [each + more * (i == 0) for i in range(max(colours, 1))])


def warehouse(spec: EnvSpec, rows: int, columns: int, height: int, requests: int, colours: int = 0) -> Environment:
    """The warehouse.

    Each robot turns, goes forward, or loads the shelf on which it stands or unloads it where one may stand. A robot
    without a load drives below shelves; with one it cannot enter a cell in which a shelf stands. Who wants to enter a
    cell whose robot stays, stays. Robots that follow one another move together: of several who want to enter one cell
    the one moves that has the longest row of robots behind it, the first of them if several have, and robots in a ring
    of three or more move on at once, before anyone who wants to join it. Two cannot exchange places.

    A shelf that is requested and stands on a goal, on its robot, earns 1 and is no longer requested; another one, which
    was not requested, is drawn in its place. Only the time limit ends an episode.

    An observation holds column and row, whether the robot is loaded, its direction (4 numbers), whether shelves may not
    stand here, and for each of the 3 x 3 cells around, row by row: whether a robot is there and its direction (4; up
    where none is), and whether a shelf is there and is requested. The state is the concatenation of all observations.

    With ``colours``, each shelf has one, drawn for each episode, and each robot its own: a delivery counts only if both
    are equal. For each cell around an observation then holds whether a robot, a shelf of each colour, and a requested
    shelf are there. Robots of one colour see the numbers of an observation in an order of their own and have their
    actions in an order of their own, rotated by their colour's number, so that a policy of one colour is of no use to
    another.

    Args:
        spec: made by :func:`warehouse_spec`.
        rows: of blocks of shelves.
        columns: of blocks of shelves, odd.
        height: of a block, in shelves.
        requests: number of requested shelves at any time, fewer than there are shelves.
        colours: their number, or 0.
    """
    n, plan = spec.num_agents, plan_of(rows, columns, height)
    own = colours_of(n, colours)
    order = np.stack([order_of(i, spec.obs_dim) for i in own.tolist()])

    def make_step(state: State, reward: Float[Array, " N"], first: bool) -> Step:
        obs = observations(plan, state, colours)
        if colours:
            obs = jnp.take_along_axis(obs, jnp.asarray(order), axis=1)
        return Step(
            obs=obs,
            state=obs.reshape(-1),
            legal=jnp.ones((n, len(ACTIONS)), bool),
            alive=jnp.ones(n, bool),
            reward=jnp.broadcast_to(reward.sum(), (n,)) if spec.shared_reward else reward,
            discount=jnp.ones(n),
            first=jnp.asarray(first),
            last=state.t >= spec.horizon,
        )

    def reset(key: PRNGKeyArray) -> tuple[State, Step]:
        field, count = plan.field, len(plan.shelves)
        luck, kinds = jax.random.split(key)
        where, facing, wanted = jnp.split(jax.random.uniform(luck, (2 * n + requests,)), [n, 2 * n])
        spots = jnp.asarray(field.cells)[distinct(where, len(field.cells))]
        standing = np.zeros(len(plan.highway), np.int32)
        standing[plan.shelves + plan.before] = 1 + np.arange(count)
        requested = jnp.zeros(count, bool).at[distinct(wanted, count)].set(True)
        colour = jax.random.randint(kinds, (count,), 0, colours) if colours > 1 else jnp.zeros(count, jnp.int32)
        state = State(
            robots=spots,
            facing=jnp.floor(4 * facing).astype(jnp.int32),
            load=jnp.full(n, -1, jnp.int32),
            standing=jnp.asarray(standing),
            requested=requested,
            colour=colour,
            t=jnp.zeros((), jnp.int32),
        )
        return state, make_step(state, jnp.zeros(n), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, " N"]) -> tuple[State, Step]:
        if colours:
            action = (action - own) % len(ACTIONS)
        state, reward = delivered(plan, moved(plan, state, action), own if colours else None, key)
        state = state._replace(t=state.t + 1)
        return state, make_step(state, reward, first=False)

    def outline(state: State) -> Outline:
        return _outline(plan, spec, state, own, colours)

    return Environment(spec, reset, step, render=lambda state: scene_of(outline(state)), outline=outline)


def moved(plan: Plan, state: State, action: Int[Array, " N"]) -> State:
    """The state after the robots' actions, before deliveries."""
    field, at = plan.field, state.robots
    ahead = at + jnp.asarray(np.array([-field.stride, field.stride, -1, 1], np.int32))[state.facing]
    loaded = state.load >= 0
    blocked = loaded & (state.standing[ahead + plan.before] > 0)
    go = advancing(at, ahead, (action == FORWARD) & field.inside(ahead) & ~blocked)

    here = at + plan.before
    below = state.standing[here]
    toggles = action == TOGGLE
    loads, unloads = toggles & ~loaded & (below > 0), toggles & loaded & ~jnp.asarray(plan.highway)[here]
    # Robots that do neither write what is there.
    standing = state.standing.at[here].set(jnp.where(loads, 0, jnp.where(unloads, state.load + 1, below)))
    left, right = (jnp.asarray(turned, jnp.int32)[state.facing] for turned in (TURNED_LEFT, TURNED_RIGHT))
    return state._replace(
        robots=jnp.where(go, ahead, at),
        facing=jnp.where(action == LEFT, left, jnp.where(action == RIGHT, right, state.facing)),
        load=jnp.where(loads, below - 1, jnp.where(unloads, -1, state.load)),
        standing=standing,
    )


def advancing(at: Int[Array, " N"], ahead: Int[Array, " N"], wants: Bool[Array, " N"]) -> Bool[Array, " N"]:
    """Who of those that want to enter the cell ahead does so."""
    n = at.shape[0]
    follows = wants[:, None] & (ahead[:, None] == at)  # [i, j]: i wants to enter the cell of j
    rivals = wants[:, None] & wants & (ahead[:, None] == ahead)
    behind = jnp.zeros(n, jnp.int32)
    for _ in range(n - 1):  # the longest row of robots behind each; without end, and of no use, in rings
        behind = jnp.where(follows, behind[:, None] + 1, 0).max(0)
    earlier = np.tri(n, k=-1, dtype=bool)  # [i, j]: j comes before i
    beaten = (rivals & ((behind > behind[:, None]) | ((behind == behind[:, None]) & earlier))).any(1)
    first, free = wants & ~beaten, ~follows.any(1)
    goes = first & free
    for _ in range(n - 1):
        goes = goes | (first & (follows & goes).any(1))
    if n < 3:
        return goes
    ring, reached = jnp.zeros(n, bool), follows
    pair = (follows & follows.T).any(1)
    for _ in range(n - 1):  # [i, j]: i comes to the cell of j by following the robots ahead, one more in each turn
        reached = (reached[:, :, None] & follows[None]).any(1)
        ring = ring | reached[np.arange(n), np.arange(n)]
    return goes | (ring & ~pair)


def delivered(
    plan: Plan, state: State, own: Int[np.ndarray, " N"] | None, key: PRNGKeyArray
) -> tuple[State, Float[Array, " N"]]:
    """Requested shelves on the goals are replaced in the queue, the left goal first, and earn their robots 1.

    Args:
        plan: the floor.
        state: after the robots' actions.
        own: the robots' colours, if only shelves of the same colour count.
        key: key of the draws.
    """
    requested, reward = state.requested, jnp.zeros(state.robots.shape)
    luck = jax.random.uniform(key, (len(plan.goals),))
    shelf = jnp.maximum(state.load, 0)
    fits = state.load >= 0
    if own is not None:
        fits = fits & (state.colour[shelf] == own)
    for place, goal in enumerate(plan.goals):
        brings = fits & (state.robots == goal) & requested[shelf]
        done = brings.any()
        free = jnp.cumsum(~requested)
        drawn = jnp.floor(luck[place] * free[-1]).astype(jnp.int32) + 1
        new = ~requested & (free == drawn)
        brought = jnp.where(brings, shelf, -1).max() == np.arange(len(plan.shelves))
        requested = jnp.where(done, (requested & ~brought) | new, requested)
        reward = reward + brings
    return state._replace(requested=requested), reward


def observations(plan: Plan, state: State, colours: int) -> Float[Array, "N O"]:
    """What all robots observe, before the order of their colours."""
    row, column = plan.field.place(state.robots)
    n = state.robots.shape[0]
    highway = jnp.asarray(plan.highway)[state.robots + plan.before]
    facing = state.facing[:, None] == np.arange(4)
    numbers = [jnp.stack([column, row, state.load >= 0], 1), facing, highway[:, None]]
    around = state.robots[:, None] + plan.field.window(1)  # [N, 9]
    there = around[..., None] == state.robots  # [N, 9, N]
    robot = there.any(-1)
    shelf = state.standing[around + plan.before] - 1
    shelf = jnp.maximum(shelf, jnp.where(there, state.load, -1).max(-1))
    known, index = shelf >= 0, jnp.maximum(shelf, 0)
    wanted = known & state.requested[index]
    if colours:
        kinds = known[..., None] & (state.colour[index][..., None] == np.arange(colours))
        cells = jnp.concatenate([robot[..., None], kinds, wanted[..., None]], -1)
    else:
        ways = (there[..., None] & facing).any(2)
        ways = ways | (~robot[..., None] & (np.arange(4) == 0))
        cells = jnp.concatenate([robot[..., None], ways, known[..., None], wanted[..., None]], -1)
    return jnp.concatenate([x.astype(float) for x in (*numbers, cells.reshape(n, -1))], 1)


def _outline(plan: Plan, spec: EnvSpec, state: State, own: Int[np.ndarray, " N"], colours: int) -> Outline:
    n, count = spec.num_agents, len(plan.shelves)
    robots, load, standing = (np.asarray(x) for x in (state.robots, state.load, state.standing))
    cells = np.zeros(count, int)
    where = np.flatnonzero(standing)
    cells[standing[where] - 1] = where - plan.before
    cells[load[load >= 0]] = robots[load >= 0]
    kinds = np.asarray(state.colour)
    bodies = [body(f"goal_{i}", "frame", 0.5, ORANGE) for i in range(len(plan.goals))]
    bodies += [
        body(f"shelf_{i}", "square", 0.4, COLOURS[kinds[i]] if colours else GREY, marked="requested", text=" ")
        for i in range(count)
    ]
    bodies += [
        body(f"robot_{i}", "disc", 0.3, COLOURS[own[i]] if colours else BLUE, i, "carries a shelf", str(i))
        for i in range(n)
    ]
    actions = [[ACTIONS[(k - own[i] * (colours > 0)) % len(ACTIONS)] for k in range(len(ACTIONS))] for i in range(n)]
    places = np.concatenate([plan.goals, cells, robots])
    drawn = cells_outline(plan.field, places, bodies, actions, _features(own, colours), "", upwards=False)
    marks = np.concatenate([np.zeros(len(plan.goals)), np.asarray(state.requested), load >= 0]).astype(int)
    turn = np.concatenate([np.full(len(plan.goals) + count, np.nan), FACING[np.asarray(state.facing)]])
    return drawn._replace(moving=drawn.moving | {"mark": marks, "turn": turn})


def _features(own: Int[np.ndarray, " N"], colours: int) -> list[list[str]]:
    """The names of what each robot observes."""
    coloured = [f"shelf of colour {i}" for i in range(colours)]
    kinds = ["robot", *(coloured or [*(f"robot faces {way}" for way in DIRECTIONS), "shelf"])]
    around = view_features(1, (*kinds, "requested shelf"), ("up", "down"))
    names = ["column", "row", "loaded", *(f"faces {way}" for way in DIRECTIONS), "no shelf may stand here", *around]
    return [[names[k] for k in order_of(i, len(names))] if colours else names for i in own.tolist()]


def order_of(colour: int, width: int) -> Int[np.ndarray, " O"]:
    """The order in which robots of a colour see the numbers of an observation; always the same."""
    return np.random.default_rng(colour).permutation(width)
