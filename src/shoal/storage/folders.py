"""The folder of a run: its name, the check that it holds no other run, and ``evaluation.json``."""

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shoal.errors import FolderTakenError, InputError, shortened
from shoal.security import reading
from shoal.statistics.scores import MAX_FLOAT32
from shoal.storage import log, manifest
from shoal.storage.step_folders import committed_steps
from shoal.system.files import from_json, with_home

T = TypeVar("T")
_WRITTEN = ("checkpoints", "policy", "opponents", "tensorboard")
"""Folders that training creates in a run's folder."""
PREPARATION_FILE = "preparation.json"
"""In a run's folder: the data behind what its algorithm decided before training."""
_REPLACED = ("best", "curves.png", "evaluation.json", "init_from.json", "mlflow.json", PREPARATION_FILE)
_REPLACED += ("product_rate.json", "references.json", "replay.gif", "report.html", "tensorboard", "wandb.json")
"""Other names that a run writes, some of which it also reads: that of a tracker names the run that is continued."""


def path_of(folder: str | Path) -> Path:
    """The :func:`expanded` path of a run's folder; an empty name, which would mean the working directory, is an error.

    Raises:
        InputError: the name is empty, holds the character NUL, or is not valid UTF-8, which its files require; or it is
            neither text nor a path.
    """
    found = expanded(folder)
    if not str(folder):
        raise InputError("The name of the run's folder is empty.")
    try:
        sound = "\0" not in str(folder) and bool(str(folder).encode())
    except UnicodeEncodeError:
        sound = False
    if not sound:
        raise InputError(
            f"The name of the run's folder, {str(folder)!r}, must be UTF-8 text without the character NUL."
        )
    return found


def expanded(path: str | Path) -> Path:
    """The path of a run's folder, with :func:`shoal.system.files.with_home`.

    Raises:
        InputError: it is neither text nor a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"A run's folder is named by text or a path, not {shortened(path)}.")
    return with_home(path)


def check_free(folder: Path, otherwise: str = "resume it") -> None:
    """Check that a folder holds no run, no parts of one, whose checkpoints a new run would remove, and no file of the
    user's that has the name of one that a run writes.

    Args:
        folder: the folder.
        otherwise: what the user can do with a run in it, for the message.

    Raises:
        FolderTakenError: the folder holds a run, a part of one, or such a file.
        InputError: a folder of a run in it is a symbolic link.
    """
    for name in _WRITTEN:
        reading.own_file(folder, name)
    if (folder / manifest.RUN_JSON).exists():
        raise FolderTakenError(f"{folder} already contains a run; {otherwise}, or choose another folder.", folder)
    for name in ("checkpoints", "policy", "opponents", log.LOG_FILE, log.DROPPED_FILE):
        if (folder / name).exists():
            raise FolderTakenError(
                f"{folder} contains {name} of a run, but no {manifest.RUN_JSON} to resume it; choose another folder.",
                folder,
            )
    for name in _REPLACED:
        if (folder / name).exists():
            raise FolderTakenError(
                f"{folder} contains {name}, which a run would replace; choose another folder.", folder
            )


def in_new_folder(algorithm: str, environment: str, start: Callable[[Path], T]) -> T:
    """Call ``start`` with a new folder; retries with another name if a run that starts at the same time takes it."""
    while True:
        folder = new_folder(algorithm, environment)
        try:
            return start(folder)
        except FolderTakenError as error:
            if error.folder is None or error.folder.absolute() != folder.absolute():  # a callback trains elsewhere
                raise


def new_folder(algorithm: str, environment: str) -> Path:
    """The path of a folder under ``runs/`` that does not exist yet; it is not created."""
    names = f"{algorithm}-{environment}".replace("/", "-").replace(":", "-")
    stem = f"{names}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, i = Path("runs") / stem, 2
    while folder.exists():
        folder, i = Path("runs") / f"{stem}-{i}", i + 1
    return folder


EVALUATION_FILE = "evaluation.json"
MAX_EVALUATION_BYTES = 16 * reading.MIB
"""Largest size in bytes."""


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """The contents; None if there is no such file or it is damaged."""
    try:
        found = from_json(
            reading.parse_json(reading.read_bytes(folder / EVALUATION_FILE, MAX_EVALUATION_BYTES), MAX_FLOAT32)
        )
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def steps_per_update(settings: Any) -> int | None:
    """Environment steps of an update, per seed, from the unchecked ``settings`` of a ``run.json``; None if they do not
    say."""
    sizes: list[Any] = [None]
    if isinstance(settings, dict):
        sizes = [settings.get(name) for name in ("num_envs", "rollout_length")]
    return None if any(type(size) is not int for size in sizes) else math.prod(sizes)


def newest_step(folder: Path, per_update: int) -> int:
    """Environment steps per seed after which the newest checkpoint or the newest policies were saved; 0 without any.

    Args:
        folder: the run's.
        per_update: environment steps of an update, per seed.
    """
    newest = [committed_steps(folder / name)[:1] for name in ("checkpoints", "policy")]
    return per_update * max((update for found in newest for update, _, _ in found), default=0)


def final_scores(folder: Path, per_update: int, seeds: int) -> np.ndarray | None:
    """The score of each seed in the final evaluation; None if it is not of the newest policies, or lacks a seed.

    Args:
        folder: the run's.
        per_update: environment steps of an update, per seed.
        seeds: their number.
    """
    found = read_evaluation(folder) or {}
    step = found.get("step")
    if type(step) is int and newest_step(folder, per_update) > step:
        return None
    try:
        scores = np.array(found.get("per_seed"), np.float64)
    except (TypeError, ValueError):
        return None
    return scores if scores.shape == (seeds,) and np.isfinite(scores).all() else None


def acts_greedily(folder: Path, per_update: int, best: bool = False) -> bool | None:
    """Whether a run's policies act greedily by default, as its final evaluation recorded; None if there is none, or
    only one of earlier policies.

    Args:
        folder: the run's.
        per_update: environment steps of an update, per seed.
        best: the best policies instead of the last.
    """
    found = read_evaluation(folder) or {}
    newest = [step * per_update for step, _, _ in committed_steps(folder / "policy")[:1]]
    if newest and found.get("step", newest[0]) != newest[0]:
        return None
    if best:
        found = inner if isinstance(inner := found.get("best"), dict) else {}
        return found.get("greedy", True) is not False if found else None  # earlier versions did not write it here
    return found["greedy"] is not False if "greedy" in found else None


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The names of folders, each with as many of the parts before it as tell it apart from the others; equal paths are
    numbered."""
    every, names = [folder.parts for folder in folders], []
    for own in every:
        differ = (k for k in range(1, len(own)) if all(other[-k:] != own[-k:] for other in every if other != own))
        names.append("/".join(own[-next(differ, len(own)) :]))
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]
