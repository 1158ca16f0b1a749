"""Movement: steps towards goals, ways round cliffs, units that push each other apart, and terrain."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from shoal.environments.skirmish import terrain
from shoal.environments.skirmish.army import State, Stats
from shoal.environments.skirmish.battle import Battle

EASE = 0.27
"""Of two overlapping units both give way by half, or if only one of them walks, that one by this much more."""
APART = 1e3
"""A distance at which no units touch."""
MARGIN = 1e-3
"""Distance that units keep from the border of the map."""
FARTHEST = 0.5
"""Largest displacement along each axis in one tick, so that no unit jumps over a cell."""
DIRECT = 1.5
"""Within this distance units walk straight to their goal."""


class Course(NamedTuple):
    """Where units go."""

    x: Float[Array, "U E"]
    y: Float[Array, "U E"]
    length: Float[Array, "U E"]
    """Distance that they want to cover; at most 0 to hold."""
    straight: Bool[Array, "U E"]
    """Not around cliffs: a move's goal may lie in one."""


def moved(battle: Battle, stats: Stats, s: State, course: Course) -> State:
    """One tick of movement of all living units."""
    alive = s.health > 0.0
    goal_x, goal_y = _stop(battle, stats, s, course)
    ahead_x, ahead_y = goal_x - s.x, goal_y - s.y
    left = jnp.sqrt(ahead_x**2 + ahead_y**2)
    step = jnp.where(alive, jnp.clip(course.length, 0.0, stats.speed), 0.0)
    part = jnp.minimum(step / jnp.maximum(left, 1e-6), 1.0)
    x, y = s.x + part * ahead_x, s.y + part * ahead_y
    push_x, push_y = _pushes(battle, stats, x, y, alive, step > 0.0)
    if any(unit.speed == 0.0 for unit in battle.types):  # structures stay where they are
        push_x, push_y = (jnp.where(stats.speed > 0.0, v, 0.0) for v in (push_x, push_y))
    to_x = s.x + jnp.clip(x + push_x - s.x, -FARTHEST, FARTHEST)
    to_y = s.y + jnp.clip(y + push_y - s.y, -FARTHEST, FARTHEST)
    return _on_ground(battle, stats, s, to_x, to_y)


def _stop(battle: Battle, stats: Stats, s: State, course: Course) -> tuple[Array, Array]:
    """The point to walk straight to: the goal, or the next stop on the way around cliffs."""
    if terrain.is_band(battle.terrain):
        return course.x, course.y
    number, stops = terrain.waypoints(battle.terrain)
    goal, own = (jnp.asarray(number)[_cell(x, y)] for x, y in ((course.x, course.y), (s.x, s.y)))
    stop = jnp.asarray(stops)[goal, own].astype(jnp.int32)
    near = (course.x - s.x) ** 2 + (course.y - s.y) ** 2 <= DIRECT**2
    direct = near | course.straight | (stats.climbs > 0.0) | (stats.flies > 0.0) | (stop == _cell(course.x, course.y))
    side = terrain.SIDE
    return jnp.where(direct, course.x, stop // side + 0.5), jnp.where(direct, course.y, stop % side + 0.5)


def _cell(x: Array, y: Array) -> Array:
    """The index x · 32 + y of the cell under each unit."""
    most = terrain.SIDE - 1
    column, row = (jnp.clip(jnp.floor(v).astype(jnp.int32), 0, most) for v in (x, y))
    return column * terrain.SIDE + row


def _pushes(
    battle: Battle, stats: Stats, x: Array, y: Array, alive: Bool[Array, "U E"], walks: Bool[Array, "U E"]
) -> tuple[Array, Array]:
    """How far overlapping units are pushed apart: together by their overlap, those that hold less than those that walk.

    Units on the ground push each other, and so do climbing and flying ones.
    """
    body = jnp.where(alive, stats.body, -APART)  # dead units touch none
    ease = jnp.where(walks, EASE, 0.0)
    high = jnp.broadcast_to(jnp.where((stats.climbs > 0.0) | (stats.flies > 0.0), APART, 0.0), x.shape)
    layered = any(unit.climbs or unit.flies for unit in battle.types)

    def partner(j: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        """Add the pushes of unit j. One partner of all units at a time is twice as fast as all pairs at once."""
        of_j = [jax.lax.dynamic_slice_in_dim(v, j, 1) for v in (x, y, body, ease, high)]
        off_x, off_y = x - of_j[0], y - of_j[1]
        square = off_x**2 + off_y**2
        if layered:
            square += (high - of_j[4]) ** 2
        inverse = jax.lax.rsqrt(jnp.maximum(square, 1e-6))
        overlap = jnp.maximum(body + of_j[2] - square * inverse, 0.0)
        push = overlap * inverse * (0.5 + ease - of_j[3])
        return sums[0] + push * off_x, sums[1] + push * off_y

    return jax.lax.fori_loop(0, x.shape[0], partner, (jnp.zeros_like(x), jnp.zeros_like(y)))


def _on_ground(battle: Battle, stats: Stats, s: State, x: Array, y: Array) -> State:
    """Keep units on walkable cells: along each axis, a step into a blocked cell is not made."""
    most = terrain.SIDE - MARGIN
    flies = stats.flies > 0.0
    if terrain.is_band(battle.terrain):
        low, high = terrain.rows_of_band(battle.terrain)
        low, high = jnp.where(flies, 0.0, float(low)), jnp.where(flies, most, high + 1.0 - MARGIN)
        return s._replace(x=jnp.clip(x, 0.0, most), y=jnp.clip(y, low, high))
    x, y = jnp.clip(x, 0.0, most), jnp.clip(y, 0.0, most)
    ground = np.stack([terrain.walkable(battle.terrain).ravel(), terrain.climbable(battle.terrain).ravel()])
    if any(unit.climbs for unit in battle.types):
        level = jnp.broadcast_to(stats.climbs > 0.0, x.shape).astype(jnp.int32)
        table = jnp.asarray(ground.reshape(-1))
        free = lambda x, y: table[level * terrain.SIDE**2 + _cell(x, y)] | flies  # noqa: E731
    else:
        table = jnp.asarray(ground[0])
        free = lambda x, y: table[_cell(x, y)] | flies  # noqa: E731
    x = jnp.where(free(x, s.y), x, s.x)
    return s._replace(x=x, y=jnp.where(free(x, y), y, s.y))


def can_step(ground: np.ndarray, x: Array, y: Array) -> Bool[Array, "P E"]:
    """Whether the points lie on the map and on walkable cells; ``ground`` is bool [x, y].

    As in SMAC, coordinates are truncated towards 0, so that points less than a cell beyond the map's west and south
    border count as its first cells.
    """
    inside = (x > -1.0) & (x < terrain.SIDE) & (y > -1.0) & (y < terrain.SIDE)
    rows = ground.all(0)
    if (ground == rows).all():  # whole rows are walkable: no table is needed
        low, high = np.flatnonzero(rows)[[0, -1]]
        return inside & (y >= float(low) if low else True) & (y < high + 1.0)
    return inside & jnp.asarray(ground.ravel())[_cell(x, y)]
