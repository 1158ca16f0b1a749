"""Duels and free movement in ``skirmish`` with SMAClite's constants, and in SMAClite itself.

``duels.json`` holds what SMAClite (Michalski, Christianos and Albrecht 2023, commit 0d6abbe) gives; where it can be
imported, ``python tests/support/skirmish_duels.py`` measures it again.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.environments.skirmish import engine
from shoal.environments.skirmish.battle import EAST, MOVES, NORTH, SOUTH, STOP, WEST, Battle, begun
from shoal.environments.skirmish.units import TICKS_PER_SECOND, UNITS, Unit

FILE = Path(__file__).with_name("skirmish_duels.json")
STEPS = 40
CHANGES: dict[str, dict[str, Any]] = {
    "marine": {"speed": 3.15, "cooldown": 0.61},
    "marauder": {"speed": 3.15, "cooldown": 1.07, "separation": None},
    "medivac": {"speed": 3.5, "acceleration": 0.0},
    "stalker": {"speed": 4.13, "cooldown": 1.34, "damage": 13.0, "armoured_bonus": 5.0},
    "zealot": {"speed": 3.15, "cooldown": 0.86},
    "colossus": {"speed": 3.15, "cooldown": 1.07, "damage": 10.0, "light_bonus": 5.0, "reach": 7.0},
    "zergling": {"speed": 4.13, "cooldown": 0.497, "regeneration": 0.38},
    "baneling": {"speed": 3.15, "cooldown": 1.0, "damage": 80.0, "light_bonus": 0.0, "regeneration": 0.38},
    "spine_crawler": {"cooldown": 1.32, "radius": 0.5, "regeneration": 0.38},
}
"""SMAClite's constants where they are not those of ``skirmish``."""
NAMES = tuple(CHANGES)
WAY = (EAST, EAST, NORTH, NORTH, NORTH, STOP, WEST, SOUTH, EAST, SOUTH, WEST, WEST, NORTH, STOP)
"""Actions of the units that move freely."""


class Pair(NamedTuple):
    """One ally against one enemy, which attack-moves to the ally's start."""

    ally: str
    enemy: str
    does: str
    """The ally "attacks", "stops", or goes the way "freely", far from the enemy."""

    @property
    def places(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where both start."""
        return ((10.0, 10.0), (29.0, 29.0)) if self.does == "freely" else ((12.0, 16.0), (16.4, 17.0))

    def actions(self) -> list[int]:
        """The ally's action in each step."""
        if self.does == "freely":
            return [*WAY, *[STOP] * (STEPS - len(WAY))]
        return [MOVES if self.does == "attacks" else STOP] * STEPS


def _pairs() -> tuple[Pair, ...]:
    """All in which the ally can do so; a marauder cannot hit a medivac."""
    walkers, fighters = ([name for name in NAMES if name != other] for other in ("spine_crawler", "medivac"))
    duels = [Pair(*each) for each in product(walkers, fighters, ("attacks", "stops"))]
    ground = [pair for pair in duels if pair.ally != "medivac"]
    air = [Pair("medivac", enemy, "stops") for enemy in ("marine", "stalker")]
    return (*ground, *air, *(Pair(name, "spine_crawler", "freely") for name in walkers))


PAIRS = _pairs()


def unit(name: str) -> Unit:
    """A type with SMAClite's constants. It counts cooldowns in whole ticks, rounded up, and so does this one."""
    changed = replace(UNITS[name], **CHANGES[name])
    return replace(changed, cooldown=float(np.ceil(changed.cooldown * TICKS_PER_SECOND)) / TICKS_PER_SECOND)


def ours(pairs: Sequence[Pair] = PAIRS) -> np.ndarray:
    """[P, T + 1, 2, 4]: x, y, hit points and shield of the ally and the enemy at each step, in one program."""
    battle = Battle(tuple(map(unit, NAMES)), None, 1, 1, "open", limit=2 * STEPS, delay_noise=False)
    kind = jnp.array([[NAMES.index(pair.ally), NAMES.index(pair.enemy)] for pair in pairs])
    places = jnp.array([pair.places for pair in pairs])
    state = begun(battle, places[..., 0], places[..., 1], kind, places[:, 0])
    state = jax.tree.map(lambda v: jnp.moveaxis(jnp.asarray(v), 0, -1), state)
    actions = jnp.array([pair.actions() for pair in pairs]).T[:, None]

    def step(s: Any, action: Any) -> tuple[Any, Any]:
        s = engine.advance_battle(battle, jax.random.key(0), s, [action])
        return s, s

    played = jax.jit(lambda s: jax.lax.scan(step, s, actions)[1])(state)
    columns = [
        np.concatenate([np.asarray(getattr(state, name))[None], np.asarray(getattr(played, name))])
        for name in ("x", "y", "health", "shield")
    ]
    return np.stack(columns, -1).transpose(2, 0, 1, 3)


def theirs(pair: Pair) -> list[list[list[float]]]:
    """[t + 1, 2, 4]: the same in SMAClite, until one of them is dead or the way ends."""
    env = _smaclite(pair)
    ally, enemy = env.agents[0], env.enemies[0]  # the environment forgets the dead
    rows = [_row(ally, enemy)]
    for action in pair.actions()[: len(WAY) if pair.does == "freely" else STEPS]:
        env.step([action])
        rows.append(_row(ally, enemy))
        if ally.hp == 0 or enemy.hp == 0:
            break
    return rows


def _row(*units: Any) -> list[list[float]]:
    return [[round(float(v), 3) for v in (*each.pos, each.hp, each.shield)] for each in units]


def _smaclite(pair: Pair) -> Any:
    """SMAClite with one unit on each side, on open ground."""
    from smaclite.env.maps.map import Group, MapInfo  # pyright: ignore[reportMissingImports]
    from smaclite.env.smaclite import SMACliteEnv  # pyright: ignore[reportMissingImports]
    from smaclite.env.terrain.terrain import TERRAIN_PRESETS  # pyright: ignore[reportMissingImports]
    from smaclite.env.units.unit_type import UnitType  # pyright: ignore[reportMissingImports]
    from smaclite.env.util.faction import Faction  # pyright: ignore[reportMissingImports]

    armies = [(Faction.ALLY, pair.ally, pair.places[0]), (Faction.ENEMY, pair.enemy, pair.places[1])]
    kinds = {name: UnitType.from_str(name.upper(), ".") for name in pair[:2]}
    shields = [UNITS[name].shield > 0.0 for name in pair[:2]]
    groups = [Group(*at, faction, [(kinds[name], 1)]) for faction, name, at in armies]
    ground = TERRAIN_PRESETS["ALL_GREEN"].value
    ids = {kind: i for i, kind in enumerate(kinds.values())}
    env = SMACliteEnv(
        MapInfo(
            str(pair), 1, 1, groups, pair.places[0], ground, *shields, num_unit_types=len(kinds), unit_type_ids=ids
        ),
        seed=0,
    )
    env.reset()
    return env


if __name__ == "__main__":
    measured = [json.dumps([*pair, theirs(pair)], separators=(",", ":")) for pair in PAIRS]
    FILE.write_text("[\n" + ",\n".join(measured) + "\n]\n")
