"""Pictures of battles."""

from shoal.environments.skirmish.army import State
from shoal.environments.skirmish.battle import Battle


def picture(battle: Battle, state: State) -> object:
    """One state as a picture."""
    raise NotImplementedError
