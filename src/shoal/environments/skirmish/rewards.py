"""SMAC's team reward and the end of a battle."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.environments.skirmish.army import State, Stats
from shoal.environments.skirmish.battle import Battle, half

DEATH, WIN = 10.0, 200.0
"""Paid for each enemy's death and for a victory, before scaling."""
LARGEST_RETURN = 20.0
"""Rewards are scaled so that all damage, deaths and the victory sum to this."""


class End(NamedTuple):
    """How a battle stands."""

    defeated: tuple[Bool[Array, " E"], Bool[Array, " E"]]
    """Whether the allies, and the enemies, cannot fight any more: all are dead, or only healers are left."""
    over: Bool[Array, " E"]

    def won(self, side: int) -> Bool[Array, " E"]:
        """Whether a side has defeated the other and not been defeated itself."""
        return self.defeated[1 - side] & ~self.defeated[side]


def end_of(battle: Battle, stats: Stats, s: State) -> End:
    """Whether one side, or both, are defeated."""
    fights = (s.health > 0.0) & (stats.heals == 0.0)
    first, second = (~fights[side].any(0) for side in battle.sides)
    return End((first, second), first | second)


def reward(battle: Battle, stats: Stats, side: int, before: State, after: State, won: Bool[Array, " E"]) -> Array:
    """Float[E]: the reward of one side for a step.

    The loss of hit points and shields of all opponents that lived before, 10 for each that died and 200 for a victory,
    scaled by 20 over the largest possible sum. The damage of a step pays no less than 0, or with ``smac_reward`` its
    absolute value, so that opponents who regenerate also pay.
    """
    theirs = battle.sides[1 - side]
    lived = before.health[theirs] > 0.0
    died = lived & (after.health[theirs] <= 0.0)
    lost = before.health[theirs] + before.shield[theirs] - after.health[theirs] - after.shield[theirs]
    delta = jnp.where(lived, lost, 0.0).sum(0) + DEATH * died.sum(0)
    delta = jnp.abs(delta) if battle.smac_reward else jnp.maximum(delta, 0.0)
    return (delta + WIN * won) * LARGEST_RETURN / largest(battle, stats, side)


def largest(battle: Battle, stats: Stats, side: int) -> Float[Array, " E"]:
    """SMAC's ``max_reward``: the sum of all that a side can earn without regeneration of the other, before scaling."""
    other = half(stats, battle.sides[1 - side])
    count = battle.counts(side)[1]
    whole = jnp.broadcast_to(other.hit_points + other.shield, (count, other.hit_points.shape[-1]))
    return whole.sum(0) + DEATH * count + WIN
