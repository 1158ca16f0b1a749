"""The command that compares trained runs."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import shoal
from shoal.bounds import Bounds
from shoal.errors import InputError

Level = Annotated[float, Bounds(least=-1e15, most=1e15)]


@dataclasses.dataclass
class Compare:
    """Compare methods by the final scores of their runs: means, medians and IQMs with intervals, and each pair."""

    runs: tuple[Path, ...]
    """The runs' folders, or records *.json of studies, two or more. Runs of one algorithm with the same settings and
    hyper-parameters are one method."""
    metric: str = "return"
    """The score, or a metric of the environment, for example won."""
    statistic: Literal["iqm", "mean", "median"] = "iqm"
    """Statistic of the curves and of the area under them."""
    normalise: tuple[Level, Level] | None = None
    """Worst and best score, which become 0 and 1; also shows the optimality gap."""
    output: Path | None = None
    """Also draw curves, performance profiles and probabilities of improvement: a .png, .pdf or .svg."""

    def __call__(self) -> int:
        """Print the tables, and the figure's path."""
        if len(self.runs) < 2:
            raise InputError("shoal compare needs at least two runs.")
        chosen = {"metric": self.metric, "statistic": self.statistic, "normalise": self.normalise}
        print(shoal.compare(self.runs, output=self.output, **chosen))
        if self.output is not None:
            print(f"\nfigure: {self.output}")
        return 0
