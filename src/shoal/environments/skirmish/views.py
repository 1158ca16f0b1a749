"""What pictures and outlines both read from the state of a battle."""

from collections.abc import Sequence

import numpy as np

from shoal.environments.skirmish.army import State
from shoal.environments.skirmish.battle import Battle
from shoal.environments.skirmish.engine import TICKS
from shoal.environments.skirmish.units import Unit

SEEN = 3
"""Steps for which an explosion is seen."""


def units_of(battle: Battle, state: State) -> tuple[Unit, ...]:
    """The types of all units [U], allies first, in one environment's state."""
    if battle.units is not None:
        return battle.units
    return tuple(battle.types[kind] for kind in np.asarray(state.kind).tolist())


def explosion_ages(units: Sequence[Unit], state: State) -> np.ndarray:
    """The step of each unit's explosion in which a state is: int [U], from 1 to :data:`SEEN`; 0 if none is seen.

    Args:
        units: see :func:`units_of`.
        state: of one environment.
    """
    explodes = np.array([unit.attack == "explosion" for unit in units])
    health, cooldown, calm = (np.asarray(values) for values in (state.health, state.cooldown, state.calm))
    exploded = explodes & (health <= 0.0) & (cooldown >= 0.0)
    # A unit that was killed bursts one tick later; the time since its last damage tells when.
    age = np.maximum(calm - 1.0, 0.0) // TICKS + 1
    return np.where(exploded & (age <= SEEN), age, 0).astype(int)
