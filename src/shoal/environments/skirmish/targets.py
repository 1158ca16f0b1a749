"""Whom units attack: by command of an agent, or as the engine of an attack-moving enemy chooses."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from shoal.environments.skirmish.army import State, Stats
from shoal.environments.skirmish.battle import MOVES, Battle, half
from shoal.environments.skirmish.units import SCAN, TICKS_PER_SECOND

PROVOKED = 2.0 * TICKS_PER_SECOND
"""Ticks after damage for which a unit is provoked."""
FAR = 1e6
"""Beyond the square of all distances on a map."""
AWAY = 1e4
"""A coordinate at which nobody is."""


def distances(x: Array, y: Array, to_x: Array, to_y: Array) -> Float[Array, "P Q E"]:
    """Between the centres of all pairs of two groups."""
    return jnp.sqrt((x[:, None] - to_x[None]) ** 2 + (y[:, None] - to_y[None]) ** 2)


def marks(target: Int[Array, "P E"], count: int) -> Bool[Array, "P Q E"]:
    """One-hot of each unit's target over ``count`` units; all False for none."""
    return target[:, None] == np.arange(count, dtype=np.int32)[:, None]


def first_least(cost: Float[Array, "P Q E"]) -> Int[Array, "P E"]:
    """The first index q of the least cost; -1 if none is below ``FAR``."""
    return _first_least(cost)[1]


def _first_least(cost: Float[Array, "P Q E"]) -> tuple[Float[Array, "P E"], Int[Array, "P E"]]:
    """The least cost beside :func:`first_least`. In a few large steps: a loop over opponents is slower on a CPU."""
    least = cost.min(1)
    index = np.arange(cost.shape[1], dtype=np.int32)[:, None]
    found = jnp.where(cost <= least[:, None], index, cost.shape[1]).min(1)
    return least, jnp.where(least < FAR, found, -1).astype(jnp.int32)


def commanded(battle: Battle, stats: Stats, side: int, s: State, action: Int[Array, "N E"]) -> Int[Array, "P E"]:
    """The targets that agents attack (or heal) by action 6 + k; -1 for none, for the dead and for those in the air that
    the weapon cannot hit: such an order is legal in SMAC, and the game refuses it."""
    own, others = battle.counts(side)
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    chosen = jnp.where(action >= MOVES, action - MOVES, -1)
    possible = (s.health[theirs] > 0.0)[None]
    if any(unit.flies for unit in battle.types):
        possible = possible & _can_hit(half(stats, mine), half(stats, theirs))
    lives = (marks(chosen, others) & possible).any(1)
    if battle.has_healers(side):
        heals = half(stats, mine).heals > 0.0
        friend_lives = (marks(chosen, own) & (s.health[mine] > 0.0)[None]).any(1)
        lives = jnp.where(heals, friend_lives, lives)
    return jnp.where(lives & (s.health[mine] > 0.0), chosen, -1).astype(jnp.int32)


def acquired(battle: Battle, stats: Stats, side: int, s: State) -> Int[Array, "P E"]:
    """The targets of units under the order to attack-move.

    A unit keeps its target as long as its weapon reaches it. Otherwise it takes the opponent whose centre is nearest
    (the first of equally near ones) of those within its scan range, edge to edge: :attr:`Unit.scan` of its type, with
    the default weapons the range, but at least 5; at least :attr:`Battle.provoked_scan` for two seconds after damage;
    any distance in a map whose enemies hunt. A healer takes the nearest hurt biological unit of its own side.

    This is done at every tick, so it compares squared distances.
    """
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    own, other = half(stats, mine), half(stats, theirs)
    x, y, target = s.x[mine], s.y[mine], s.target[mine]
    to_x = jnp.where(s.health[theirs] > 0.0, s.x[theirs], AWAY)  # the dead are near nobody
    to_y = s.y[theirs]
    reach, scan = own.reach + own.radius, _scan(battle, own, s.calm[mine]) + own.radius
    alike = isinstance(other.radius, np.ndarray) and bool((other.radius == other.radius[0]).all())
    square = (x[:, None] - to_x[None]) ** 2 + (y[:, None] - to_y[None]) ** 2
    radius = other.radius[None]
    kept = marks(target, battle.counts(side)[1]) & (square <= (reach[:, None] + radius) ** 2)
    if not alike:
        square = jnp.where(square <= (scan[:, None] + radius) ** 2, square, FAR)
    if any(unit.flies for unit in battle.of_side(1 - side)):
        square = jnp.where((own.hits_air[:, None] > 0.0) | (other.flies[None] == 0.0), square, FAR)
    least, chosen = _first_least(jnp.where(kept, -1.0, square))
    if alike:  # the nearest is also the first to come within the scan range
        chosen = jnp.where(least <= (scan + other.radius[0]) ** 2, chosen, -1)
    if battle.has_healers(side):
        chosen = _healing(battle, side, s, own, chosen)
    return jnp.where(s.health[mine] > 0.0, chosen, -1)


def _scan(battle: Battle, own: Stats, calm: Float[Array, "P E"]) -> Array | np.ndarray | float:
    """How far units look for targets, from edge to edge: [P, E], [P, 1] or one number for all."""
    if battle.hunts:
        return FAR
    if battle.provoked_scan <= SCAN:
        return own.scan
    return jnp.where(calm < PROVOKED, jnp.maximum(own.scan, battle.provoked_scan), own.scan)


def _can_hit(own: Stats, other: Stats) -> Bool[Array, "P Q E"] | np.ndarray:
    """Whether each unit's weapon reaches the other's plane. Healers have none."""
    air = (own.hits_air[:, None] > 0.0) | (other.flies[None] == 0.0)
    return air & (own.heals[:, None] == 0.0)


def _healing(battle: Battle, side: int, s: State, own: Stats, chosen: Int[Array, "P E"]) -> Int[Array, "P E"]:
    """The targets ``chosen`` with those of healers: for each the nearest other living biological unit of its side that
    is hurt; -1 if none is."""
    mine, rows = battle.sides[side], battle.rows(side, "heals")
    x, y, health = s.x[mine], s.y[mine], s.health[mine]
    hurt = (health > 0.0) & (health < own.hit_points) & (own.biological > 0.0)
    patient = first_least(jnp.where(hurt[None], distances(x[rows], y[rows], x, y), FAR))
    return chosen.at[rows].set(jnp.where(half(own, rows).heals > 0.0, patient, chosen[rows]))
