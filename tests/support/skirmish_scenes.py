"""Scenes with one unit of each type in two armies under command, which share one compiled program.

In a scene only the named units live; all the dead lie in the middle of an open field, where they must not matter.
"""

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.environments.skirmish.battle import State
from shoal.environments.skirmish.maps import Group, Map
from shoal.environments.skirmish.tasks import make
from shoal.types import Step


class Facts(NamedTuple):
    """A type of units, in the game's normal seconds of 16 ticks."""

    health: float
    shield: float
    armour: float
    attributes: str
    speed: float
    radius: float
    damage: float
    hits: int
    bonus: dict[str, float]
    reach: float
    cooldown: float
    air: bool = False
    regeneration: float = 0.0


MOVE_ORDERS = ("north", "south", "east", "west")
ZERG = 0.2734
FACTS = {
    "marine": Facts(45, 0, 0, "light biological", 2.25, 0.375, 6, 1, {}, 5, 0.8608, True),
    "marauder": Facts(125, 0, 1, "armoured biological", 2.25, 0.5625, 10, 1, {"armoured": 10}, 6, 1.5),
    "medivac": Facts(150, 0, 1, "armoured flying", 2.75, 0.75, 0, 0, {}, 4, 0),
    "stalker": Facts(80, 80, 1, "armoured", 2.9531, 0.625, 10, 1, {"armoured": 4}, 6, 1.44, True),
    "zealot": Facts(100, 50, 1, "light biological", 2.25, 0.5, 8, 2, {}, 0.1, 1.2),
    "colossus": Facts(200, 150, 1, "armoured", 2.25, 1.0, 20, 2, {}, 6, 2.2),
    "zergling": Facts(35, 0, 0, "light biological", 2.9531, 0.375, 5, 1, {}, 0.1, 0.696, False, ZERG),
    "baneling": Facts(30, 0, 0, "biological", 2.5, 0.375, 20, 1, {"light": 15}, 0.25, 0, False, ZERG),
    "hydralisk": Facts(80, 0, 0, "light biological", 2.25, 0.625, 12, 1, {}, 5, 0.83, True, ZERG),
    "spine_crawler": Facts(300, 0, 2, "armoured biological", 0, 0.875, 25, 1, {"armoured": 5}, 7, 1.6, False, ZERG),
}
"""SMAC's map archives and the game's data."""
NAMES = tuple(FACTS)
UNITS = (*NAMES, *(f"enemy {name}" for name in NAMES))
STEPS, TICKS = 44, 8
PART = 4
"""Steps that one call of the program plays."""
SIZES = (12, 96)
"""Numbers of scenes that programs are compiled for."""


@dataclass(frozen=True)
class Scene:
    """Where units stand (the others are dead), what they are ordered, and fields of their state that differ."""

    at: dict[str, tuple[float, float]]
    orders: dict[str, str | list[str]] = field(default_factory=dict)
    """``stop`` if absent; ``north`` …; ``attack``, ``heal`` and a type; a list: one for each step, the last goes on."""
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    """(unit, field of :class:`State`) -> value at the start."""


class Played(NamedTuple):
    """A scene's states, [steps + 1] first, and outcomes [steps]."""

    state: State
    outcome: Step

    def of(self, unit: str, name: str) -> np.ndarray:
        """A field of one unit after each step; the start first."""
        return getattr(self.state, name)[:, UNITS.index(unit)]

    def path(self, unit: str) -> np.ndarray:
        """[STEPS + 1, 2]."""
        return np.stack([self.of(unit, "x"), self.of(unit, "y")], 1)


def action_of(unit: str, order: str) -> int:
    """The number of an order."""
    words = order.split()
    if words[0] in ("attack", "heal"):
        return 6 + NAMES.index(words[1])
    return ("dead", "stop", *MOVE_ORDERS).index(order)


@functools.cache
def program() -> Any:
    """(the start, a compiled (states, actions [PART, E, N]) -> states and outcomes)."""
    groups = tuple(Group(name, 1, (16.0, 16.0)) for name in NAMES)
    env = make(Map("zoo", groups, groups, 9999, "open", None), both=True, delay_noise=False)
    batched = env.batched
    assert batched is not None

    @jax.jit
    def run(state: State, actions: jax.Array) -> tuple[State, Step]:
        def body(state: State, action: jax.Array) -> Any:
            state, outcome = batched.step(jax.random.key(0), state, action)
            return state, (state, outcome)

        return jax.lax.scan(body, state, actions)[1]

    return jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 1)[0], run


def play(scenes: list[Scene], steps: int = STEPS) -> list[Played]:
    """Play scenes side by side, for a multiple of :data:`PART` steps."""
    start, run = program()
    count = min(size for size in SIZES if size >= len(scenes))
    fields: dict[str, Any] = {name: np.repeat(np.array(value), count, 0) for name, value in start._asdict().items()}
    fields["x"][:], fields["y"][:] = 16.0, 16.0
    actions = np.ones((steps, count, len(UNITS)), np.int32)
    for e, scene in enumerate(scenes):
        for i, unit in enumerate(UNITS):
            if unit in scene.at:
                fields["x"][e, i], fields["y"][e, i] = scene.at[unit]
            else:
                fields["health"][e, i] = fields["shield"][e, i] = fields["energy"][e, i] = 0.0
        for (unit, name), value in scene.values.items():
            fields[name][e, UNITS.index(unit)] = value
        for unit, order in scene.orders.items():
            each = [order] if isinstance(order, str) else order
            for t in range(steps):
                actions[t, e, UNITS.index(unit)] = action_of(unit, each[min(t, len(each) - 1)])
    state, parts = State(**fields), []
    for t in range(0, steps, PART):
        parts.append(jax.device_get(run(state, actions[t : t + PART])))
        state = jax.tree.map(lambda x: x[-1], parts[-1][0])
    states, outcomes = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    whole = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), State(**fields), states)
    return [jax.tree.map(lambda x, e=e: x[:, e], Played(whole, outcomes)) for e in range(len(scenes))]


def beside(attacker: str, victim: str, part: float = 0.5) -> tuple[float, float]:
    """Where a victim stands east of an attacker at (10, 10), at a part of its reach from edge to edge."""
    return 10.0 + FACTS[attacker].radius + FACTS[victim].radius + part * FACTS[attacker].reach, 10.0


def shots(cooldown: float) -> list[int]:
    """The ticks of a weapon's shots that starts ready, over all steps; the time between them is kept in float32."""
    ticks = [int(k * float(np.float32(cooldown * 16))) for k in range(STEPS * TICKS)] if cooldown else [0]
    return [tick for tick in ticks if tick < STEPS * TICKS]


def strength(attacker: str, victim: str) -> float:
    """Of one hit, before armour; 0 if the weapon cannot hit it."""
    own, other = FACTS[attacker], FACTS[victim]
    if "flying" in other.attributes and not own.air:
        return 0.0
    return own.damage + sum(extra for word, extra in own.bonus.items() if word in other.attributes)


def struck(health: float, shield: float, armour: float, damage: float, hits: int) -> tuple[float, float]:
    """Hit points and shield after hits, one after another."""
    for _ in range(hits):
        absorbed = min(shield, damage)
        shield, through = shield - absorbed, damage - absorbed
        health -= max(through - armour, 0.5) if through > 0 else 0.0
    return max(health, 0.0), shield
