"""Movement: steps towards goals, ways round cliffs and past other units, overlaps, and terrain.

Units that stand (because they hold, attack or heal) are not moved by units that walk. A unit that walks turns past the
others: of the headings on one side of its straight way it takes the first at which its step ends clear of all units,
where these are expected to stand after the tick, as a wall follower does (Lumelsky and Stepanov 1987, Bug algorithms).
It keeps to that side until it is past. So units that are behind a front flow round it and surround their target. What
overlaps remain are moved apart afterwards.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from shoal.environments.skirmish import maps
from shoal.environments.skirmish.battle import Battle, State, Stats

CLEARANCE = 0.03
"""Distance that units keep when they walk past others."""
PATIENCE = 0.5
"""Part of its turn that a unit tries to keep in the next tick, so that it stays on the side on which it began."""
MOST_TURN = 1.56
"""Tangent of half the largest turn away from the goal, 115 degrees: a unit that has no way within it stands."""
NO_WAY = 4.0
"""The turn of a unit that had no way, with the sign of the side on which it tried."""
LEAST_TURN = 0.005
"""A smaller turn is none, and its side is forgotten."""
PROGRESS = 0.25
"""A unit that covers less than this part of its step while it turns tries the other side."""
MOST_PUSH = 0.1
"""Largest displacement of a unit by overlaps in one tick."""
APART = 1e3
"""A distance at which no units touch."""
MARGIN = 1e-3
"""Distance that units keep from the border of the map."""
IN_THE_MIDDLE = 1e-3
"""A unit that is nearer than this to the middle of its army, across its way, is on neither side of it."""
DIRECT = 1.5
"""Within this distance units walk straight to their goal."""

Found = TypeVar("Found")
"""One array or several."""


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
    goal_x, goal_y = _stop(battle, stats, s, course)
    ahead_x, ahead_y = goal_x - s.x, goal_y - s.y
    left = jnp.sqrt(ahead_x**2 + ahead_y**2)
    step = jnp.clip(course.length, 0.0, jnp.minimum(stats.speed, left))
    step = jnp.where(s.health > 0.0, step, 0.0)
    inverse = 1.0 / jnp.maximum(left, 1e-6)
    ahead_x, ahead_y = ahead_x * inverse, ahead_y * inverse
    turn = _turns(battle, stats, s, ahead_x, ahead_y, step)
    way_x, way_y = _turned(ahead_x, ahead_y, turn)
    walked = jnp.where(jnp.abs(turn) < NO_WAY, step, 0.0)
    x, y = s.x + walked * way_x, s.y + walked * way_y
    push_x, push_y = _pushes(battle, stats, x, y, s.health > 0.0, step > 0.0)
    then = _on_ground(battle, stats, s, x + push_x, y + push_y)
    covered = (then.x - s.x) ** 2 + (then.y - s.y) ** 2
    stuck = (turn != 0.0) & (covered < (PROGRESS * step) ** 2)
    return then._replace(turn=jnp.where(stuck, jnp.copysign(NO_WAY, turn), turn))


def _stop(battle: Battle, stats: Stats, s: State, course: Course) -> tuple[Array, Array]:
    """The point to walk straight to: the goal, or the next stop on the way around cliffs."""
    if maps.is_band(battle.terrain):
        return course.x, course.y
    number, stops = maps.waypoints(battle.terrain)
    goal, own = (jnp.asarray(number)[_cell(x, y)] for x, y in ((course.x, course.y), (s.x, s.y)))
    stop = jnp.asarray(stops)[goal, own].astype(jnp.int32)
    near = (course.x - s.x) ** 2 + (course.y - s.y) ** 2 <= DIRECT**2
    direct = near | course.straight | (stats.climbs > 0.0) | (stats.flies > 0.0) | (stop == _cell(course.x, course.y))
    side = maps.SIDE
    return jnp.where(direct, course.x, stop // side + 0.5), jnp.where(direct, course.y, stop % side + 0.5)


def _cell(x: Array, y: Array) -> Array:
    """The index x · 32 + y of the cell under each unit."""
    most = maps.SIDE - 1
    column, row = (jnp.clip(jnp.floor(v).astype(jnp.int32), 0, most) for v in (x, y))
    return column * maps.SIDE + row


def _turned(x: Array, y: Array, turn: Array) -> tuple[Array, Array]:
    """Vectors turned to the left; ``turn`` is the tangent of half the angle."""
    scale = 1.0 / (1.0 + turn**2)
    cosine, sine = (1.0 - turn**2) * scale, 2.0 * turn * scale
    return cosine * x - sine * y, sine * x + cosine * y


def _turns(
    battle: Battle,
    stats: Stats,
    s: State,
    ahead_x: Float[Array, "U E"],
    ahead_y: Float[Array, "U E"],
    step: Float[Array, "U E"],
) -> Float[Array, "U E"]:
    """The turn of each unit from its straight way (a unit vector) that passes the others: see :attr:`State.turn`.

    A step of length v in direction h meets a unit at offset r, expected at the end of the tick, at whose centre it may
    come no closer than c, if h · r > n = (r² - c² + v²) / 2v. The first headings clear of it, to both sides, have the
    product n with r.
    """
    alive, walks = s.health > 0.0, step > 0.0
    x, y = _apart(battle, stats, s.x, alive), s.y
    going = jnp.abs(s.turn) < NO_WAY
    will_x, will_y = _turned(ahead_x, ahead_y, s.turn)
    pace = jnp.where(going, step, 0.0)
    then_x, then_y = x + pace * will_x, y + pace * will_y
    tried = jnp.where(going, PATIENCE * s.turn, 0.0)
    tried = jnp.where(jnp.abs(tried) < LEAST_TURN, 0.0, tried)
    side = jnp.where(going, jnp.sign(tried), -jnp.sign(s.turn))
    side = jnp.where(side == 0.0, _outer_side(battle, s, alive, ahead_x, ahead_y), side)
    way_x, way_y = _turned(ahead_x, ahead_y, tried)
    cross_x, cross_y = -side * way_y, side * way_x
    per_step = jnp.where(walks, 0.5 / jnp.maximum(step, 1e-6), APART)
    half_step = 0.5 * step
    touch = _touching(battle, stats, x)
    index = np.arange(battle.num_units, dtype=np.int32)[:, None]

    def partner(j: Array) -> Float[Array, "U E"]:
        """The cosine of the angle between the tried heading and the first one clear of unit j; 1 if it is clear."""
        off_x, off_y = _row(then_x, j) - x, _row(then_y, j) - y
        square = off_x**2 + off_y**2
        near = jnp.maximum((square - (touch(j) + CLEARANCE) ** 2) * per_step + half_step, 0.0)
        along = way_x * off_x + way_y * off_y
        across = cross_x * off_x + cross_y * off_y
        beside = jnp.sqrt(jnp.maximum(square - near**2, 0.0))
        cosine = (near * along - beside * across) / jnp.maximum(square, 1e-6)
        return jnp.where((along > near) & (index != j), cosine, 1.0)

    least = _over_all(partner, jnp.minimum, jnp.ones_like(x))
    # The tangent of half the sum of two angles; where ``rest`` is not positive, the sum is half a circle or more.
    more = side * jnp.sqrt((1.0 - least) / jnp.maximum(1.0 + least, 1e-6))
    rest = 1.0 - tried * more
    turn = (tried + more) / jnp.maximum(rest, 1e-6)
    turn = jnp.where((jnp.abs(turn) > MOST_TURN) | (rest <= 0.0), side * NO_WAY, turn)
    return jnp.where(walks, turn, 0.0)


def _outer_side(
    battle: Battle, s: State, alive: Bool[Array, "U E"], ahead_x: Float[Array, "U E"], ahead_y: Float[Array, "U E"]
) -> Float[Array, "U E"]:
    """The side of its army's middle on which each unit is, seen along its way: 1 for the left, -1 for the right."""
    found = []
    for side, mine in enumerate(battle.sides):
        lives = alive[mine].astype(jnp.float32)
        count = jnp.maximum(lives.sum(0), 1.0)
        off_x, off_y = (v[mine] - (lives * v[mine]).sum(0) / count for v in (s.x, s.y))
        left = ahead_x[mine] * off_y - ahead_y[mine] * off_x
        # In the middle: left, or what that is in the mirror, so that both armies have the same rule.
        middle = -1.0 if sum(battle.axes(side)) == 1 else 1.0
        found.append(jnp.where(jnp.abs(left) < IN_THE_MIDDLE, middle, jnp.sign(left)))
    return jnp.concatenate(found)


