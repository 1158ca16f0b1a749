"""Runs one cell of a study, in this process: training, final evaluation, record."""

import time
from typing import Any

import numpy as np

from shoal import algorithms, api
from shoal.errors import InputError
from shoal.records import log, manifest
from shoal.records.product_rate import product_rate
from shoal.run import Run
from shoal.studies.entries import Value
from shoal.studies.plan import Cell
from shoal.studies.record import Record, rounded
from shoal.training.evaluation import Evaluation

POINTS = 50
"""Largest number of points of a learning curve in a record."""


def run_cell(cell: Cell, progress: bool = True) -> Record:
    """Train a cell, or continue it, evaluate its last policy, and return its record; nothing is written but its folder.

    The cell can be pickled, and another process that reaches its folder can call this function.

    Args:
        cell: the cell.
        progress: show the progress line and notes.

    Raises:
        InputError: training is refused, or the folder holds a run of another configuration.
        NonFiniteError: a metric became NaN or infinite.
        GameError: the environment raised.
        KeyboardInterrupt: a signal stopped training; the run is saved.
    """
    began = time.monotonic()
    run = _trained(cell, progress)
    if not run.finished:
        raise KeyboardInterrupt
    protocol = cell.evaluation
    found = run.evaluate(protocol.episodes, greedy=protocol.greedy, seed=protocol.seed)
    return record_of(cell, run, found, time.monotonic() - began)


def _trained(cell: Cell, progress: bool) -> Run:
    if not (cell.folder / manifest.FILE).exists():
        return api.train(
            cell.algorithm,
            cell.environment,
            env=cell.env,
            folder=cell.folder,
            progress=progress,
            **cell.flags,
            eval_episodes=0,
        )
    if difference := cell.difference(manifest.read(cell.folder)["config"]):
        raise InputError(f"{cell.folder} holds another run ({difference}); move or delete that folder.")
    # The study file names algorithm and environment, and the folder names the same: that is the user's own request.
    own = bool(algorithms.own(cell.algorithm))
    return api.resume(cell.folder, environment=cell.environment, trust=own, progress=progress)


def record_of(cell: Cell, run: Run, found: Evaluation, seconds: float) -> Record:
    """The record of a finished run.

    Args:
        cell: the cell.
        run: its run.
        found: the final evaluation.
        seconds: wall time of everything that this process did for the cell.
    """
    config, made = manifest.read(run.folder)["config"], manifest.read(run.folder)["made_with"]
    rows = log.read(run.folder)
    training = rows[-1]["seconds"] if rows else 0.0
    here = 0.0 if run.untouched else training  # a resumed run has trained some of it before
    commit: str | None = made["commit"]
    same_machine = made["hardware"] == manifest.describe()["hardware"]
    rate = rounded(product_rate() / 1e9) if same_machine else None
    protocol = cell.evaluation
    return Record(
        study=cell.study,
        cell={axis: listed(value) for axis, value in cell.values.items()},
        run=config,
        versions=made["versions"],
        commit=commit.removesuffix("+") if commit else None,
        changed=bool(commit) and commit.endswith("+"),
        platform=made["platform"],
        hardware=made["hardware"] | {"product_gflops": rate},
        seconds={"training": rounded(training), "other": rounded(max(0.0, seconds - here))},
        curve=curve(rows, run.settings.seeds),
        evaluation={
            "episodes": protocol.episodes,
            "greedy": protocol.greedy,
            "seed": protocol.seed,
            "step": run.last_step,
            "scores": rounded(found.scores),
            "lengths": rounded(found.lengths),
            "metrics": {name: rounded(values) for name, values in found.metrics.items()},
        },
    )


def listed(value: Value) -> Any:
    """A value of an axis as JSON, with lists for tuples."""
    return [listed(one) for one in value] if isinstance(value, tuple) else value


def curve(rows: list[dict[str, Any]], seeds: int) -> dict[str, list]:
    """At most :data:`POINTS` points: the means of consecutive rows of the log, at the step of the last of them."""
    if not rows:
        return {"step": [], "score": []}
    scores = np.array([row["return"] for row in rows], np.float64).reshape(len(rows), seeds)
    groups = np.array_split(np.arange(len(rows)), min(POINTS, len(rows)))
    means = []
    for group in groups:
        known = np.isfinite(scores[group])
        with np.errstate(invalid="ignore"):
            means.append(np.where(known, scores[group], 0.0).sum(0) / known.sum(0))
    return {"step": [rows[group[-1]]["step"] for group in groups], "score": rounded(np.array(means))}
