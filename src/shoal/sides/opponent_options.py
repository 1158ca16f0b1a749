"""Options of a run whose team, or a part of it, is played by frozen policies."""

from dataclasses import dataclass
from typing import Annotated

from shoal.bounds import Bounds, Count, check
from shoal.errors import InputError
from shoal.types import Scale

PAST = "past"
"""The value of ``opponents`` for self-play against past selves."""


@dataclass(frozen=True)
class OpponentOptions:
    """Frozen opponents and partners of the learning policies; by default none."""

    opponents: str | None = None
    """Frozen opponents or partners: a run folder, whose policies control all agents except those of --side; the name of
    a script, such as scripted; or past, for self-play against earlier policies of the same run. None: all agents learn.
    A run folder's policies are copied into the new run."""
    side: tuple[str, ...] = ()
    """Names or numbers of the agents of side 1, which learn against opponents; by default those of role 0, or the first
    half if all have one role. Past policies play either side."""
    past_window: Annotated[int, Bounds(least=1, most=256)] = 8
    """Number of past policies in the pool of self-play."""
    past_every: Count | None = None
    """Updates between two policies of the pool; None: the pool spans the whole run."""
    past_share: Annotated[float, Bounds(above=0.0, most=1.0)] = 0.5
    """Share of the environments in which a past policy plays one side; in the others the current policy plays both."""

    def check(self) -> None:
        """Check the bounds of all fields, and that none is without effect.

        Raises:
            InputError: a field is out of range or without effect.
        """
        check(self)
        plain = OpponentOptions()
        if self.opponents is None and self != plain:
            name = next(name for name, x in vars(self).items() if x != getattr(plain, name))
            raise InputError(f"{name} needs opponents: set opponents as well.")
        for name in ("past_window", "past_every", "past_share"):
            if self.opponents != PAST and getattr(self, name) != getattr(plain, name):
                raise InputError(f"{name} needs opponents 'past', not {self.opponents!r}.")

    def every(self, scale: Scale) -> int:
        """Updates between two policies of the pool."""
        return self.past_every or max(1, scale.num_updates // self.past_window)