def _pushes(
    battle: Battle,
    stats: Stats,
    x: Float[Array, "U E"],
    y: Float[Array, "U E"],
    alive: Bool[Array, "U E"],
    walks: Bool[Array, "U E"],
) -> tuple[Array, Array]:
    """How far overlapping units are moved apart, at most :data:`MOST_PUSH`.

    Of two that walk each gives way by half of the overlap. One that walks gives way to one that stands, which does not
    move. Of two that stand each gives way by half if they are of one army, and not at all if they are enemies.

    The overlap relative to the distance d, c / d - 1 with the contact distance c, is w / 2 + 3 w² / 8, w = 1 - d² / c²,
    two terms of its series, which need no root: 0.23 instead of 0.25 for an overlap of a fifth of c.
    """
    x = _apart(battle, stats, x, alive)
    to_walkers = jnp.where(walks, 0.5, 1.0)
    army = np.arange(battle.num_units)[:, None] < battle.num_allies
    stands = jnp.where(walks, 0, np.where(army, 1, 2))
    touch = _touching(battle, stats, x)

    def partner(j: Array) -> tuple[Array, Array]:
        off_x, off_y = x - _row(x, j), y - _row(y, j)
        within = jnp.maximum(1.0 - (off_x**2 + off_y**2) / touch(j) ** 2, 0.0)
        overlap = within * (0.5 + 0.375 * within)
        share = jnp.where(walks, _row(to_walkers, j), jnp.where(stands == _row(stands, j), 0.5, 0.0))
        return overlap * share * off_x, overlap * share * off_y

    push_x, push_y = _over_all(partner, jnp.add, (jnp.zeros_like(x), jnp.zeros_like(x)))
    length = jnp.sqrt(push_x**2 + push_y**2)
    scale = jnp.minimum(1.0, MOST_PUSH / jnp.maximum(length, 1e-6))
    if any(unit.speed == 0.0 for unit in battle.types):  # structures stay where they are
        scale = jnp.where(stats.speed > 0.0, scale, 0.0)
    return scale * push_x, scale * push_y


