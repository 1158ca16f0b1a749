"""The state of a battle as arrays, the properties of its units, and the static description that all parts share.

Inside the engine arrays are [U, E]: units first, allies before enemies, and environments on the last axis, where a
processor's vector instructions work. Positions are two arrays x and y. The state that rollouts keep is [E, U].
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.skirmish.units import ENERGY, MULTIPLAYER, TICKS_PER_SECOND, Unit

Number = Float[Array, "U E"] | np.ndarray
"""A property of each unit: [U, 1] if it is the same in every episode."""


class State(NamedTuple):
    """A battle. In the engine the axis of environments is the last one, in rollouts the first."""

    x: Float[Array, "E U"]
    y: Float[Array, "E U"]
    health: Float[Array, "E U"]
    """Hit points; 0 if the unit is dead."""
    shield: Float[Array, "E U"]
    energy: Float[Array, "E U"]
    """Of healers."""
    cooldown: Float[Array, "E U"]
    """Ticks until the weapon is ready. Of a healer: 1 while it heals. Of a unit that explodes: -1 from its death to its
    explosion, within a step."""
    pace: Float[Array, "E U"]
    """Present speed, in cells per tick, of units that accelerate; 0 for all others."""
    calm: Float[Array, "E U"]
    """Ticks since the last damage; of the dead, since their end."""
    target: Int[Array, "E U"]
    """Index within the opposing army (of healers: within their own army) of the unit that is attacked or approached; -1
    for none."""
    turn: Float[Array, "E U"]
    """Tangent of half the angle by which the unit turns from its straight way, to the left if it is positive, to pass
    others; beyond those of angles that are walked, it had no way on that side."""
    shot: Int[Array, "E U"]
    """The same for the attack that was made during the last step; -1 for none."""
    action: Int[Array, "E N"]
    """The agents' last actions; -1 at the start."""
    goal: Float[Array, "E 2"]
    """What the enemies attack-move to."""
    kind: Int[Array, "E U"]
    """Index of each unit's type among the battle's types."""
    t: Int[Array, " E"]
    """Steps taken."""


class Stats(NamedTuple):
    """Properties of units; times in ticks, flags 0 or 1."""

    hit_points: Number
    shield: Number
    armour: Number
    light: Number
    armoured: Number
    biological: Number
    speed: Number
    """Cells per tick."""
    acceleration: Number
    """Cells per tick, in a tick; 0: the unit reaches its speed at once."""
    radius: Number
    body: Number
    damage: Number
    hits: Number
    light_bonus: Number
    armoured_bonus: Number
    reach: Number
    legal_reach: Number
    scan: Number
    """At least ``reach``."""
    cooldown: Number
    shown_cooldown: Number
    hits_air: Number
    shoots: Number
    beams: Number
    explodes: Number
    heals: Number
    flies: Number
    climbs: Number
    regeneration: Number
    """Hit points per tick."""
    blast: Number
    beam_length: Number
    beam_width: Number
    sight: Number


def stats_of(units: Sequence[Unit]) -> Stats:
    """The properties of units, leaves float32 [U, 1]."""

    def column(values: Sequence[float | int | bool]) -> np.ndarray:
        return np.array(values, np.float32)[:, None]

    second = TICKS_PER_SECOND
    return Stats(
        hit_points=column([u.hit_points for u in units]),
        shield=column([u.shield for u in units]),
        armour=column([u.armour for u in units]),
        light=column([u.light for u in units]),
        armoured=column([u.armoured for u in units]),
        biological=column([u.biological for u in units]),
        speed=column([u.speed / second for u in units]),
        acceleration=column([u.acceleration / second**2 for u in units]),
        radius=column([u.radius for u in units]),
        body=column([u.body for u in units]),
        damage=column([u.damage for u in units]),
        hits=column([u.hits for u in units]),
        light_bonus=column([u.light_bonus for u in units]),
        armoured_bonus=column([u.armoured_bonus for u in units]),
        reach=column([u.reach for u in units]),
        legal_reach=column([u.reach if u.legal_reach is None else u.legal_reach for u in units]),
        scan=column([max(u.scan, u.reach) for u in units]),
        cooldown=column([u.cooldown * second for u in units]),
        shown_cooldown=column([u.shown_cooldown for u in units]),
        hits_air=column([u.hits_air for u in units]),
        shoots=column([u.attack == "shot" for u in units]),
        beams=column([u.attack == "beam" for u in units]),
        explodes=column([u.attack == "explosion" for u in units]),
        heals=column([u.heals for u in units]),
        flies=column([u.flies for u in units]),
        climbs=column([u.climbs for u in units]),
        regeneration=column([u.regeneration / second for u in units]),
        blast=column([u.blast for u in units]),
        beam_length=column([u.beam[0] for u in units]),
        beam_width=column([u.beam[1] for u in units]),
        sight=column([u.sight for u in units]),
    )


