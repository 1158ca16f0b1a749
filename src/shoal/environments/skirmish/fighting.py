"""Fighting within one tick: whom units attack, weapons, healing, regeneration and deaths.

Targets are commanded by agents, or chosen as the engine of an attack-moving enemy does. Attacks come all at once or one
after the other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.skirmish.battle import MOVES, Battle, State, Stats, half
from shoal.environments.skirmish.units import (
    ENERGY_REGENERATION,
    HEALING,
    HEALING_SCAN,
    HIT_POINTS_PER_ENERGY,
    LEAST_DAMAGE,
    LEAST_ENERGY,
    MAX_ENERGY,
    SCAN,
    SHIELD_DELAY,
    SHIELD_REGENERATION,
    TICKS_PER_SECOND,
)

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


def acquired(battle: Battle, stats: Stats, side: int, s: State, order: bool = False) -> Int[Array, "P E"]:
    """The targets of units under the order to attack-move.

    A unit keeps its target as long as its weapon reaches it, in an :attr:`Battle.ordered` battle as long as it lives.
    Otherwise it takes the opponent whose centre is nearest (the first of equally near ones) of those within its scan
    range, edge to edge: :attr:`Unit.scan` of its type, with the default weapons the range, but at least 5; at least
    :attr:`Battle.provoked_scan` for two seconds after damage; any distance in a map whose enemies hunt. If there is
    none, it keeps its target within :attr:`Battle.leash`. A healer takes the nearest hurt biological unit of its own
    side, in an ordered battle of those within 6 cells, edge to edge.

    With ``order`` a unit without a target is ordered to attack the nearest of all opponents; if its weapon cannot hit
    that one, as that of a marauder cannot hit a medivac, the game refuses the order.

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
    had = marks(target, battle.counts(side)[1])
    kept = had & (square < FAR if battle.ordered else square <= (reach[:, None] + radius) ** 2)
    nearest = square
    if not alike:
        square = jnp.where(square <= (scan[:, None] + radius) ** 2, square, FAR)
    if any(unit.flies for unit in battle.of_side(1 - side)):
        square = jnp.where((own.hits_air[:, None] > 0.0) | (other.flies[None] == 0.0), square, FAR)
    least, chosen = _first_least(jnp.where(kept, -1.0, square))
    if alike:  # the nearest is also the first to come within the scan range
        chosen = jnp.where(least <= (scan + other.radius[0]) ** 2, chosen, -1)
    if battle.leash:
        chased = (had & (nearest <= (battle.leash + own.radius[:, None] + radius) ** 2)).any(1)
        chosen = jnp.where((chosen < 0) & chased, target, chosen)
    if order:
        first = first_least(nearest)
        obeyed = ~kept.any(1) & (marks(first, nearest.shape[1]) & _can_hit(own, other)).any(1)
        chosen = jnp.where(obeyed, first, chosen)
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
    is hurt, in an ordered battle within 6 cells; -1 if none is."""
    mine, rows = battle.sides[side], battle.rows(side, "heals")
    x, y, health = s.x[mine], s.y[mine], s.health[mine]
    hurt = (health > 0.0) & (health < own.hit_points) & (own.biological > 0.0)
    apart = distances(x[rows], y[rows], x, y)
    near = hurt[None]
    if battle.ordered:
        near &= apart <= half(own, rows).radius[:, None] + own.radius[None] + HEALING_SCAN
    patient = first_least(jnp.where(near, apart, FAR))
    return chosen.at[rows].set(jnp.where(half(own, rows).heals > 0.0, patient, chosen[rows]))


class Aim(NamedTuple):
    """Where the targets of units are."""

    has: Bool[Array, "U E"]
    """Whether there is a living target."""
    x: Float[Array, "U E"]
    y: Float[Array, "U E"]
    gap: Float[Array, "U E"]
    """Distance that is missing for the weapon, or for healing, to reach it; at most 0 within reach."""


class Targets(NamedTuple):
    """The targets of all units for one step."""

    target: Int[Array, "U E"]
    """As :attr:`State.target`."""
    place: Int[Array, "U E"]
    """Position of the target in the flat [U · E] arrays of the state; 0 without a target."""
    reach: Array | np.ndarray
    """[U, E]: distance between the centres up to which the weapon, or healing, reaches."""


def located(battle: Battle, stats: Stats, target: Int[Array, "U E"]) -> Targets:
    """Look up the positions of targets in the state's arrays."""
    units, count = target.shape
    allies = np.arange(units)[:, None] < battle.num_allies
    of_enemies = allies ^ (stats.heals > 0.0)  # healers' targets are of their own side
    unit = jnp.where(target >= 0, target + jnp.where(of_enemies, battle.num_allies, 0), 0)
    place = unit * count + np.arange(count, dtype=np.int32)
    if isinstance(stats.radius, np.ndarray) and (stats.radius == stats.radius[0]).all():  # nothing to look up
        return Targets(target, place, jnp.broadcast_to(stats.reach + stats.radius + stats.radius[0], target.shape))
    radius = jnp.broadcast_to(stats.radius, target.shape)
    return Targets(target, place, stats.reach + stats.radius + _taken(radius, place))


