"""The figure of docs/studies.md: differences on spread from the records, the claimed side on the right.

    python benchmarks/forest.py docs/images/claims-spread.png

Each row is a claim of the page and the difference of two cells of its study: the mean score of the last policy, with
the 95 % interval over five seeds or the range of three. Prints the numbers too.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from shoal.plots.charts import Estimates
from shoal.plots.figures import draw
from shoal.plots.texts import estimate_text
from shoal.statistics.intervals import Estimate, interval
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study, study_path
from shoal.studies.summaries import final_samples


class Difference(NamedTuple):
    """Of two cells of a study in spread."""

    label: str
    study: str
    axis: str
    claimed: Any
    """The value of the axis that the claim says is better."""
    other: Any
    where: Mapping[str, Any] = {}
    """Values of the other axes."""


PRESET = "as the preset"
ROWS = (
    Difference("Value normalisation", "value_normalisation", "value_norm", "running", "none"),
    Difference("Few epochs: 5 less 15", "epochs_and_minibatches", "epochs", 5, 15, {"minibatches": 1}),
    Difference("Undivided batches: 1 less 4", "epochs_and_minibatches", "minibatches", 1, 4, {"epochs": 5}),
    Difference("Critic's input: state and own less own", "critic_inputs", "critic_input", "agent", "local"),
    Difference("Small clip: 0.2 less 0.5", "mappo_choices", "variant", PRESET, "clip 0.5"),
    Difference("Layer normalisation", "mappo_choices", "variant", "layer norm", PRESET),
    Difference("Practices of PPO: λ 0.95 less 0", "ppo_practices", "variant", PRESET, "one-step advantages (λ 0)"),
    Difference("Practices of PPO: ReLU less tanh", "ppo_practices", "variant", "ReLU, orthogonal", PRESET),
    Difference("Shared parameters, 0.25M", "shared_parameters", "sharing", "shared", "independent", {"steps": 2.5e5}),
    Difference("Shared parameters, 5M", "shared_parameters", "sharing", "shared", "independent", {"steps": 5e6}),
    Difference("HAPPO less MAPPO, own", "equal_sharing", "algorithm", "happo", "mappo", {"sharing": "independent"}),
    Difference("Order of updates, HAPPO", "update_order", "order", "random", "fixed", {"algorithm": "happo"}),
    Difference("Order of updates, HATRPO", "update_order", "order", "random", "fixed", {"algorithm": "hatrpo"}),
    Difference(
        "Baselines: optimal less V, central",
        "baselines_tasks",
        "baseline",
        "optimal",
        "value",
        {"critic": "centralised", "variant": "preset"},
    ),
    Difference("Baselines in MAPPO", "baselines_of_returns", "variant", "R − optimal baseline", "GAE"),
    Difference("MAT less MAT-Dec", "mat_order", "variant", "MAT, fixed order", "MAT-Dec"),
)


@functools.cache
def measured(name: str) -> tuple[Sequence[Cell], Mapping[str, Record]]:
    """The cells of a study and their records."""
    study = read_study(study_path(name))
    cells = plan(study, Path())
    return cells, records_of_cells(records_folder(study, None), cells)


def difference(row: Difference) -> Estimate:
    """The score of the claimed cell less that of the other, with its interval."""
    cells, records = measured(row.study)
    samples = []
    for value in (row.claimed, row.other):
        wanted = {**row.where, row.axis: value}
        if "environment" in cells[0].values:
            wanted["environment"] = "mpe/simple_spread"
        (cell,) = (cell for cell in cells if all(cell.values.get(axis) == wanted[axis] for axis in wanted))
        scores = final_samples(records[cell.name], "score")
        assert scores is not None
        samples.append(scores)
    return interval(samples[0], -samples[1])


def main() -> None:
    """Draw the figure and print its numbers."""
    found = {row.label: difference(row) for row in ROWS}
    for label, estimate in found.items():
        print(f"{label}: {estimate_text(estimate)}")
    out = draw([Estimates(found, "Difference of the score on spread", mark=0.0)], sys.argv[1])
    with Image.open(out) as picture:
        picture.convert("RGB").quantize(32).save(out, optimize=True)


if __name__ == "__main__":
    main()
