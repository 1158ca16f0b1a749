"""Runs one cell of a study, in this process: training, final evaluation, record."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal import algorithms
from shoal.config.resolve import completed
from shoal.errors import InputError, NonFiniteError, Terminated, unknown
from shoal.options.flags import flags_of
from shoal.runs import api, behaviour
from shoal.runs.build import OPPONENTS, folder_of_opponents
from shoal.runs.run import Run
from shoal.security import user_modules
from shoal.sides.opponents import PAST
from shoal.statistics.scores import MAX_FLOAT32
from shoal.storage import lock, log, manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.manifest import product_rate
from shoal.studies.keys import Value
from shoal.studies.plan import Cell
from shoal.studies.record import Record, rounded_numbers
from shoal.studies.user_modules import module_digests
from shoal.system import notices
from shoal.training.evaluation import BEST_FOLDER, Evaluation
from shoal.trust import permission
from shoal.trust.run_file import config_of_run

POINTS = 50
"""Largest number of points of a learning curve in a record."""


def run_cell(cell: Cell, progress: bool = True) -> Record:
    """Train a cell, or continue it, evaluate its last policy, and return its record; writes only in its folder.

    The cell can be pickled, and another process with access to its folder can call this function.

    Args:
        cell: the cell.
        progress: show the progress line and notes.

    Raises:
        InputError: the run cannot be trained, or the folder contains a run of another configuration.
        NonFiniteError: a metric became NaN or infinite.
        GameError: the environment raised.
        KeyboardInterrupt: a signal stopped training; the run is saved.
    """
    began = time.monotonic()
    try:
        run = _trained(cell, progress)
    except Terminated:
        raise KeyboardInterrupt from None
    protocol = cell.evaluation
    found = run.evaluate(protocol.episodes, greedy=protocol.greedy, seed=protocol.seed)
    best = None
    if cell.flags.get("eval_every") is not None:  # in the mode of the last policies, as all scores of a record
        best = run.evaluate(protocol.episodes, greedy=found.greedy, seed=protocol.seed, best=True)
    return record_of(cell, run, found, best, time.monotonic() - began)


def _trained(cell: Cell, progress: bool) -> Run:
    if not (cell.folder / manifest.RUN_JSON).exists():
        discard_opponents(cell.folder)
        return api.train(
            cell.algorithm,
            cell.environment,
            env=cell.env,
            folder=cell.folder,
            progress=progress,
            **cell.flags,
            eval_episodes=0,
        )
    if difference := cell.difference(manifest.read_run_json(cell.folder)["config"]):
        raise InputError(f"{cell.folder} contains another run ({difference}); move or delete that folder.")
    found = cell.merged()
    trust = requested(cell, flags_of(found.settings) | flags_of(found.config), cell.folder)
    return api.resume(cell.folder, environment=cell.environment, trust=trust, progress=progress)


def discard_opponents(folder: Path) -> None:
    """Remove the copy of opponents in the folder of a run that was killed before it began; it may begin again then.

    Raises:
        FolderTakenError: another process begins the run.
    """
    if (folder / OPPONENTS).exists():
        with lock.hold(folder):
            if not (folder / manifest.RUN_JSON).exists():
                shutil.rmtree(folder / OPPONENTS, ignore_errors=True)


def requested(cell: Cell, flags: Mapping[str, Any], folder: Path) -> bool:
    """Whether a run's folder names modules of the user's own, or files in its environment's options, and only those
    that its study names: the user has requested their use. What the folder's copy of opponents names counts as well.

    Args:
        cell: the run's cell.
        flags: its settings and hyper-parameters there.
        folder: the run's.

    Raises:
        InputError: a ``run.json`` is missing or damaged.
    """
    named: set[Any] = _own_names(algorithms.canonical(cell.algorithm), completed(flags))
    named |= set(permission.handed(cell.environment, cell.env))
    opponents, copy = flags.get("opponents"), folder / OPPONENTS
    if opponents not in (None, PAST) and not copy.is_dir() and folder_of_opponents(str(opponents)):
        return False  # they would be read from a folder of their own
    entries = config_of_run(folder)
    found: set[Any] = set(permission.handed(cell.environment, entries["env"]))
    found |= _own_names(entries["algorithm"], entries["config"], entries["settings"])
    while (folder := folder / OPPONENTS).is_dir():
        entries = config_of_run(folder)
        found |= _own_names(entries["algorithm"], entries["config"], entries["settings"])
    return bool(found) and found <= named


def _own_names(algorithm: str, *options: Mapping[str, Any]) -> set[str]:
    """The names of algorithms, networks and opponents in modules of the user's own."""
    values = [value for part in options for value in user_modules.naming(part).values()]
    own = {part for part in algorithm.split("+") if algorithms.own(part)}
    return own | {value for value in values if isinstance(value, str) and ":" in value}


