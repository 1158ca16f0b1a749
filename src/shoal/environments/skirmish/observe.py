"""Observations, global state and legal actions: SMAC's, from ``starcraft2.py`` of oxwhirl/smac.

Two differences: a type has the same one-hot for both sides (in SMAC some maps number the enemy's types in reverse), and
where both armies are agents, the second one sees the map as the first one does: on axes that the battle mirrors
(:attr:`Battle.mirrored`), offsets, positions and moves are those of the mirror image. The state is never mirrored.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from shoal.environments.skirmish import maps, motion
from shoal.environments.skirmish.battle import MOVES, Battle, State, Stats, half
from shoal.environments.skirmish.engine import MOVE
from shoal.environments.skirmish.fighting import distances
from shoal.environments.skirmish.units import MAX_ENERGY
from shoal.spec import Part

SIGHT = 9.0
"""Distance below which units are observed."""
RANGE = 6.0
"""Distance up to which attacks are legal, whatever the weapon's range."""
LEAST_RANGE = 2.0
"""Of legal attacks where each type has its own range (SMACv2)."""
CENTRE = maps.SIDE / 2.0
OBSERVER_FEATURES = 4
"""Features at the start of another unit's that depend on the observer: attackable or visible, distance, two offsets."""


def parts(battle: Battle, side: int) -> tuple[Part, ...]:
    """The arrays of which the observation of one side's agents consists, in their order."""
    own, others = battle.counts(side)
    mine, theirs = (1 + battle.has_shields(k) + battle.type_bits for k in (side, 1 - side))
    acted = battle.num_actions(side) if battle.last_actions else 0
    found = [Part((4,), name="moves"), Part((others, OBSERVER_FEATURES + theirs), name="enemies")]
    if own > 1:
        found.append(Part((own - 1, OBSERVER_FEATURES + mine + acted), name="allies"))
    found.append(Part((mine + 2 * battle.own_position,), name="own"))
    return (*found, Part((1,), name="time")) if battle.timestep else tuple(found)


def state_width(battle: Battle) -> int:
    """S: the allies' and the enemies' features, and the last actions of the agents."""
    a, b = battle.num_allies, battle.num_enemies
    width = a * (4 + battle.has_shields(0) + battle.type_bits) + b * (3 + battle.has_shields(1) + battle.type_bits)
    width += b if battle.commanded else 0  # the enemies' cooldowns as well
    actions = sum(battle.counts(side)[0] * battle.num_actions(side) for side in battle.agent_sides)
    return width + actions + battle.timestep


def novel(battle: Battle, side: int) -> tuple[int, ...]:
    """Indices of the observation features that the global state does not contain."""
    found, at = [], 0
    for part in parts(battle, side):
        if part.name == "moves":
            found += range(at, at + part.size)
        elif part.name in ("enemies", "allies"):
            rows = range(at, at + part.size, part.shape[1])
            found += [row + feature for row in rows for feature in range(OBSERVER_FEATURES)]
        at += part.size
    return tuple(found)


def as_seen(battle: Battle, side: int, s: State) -> State:
    """The state with the positions that a side's agents see; a mirrored terrain is its own image."""
    axes = zip("xy", battle.axes(side), strict=True)
    return s._replace(**{axis: maps.SIDE - getattr(s, axis) for axis, mirrored in axes if mirrored})


def legal(battle: Battle, stats: Stats, side: int, s: State) -> Bool[Array, "P A E"]:
    """The legal actions: no-op of the dead alone; stop; moves onto walkable cells; attacks within range."""
    s = as_seen(battle, side, s)
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    own, other = half(stats, mine), half(stats, theirs)
    x, y, alive = s.x[mine], s.y[mine], s.health[mine] > 0.0
    steps = _steps(battle, x, y) & alive[:, None]
    reach = _range(battle, own)[:, None]
    near = distances(x, y, s.x[theirs], s.y[theirs]) <= reach
    shoot = near & (s.health[theirs] > 0.0)[None] & alive[:, None]
    count = battle.num_actions(side) - MOVES
    shoot = _padded(shoot, count)
    if battle.has_healers(side):
        friend = distances(x, y, x, y) <= reach
        treat = friend & alive[None] & alive[:, None] & (own.heals == 0.0)[None]
        shoot = jnp.where(own.heals[:, None] > 0.0, _padded(treat, count), shoot)
    else:
        del other
    waits = jnp.stack([~alive, alive], axis=1)
    return jnp.concatenate([waits, steps, shoot], axis=1)


def observations(
    battle: Battle, stats: Stats, side: int, s: State, able: Bool[Array, "P A E"]
) -> Float[Array, "P O E"]:
    """Of one side's agents, zero for the dead; ``able`` are their legal actions."""
    s = as_seen(battle, side, s)
    mine, theirs = battle.sides[side], battle.sides[1 - side]
    own, count = half(stats, mine), battle.counts(side)[0]
    alive = s.health[mine] > 0.0
    attackable = able[:, MOVES : MOVES + battle.counts(side)[1]]
    if battle.has_healers(side):  # a healer's actions are about its own side
        attackable = attackable & (own.heals == 0.0)[:, None]
    enemies = _seen(battle, own, s, mine, theirs, attackable, _looks(battle, stats, 1 - side, s))
    looks = _looks(battle, stats, side, s)
    shown = looks
    if battle.last_actions:
        shown = jnp.concatenate([looks, _acted(battle, side, s)], axis=1)
    friends = _seen(battle, own, s, mine, mine, None, shown)
    friends = _others(friends) if count > 1 else friends[:, :0]
    if battle.own_position:
        at = 1 + battle.has_shields(side)
        places = jnp.stack([s.x[mine], s.y[mine]], axis=1) / maps.SIDE
        looks = jnp.concatenate([looks[:, :at], places, looks[:, at:]], axis=1)
    parts = [able[:, 2:6].astype(jnp.float32), _flat(enemies), _flat(friends), looks]
    if battle.timestep:
        parts.append(jnp.broadcast_to(s.t / battle.limit, (count, 1, s.t.shape[0])))
    return jnp.where(alive[:, None], jnp.concatenate(parts, axis=1), 0.0)


