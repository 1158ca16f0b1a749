"""The contents of a run's files; missing and damaged files are noted.

The folder is untrusted: nothing in it is imported or executed, except that opening a run imports an algorithm
``module:make`` under the rules of :func:`shoal.open_run`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.plots.texts import number_text
from shoal.runs.open import open_run
from shoal.runs.run import Run
from shoal.statistics.intervals import Estimate
from shoal.storage import evaluation_file, log, manifest
from shoal.storage.configuration import migrated
from shoal.training import ending
from shoal.trust.run_file import entries_of


@dataclass(frozen=True)
class Scores:
    """One evaluation of all seeds."""

    estimate: Estimate
    """Mean and interval."""
    per_seed: tuple[float, ...]
    """NaN where unknown."""
    metrics: Mapping[str, tuple[Estimate, tuple[float, ...]]]
    """The environment's metrics by name: the mean with its interval, and the values of single seeds."""


@dataclass(frozen=True)
class Facts:
    """A run as its folder describes it."""

    folder: Path
    entries: dict[str, Any]
    """The configuration in ``run.json``, with its names and keys checked."""
    made: dict[str, Any]
    """Versions, commit, platform and hardware; unchecked."""
    rows: list[dict[str, Any]]
    """The columns of the log."""
    evaluation: dict[str, Any]
    """Contents of ``evaluation.json``, unchecked; empty if there is none."""
    last: Scores | None
    """The final evaluation of the last policies."""
    best: Scores | None
    """The final evaluation of the best policies."""
    run: Run | None
    """The opened run; None if it cannot be opened."""
    notes: list[str] = field(default_factory=list)
    """What is missing or damaged, in one sentence each."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """Algorithm and environment."""
        return f"{self.entries['algorithm']} on {self.entries['environment']}"

    @property
    def seeds(self) -> range:
        """The run's seeds, if ``run.json`` has them."""
        first, count = (self.entries["settings"].get(key) for key in ("seed", "seeds"))
        sound = type(first) is int and type(count) is int and 1 <= count <= 65_536
        return range(first, first + count) if sound else range(1)

    @property
    def metrics(self) -> list[str]:
        """Names of the environment's metrics."""
        found = self.entries["spec"].get("metrics")
        return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []

    @property
    def ended(self) -> str:
        """How the run ended, as a sentence."""
        if self.run is None:
            steps = max((row["step"] for row in self.rows), default=0)
            return f"The log reaches step {number_text(steps)}."
        settings, at = self.run.settings, self.run.at
        if at.update == 0:
            return "No checkpoint of the run is intact, so its progress is unknown."
        if ending.ended(settings, at):
            early = ending.reason(settings, at)
            return f"Ended {early}." if early else f"Finished after {number_text(settings.last_step)} steps per seed."
        return f"Unfinished: at step {number_text(self.run.last_step)} of {number_text(settings.last_step)} per seed."


def facts_of(folder: Path, run: Run | None = None, *, environment: Any = None, trust: bool = False) -> Facts:
    """Read a run's folder.

    Args:
        folder: the run's.
        run: the run, if it is open already.
        environment: see :func:`shoal.open_run`.
        trust: see :func:`shoal.open_run`.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged.
    """
    found = manifest.read(folder)
    entries, notes = entries_of(folder), []
    if run is None:
        try:
            run = open_run(folder, environment, trust=trust)
        except InputError as error:
            notes.append(f"The run cannot be opened: {error}")
            entries = migrated(found["config"], found["format"])
    rows = log.read(folder, notes.append)
    if not rows:
        notes.append("The log (metrics.jsonl) is missing, so there are no curves.")
    evaluation = evaluation_file.read(folder) or {}
    last = _scores(evaluation)
    if last is None:
        damaged = (folder / evaluation_file.FILE).exists()
        notes.append(
            "The final evaluation (evaluation.json) is damaged, so there is no final score."
            if damaged
            else "The final evaluation (evaluation.json) is missing, so there is no final score."
        )
    best = _scores(evaluation["best"]) if isinstance(evaluation.get("best"), dict) else None
    return Facts(folder, entries, found["made_with"], rows, evaluation, last, best, run, notes)


def _scores(found: Mapping[str, Any]) -> Scores | None:
    """The numbers of an evaluation; None if they are malformed."""
    main = _estimated(found)
    if main is None:
        return None
    metrics = found.get("metrics")
    named = metrics.items() if isinstance(metrics, dict) else ()
    known = {name: _estimated(values) for name, values in named if isinstance(values, dict)}
    return Scores(*main, {name: values for name, values in known.items() if values is not None})


def _estimated(found: Mapping[str, Any]) -> tuple[Estimate, tuple[float, ...]] | None:
    each = found.get("per_seed")
    if not isinstance(each, list) or not each or not _is_number(found.get("mean")):
        return None
    mean, low, high = (number(found.get(key)) for key in ("mean", "low", "high"))
    return (mean, low, high), tuple(map(number, each))


def number(value: Any) -> float:
    """A number from JSON; NaN if it is none."""
    return float(value) if _is_number(value) else math.nan


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 10**15)
