"""Degrees of detail of replays, from full to low, from which the first is used that fits into a number of bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LONGEST = 600
"""Largest number of steps that are shown of an episode at full detail."""
NUMBERS = frozenset({"obs", "probabilities", "utilities", "mean", "std", "value", "attention"})
"""Arrays that may be rounded to 8 bits."""


class Detail(NamedTuple):
    """One degree of detail."""

    coarse: frozenset[str] = frozenset()
    """Arrays that are rounded to 8 bits."""
    observers: int = 1_000_000
    """Number of agents, from the first, whose observations are kept."""
    most_steps: int = LONGEST
    """Largest number of steps that are shown of an episode."""
    width: int = 360
    """Width of pictures in pixels."""
    picture_stride: int = 1
    """One of this number of pictures is kept."""
    seeds: int = 1_000_000
    """Number of seeds of each run, from the first."""
    episodes: int = 1_000_000
    """Number of episodes of each seed."""

    def steps(self, length: int) -> np.ndarray:
        """The timesteps shown of an episode of ``length`` steps, from 0 to ``length``."""
        stride = max(1, -(-length // self.most_steps))
        return np.append(np.arange(0, length, stride), length)

    def notes(self, played: Sequence[Any]) -> list[str]:
        """Sentences on what is omitted from these episodes (:class:`shoal.reporting.replays.Played`)."""
        every = [one for run in played for of_seed in run.episodes for one in of_seed]
        agents = max(run.run.spec.num_agents for run in played)
        pictures = any(shown.pictures for _, shown in every)
        longest = max(len(episode.rewards) for episode, _ in every)
        found = []
        if stride := -(-longest // self.most_steps) - 1:
            found.append(f"For an episode of {longest:,} steps, every {_th(stride + 1)} step is shown.")
        if not all(episode.ended for episode, _ in every):
            found.append("An episode that did not end is truncated.")
        if self.coarse:
            found.append("Observations, probabilities and values are rounded to 1 / 254 of their range.")
        if not self.observers:
            found.append("Observations are omitted, to keep the file small.")
        elif self.observers < agents:
            found.append(f"Only the first {self.observers} agents' observations are kept, to keep the file small.")
        if pictures and self.width < 360:
            found.append(f"Pictures are {self.width} pixels wide, to keep the file small.")
        if pictures and self.picture_stride > 1:
            found.append(f"Every {_th(self.picture_stride)} picture is kept, to keep the file small.")
        if self.seeds < max(len(run.seeds) for run in played):
            found.append(f"At most {_counted(self.seeds, 'seed')} of each run can be replayed, to keep the file small.")
        if self.episodes < max(len(of_seed) for run in played for of_seed in run.episodes):
            found.append(
                f"At most {_counted(self.episodes, 'episode')} of each seed can be replayed, to keep the file small."
            )
        return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _th(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


_ROUNDED = Detail(NUMBERS)
_SMALL = _ROUNDED._replace(observers=0, width=160)
DETAILS = (
    Detail(),
    _ROUNDED,
    _ROUNDED._replace(observers=5, width=240),
    _ROUNDED._replace(observers=2, width=240, picture_stride=2),
    _SMALL._replace(picture_stride=2),
    _SMALL._replace(picture_stride=2, most_steps=200),
    _SMALL._replace(picture_stride=4, most_steps=200, seeds=2),
    _SMALL._replace(picture_stride=4, most_steps=200, seeds=1),
    _SMALL._replace(picture_stride=8, most_steps=100, seeds=1, episodes=1),
    _SMALL._replace(picture_stride=16, most_steps=25, seeds=1, episodes=1, width=120),
)
"""From full to low detail."""
