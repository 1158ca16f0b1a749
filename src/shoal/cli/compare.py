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
    """Compare methods by the final scores of their runs: means, medians and IQMs with intervals, and pairs."""

    runs: tuple[Path, ...]
    """The runs' folders, records *.json of studies, or files *.json in marl-eval's format. Runs of one algorithm with
    the same settings and hyper-parameters are one method, as are all runs of one algorithm in a file."""
    metric: str = "return"
    """The score, or a metric of the environment, for example won."""
    statistic: Literal["iqm", "mean", "median"] = "iqm"
    """Statistic of the curves and of the area under them."""
    normalise: tuple[Level, Level] | None = None
    """Worst and best score, which become 0 and 1; also shows the optimality gap."""
    output: Path | None = None
    """Also draw curves, performance profiles and probabilities of improvement: a .png, .pdf or .svg."""
    file_metric: str | None = None
    """Name of the metric in files of marl-eval's format; by default the same, and for return also mean_episode_return
    or episode_return."""
    tasks: tuple[str, ...] = ()
    """Environments of the tasks in such files, if the names differ, for example smax/3m=jaxmarl/smax/3m."""

    def __call__(self) -> int:
        """Print the tables, and the figure's path."""
        chosen = {"metric": self.metric, "statistic": self.statistic, "normalise": self.normalise}
        names = {"file_metric": self.file_metric, "tasks": _names(self.tasks)}
        print(shoal.compare(self.runs, output=self.output, **chosen, **names))
        if self.output is not None:
            print(f"\nfigure: {self.output}")
        return 0


def _names(words: tuple[str, ...]) -> dict[str, str]:
    """The environments in words such as ``smax/3m=jaxmarl/smax/3m``, by the name of the task."""
    names = {}
    for word in words:
        task, _, environment = word.partition("=")
        if not task or not environment:
            raise InputError(f"--tasks takes the name of a task and its environment, TASK=ENVIRONMENT, not {word!r}.")
        names[task] = environment
    return names
