"""Makes policy folders (:mod:`shoal.storage.zoo`) from finished runs."""

import shutil
from pathlib import Path

from shoal.errors import InputError
from shoal.reporting.facts import train_command, without_folders
from shoal.runs.build import OPPONENTS
from shoal.runs.final_evaluation import write_evaluation
from shoal.runs.run import Run
from shoal.security import reading
from shoal.sides.opponents import PAST
from shoal.storage import manifest
from shoal.storage.checkpoint import read_index
from shoal.storage.step_folders import newest_sound, replace_file
from shoal.storage.zoo import is_policy_folder, write_card
from shoal.system import notices
from shoal.system.files import dumps, write_text
from shoal.training import ending

LICENCE = "Apache-2.0"
"""Of Shoal, and of the zoo."""


def keep_policies(run: Run, folder: Path, *, licence: str = LICENCE, episodes: int = 1024) -> Path:
    """Write a policy folder: ``run.json``, policies, opponents, an evaluation and a card; returns ``folder``.

    What training needs is left out: checkpoints, the log and events. Of absolute paths, such as those of ``init_from``
    and ``opponents``, the last parts remain, since their folders may name a user.

    Args:
        run: a finished run.
        folder: a folder that does not exist yet.
        licence: SPDX identifier of the licence under which the policies are given to others.
        episodes: per seed and mode of the evaluation, those of ``shoal evaluate --episodes``.

    Raises:
        InputError: the run has not finished, a symbolic link leads out of its folder, ``folder`` exists, or a file
            cannot be written.
        CheckpointError: no policy is intact.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another folder, or delete it.")
    if is_policy_folder(run.folder):
        raise InputError(f"{run.folder} holds policies without their training; shoal push takes a run's own folder.")
    if not ending.ended(run.settings, run.at):
        raise InputError(f"{run.folder} has not finished, so its command would train other policies: resume it first.")
    reading.check_inside(run.folder)  # copying follows links
    policy = newest_sound(run.folder / "policy", None, notices.warn)
    found = run._evaluated(episodes)  # whatever an earlier version has recorded
    folder.mkdir(parents=True)
    try:
        _copy(run.folder, policy, folder)
        if run.settings.opponent_options.opponents not in (None, PAST):
            _copy_opponents(run.folder, folder)
        write_evaluation(folder, found, None, episodes, run.last_step, run.ended)
        write_card(folder, train_command(run), licence)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from None
        raise
    return folder


def _copy_opponents(source: Path, target: Path) -> None:
    """Copy what acting needs of the opponents in a run's folder, if there are any, and of those that they have."""
    source, target = source / OPPONENTS, target / OPPONENTS
    if source.is_dir():
        _copy(source, newest_sound(source / "policy", None, notices.warn), target)
        _copy_opponents(source, target)


def _copy(source: Path, policy: Path, target: Path) -> None:
    """Copy ``run.json`` and a policy, whose index holds the same configuration, without the folders of paths in it."""
    copy = target / "policy" / policy.name
    shutil.copytree(policy, copy)
    shutil.copy(source / manifest.RUN_JSON, target)
    run = reading.parse_json((target / manifest.RUN_JSON).read_bytes())
    write_text(target / manifest.RUN_JSON, dumps(without_folders(run), "run", indent=2) + "\n")
    index = read_index(copy)
    index["run"] = without_folders(index.get("run"))
    replace_file(copy, "index.json", dumps(index, "checkpoint", indent=1))
