"""Jumanji's environments as device environments, with terminations separated from time limits."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.outlines import BLUE, GREEN, GREY, ORANGE, body
from shoal.types import Environment, EnvSpec, Outline, Step


def jumanji_environment(
    spec: EnvSpec,
    env: Any,
    metrics: Callable[[Any], Float[Array, " M"]] | None = None,
    outline: Callable[[Any], Outline] | None = None,
) -> Environment:
    """A Jumanji environment whose observation holds ``agents_view`` [N O] and ``action_mask`` [N A].

    The state is the concatenation of all observations. Rewards per agent are summed over the team if
    ``spec.shared_reward``; a team reward is given to each agent. Only ``reset`` uses its key: Jumanji's states carry
    their own.

    Args:
        spec: its spec.
        env: the environment, with a time limit beyond ``spec.horizon``, so that every end by itself is a termination
            (Jumanji's RobotWarehouse gives discount 0 at its time limit as well).
        metrics: state -> the values of ``spec.metrics``; None if there are none.
        outline: see :class:`Environment`.
    """
    n = spec.num_agents

    def make_step(state: Any, timestep: Any, first: bool) -> Step:
        view = timestep.observation.agents_view.astype(jnp.float32)
        earned = timestep.reward.astype(jnp.float32)
        over = timestep.last()
        return Step(
            obs=view,
            state=view.reshape(-1),
            legal=timestep.observation.action_mask,
            alive=jnp.ones((n,), bool),
            reward=jnp.broadcast_to(earned.sum(), (n,)) if spec.shared_reward else earned,
            discount=jnp.broadcast_to(jnp.where(over, 0.0, 1.0), (n,)),
            first=jnp.asarray(first),
            last=over | (state.step_count >= spec.horizon),
            metrics=() if metrics is None else metrics(state),
        )

    def reset(key: PRNGKeyArray) -> tuple[Any, Step]:
        state, timestep = env.reset(key)
        return state, make_step(state, timestep, first=True)

    def step(key: PRNGKeyArray, state: Any, action: Int[Array, " N"]) -> tuple[Any, Step]:
        state, timestep = env.step(state, action)
        return state, make_step(state, timestep, first=False)

    return Environment(spec, reset, step, _painter(env), outline=outline)


def _painter(env: Any) -> Callable[[Any], np.ndarray]:
    def paint(state: Any) -> np.ndarray:
        return np.asarray(env.render(state))[..., :3]

    return paint


# Outlines of Jumanji's grid worlds: level-based foraging and the warehouse. Cells are unit squares.


FORAGING_ACTIONS = ("none", "north", "south", "west", "east", "load")
WAREHOUSE_ACTIONS = ("none", "forward", "left", "right", "load or unload")
FACING = np.array([90.0, 0.0, 270.0, 180.0])
"""Degrees of up, right, down and left."""


def foraging(state: Any, side: int) -> Outline:
    """Players and foods with their levels; a food that is eaten is absent."""
    players, foods = state.agents, state.food_items
    levels, worth = np.asarray(players.level), np.asarray(foods.level)
    n, m = len(levels), len(worth)
    bodies = [body(f"player_{i}", "disc", 0.36, BLUE, i, "loads", str(level)) for i, level in enumerate(levels)]
    bodies += [body(f"food_{i}", "square", 0.3, GREEN, text=str(level)) for i, level in enumerate(worth)]
    places = np.concatenate([np.asarray(players.position), np.asarray(foods.position)]).astype(float)
    places[n:][np.asarray(foods.eaten)] = np.nan
    things = [f"food {i}" for i in range(m)]
    features = [[f"{what} {field}" for what in (*things, *_order(n, i)) for field in FIELDS] for i in range(n)]
    return Outline(
        "bodies",
        _grid(side, side, bodies) | {"actions": [list(FORAGING_ACTIONS)] * n, "features": features},
        _places(places, side) | {"mark": np.concatenate([np.asarray(players.loading), np.zeros(m, bool)]).astype(int)},
        f"{int(np.asarray(foods.eaten).sum())} of {m} foods gathered",
    )


FIELDS = ("row", "column", "level")
"""What a player observes of a player or a food."""


def _order(n: int, own: int) -> list[str]:
    """Players in the order in which one of them observes them: itself first."""
    return ["own", *(f"player_{i}" for i in range(n) if i != own)]


def warehouse(state: Any, size: tuple[int, int], goals: np.ndarray) -> Outline:
    """Robots with their direction, shelves, and the goals, [G, 2] columns and rows."""
    robots, shelves = state.agents, state.shelves
    rows, columns = size
    n, m = len(np.asarray(robots.direction)), len(np.asarray(shelves.is_requested))
    bodies = [body(f"goal_{i}", "frame", 0.5, ORANGE) for i in range(len(goals))]
    bodies += [body(f"shelf_{i}", "square", 0.4, GREY, marked="requested") for i in range(m)]
    bodies += [body(f"robot_{i}", "disc", 0.3, BLUE, i, "carries a shelf", str(i)) for i in range(n)]
    places = [np.asarray(goals)[:, ::-1]]
    places += [np.stack([np.asarray(at.position.x), np.asarray(at.position.y)], 1) for at in (shelves, robots)]
    marks = [np.zeros(len(goals)), np.asarray(shelves.is_requested), np.asarray(robots.is_carrying)]
    turn = np.concatenate([np.full(len(goals) + m, np.nan), FACING[np.asarray(robots.direction)]])
    return Outline(
        "bodies",
        _grid(rows, columns, bodies) | {"actions": [list(WAREHOUSE_ACTIONS)] * n},
        _places(np.concatenate(places).astype(float), rows) | {"mark": np.concatenate(marks).astype(int), "turn": turn},
    )


def _grid(rows: int, columns: int, bodies: list[dict[str, Any]]) -> dict[str, Any]:
    return {"box": [0, 0, columns, rows], "cell": 1, "bodies": bodies}


def _places(places: np.ndarray, rows: int) -> dict[str, np.ndarray]:
    """Rows and columns [K, 2] as positions."""
    return {"x": places[:, 1] + 0.5, "y": rows - places[:, 0] - 0.5}
