"""The types of units, in the units of StarCraft II's *normal* game second: 16 ticks, two steps of SMAC.

All numbers are of the base game as SMAC's maps load it. Hit points, shields, speeds, radii, sight and regeneration are
those of the unit catalogue in SMAC's map archives (oxwhirl/smac, ``smac/env/starcraft2/maps/SMAC_Maps``) and, where it
names none, such as the enemy's spine crawler and the collision radii of hydralisk and marauder, those of the game. The
archives have no weapons of their own and name ``Liberty.SC2Mod`` as their only dependency, so weapons are those of
``core.sc2mod`` and ``liberty.sc2mod``: ``WeaponData.xml`` and ``EffectData.xml`` in SC2Mapster/SC2GameData, branch
``sc2/4.10.0.75689-linux``, the same in 4.6.2.69232. Weapons of the multiplayer mods, which lists of units such as
BurnySc2/sc2-techtree have, are in ``MULTIPLAYER``. docs/skirmish.md lists what is the same as in StarCraft II, what is
approximated and what is unknown.
"""

from dataclasses import dataclass
from typing import Literal

TICKS_PER_SECOND = 16
"""Game loops of a normal second."""
SHIELD_DELAY, SHIELD_REGENERATION = 10.0, 2.0
"""Seconds without damage after which shields regenerate, and shield points per second."""
ENERGY, MAX_ENERGY, ENERGY_REGENERATION = 50.0, 200.0, 0.5625
"""A healer's energy at the start, its largest, and what it gains per second."""
HEALING, HIT_POINTS_PER_ENERGY, LEAST_ENERGY = 9.0, 3.0, 5.0
"""Hit points healed per second, hit points for one energy, and the energy that is needed to begin."""
LEAST_DAMAGE = 0.5
"""Of one hit, after armour."""
HEALING_SCAN = 6.0
"""Distance, from edge to edge, within which a healer without orders looks for patients."""
SCAN = 5.0
"""``MinScanRange`` of weapons without another: the least distance within which attack-moving units look for targets."""


@dataclass(frozen=True)
class Unit:
    """One type of units, with its letter in pictures. Lengths are cells of the map, times are normal seconds."""

    name: str
    letter: str
    race: Literal["terran", "protoss", "zerg"]
    hit_points: float
    shield: float = 0.0
    armour: float = 0.0
    """Subtracted from each hit on hit points, not on shields."""
    light: bool = False
    armoured: bool = False
    biological: bool = False
    speed: float = 0.0
    """Cells per second."""
    acceleration: float = 0.0
    """Cells per second, in a second; 0: the unit reaches its speed at once (the game has 1000 for all but the medivac).
    Units stop and turn at once: the game's default deceleration is not known."""
    radius: float = 0.375
    """Ranges are measured from edge to edge."""
    separation: float | None = None
    """Radius for collisions; None: ``radius``."""
    sight: float = 9.0
    """The game's sight, which only SMACv2's rules use."""
    damage: float = 0.0
    """Of each of the hits of an attack."""
    hits: int = 1
    light_bonus: float = 0.0  # of each hit on such a unit
    armoured_bonus: float = 0.0
    reach: float = 0.0
    """Range of the weapon, or of healing, from edge to edge."""
    legal_reach: float | None = None
    """Distance between centres within which SMACv2's rules let it attack, if it is not ``reach``."""
    scan: float = SCAN
    """Distance, from edge to edge, within which it looks for targets if it attack-moves; ``reach`` if that is more."""
    cooldown: float = 0.0
    """Seconds between attacks."""
    shown_cooldown: float = 1.0
    """SMAC's ``max_cooldown`` of the type, in ticks, which scales the cooldown in the state."""
    hits_air: bool = False
    attack: Literal["shot", "beam", "explosion", "heal"] = "shot"
    beam: tuple[float, float] = (0.0, 0.0)
    """Length across the line of fire, and width along it, of a beam centred on its target."""
    blast: float = 0.0
    """Radius of an explosion around the unit; units whose centre lies within are hit. It also explodes when killed."""
    flies: bool = False
    climbs: bool = False
    """Steps over cliffs; collides with climbing and flying units only."""
    regeneration: float = 0.0
    """Hit points per second."""

    @property
    def body(self) -> float:
        """Radius for collisions."""
        return self.radius if self.separation is None else self.separation

    @property
    def heals(self) -> bool:
        """Whether it heals instead of attacking."""
        return self.attack == "heal"