def record_of(cell: Cell, run: Run, found: Evaluation, best: Evaluation | None, seconds: float) -> Record:
    """The record of a finished run.

    Args:
        cell: the cell.
        run: its run.
        found: the final evaluation of the last policies.
        best: that of the best policies, if there are any.
        seconds: wall time of everything that this process did for the cell.

    Raises:
        NonFiniteError: the score or the length of an episode is no number that a record can hold.
    """
    for one in (found, found.other, best):
        if one is not None and not _within(one.scores, one.lengths):
            raise NonFiniteError(f"{cell.title}: the score of a final episode is NaN, infinite or beyond float32.")
    config, made = manifest.read_run_json(run.folder)["config"], manifest.read_run_json(run.folder)["made_with"]
    rows = log.read_log(run.folder)
    training = rows[-1]["seconds"] if rows else 0.0
    here = 0.0 if run.untouched else training  # a resumed run has trained some of it before
    commit: str | None = made["commit"]
    now = behaviour.versions(config["algorithm"], config["environment"], config["settings"] | config["config"])
    same_machine = made["hardware"] == manifest.describe_machine()["hardware"]
    rate = rounded_numbers(product_rate() / 1e9) if same_machine else None
    protocol = cell.evaluation
    known = {name for row in rows for name, value in row.items() if isinstance(value, list)}  # one for each seed
    columns = {"score": "return"} | {name: name for name in cell.curves if not rows or name in known}
    if absent := [name for name in cell.curves if name not in columns]:
        notices.warn(f"{cell.title}: {unknown('metric of training named', absent[0], known)}")
    evaluation = {"episodes": protocol.episodes, "greedy": found.greedy, "seed": protocol.seed}
    evaluation |= {"step": run.last_step} | _episodes(found)
    if protocol.greedy is None:
        evaluation["better"] = True
        if found.other is not None:
            evaluation["other"] = rounded_numbers(np.mean(found.other.scores, 1))
    if best is not None:
        evaluation["best"] = _episodes(best) | {"step": Checkpoints(run.folder / BEST_FOLDER).load_meta()["step"]}
    return Record(
        study=cell.study,
        cell={axis: listed(value) for axis, value in cell.values.items()},
        run=config,
        versions=made["versions"],
        commit=commit.removesuffix("+") if commit else None,
        changed=bool(commit) and commit.endswith("+"),
        platform=made["platform"],
        hardware=made["hardware"] | {"product_gflops": rate} | earlier_hardware(made),
        seconds={"training": rounded_numbers(training), "other": rounded_numbers(max(0.0, seconds - here))},
        curve=learning_curve(rows, columns, run.settings.seeds),
        evaluation=evaluation,
        evaluations=evaluations(rows, run.settings.seeds),
        sources=module_digests(cell, imported=True),
        behaviour=behaviour.oldest(behaviour.kept(made), now),
    )


def earlier_hardware(made: dict[str, Any]) -> dict[str, Any]:
    """The entry ``earlier`` of a record's hardware: the other machines that trained before, if there are any.

    Args:
        made: ``hardware``, and ``earlier`` as in the entry ``made_with`` of ``run.json``.
    """
    found = [one["hardware"] for one in manifest.earlier_machines(made) if one.get("hardware")]
    others = [one for i, one in enumerate(found) if one != made["hardware"] and one not in found[:i]]
    return {"earlier": others} if others else {}


def _within(*values: np.ndarray) -> bool:
    """Whether all values are numbers of single precision."""
    return all(bool((np.abs(np.asarray(one, np.float64)) <= MAX_FLOAT32).all()) for one in values)


def _episodes(found: Evaluation) -> dict[str, Any]:
    metrics = {name: rounded_numbers(values) for name, values in found.metrics.items()}
    return {"scores": rounded_numbers(found.scores), "lengths": rounded_numbers(found.lengths), "metrics": metrics}


def listed(value: Value) -> Any:
    """A value of an axis as JSON, with lists for tuples."""
    return [listed(one) for one in value] if isinstance(value, tuple) else value


def learning_curve(rows: list[dict[str, Any]], columns: Mapping[str, str], seeds: int) -> dict[str, list]:
    """At most :data:`POINTS` points: the means of consecutive rows of the log, at the step of the last of them.

    Rows may lack a column, as those without an evaluation do.

    Args:
        rows: of the log.
        columns: the log's columns by the names that the curves get.
        seeds: their number.
    """
    groups = np.array_split(np.arange(len(rows)), min(POINTS, len(rows))) if rows else []
    found: dict[str, list] = {"step": [rows[group[-1]]["step"] for group in groups]}
    for name, column in columns.items():
        values = np.array([row.get(column, [None] * seeds) for row in rows], np.float64).reshape(len(rows), seeds)
        found[name] = rounded_numbers(np.array([_known_mean(values[group]) for group in groups]))
    return found


def _known_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the finite values over the first axis."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0.0).sum(0) / known.sum(0)


def evaluations(rows: list[dict[str, Any]], seeds: int) -> dict[str, list]:
    """The greedy evaluations during training, by metric; empty without ``eval_every``."""
    evaluated = [row for row in rows if "greedy/return" in row]
    if not evaluated:
        return {}
    left_out = ("greedy/seconds", "greedy/score")  # a metric of the environment's that is named like the return here
    names = [name for name in evaluated[-1] if name.startswith("greedy/") and name not in left_out]
    found: dict[str, list] = {"step": [row["step"] for row in evaluated]}
    for name in names:
        values = np.array([row.get(name, [None] * seeds) for row in evaluated], np.float64).reshape(
            len(evaluated), seeds
        )
        found["score" if name == "greedy/return" else name.removeprefix("greedy/")] = rounded_numbers(values)
    return found
