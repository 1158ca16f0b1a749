"""The command that writes a run or a study as a web page."""

import dataclasses
from pathlib import Path
from typing import Annotated

import shoal
from shoal.bounds import Bounds

Episodes = Annotated[int, Bounds(least=1, most=1000)]


@dataclasses.dataclass
class Report:
    """Write a run or a study as one HTML file: scores, curves, configuration, commands, and episodes to replay."""

    what: str
    """A run's folder, a study file *.toml, or the name of a study in studies/."""
    out: Path | None = None
    """File to write: a .html; None for report.html in the run's folder, or in the folder of the study's runs."""
    against: Path | None = None
    """Another run in the same environment, shown next to the run: scores, curves, and episodes from the same initial
    states."""
    episodes: Episodes = 2
    """Played episodes of each policy."""
    replays: bool = True
    """Play episodes."""
    runs: Path = Path("runs/studies")
    """For a study: folder that contains the study's folder of runs, of which at most four are played."""
    records: Path | None = None
    """For a study: folder that contains the study's folder of records; None for records/ next to the study file."""
    trust: bool = False
    """Import the environment and algorithm that the folder or the study file names, even if they are neither Shoal's
    nor an extra's and you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Write the file and print its path."""
        print(shoal.report(**vars(self)))
        return 0
