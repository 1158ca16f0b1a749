"""SMAC's interface in plain loops over one table of units, in double precision: an oracle for ``skirmish/…``.

It shares no code with the package. The numbers are those of SMAC's source, its map archives and the game's data.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

CELLS, CENTRE, SIGHT, SHOOT, MOVE_AMOUNT = 32, 16, 9, 6, 2
WIN, DEATH, SCALE = 200, 10, 20


class Kind(NamedTuple):
    """What SMAC's interface reads of a type of units."""

    health: float
    shield: float
    max_cooldown: float
    """Of a medivac: its largest energy."""


KINDS = {
    "marine": Kind(45, 0, 15),
    "marauder": Kind(125, 0, 25),
    "medivac": Kind(150, 0, 200),
    "stalker": Kind(80, 80, 35),
    "zealot": Kind(100, 50, 22),
    "colossus": Kind(200, 150, 24),
    "zergling": Kind(35, 0, 11),
    "baneling": Kind(30, 0, 1),
    "hydralisk": Kind(80, 0, 10),
    "spine_crawler": Kind(300, 0, 15),
}

RANGES = {
    "marine": (5, 9),
    "marauder": (6, 10),
    "medivac": (4, 11),
    "stalker": (6, 10),
    "zealot": (2, 9),
    "colossus": (7, 10),
    "zergling": (2, 8),
    "baneling": (2, 8),
    "hydralisk": (5, 9),
}
"""SMACv2's ranges of attack, at least its ``min_attack_range`` of 2, and of sight."""

FREE: dict[str, list[tuple[range, range]]] = {
    "open": [(range(32), range(32))],
    "band": [(range(8, 24), range(32))],
    "octagon": [
        (range(6, 26), range(10, 22)),
        (range(8, 24), range(8, 24)),
        (range(10, 22), range(6, 26)),
    ],
    "corridor": [
        (range(2, 12), range(2, 12)),
        (range(12, 14), range(12, 14)),
        (range(14, 16), range(14, 26)),
        (range(16, 18), range(14, 28)),
        (range(18, 22), range(12, 30)),
        (range(22, 24), range(14, 30)),
        (range(24, 26), range(16, 30)),
        (range(26, 28), range(18, 30)),
        (range(28, 30), range(20, 30)),
        # The neck: the blocks of the archive touch at corners only.
        *[(range(y, y + 1), range(x, x + 1)) for x, y in ((11, 12), (12, 11), (13, 14), (14, 13))],
    ],
    "ravine": [
        (range(6, 8), range(4, 28)),
        (range(8, 10), range(2, 30)),
        (range(10, 12), range(32)),
        (range(12, 14), range(4)),
        (range(12, 14), range(28, 32)),
        (range(14, 16), range(32)),
        (range(16, 18), range(2, 30)),
        (range(18, 20), range(8, 24)),
    ],
}
"""Walkable cells: (rows y, columns x)."""


def army(text: str) -> tuple[str, ...]:
    """The types of ``2 stalker 3 zealot``, a unit each."""
    words = text.split()
    return tuple(kind for count, kind in zip(words[::2], words[1::2], strict=True) for _ in range(int(count)))


class Table(NamedTuple):
    """All units at one moment, allies first; the agents' last actions, -1 at the start; steps taken."""

    x: np.ndarray
    y: np.ndarray
    health: np.ndarray
    shield: np.ndarray
    energy: np.ndarray
    cooldown: np.ndarray
    action: np.ndarray
    t: int


