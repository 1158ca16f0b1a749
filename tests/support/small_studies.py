"""Study files and records that tests share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.algorithms import canonical
from shoal.errors import InputError
from shoal.options.flags import flags_of
from shoal.studies.execution import listed
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record, rounded_numbers
from shoal.studies.study_file import read_study
from shoal.system.files import to_json

GRID = """
title = "T"
question = "Q?"

[defaults]
steps = 64
seeds = 2

[grid]
algorithm = ["mappo", "qmix"]
environment = ["matrix/climbing", "matrix/two_step"]
gamma = [0.9, 0.99]
"""

TABLES = """
[[tables]]
title = "Scores at 0.9"
where = { gamma = 0.9 }
baseline = { algorithm = "qmix" }

[[tables]]
rows = ["gamma", "algorithm"]
metric = "length"

[[references]]
algorithm = "qmix"
environment = "matrix/two_step"
gamma = 0.9
value = 8
low = 7.5
high = 8.5
source = "Somebody 2018, table 1"
"""
"""Of :data:`GRID`."""
SCORES = {"mappo": (1.0, 2.0, 3.0, 4.0, 6.0), "qmix": (0.0, 0.5, 0.25, 1.0, 2.0)}
"""Of each seed, in the records that :func:`records_of` makes."""

TINY: dict[str, Any] = {
    "steps": 6 * 16,
    "seeds": 2,
    "num_envs": 4,
    "rollout_length": 4,
    "hidden": [4],
    "orthogonal": False,
    "epochs": 1,
    "minibatches": 1,
    "rows": 6,
    "tensorboard": False,
    "checkpoint_seconds": 0.0,
    "devices": 1,
}
"""Six updates, and a checkpoint after each."""


def toml(values: Mapping[str, Any]) -> str:
    """Lines of flags."""
    return "".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else value}\n" for key, value in values.items()
    )


def write_study_file(folder: Path, text: str = GRID, name: str = "demo") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """The sentence with which ``read`` refuses a file."""
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


def check_refused(read: Callable[[Path], object], text: str, mistake: tuple[str, str, str], folder: Path) -> None:
    """Check that a study file with a mistake is refused in one sentence, and that nothing is written.

    Args:
        read: what is done with the path of the file.
        text: a study file without mistakes.
        mistake: (what is replaced in it, by what, the sentence after the file's name).
        folder: an empty folder.
    """
    before, after, sentence = mistake
    assert before in text
    path = write_study_file(folder, text.replace(before, after, 1))
    assert refusal(read, path) == f"{path}: {sentence}"
    assert sorted(folder.iterdir()) == [path], "nothing was written"


def cells_of(path: Path, out: str = "out") -> list[Cell]:
    return plan(read_study(path), path.parent / out)


def made_record(cell: Cell, values: Any = (1.0, 2.0), **changes: Any) -> Record:
    """A record of ``cell`` whose seeds have these scores in every episode."""
    settings, config = cell.resolved()
    run = {
        "algorithm": canonical(cell.algorithm),
        "environment": cell.environment,
        "env": {option: listed(value) for option, value in cell.env.items()},
        "by_name": True,
        "settings": to_json(flags_of(settings) | {"seeds": len(values)}),
        "config": to_json(flags_of(config)),
        "spec": {"score": "mean", "metrics": []},
    }
    scores = np.repeat(np.asarray(values, float)[:, None], cell.evaluation.episodes, 1)
    fields: dict[str, Any] = {
        "study": cell.study,
        "cell": {axis: listed(value) for axis, value in cell.values.items()},
        "run": run,
        "versions": {"python": "3.11", "jax": "0.10", "shoal": "0.1.0"},
        "commit": "ab" * 20,
        "changed": False,
        "platform": "Linux x86_64",
        "hardware": {
            "processor": "A processor",
            "cores": 2,
            "memory_gib": 8.0,
            "devices": [{"platform": "cpu", "kind": "cpu", "count": 2}],
            "product_gflops": 100.0,
        },
        "seconds": {"training": 10.0, "other": 5.0},
        "curve": {"step": [32, 64], "score": [[0.5] * len(values), [1.0] * len(values)]},
        "evaluation": {
            "episodes": cell.evaluation.episodes,
            "greedy": cell.evaluation.greedy,
            "seed": cell.evaluation.seed,
            "step": 64,
            "scores": rounded_numbers(scores),
            "lengths": rounded_numbers(np.ones_like(scores)),
            "metrics": {},
        },
    }
    return Record(**(fields | changes))


def records_of(cells: Sequence[Cell], leave_out: int = 0, **changes: Any) -> dict[str, Record]:
    """Records with :data:`SCORES` by name, without the first ``leave_out``; ``changes`` concern the last of them."""
    records = {cell.name: made_record(cell, SCORES[cell.algorithm]) for cell in cells[leave_out:]}
    if changes:
        records[cells[-1].name] = made_record(cells[-1], SCORES[cells[-1].algorithm], **changes)
    return records


TUNING = """
title = "T"
question = "Q?"

[defaults]
environment = "matrix/two_step"
algorithm = "mappo"
steps = 1024
seeds = 2
num_envs = 4
rollout_length = 4
hidden = [4]
devices = 1
epochs = 1
minibatches = 1
tensorboard = false

[[variants]]
name = "default"

[[variants]]
name = "tuned"
tuned = true

[evaluation]
episodes = 4

[tuning]
trials = 4
rungs = 2
eta = 2
seeds = 2
episodes = 4

[tuning.ranges]
learning_rate = { low = 1e-4, high = 1e-1, log = true }
gamma = { values = [0.9, 0.99] }
"""


def write_tuning_file(folder: Path, text: str = TUNING, name: str = "demo") -> Path:
    return write_study_file(folder, text, name)