def state(battle: Battle, stats: Stats, s: State) -> Float[Array, "S E"]:
    """The global state; the rows of the dead are zero."""
    parts = []
    for side in (0, 1):
        mine = battle.sides[side]
        own, alive = half(stats, mine), (s.health[mine] > 0.0)[:, None]
        looks = _looks(battle, stats, side, s)
        places = [(s.x[mine] - CENTRE) / maps.SIDE, (s.y[mine] - CENTRE) / maps.SIDE]
        if side in battle.agent_sides:
            ready = jnp.maximum(s.cooldown[mine], 0.0) / own.shown_cooldown
            if battle.has_healers(side):
                ready = jnp.where(own.heals > 0.0, s.energy[mine] / MAX_ENERGY, ready)
            places = [ready, *places]
        row = jnp.concatenate([looks[:, :1], jnp.stack(places, axis=1), looks[:, 1:]], axis=1)
        parts.append(jnp.where(alive, row, 0.0).reshape(-1, row.shape[-1]))
    parts += [_flat(_acted(battle, side, s)[None])[0] for side in battle.agent_sides]
    if battle.timestep:
        parts.append((s.t / battle.limit)[None])
    return jnp.concatenate(parts)


def _steps(battle: Battle, x: Array, y: Array) -> Bool[Array, "P 4 E"]:
    """Whether the cell half a move to the north, south, east and west is walkable."""
    ground, step = maps.walkable(battle.terrain), MOVE / 2.0
    ways = ((0.0, step), (0.0, -step), (step, 0.0), (-step, 0.0))
    return jnp.stack([motion.can_step(ground, x + dx, y + dy) for dx, dy in ways], axis=1)


def _range(battle: Battle, own: Stats) -> Array | np.ndarray:
    return jnp.maximum(own.legal_reach, LEAST_RANGE) if battle.own_ranges else np.full((1, 1), RANGE, np.float32)


def _sight(battle: Battle, own: Stats) -> Array | np.ndarray:
    return own.sight if battle.own_ranges else np.full((1, 1), SIGHT, np.float32)


def _padded(values: Bool[Array, "P K E"], count: int) -> Bool[Array, "P Q E"]:
    return jnp.pad(values, ((0, 0), (0, count - values.shape[1]), (0, 0)))


def _looks(battle: Battle, stats: Stats, side: int, s: State) -> Float[Array, "P F E"]:
    """What is seen of a side's units wherever they are: health, shield and type, as fractions."""
    mine = battle.sides[side]
    own = half(stats, mine)
    parts = [s.health[mine] / own.hit_points]
    if battle.has_shields(side):
        parts.append(s.shield[mine] / jnp.maximum(own.shield, 1.0))
    if battle.type_bits:
        parts += [(s.kind[mine] == index).astype(jnp.float32) for index in range(battle.type_bits)]
    return jnp.stack(parts, axis=1)


def _acted(battle: Battle, side: int, s: State) -> Float[Array, "P A E"]:
    """One-hot last actions of a side's agents; zero at the start of an episode."""
    mine = slice(0, battle.num_allies) if side == 0 else slice(battle.num_allies, None)
    actions = np.arange(battle.num_actions(side), dtype=np.int32)[:, None]
    return (s.action[mine][:, None] == actions).astype(jnp.float32)


def _seen(
    battle: Battle,
    own: Stats,
    s: State,
    mine: slice,
    theirs: slice,
    first: Bool[Array, "P Q E"] | None,
    shown: Float[Array, "Q F E"],
) -> Float[Array, "P Q G E"]:
    """Features of units as each agent sees them: (attackable or visible), distance, offsets and ``shown``."""
    sight = _sight(battle, own)[:, None]
    dx, dy = s.x[theirs][None] - s.x[mine][:, None], s.y[theirs][None] - s.y[mine][:, None]
    apart = jnp.sqrt(dx**2 + dy**2)
    visible = (apart < sight) & (s.health[theirs] > 0.0)[None]
    marked = visible if first is None else first
    relative = jnp.stack([marked.astype(jnp.float32), apart / sight, dx / sight, dy / sight], axis=2)
    features = jnp.broadcast_to(shown[None], (*relative.shape[:2], *shown.shape[1:]))
    return jnp.where(visible[:, :, None], jnp.concatenate([relative, features], axis=2), 0.0)


def _others(rows: Float[Array, "P P F E"]) -> Float[Array, "P M F E"]:
    """Row i without its own entry i; M = P - 1."""
    n = rows.shape[0]
    before = (np.arange(n - 1) < np.arange(n)[:, None])[:, :, None, None]
    return jnp.where(before, rows[:, :-1], rows[:, 1:])


def _flat(rows: Float[Array, "P Q F E"]) -> Float[Array, "P K E"]:
    return rows.reshape(rows.shape[0], -1, rows.shape[-1])
