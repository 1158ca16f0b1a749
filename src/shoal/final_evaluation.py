"""The end of a run: whether it has come, and how what was learned is judged."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from shoal import notices
from shoal.errors import CheckpointError
from shoal.records import reading
from shoal.records.checkpoint import Checkpoints
from shoal.records.files import dumps, from_json, write_text
from shoal.records.log import FILE as ROWS
from shoal.records.log import Log
from shoal.training.evaluation import Evaluation, evaluation_of
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import Learner

FILE = "evaluation.json"


def settle(folder: Path, settings: Settings, run: Mapping[str, Any], guard: Callable[[], None]) -> bool:
    """Whether a run has finished: its newest checkpoint and policy are sound, and those of the last update.

    If so, say so, and mend its log as resuming would.

    Args:
        folder: the run's.
        settings: its settings, which may ask for more steps than before.
        run: its configuration (:func:`shoal.records.configuration.identity`).
        guard: raises where the folder is not the run's any more.

    Raises:
        CheckpointError: the checkpoint was saved in another configuration.
    """
    checkpoints, policies = (Checkpoints(folder / name, run=run) for name in ("checkpoints", "policy"))
    last = settings.num_updates
    if {checkpoints.latest(), policies.latest()} != {last}:
        return False
    try:
        meta = checkpoints.load_meta(last)
        policies.load_meta(last)
    except CheckpointError:  # training reports it, and goes on from an earlier one
        return False
    checkpoints.check_run(last)
    notices.warn(f"This run has finished its {settings.last_step:,} steps per seed; more steps would continue it.")
    Log(folder, guard=guard).resume(settings.last_step, checkpoints.file(ROWS, last) or b"", meta.get("rows", 0))
    return True


def by_workers(trainer: Trainer, learner: Callable[[], Learner], episodes: int) -> Evaluation | None:
    """Evaluate what was just trained, in the worker processes that trained it; None where there are none to play in.

    Args:
        trainer: what trained, not yet closed.
        learner: gives the trained policies.
        episodes: greedy episodes of each seed.
    """
    play = trainer.program.play
    if play is None:
        return None
    trainer.progress.say(f"Judging by {episodes} greedy episodes of each seed.")
    played = play(learner(), jax.random.key(0), episodes, True)
    return None if played is None else evaluation_of(trainer.env.spec, *played)


def write(folder: Path, found: Evaluation, episodes: int, step: int) -> None:
    """Keep a judgement by so many greedy episodes of each seed after so many steps.

    Raises:
        WriteError: the disk is full.
    """
    said = {"episodes": episodes, "greedy": True, "step": step, "text": str(found)}
    write_text(folder / FILE, dumps(found.as_json() | said, "evaluation", indent=1) + "\n")


def read(folder: Path, step: int, episodes: int | None) -> str | None:
    """The judgement after so many steps, in words; None where there is none by so many episodes (None: by any)."""
    try:
        said = from_json(reading.parse(reading.read_bytes(folder / FILE, 16 * reading.MIB)))
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict) or said.get("step") != step or not isinstance(text := said.get("text"), str):
        return None
    if episodes not in (None, said.get("episodes")) or not all(line.isprintable() for line in text.split("\n")):
        return None
    return text