def aim(s: State, targets: Targets) -> Aim:
    """Where the targets are now."""
    x, y, health = (_taken(v, targets.place) for v in (s.x, s.y, s.health))
    apart = jnp.sqrt((s.x - x) ** 2 + (s.y - y) ** 2)
    return Aim((targets.target >= 0) & (health > 0.0), x, y, apart - targets.reach)


def _taken(values: Float[Array, "U E"], place: Int[Array, "U E"]) -> Float[Array, "U E"]:
    return values.reshape(-1).at[place].get(mode="promise_in_bounds")


class Volley(NamedTuple):
    """What one side's attacks of a tick do to the other side."""

    fires: Bool[Array, "P E"]
    bursts: Bool[Array, "P E"]
    """Units that explode."""
    damage: Float[Array, "Q E"]
    """Before armour, over all hits."""
    hits: Float[Array, "Q E"]


def volley(battle: Battle, stats: Stats, side: int, s: State, target: Int[Array, "U E"], aimed: Aim) -> Volley:
    """The attacks of one side's units whose weapons are ready and reach their targets, and explosions of the killed."""
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    own, other = half(stats, mine), half(stats, theirs)
    target, aimed = target[mine], Aim(*(v[mine] for v in aimed))
    alive = s.health[mine] > 0.0
    ready = alive & aimed.has & (aimed.gap <= 0.0) & (own.heals == 0.0)
    fires = ready & (s.cooldown[mine] < 1.0)
    strength = _strength(own, other)
    damage, hits = _sums(fires[:, None] & marks(target, battle.counts(side)[1]), own, strength, own.shoots)
    if (rows := battle.rows(side, "beams")).size:
        some = half(own, rows)
        at = s.x[mine][rows], s.y[mine][rows]
        struck = _struck(some, other, at, (s.x[theirs], s.y[theirs]), Aim(*(v[rows] for v in aimed)))
        more = _sums(fires[rows][:, None] & struck, some, strength[rows], some.beams)
        damage, hits = damage + more[0], hits + more[1]
    bursts = jnp.zeros_like(fires)
    if (rows := battle.rows(side, "explodes")).size:
        bursts = (fires | doomed(s)[mine]) & (own.explodes > 0.0)
        more = explosions(battle, stats, side, s, bursts)
        damage, hits = damage + more[0], hits + more[1]
    return Volley(fires, bursts, damage, hits)


def doomed(s: State) -> Bool[Array, "U E"]:
    """The killed whose explosion is still to come."""
    return (s.cooldown < 0.0) & (s.health <= 0.0)


def explosions(
    battle: Battle, stats: Stats, side: int, s: State, bursts: Bool[Array, "P E"]
) -> tuple[Float[Array, "Q E"], Float[Array, "Q E"]]:
    """Damage and hits on the other side by those of one side that explode."""
    mine, theirs, rows = battle.sides[side], battle.sides[1 - side], battle.rows(side, "explodes")
    some, other = half(half(stats, mine), rows), half(stats, theirs)
    caught = _caught(some, other, (s.x[mine][rows], s.y[mine][rows]), (s.x[theirs], s.y[theirs]))
    return _sums(bursts[rows][:, None] & caught, some, _strength(some, other), some.explodes)


def _strength(own: Stats, other: Stats) -> Float[Array, "P Q E"] | np.ndarray:
    """Damage of one hit of each unit on each other, before armour."""
    bonus = own.light_bonus[:, None] * other.light[None] + own.armoured_bonus[:, None] * other.armoured[None]
    strength = own.damage[:, None] + bonus
    return strength if strength.shape[0] > 1 else strength + 0.0 * own.heals[:, None]


def _sums(struck: Array, own: Stats, strength: Array | np.ndarray, kind: Array | np.ndarray) -> tuple[Array, Array]:
    """Damage and hits on each opponent by the attackers of one kind."""
    count = (own.hits * kind)[:, None]
    return jnp.where(struck, strength * count, 0.0).sum(0), jnp.where(struck, count, 0.0).sum(0)