def stats_by_kind(types: Sequence[Unit], kind: Int[Array, "U E"]) -> Stats:
    """The properties of units whose types are drawn, leaves [U, E]; a property that all types share stays [1, 1]."""
    table = stats_of(types)

    def chosen(values: Number) -> Number:
        values = np.asarray(values)
        if (values == values[0]).all():
            return values[:1]
        found = jnp.full(kind.shape, values[0, 0])
        for index, value in enumerate(values[1:, 0], 1):
            found = jnp.where(kind == index, value, found)
        return found

    return Stats(*map(chosen, table))


MOVES = 6
"""Actions before the first attack: no-op, stop, north, south, east, west."""
NO_OP, STOP, NORTH, SOUTH, EAST, WEST = range(MOVES)


@dataclass(frozen=True)
class Battle:
    """Two armies and the rules of their battle; hashable."""

    types: tuple[Unit, ...]
    """The types of units that may occur, in the order of the one-hot types in observations."""
    units: tuple[Unit, ...] | None
    """The type of each unit, allies first; None if types are drawn for every episode."""
    num_allies: int
    num_enemies: int
    terrain: str
    limit: int
    marches: bool = True
    """Enemies without a target walk to the goal; otherwise they stay where they are."""
    hunts: bool = False
    """The enemies attack the nearest ally wherever it is."""
    ordered: bool = False
    """The script of SMACv2's map: an enemy without a target is ordered, as a step begins, to attack the ally nearest to
    it at any distance, and keeps a target until it dies. Its healers stay where they are but for patients nearby."""
    commanded: bool = False
    """The enemies are agents as well."""
    mirrored: tuple[bool, bool] = (False, False)
    """Whether the x and the y axis of the map are mirrored where enemies that are agents observe and move."""
    every_tick: bool = True
    """Units that attack-move look for targets at every tick instead of once in each step."""
    provoked_scan: float = 9.0
    """Least distance, from edge to edge, within which a unit that was hurt a short time ago looks for targets."""
    in_turn: bool = False
    """The units of a tick attack one after the other, in an order drawn anew, instead of all at once."""
    delay_noise: bool = True
    leash: float = 0.0
    """Distance, from edge to edge, within which a unit keeps a target that it chases while no other one is in reach of
    its scan."""
    smac_reward: bool = False
    """The absolute value of the damage is paid."""
    losses: bool = False
    """Half of what the own side loses is subtracted, and rewards may be negative."""
    sparse: bool = False
    """Only victory and defeat are paid: 1 and -1, before scaling."""
    zero_sum: bool = False
    """What the other side earns is subtracted."""
    limit_terminates: bool = False
    last_actions: bool = False
    timestep: bool = False
    own_ranges: bool = False
    """SMACv2's rules: each type's own sight, and its own range of attack, but at least 2."""
    own_position: bool = False
    """Agents observe their own position (SMACv2's configurations)."""
    show_types: bool = True
    """Observations hold types; SMAC leaves them out if all allies are of one type."""

    @property
    def num_units(self) -> int:
        """U."""
        return self.num_allies + self.num_enemies

    @property
    def sides(self) -> tuple[slice, slice]:
        """The allies and the enemies among the units."""
        return slice(0, self.num_allies), slice(self.num_allies, self.num_units)

    @property
    def agent_sides(self) -> tuple[int, ...]:
        """The sides, 0 or 1, that agents play."""
        return (0, 1) if self.commanded else (0,)

    def axes(self, side: int) -> tuple[bool, bool]:
        """Whether the x and the y axis are mirrored for a side's agents."""
        return self.mirrored if side == 1 else (False, False)

    def counts(self, side: int) -> tuple[int, int]:
        """The numbers of units of a side and of its opponents."""
        own, others = self.num_allies, self.num_enemies
        return (own, others) if side == 0 else (others, own)

    def num_actions(self, side: int) -> int:
        """The number of actions of a side's agents: one for each opponent, or for each unit that may be healed."""
        own, others = self.counts(side)
        return MOVES + max(others, own if self.has_healers(side) else 0)

    def of_side(self, side: int) -> tuple[Unit, ...]:
        """The types that may occur on a side."""
        return self.types if self.units is None else self.units[self.sides[side]]

    def has_healers(self, side: int) -> bool:
        """Whether a side may have units that heal."""
        return any(unit.heals for unit in self.of_side(side))

    def has_shields(self, side: int) -> bool:
        """Whether observations show a side's shields."""
        return any(unit.shield for unit in self.of_side(side))

    @property
    def type_bits(self) -> int:
        """The width of one-hot types in observations."""
        return len(self.types) if self.show_types else 0

    def stats(self, kind: Int[Array, "U E"]) -> Stats:
        """The properties of all units."""
        return stats_by_kind(self.types, kind) if self.units is None else _fixed(self.units)

    def rows(self, side: int, having: str) -> np.ndarray:
        """Indices within a side of the units of which a flag of :class:`Stats` may be true."""
        own = self.counts(side)[0]
        if self.units is None:
            return np.arange(own if getattr(stats_of(self.types), having).any() else 0)
        return np.flatnonzero(getattr(_fixed(self.units), having)[self.sides[side], 0])


