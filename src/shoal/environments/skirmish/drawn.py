"""SMACv2's battles: armies and starting positions drawn for every episode (Ellis et al. 2023).

The distributions are those of ``distributions.py`` and of the example configurations in oxwhirl/smacv2: types with
weights 0.45, 0.45 and 0.1; enemies of the allies' types, and further ones where they are more; with probability ½ the
allies start in the left half and the enemies as their mirror images, otherwise the allies start in the centre and the
enemies in one to four groups on the diagonals. As in SMACv2 agents are sorted by type and position, so that an id tells
about the type, and the enemies stand in the order in which they were drawn. The enemies' orders are those of the
script of its map ``32x32_flat``.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.skirmish.battle import Battle, Start, State, begun
from shoal.environments.skirmish.maps import SIDE
from shoal.environments.skirmish.units import UNITS

NAME = re.compile(r"(protoss|terran|zerg)_([1-9]\d?)_vs_([1-9]\d?)", re.ASCII)
ARMIES = {
    "protoss": ("stalker", "zealot", "colossus"),
    "terran": ("marine", "marauder", "medivac"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
"""The types of each race; the last one is rare."""
WEIGHTS = (0.45, 0.45, 0.1)
NEVER_ALONE = ("medivac", "baneling")
"""Types that no army consists of alone."""
LIMIT = 200
REFLECTED = 0.5
"""Probability of the mirrored start."""
BUFFER = 1.0
"""Distance to the middle that the allies keep in the mirrored start."""
OFFSET = 2.0
"""Distance of the nearest group of enemies to the centre, along each axis, in the surrounded start."""
SPACING = 1.0
"""Between units that start at the same point."""
EDGE = 0.1
"""Distance to the border of the map that units keep at the start."""


def battle_named(task: str) -> Battle | None:
    """The battle of a task such as ``terran_5_vs_5``; None for another name."""
    found = NAME.fullmatch(task)
    if found is None:
        return None
    return Battle(
        types=tuple(UNITS[name] for name in ARMIES[found[1]]),
        units=None,
        num_allies=int(found[2]),
        num_enemies=int(found[3]),
        terrain="open",
        limit=LIMIT,
        mirrored=(True, False),
        marches=False,
        ordered=True,
        own_ranges=True,
        own_position=True,
    )


def start_of(battle: Battle) -> Start:
    """How the episodes of such a battle start."""
    allies, enemies = battle.num_allies, battle.num_enemies

    def start(key: PRNGKeyArray, count: int) -> State:
        key_team, key_more, key_which, key_mirror, key_around = jax.random.split(key, 5)
        kind = team(battle, key_team, count, allies)
        more = team(battle, key_more, count, enemies - allies) if enemies > allies else kind[:, :0]
        kinds = jnp.concatenate([kind, kind[:, :enemies], more], axis=1)
        mirrored = jax.random.uniform(key_which, (count, 1, 1)) <= REFLECTED
        places = jnp.where(mirrored, _mirrored(key_mirror, count, allies, enemies), _around(key_around, count, battle))
        places = jnp.clip(places, EDGE, SIDE - EDGE)
        first = _order(battle, kinds[:, :allies], places[:, :allies])
        second = jnp.broadcast_to(jnp.arange(enemies), (count, enemies))
        if battle.commanded:  # sorted as they see each other
            seen = jnp.abs(places[:, allies:] - jnp.array([SIDE, 0.0]))
            second = _order(battle, kinds[:, allies:], seen)
        index = jnp.concatenate([first, allies + second], axis=1)
        x, y, kinds = (jnp.take_along_axis(v, index, 1) for v in (places[..., 0], places[..., 1], kinds))
        return begun(battle, x, y, kinds, jnp.zeros((count, 2)))

    return start


def _order(battle: Battle, kinds: Int[Array, "E K"], places: Float[Array, "E K 2"]) -> Int[Array, "E K"]:
    """Indices that sort an army by type, in alphabetical order as SMACv2's numbers of types, then by x, then by y."""
    names = [unit.name for unit in battle.types]
    rank = jnp.array([sorted(names).index(name) for name in names])[kinds]
    return jnp.lexsort((places[..., 1], places[..., 0], rank), axis=-1)


