"""Whom units attack: by command of an agent, or as the engine of an attack-moving enemy chooses."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from shoal.environments.skirmish.army import State, Stats
from shoal.environments.skirmish.battle import MOVES, Battle, half
from shoal.environments.skirmish.units import TICKS_PER_SECOND

SCAN = 5.0
"""Least distance, from edge to edge, within which an attack-moving unit looks for targets."""
PROVOKED_SCAN = 9.0
"""The same for a unit that was hurt a short time ago: it answers attacks from further away."""
PROVOKED = 2.0 * TICKS_PER_SECOND
"""Ticks after damage for which a unit is provoked."""
FAR = 1e6


def distances(x: Array, y: Array, to_x: Array, to_y: Array) -> Float[Array, "P Q E"]:
    """Between the centres of all pairs of two groups."""
    return jnp.sqrt((x[:, None] - to_x[None]) ** 2 + (y[:, None] - to_y[None]) ** 2)


def marks(target: Int[Array, "P E"], count: int) -> Bool[Array, "P Q E"]:
    """One-hot of each unit's target over ``count`` units; all False for none."""
    return target[:, None] == np.arange(count, dtype=np.int32)[:, None]


def first_least(cost: Float[Array, "P Q E"]) -> Int[Array, "P E"]:
    """The first index q of the least cost; -1 if none is below ``FAR``."""
    least = cost.min(1)
    index = np.arange(cost.shape[1], dtype=np.int32)[:, None]
    found = jnp.where(cost <= least[:, None], index, cost.shape[1]).min(1)
    return jnp.where(least < FAR, found, -1).astype(jnp.int32)


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

    How often the game's units look for targets is not known. At every tick they have an advantage over agents, who act
    once in a step; docs/skirmish.md compares both.

    A unit keeps its target as long as its weapon reaches it. Otherwise it takes the nearest opponent within its scan
    range, edge to edge: its weapon's range, but at least 5; 9 for two seconds after damage; any distance in a map whose
    enemies hunt. A healer takes the nearest hurt biological unit of its own side.
    """
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    own, other = half(stats, mine), half(stats, theirs)
    alive, lives = s.health[mine] > 0.0, s.health[theirs] > 0.0
    apart = distances(s.x[mine], s.y[mine], s.x[theirs], s.y[theirs])
    edge = apart - own.radius[:, None] - other.radius[None]
    scan = jnp.maximum(own.reach, SCAN)
    scan = jnp.where(s.calm[mine] < PROVOKED, jnp.maximum(scan, PROVOKED_SCAN), scan)
    near = True if battle.hunts else edge <= scan[:, None]
    allowed = lives[None] & near & _can_hit(own, other)
    kept = marks(s.target[mine], lives.shape[0]) & lives[None] & (edge <= own.reach[:, None])
    cost = jnp.where(kept, -FAR, jnp.where(allowed, apart, FAR))
    chosen = first_least(cost)
    if battle.has_healers(side):
        chosen = jnp.where(own.heals > 0.0, _patients(own, s, mine), chosen)
    return jnp.where(alive, chosen, -1)


def _can_hit(own: Stats, other: Stats) -> Bool[Array, "P Q E"] | np.ndarray:
    """Whether each unit's weapon reaches the other's plane. Healers have none."""
    air = (own.hits_air[:, None] > 0.0) | (other.flies[None] == 0.0)
    return air & (own.heals[:, None] == 0.0)


def _patients(own: Stats, s: State, mine: slice) -> Int[Array, "P E"]:
    """For each unit, the nearest other living biological unit of its side that is hurt; -1 if none is."""
    hurt = (s.health[mine] > 0.0) & (s.health[mine] < own.hit_points) & (own.biological > 0.0)
    apart = distances(s.x[mine], s.y[mine], s.x[mine], s.y[mine])
    return first_least(jnp.where(hurt[None], apart, FAR))