@dataclass(frozen=True)
class Rules:
    """A map and its options."""

    allies: tuple[str, ...]
    enemies: tuple[str, ...]
    terrain: str
    limit: int
    last_actions: bool = False
    timestep: bool = False
    smac_reward: bool = False
    losses: bool = False
    """SMAC's ``reward_only_positive=False``."""
    sparse: bool = False
    """SMAC's ``reward_sparse``."""
    both: bool = False
    mirrored: str = ""
    """The axes, of "x" and "y", on which enemies that are agents see and walk the map's mirror image."""
    race: tuple[str, ...] = ()
    """SMACv2: the types that may be drawn. Each has its own ranges, and agents observe their positions."""

    @property
    def units(self) -> tuple[str, ...]:
        """All units, allies first."""
        return self.allies + self.enemies

    def army(self, side: int) -> range:
        """The units of a side."""
        return range(len(self.allies)) if side == 0 else range(len(self.allies), len(self.units))

    def sign(self, side: int, axis: str) -> int:
        """-1 if east is west (``x``), or north is south (``y``), for a side's agents."""
        return -1 if side == 1 and axis in self.mirrored else 1

    def free(self, x: float, y: float) -> bool:
        """Whether a point lies on a walkable cell of the map."""
        i, j = int(x), int(y)
        return 0 <= i < CELLS and 0 <= j < CELLS and any(j in ys and i in xs for ys, xs in FREE[self.terrain])

    def actions(self, side: int) -> int:
        """6 and one for each opponent; with healers one for each unit of their own at least."""
        own, others = len(self.army(side)), len(self.army(1 - side))
        healers = "medivac" in (self.race or [self.units[i] for i in self.army(side)])
        return 6 + (max(own, others) if healers else others)

    def ranges(self, i: int) -> tuple[int, int]:
        """How far a unit may attack, and how far it sees."""
        return RANGES[self.units[i]] if self.race else (SHOOT, SIGHT)

    def legal(self, now: Table, side: int) -> np.ndarray:
        """bool [agents, actions]."""
        rows = np.zeros((len(self.army(side)), self.actions(side)), bool)
        for row, i in zip(rows, self.army(side), strict=True):
            if now.health[i] <= 0:
                row[0] = True
                continue
            row[1], step = True, MOVE_AMOUNT / 2
            for action, (dx, dy) in enumerate(((0, step), (0, -step), (step, 0), (-step, 0)), 2):
                x, y = now.x[i] + self.sign(side, "x") * dx, now.y[i] + self.sign(side, "y") * dy
                # SMAC takes points less than a cell to the west or south of the map for its first cells.
                x, y = (CELLS - v if self.sign(side, axis) < 0 else v for v, axis in ((x, "x"), (y, "y")))
                row[action] = self.free(x, y)
            heals = self.units[i] == "medivac"
            for k, j in enumerate(self.army(side if heals else 1 - side)):
                possible = now.health[j] > 0 and not (heals and self.units[j] == "medivac")
                row[6 + k] = possible and _distance(now, i, j) <= self.ranges(i)[0]
        return rows

    def obs(self, now: Table, side: int) -> np.ndarray:
        """float64 [agents, O]."""
        legal, rows = self.legal(now, side), []
        for number, i in enumerate(self.army(side)):
            row = [float(flag) for flag in legal[number, 2:6]]
            for k, j in enumerate(self.army(1 - side)):
                attackable = self.units[i] != "medivac" and legal[number, 6 + k]
                row += self._seen(now, i, j, attackable)
            for j in self.army(side):
                if j == i:
                    continue
                seen = self._seen(now, i, j, True)
                acted = self._one_hot_action(now, j, side) if self.last_actions else []
                row += seen + (acted if any(seen) else [0.0] * len(acted))
            looks = self._looks(now, i)
            if self.race:
                types = len(looks) - len(self.race)
                at = [now.x[i] / CELLS, now.y[i] / CELLS]
                at = [1 - v if self.sign(side, axis) < 0 else v for v, axis in zip(at, "xy", strict=True)]
                looks = [*looks[:types], *at, *looks[types:]]
            row += looks
            if self.timestep:
                row.append(now.t / self.limit)
            rows.append([value if now.health[i] > 0 else 0.0 for value in row])
        return np.array(rows)

    def state(self, now: Table) -> np.ndarray:
        """float64 [S]."""
        row: list[float] = []
        for side in (0, 1):
            for i in self.army(side):
                kind, looks = KINDS[self.units[i]], self._looks(now, i)
                part = [looks[0]]
                if side == 0 or self.both:
                    ready = now.energy[i] if self.units[i] == "medivac" else max(now.cooldown[i], 0)
                    part.append(ready / kind.max_cooldown)
                part += [(now.x[i] - CENTRE) / CELLS, (now.y[i] - CENTRE) / CELLS, *looks[1:]]
                row += [value if now.health[i] > 0 else 0.0 for value in part]
        for side in (0, 1) if self.both else (0,):
            for i in self.army(side):
                row += self._one_hot_action(now, i, side)
        return np.array(row + [now.t / self.limit] * self.timestep)

    def won(self, now: Table, side: int) -> bool:
        """Whether a side has won: no opponent but medivacs lives, and one of its own but medivacs does."""
        fighters = [[i for i in self.army(k) if now.health[i] > 0 and self.units[i] != "medivac"] for k in (0, 1)]
        return len(fighters[side]) > 0 and not fighters[1 - side]

    def over(self, now: Table) -> bool:
        """Whether a side has no fighter left."""
        return any(not any(now.health[i] > 0 and self.units[i] != "medivac" for i in self.army(k)) for k in (0, 1))

    def largest(self, side: int) -> float:
        """R: hit points and shields of all opponents, 10 for each, and 200."""
        kinds = [KINDS[self.units[i]] for i in self.army(1 - side)]
        return sum(kind.health + kind.shield + DEATH for kind in kinds) + WIN

    def end_code(self, now: Table, side: int) -> int:
        """SMAC's ``update_units``: 1 for a victory, -1 for a defeat."""
        alive = [sum(now.health[i] > 0 for i in self.army(k)) for k in (side, 1 - side)]
        fight = [sum(now.health[i] > 0 and self.units[i] != "medivac" for i in self.army(k)) for k in (side, 1 - side)]
        medivacs = "medivac" in self.units
        if (not alive[0] and alive[1]) or (medivacs and not fight[0]):
            return -1
        return int((alive[0] and not alive[1]) or (medivacs and not fight[1]))

    def reward(self, before: Table, now: Table, side: int) -> float:
        """The team's reward of a step."""
        if self.sparse:
            return self.end_code(now, side) * SCALE / self.largest(side)
        lost = [0.0, 0.0]
        for k in (0, 1):
            for i in self.army(k):
                if before.health[i] > 0:
                    lost[k] += before.health[i] + before.shield[i] - now.health[i] - now.shield[i]
                    lost[k] += DEATH if now.health[i] <= 0 else 0
        delta = lost[1 - side]
        if self.losses:
            delta -= lost[side] / 2
        else:
            delta = abs(delta) if self.smac_reward else max(delta, 0.0)
        return (delta + WIN * self.won(now, side)) * SCALE / self.largest(side)

    def _seen(self, now: Table, i: int, j: int, marked: bool) -> list[float]:
        looks, distance, sight = self._looks(now, j), _distance(now, i, j), self.ranges(i)[1]
        if distance >= sight or now.health[j] <= 0:
            return [0.0] * (4 + len(looks))
        side = int(i >= len(self.allies))
        dx, dy = self.sign(side, "x") * (now.x[j] - now.x[i]), self.sign(side, "y") * (now.y[j] - now.y[i])
        return [float(marked), distance / sight, dx / sight, dy / sight, *looks]

    def _looks(self, now: Table, i: int) -> list[float]:
        """Hit points, shield if there are any on that side, and type if there are several on a side."""
        kind, side = KINDS[self.units[i]], int(i >= len(self.allies))
        part = [now.health[i] / kind.health]
        if any(KINDS[other].shield for other in self.race or [self.units[j] for j in self.army(side)]):
            part.append(now.shield[i] / kind.shield if kind.shield else 0.0)
        types = self.race or tuple(dict.fromkeys(self.units))
        if self.race or len(set(self.allies)) > 1 or len(set(self.enemies)) > 1:
            part += [float(self.units[i] == other) for other in types]
        return part

    def _one_hot_action(self, now: Table, i: int, side: int) -> list[float]:
        return [float(now.action[i] == action) for action in range(self.actions(side))]


def _distance(now: Table, i: int, j: int) -> float:
    return math.hypot(now.x[i] - now.x[j], now.y[i] - now.y[j])