def team(battle: Battle, key: PRNGKeyArray, count: int, size: int) -> Int[Array, "E K"]:
    """Types of armies; an army of types that never fight alone is drawn again with another type as its first unit."""
    weights = np.array(WEIGHTS)
    alone = np.array([unit.name not in NEVER_ALONE for unit in battle.types])
    keys = jax.random.split(key, 3)
    first, second = (jax.random.choice(k, len(weights), (count, size), p=weights) for k in keys[:2])
    leader = jax.random.choice(keys[2], len(weights), (count, 1), p=weights * alone / (weights * alone).sum())
    sound = jnp.asarray(alone)[first].any(1, keepdims=True)
    return jnp.where(sound, first, jnp.concatenate([leader, second[:, 1:]], axis=1))


def _mirrored(key: PRNGKeyArray, count: int, allies: int, enemies: int) -> Float[Array, "E U 2"]:
    """Allies uniform in the left half, enemies at their mirror images; further enemies uniform in the right half."""
    middle = SIDE / 2.0
    drawn = jax.random.uniform(key, (count, max(allies, enemies), 2))
    own = drawn[:, :allies] * jnp.array([middle - BUFFER, SIDE])
    images = jnp.stack([SIDE - own[..., 0], own[..., 1]], axis=-1)[:, :enemies]
    more = drawn[:, allies:] * jnp.array([middle, SIDE]) + jnp.array([middle, 0.0])
    return jnp.concatenate([own, images, more], axis=1)


def _around(key: PRNGKeyArray, count: int, battle: Battle) -> Float[Array, "E U 2"]:
    """Allies in the centre; enemies in one to four groups, each at a random distance on a diagonal of its own, and
    moved so far from the border of the map that its units have room. The enemies of a group follow each other in the
    order in which they were drawn."""
    keys = jax.random.split(key, 4)
    groups = jax.random.randint(keys[0], (count, 1), 1, 5)
    group = jnp.floor(jax.random.uniform(keys[1], (count, battle.num_enemies)) * groups).astype(jnp.int32)
    group = jnp.sort(group, axis=1)  # multinomial numbers of units, in order
    far = jax.random.uniform(keys[2], (count, 4))
    corner = jax.vmap(lambda k: jax.random.permutation(k, 4))(jax.random.split(keys[3], count))
    side = jnp.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])[corner]  # [E, 4, 2]
    middle = SIDE / 2.0
    at = middle + side * (OFFSET * far + middle * (1.0 - far))[..., None]
    member = group[..., None] == jnp.arange(4)  # [E, enemies, 4]
    rank = jnp.where(member, jnp.cumsum(member, axis=1) - 1, 0).sum(-1)
    lattice = _lattice(battle.num_enemies)
    reach = np.maximum.accumulate(np.abs(np.concatenate([lattice[:1], lattice])).max(1))  # of the first n units
    room = EDGE + jnp.asarray(reach)[member.sum(1)][..., None]
    at = jnp.clip(at, room, SIDE - room)
    enemies = jnp.where(member[..., None], at[:, None], 0.0).sum(2) + jnp.asarray(lattice)[rank]
    allies = jnp.broadcast_to(middle + jnp.asarray(_lattice(battle.num_allies)), (count, battle.num_allies, 2))
    return jnp.concatenate([allies, enemies], axis=1)


def _lattice(count: int) -> np.ndarray:
    """Offsets of units that start at one point, the nearest first."""
    line = np.arange(-5, 6) * SPACING
    offsets = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    return offsets[np.lexsort((offsets[:, 0], offsets[:, 1], np.hypot(*offsets.T).round(6)))][:count]