ZERG = 0.2734
"""Hit points that units of the zerg regenerate per second."""
UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "marine",
            "m",
            "terran",
            45.0,
            light=True,
            biological=True,
            speed=2.25,
            damage=6.0,
            reach=5.0,
            cooldown=0.8608,
            shown_cooldown=15.0,
            hits_air=True,
        ),
        Unit(
            "marauder",
            "M",
            "terran",
            125.0,
            armour=1.0,
            armoured=True,
            biological=True,
            speed=2.25,
            radius=0.5625,
            separation=0.5,
            sight=10.0,
            damage=10.0,
            armoured_bonus=10.0,
            reach=6.0,
            cooldown=1.5,
            shown_cooldown=25.0,
        ),
        Unit(
            "medivac",
            "v",
            "terran",
            150.0,
            armour=1.0,
            armoured=True,
            speed=2.75,
            acceleration=2.3125,
            radius=0.75,
            sight=11.0,
            reach=4.0,
            attack="heal",
            flies=True,
        ),
        Unit(
            "stalker",
            "s",
            "protoss",
            80.0,
            shield=80.0,
            armour=1.0,
            armoured=True,
            speed=2.9531,
            radius=0.625,
            sight=10.0,
            damage=10.0,
            armoured_bonus=4.0,
            reach=6.0,
            cooldown=1.44,
            shown_cooldown=35.0,
            hits_air=True,
        ),
        Unit(
            "zealot",
            "z",
            "protoss",
            100.0,
            shield=50.0,
            armour=1.0,
            light=True,
            biological=True,
            speed=2.25,
            radius=0.5,
            separation=0.375,
            damage=8.0,
            hits=2,
            reach=0.1,
            cooldown=1.2,
            shown_cooldown=22.0,
        ),
        Unit(
            "colossus",
            "c",
            "protoss",
            200.0,
            shield=150.0,
            armour=1.0,
            armoured=True,
            speed=2.25,
            radius=1.0,
            separation=0.75,
            sight=10.0,
            damage=20.0,
            hits=2,
            reach=6.0,
            legal_reach=7.0,
            cooldown=2.2,
            shown_cooldown=24.0,
            attack="beam",
            beam=(2.8, 0.3),
            climbs=True,
        ),
        Unit(
            "zergling",
            "g",
            "zerg",
            35.0,
            light=True,
            biological=True,
            speed=2.9531,
            sight=8.0,
            damage=5.0,
            reach=0.1,
            cooldown=0.696,
            shown_cooldown=11.0,
            regeneration=ZERG,
        ),
        Unit(
            "baneling",
            "b",
            "zerg",
            30.0,
            biological=True,
            speed=2.5,
            sight=8.0,
            # Until version 4.12 of June 2020 (18 and 17); 16 and 19 since 5.0.2. SMAC's results are of 4.6.2 and 4.10.
            damage=20.0,
            light_bonus=15.0,
            reach=0.25,
            attack="explosion",
            blast=2.2,
            regeneration=ZERG,
        ),
        Unit(
            "hydralisk",
            "h",
            "zerg",
            80.0,
            light=True,
            biological=True,
            speed=2.25,
            radius=0.625,
            separation=0.5,
            damage=12.0,
            reach=5.0,
            cooldown=0.83,
            shown_cooldown=10.0,
            hits_air=True,
            regeneration=ZERG,
        ),
        Unit(
            "spine_crawler",
            "p",
            "zerg",
            300.0,
            armour=2.0,
            armoured=True,
            biological=True,
            radius=0.875,
            sight=11.0,
            damage=25.0,
            armoured_bonus=5.0,
            reach=7.0,
            cooldown=1.6,
            shown_cooldown=15.0,
            regeneration=ZERG,
        ),
    )
}
"""By name."""
MULTIPLAYER: dict[str, dict[str, float]] = {
    "marine": {"scan": 5.5},
    "marauder": {"scan": 6.5},
    "stalker": {"damage": 13.0, "armoured_bonus": 5.0, "cooldown": 1.87, "scan": 6.5},
    "colossus": {"damage": 10.0, "light_bonus": 5.0, "reach": 7.0, "cooldown": 1.5, "scan": 7.5},
    "hydralisk": {"cooldown": 0.825, "scan": 5.5},
    "spine_crawler": {"cooldown": 1.85},
}
"""By name of the type, what the data of Legacy of the Void's multiplayer games (``voidmulti.sc2mod`` and the mods that
it depends on, of the same version of the game) change of these weapons."""
