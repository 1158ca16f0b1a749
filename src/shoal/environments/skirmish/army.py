"""The properties of all units of a battle as arrays, and the state of a battle.

Inside the engine arrays are [U, E]: units first, allies before enemies, and environments on the last axis, where a
processor's vector instructions work. Positions are two arrays x and y. The state that rollouts keep is [E, U].
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from shoal.environments.skirmish.units import TICKS_PER_SECOND, Unit

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
    explosion."""
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