def _caught(own: Stats, other: Stats, at: tuple[Array, Array], others: tuple[Array, Array]) -> Bool[Array, "K Q E"]:
    """The units on the ground whose centres lie within the radius of each explosion. Places are (x, y)."""
    return (distances(*at, *others) <= own.blast[:, None]) & (other.flies[None] == 0.0)


def _struck(
    own: Stats, other: Stats, at: tuple[Array, Array], others: tuple[Array, Array], aimed: Aim
) -> Bool[Array, "K Q E"]:
    """The units on the ground that touch each beam: a rectangle across the line of fire, centred on the target."""
    ahead_x, ahead_y = aimed.x - at[0], aimed.y - at[1]
    length = jnp.maximum(jnp.sqrt(ahead_x**2 + ahead_y**2), 1e-6)
    ahead_x, ahead_y = (ahead_x / length)[:, None], (ahead_y / length)[:, None]
    off_x, off_y = others[0][None] - aimed.x[:, None], others[1][None] - aimed.y[:, None]
    along, across = off_x * ahead_x + off_y * ahead_y, off_x * ahead_y - off_y * ahead_x
    beyond_x = jnp.maximum(jnp.abs(along) - own.beam_width[:, None] / 2.0, 0.0)
    beyond_y = jnp.maximum(jnp.abs(across) - own.beam_length[:, None] / 2.0, 0.0)
    inside = beyond_x**2 + beyond_y**2 <= other.radius[None] ** 2
    return inside & (other.flies[None] == 0.0)


def turns(key: PRNGKeyArray, shape: tuple[int, ...]) -> Int[Array, "U E"]:
    """The order in which the units of a tick attack in turn: a random permutation for each environment."""
    return jnp.argsort(jax.random.uniform(key, shape), axis=0).astype(jnp.int32)


class _Turns(NamedTuple):
    """What the attacks of a tick have done so far; all [U, E]."""

    health: Array
    shield: Array
    fires: Array
    bursts: Array
    hurt: Array


def in_turn(
    battle: Battle, stats: Stats, s: State, targets: Targets, aimed: Aim, order: Int[Array, "U E"]
) -> tuple[State, Bool[Array, "U E"], Bool[Array, "U E"]]:
    """The attacks of all units one after the other: (the state, who fires, who explodes).

    A unit that was killed earlier in the tick does not fire; one whose target was killed keeps its weapon ready.
    """
    units, count = s.x.shape
    index = np.arange(units, dtype=np.int32)[:, None]
    enemies = index >= battle.num_allies
    has = (targets.target >= 0) & (aimed.gap <= 0.0) & (stats.heals == 0.0) & (s.cooldown < 1.0)
    pending = doomed(s)  # killed in the tick before
    target = targets.place // count
    widened = [jnp.broadcast_to(jnp.asarray(v, jnp.float32), s.x.shape) for v in stats]

    def turn(k: Array, now: _Turns) -> _Turns:
        unit = jax.lax.dynamic_slice_in_dim(order, k, 1)  # [1, E]
        acts = index == unit

        def of_unit(values: Array) -> Array:
            return jnp.take_along_axis(values, unit, axis=0)

        own = Stats(*map(of_unit, widened))
        victim = of_unit(target)
        lives = jnp.take_along_axis(now.health, victim, axis=0) > 0.0
        fires = of_unit(has) & (of_unit(now.health) > 0.0) & lives
        opposed = ((unit >= battle.num_allies) ^ enemies) & (now.health > 0.0)
        at, others = (of_unit(s.x), of_unit(s.y)), (s.x, s.y)
        strength = _strength(own, stats)
        damage, hits = _sums((fires & (index == victim))[None], own, strength, own.shoots)
        bursts = jnp.zeros_like(fires)
        if any(unit.attack == "beam" for unit in battle.types):
            struck = _struck(own, stats, at, others, Aim(*map(of_unit, aimed)))
            more = _sums(fires & opposed & struck, own, strength, own.beams)
            damage, hits = damage + more[0], hits + more[1]
        if any(unit.attack == "explosion" for unit in battle.types):
            bursts = (fires | of_unit(pending)) & (own.explodes > 0.0)
            more = _sums(bursts & opposed & _caught(own, stats, at, others), own, strength, own.explodes)
            damage, hits = damage + more[0], hits + more[1]
        health, shield = _remains(stats, now.health, now.shield, damage, hits)
        return _Turns(
            jnp.where(bursts & acts, 0.0, health),
            shield,
            now.fires | (fires & acts),
            now.bursts | (bursts & acts),
            now.hurt | ((damage > 0.0) & (now.health > 0.0)),
        )

    none = jnp.zeros_like(s.x, bool)
    now = jax.lax.fori_loop(0, units, turn, _Turns(s.health, s.shield, none, none, none))
    calm = jnp.where(now.hurt, 0.0, s.calm + 1.0)
    return s._replace(health=now.health, shield=now.shield, calm=calm), now.fires, now.bursts


