"""The command that lets trained policies play on two sides."""

import dataclasses
from pathlib import Path
from typing import Annotated

import shoal
from shoal.bounds import LARGEST_INT, Bounds
from shoal.errors import InputError
from shoal.system.files import dumps, write_text

Episodes = Annotated[int, Bounds(least=1, most=1_000_000)]
Seed = Annotated[int, Bounds(least=0, most=LARGEST_INT)]


@dataclasses.dataclass
class Crossplay:
    """Play the policies of several runs against each other and print returns: rows play side 1, columns side 2."""

    runs: tuple[Path, ...]
    """The runs' folders, all trained in the same environment."""
    side: tuple[str, ...] = ()
    """The agents of side 1, by name or index; all others are side 2. By default role 0 (in mpe/simple_tag the
    predators), or the first half of the agents if all have one role."""
    episodes: Episodes = 128
    """Episodes for each pair of a seed of one run and a seed of another."""
    sampled: bool = False
    """Sample actions instead of taking the most probable."""
    draw: Seed = 0
    """Seed of the episodes, the same for every entry."""
    past: bool = False
    """Also play the past policies of runs with --opponents past; they are listed before their run, the oldest first."""
    ratings: bool = False
    """Also print the share of episodes that each row wins, and Elo ratings. The side with the higher return wins an
    episode."""
    output: Path | None = None
    """Also write the numbers to this .json file."""
    trust: bool = False
    """Import the environment and algorithm that the folder names, even if they are neither Shoal's nor an extra's and
    you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Print a table for each side."""
        if not self.runs:
            raise InputError("shoal crossplay needs at least one run's folder.")
        if self.output is not None and (self.output.suffix != ".json" or not self.output.parent.is_dir()):
            raise InputError(f"{self.output} is not a .json file in a folder that exists.")
        result = shoal.crossplay(
            self.runs,
            side=self.side,
            episodes=self.episodes,
            greedy=not self.sampled,
            seed=self.draw,
            trust=self.trust,
            past=self.past,
        )
        print(result)
        if self.ratings:
            print(f"\n{result.rating_table()}")
        if self.output is not None:
            numbers = result.as_json() | {"episodes": self.episodes, "greedy": not self.sampled, "draw": self.draw}
            write_text(self.output, dumps(numbers, "cross-play", indent=1) + "\n")
        return 0