def _over_all(partner: Callable[[Array], Found], combine: Callable[[Array, Array], Array], first: Found) -> Found:
    """Combine what ``partner`` finds for unit j over all j.

    One j of all units at a time keeps the arrays in a processor's cache; an accelerator takes all pairs at once.
    """
    units = jax.tree.leaves(first)[0].shape[0]
    if jax.default_backend() == "cpu":
        body = lambda j, found: jax.tree.map(combine, found, partner(j))  # noqa: E731
        return jax.lax.fori_loop(0, units, body, first, unroll=min(2, units))
    every = jax.vmap(partner)(jnp.arange(units))
    whole = jnp.min if combine is jnp.minimum else jnp.sum
    return jax.tree.map(lambda found, v: combine(found, whole(v, 0)), first, every)


def _row(values: Array, j: Array) -> Array:
    return jax.lax.dynamic_slice_in_dim(values, j, 1)


def _apart(battle: Battle, stats: Stats, x: Float[Array, "U E"], alive: Bool[Array, "U E"]) -> Float[Array, "U E"]:
    """x, but far away for the dead and for climbing and flying units, which touch each other only."""
    away = jnp.where(alive, 0.0, APART * np.arange(2, 2 + x.shape[0], dtype=np.float32)[:, None])
    if any(unit.climbs or unit.flies for unit in battle.types):
        away -= jnp.where((stats.climbs > 0.0) | (stats.flies > 0.0), APART, 0.0)
    return x + away


def _touching(battle: Battle, stats: Stats, like: Float[Array, "U E"]) -> Callable[[Array], Array | np.ndarray]:
    """A function of j: the distance between the centres of each unit and unit j below which they overlap."""
    sizes = {unit.body for unit in battle.types}
    if len(sizes) == 1:
        return lambda j: np.full((1, 1), 2.0 * max(sizes), np.float32)
    body = jnp.asarray(stats.body) if battle.units is not None else jnp.broadcast_to(stats.body, like.shape)
    return lambda j: body + _row(body, j)


def _on_ground(battle: Battle, stats: Stats, s: State, x: Array, y: Array) -> State:
    """Keep units on walkable cells: along each axis, a step into a blocked cell is not made."""
    most = maps.SIDE - MARGIN
    flies = stats.flies > 0.0
    if maps.is_band(battle.terrain):
        low, high = maps.rows_of_band(battle.terrain)
        low, high = jnp.where(flies, 0.0, float(low)), jnp.where(flies, most, high + 1.0 - MARGIN)
        return s._replace(x=jnp.clip(x, 0.0, most), y=jnp.clip(y, low, high))
    x, y = jnp.clip(x, 0.0, most), jnp.clip(y, 0.0, most)
    ground = np.stack([maps.walkable(battle.terrain).ravel(), maps.climbable(battle.terrain).ravel()])
    if any(unit.climbs for unit in battle.types):
        level = jnp.broadcast_to(stats.climbs > 0.0, x.shape).astype(jnp.int32)
        table = jnp.asarray(ground.reshape(-1))
        free = lambda x, y: table[level * maps.SIDE**2 + _cell(x, y)] | flies  # noqa: E731
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
    inside = (x > -1.0) & (x < maps.SIDE) & (y > -1.0) & (y < maps.SIDE)
    rows = ground.all(0)
    if (ground == rows).all():  # whole rows are walkable: no table is needed
        low, high = np.flatnonzero(rows)[[0, -1]]
        return inside & (y >= float(low) if low else True) & (y < high + 1.0)
    return inside & jnp.asarray(ground.ravel())[_cell(x, y)]
