"""The static description of a battle that its parts share."""

import functools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Array, Int

from shoal.environments.skirmish.army import Stats, stats_by_kind, stats_of
from shoal.environments.skirmish.units import MULTIPLAYER, Unit

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
    smac_reward: bool = False
    """The absolute value of the damage is paid."""
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