def multiplayer(battle: Battle) -> Battle:
    """The same battle with the weapons of multiplayer games."""

    def armed(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        return tuple(replace(unit, **MULTIPLAYER.get(unit.name, {})) for unit in units)

    return replace(battle, types=armed(battle.types), units=None if battle.units is None else armed(battle.units))


@functools.cache
def _fixed(units: tuple[Unit, ...]) -> Stats:
    return stats_of(units)


def half(stats: Stats, rows: slice | np.ndarray) -> Stats:
    """The properties of some units; those shared by all stay [1, 1]."""
    return Stats(*(values if values.shape[0] == 1 else values[rows] for values in stats))


Start = Callable[[PRNGKeyArray, int], State]
"""(key, E) -> states at the start of episodes, leaves [E, ...]."""
LONG_AGO = 1e4
"""Ticks since the last damage at the start: shields are full and no unit is provoked."""


def begun(battle: Battle, x: Array, y: Array, kind: Array, goal: Array) -> State:
    """States at the start of episodes: all units alive, unhurt and ready.

    Args:
        battle: the battle.
        x: Float[E, U].
        y: Float[E, U].
        kind: Int[E, U].
        goal: Float[E, 2].
    """
    stats = battle.stats(kind.T)
    count, units = x.shape
    agents = sum(battle.counts(side)[0] for side in battle.agent_sides)
    zeros = jnp.zeros((count, units))

    def of_each(values: Array | np.ndarray) -> Array:
        return jnp.broadcast_to(jnp.asarray(values, jnp.float32).T, (count, units))

    return State(
        x=x.astype(jnp.float32),
        y=y.astype(jnp.float32),
        health=of_each(stats.hit_points),
        shield=of_each(stats.shield),
        energy=of_each(stats.heals * ENERGY),
        cooldown=zeros,
        pace=zeros,
        calm=jnp.full((count, units), LONG_AGO),
        target=jnp.full((count, units), -1, jnp.int32),
        turn=zeros,
        shot=jnp.full((count, units), -1, jnp.int32),
        action=jnp.full((count, agents), -1, jnp.int32),
        goal=goal.astype(jnp.float32),
        kind=kind.astype(jnp.int32),
        t=jnp.zeros(count, jnp.int32),
    )