def wounded(stats: Stats, s: State, damage: Float[Array, "U E"], hits: Float[Array, "U E"]) -> State:
    """Apply the damage of simultaneous attacks."""
    hurt = (damage > 0.0) & (s.health > 0.0)
    health, shield = _remains(stats, s.health, s.shield, damage, hits)
    return s._replace(shield=shield, health=health, calm=jnp.where(hurt, 0.0, s.calm + 1.0))


def _remains(
    stats: Stats,
    health: Float[Array, "U E"],
    shield: Float[Array, "U E"],
    damage: Float[Array, "U E"],
    hits: Float[Array, "U E"],
) -> tuple[Float[Array, "U E"], Float[Array, "U E"]]:
    """What damage leaves of (hit points, shields): it takes shields first, and then hit points, minus armour for every
    hit that passes the shields, at least 0.5 of each.

    Of several simultaneous attacks the number of hits that pass is that of hits of their mean strength; for attacks of
    equal strength, and for units without shields, that is exact.
    """
    left = jnp.maximum(shield - damage, 0.0)
    through = jnp.maximum(damage - shield, 0.0)
    passing = jnp.where(shield > 0.0, jnp.ceil(through * hits / jnp.maximum(damage, 1e-6) - 1e-4), hits)
    mean = damage / jnp.maximum(hits, 1.0)
    first = through - (passing - 1.0) * mean  # what the first of them has left
    lost = sum(jnp.maximum(v - stats.armour, LEAST_DAMAGE) * n for v, n in ((first, 1.0), (mean, passing - 1.0)))
    lost = jnp.where(through > 0.0, lost, 0.0)
    health = jnp.maximum(health - lost, 0.0)
    # Float32 sums of fractions may leave a trace where the exact remainder is 0.
    return jnp.where(health < 1e-3, 0.0, health), left


def healed(battle: Battle, stats: Stats, side: int, s: State, target: Int[Array, "U E"], aimed: Aim) -> State:
    """Healers restore 9 hit points a second, three for one energy; to begin takes 5 energy."""
    mine = battle.sides[side]
    target, aimed = target[mine], Aim(*(v[mine] for v in aimed))
    rows = battle.rows(side, "heals")
    own = half(stats, mine)
    some = half(own, rows)
    amount = HEALING / TICKS_PER_SECOND
    cost = amount / HIT_POINTS_PER_ENERGY
    energy, working = s.energy[mine][rows], s.cooldown[mine][rows] > 0.0
    enough = (energy >= LEAST_ENERGY) | (working & (energy >= cost))
    able = (some.heals > 0.0) & (s.health[mine][rows] > 0.0) & aimed.has[rows] & (aimed.gap[rows] <= 0.0) & enough
    needy = (s.health[mine] > 0.0) & (s.health[mine] < own.hit_points) & (own.biological > 0.0)
    treats = able[:, None] & marks(target[rows], battle.counts(side)[0]) & needy[None]
    heals = treats.any(1)
    given = jnp.where(treats, amount, 0.0).sum(0)
    health = jnp.where(needy, jnp.minimum(s.health[mine] + given, own.hit_points), s.health[mine])
    is_healer = some.heals > 0.0
    at = np.arange(battle.num_units)[mine][rows]
    return s._replace(
        health=s.health.at[mine].set(health),
        energy=s.energy.at[at].add(jnp.where(heals, -cost, 0.0)),
        cooldown=s.cooldown.at[at].set(jnp.where(is_healer, heals.astype(jnp.float32), s.cooldown[at])),
    )


def regenerated(battle: Battle, stats: Stats, s: State) -> State:
    """Shields after ten seconds without damage, hit points of zerg, energy of healers; of the living."""
    alive = s.health > 0.0
    if any(unit.shield for unit in battle.types):
        rested = alive & (s.calm >= SHIELD_DELAY * TICKS_PER_SECOND)
        more = jnp.minimum(s.shield + SHIELD_REGENERATION / TICKS_PER_SECOND, stats.shield)
        s = s._replace(shield=jnp.where(rested, more, s.shield))
    if any(unit.regeneration for unit in battle.types):
        more = jnp.minimum(s.health + stats.regeneration, stats.hit_points)
        s = s._replace(health=jnp.where(alive, more, s.health))
    if any(unit.heals for unit in battle.types):
        more = jnp.minimum(s.energy + ENERGY_REGENERATION / TICKS_PER_SECOND, MAX_ENERGY)
        s = s._replace(energy=jnp.where(alive & (stats.heals > 0.0), more, s.energy))
    return s
