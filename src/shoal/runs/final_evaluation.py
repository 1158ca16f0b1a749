"""The final evaluation of a run, and the check whether a run has finished."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

from shoal.errors import CheckpointError
from shoal.runs.run import Run
from shoal.storage import folders
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import EVALUATION_FILE
from shoal.storage.log import LOG_FILE as ROWS
from shoal.storage.log import Log
from shoal.system import notices
from shoal.system.files import dumps, write_text
from shoal.training import ending
from shoal.training.evaluation import BEST_FOLDER, Evaluation, in_modes
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer, has_evaluation
from shoal.types import Learner


def conclude(run: Run, before: Settings, guard: Callable[[], None], continue_stopped: bool = False) -> bool:
    """Whether a run has finished. If so, repair the log, and evaluate the run unless it has been evaluated.

    Args:
        run: the run, whose settings may have changed.
        before: its settings in ``run.json``.
        guard: raises if the folder is no longer the run's.
        continue_stopped: a run that a callback stopped has not finished.

    Raises:
        CheckpointError: its checkpoint was saved under another configuration.
    """
    if not _settle(run.folder, run.settings, before, run._identity(), guard, continue_stopped):
        return False
    run.finished = run.untouched = True
    run.final_score = known_evaluation_text(run.folder, run.last_step, run.settings.eval_episodes)
    if run.final_score is None and run.settings.eval_episodes != 0:
        episodes, settings = run.settings.evaluation_episodes(run.env), run.settings
        elsewhere = settings.workers == "ray" or settings.num_starts is not None
        num_envs = None if elsewhere else settings.num_envs  # as by_training plays them
        keep_evaluation(run, run._evaluated(episodes, num_envs=num_envs), episodes, guard)
    return True


def keep_evaluation(run: Run, found: Evaluation, episodes: int, guard: Callable[[], None]) -> None:
    """Write a run's final evaluation, with one of its best policies if they were kept.

    Args:
        run: the run.
        found: the evaluation of its last policies.
        episodes: its episodes per seed.
        guard: raises if the folder is no longer the run's.
    """
    best = None
    if (run.folder / BEST_FOLDER).is_dir():
        try:  # other episodes than those that selected these policies, whose scores are biased upwards
            best = run._evaluated(episodes, seed=1, best=True)
        except CheckpointError as error:
            notices.warn(str(error))
    run.evaluation = found
    guard()
    run.final_score = write_evaluation(run.folder, found, best, episodes, run.last_step, run.ended)


def _settle(
    folder: Path,
    settings: Settings,
    before: Settings,
    run: Mapping[str, Any],
    guard: Callable[[], None],
    continue_stopped: bool = False,
) -> bool:
    """Whether a run has finished: its newest checkpoint and policy are intact, and it ended there.

    If so, prints a notice, and repairs the log as resuming would. A run that ends there only because its limits have
    changed has not finished while the last row of the log or the last evaluation is missing: :meth:`Trainer.run` makes
    them.

    Args:
        folder: the run's.
        settings: the run's, possibly with more steps than before or other limits.
        before: its settings in ``run.json``.
        run: its configuration (:func:`shoal.storage.manifest.identity`).
        guard: raises if the folder is no longer the run's.
        continue_stopped: a run that a callback stopped has not finished.

    Raises:
        CheckpointError: the checkpoint was saved in another configuration.
    """
    checkpoints, policies = (Checkpoints(folder / name, run=run) for name in ("checkpoints", "policy"))
    last = checkpoints.latest()
    if last is None or policies.latest() != last or last > settings.num_updates:
        return False
    try:
        meta = checkpoints.load_meta(last)
        policies.load_meta(last)
    except CheckpointError:  # training reports it, and resumes from an earlier one
        return False
    at = ending.standing(last, meta)
    at = at._replace(stopped="") if continue_stopped else at
    step = last * settings.steps_per_update
    if not ending.ended(settings, at) or meta.get("row"):
        return False
    if settings.eval_every is not None and not ending.ended(before, at) and not has_evaluation(folder, step):
        return False
    checkpoints.check_run(last)
    notices.warn(ending.sentence(settings, at))
    log = Log(folder, guard=guard)
    log.resume(step, checkpoints.file(ROWS, last) or b"", meta.get("rows", 0))
    log.repair()
    return True


def by_training(trainer: Trainer, learner: Callable[[], Learner], episodes: int) -> Evaluation | None:
    """Evaluate the trained policies in the worker processes of training, or by the program that evaluated them during
    training; None if there is neither.

    Args:
        trainer: the trainer, not yet closed.
        learner: () -> the trained policies.
        episodes: episodes per seed, in each mode.
    """
    play, compiled = trainer.program.play, trainer.selection and trainer.selection.evaluator
    greedy = None if trainer.algorithm.stochastic else True
    if play is not None:
        kind = "greedy episodes" if greedy else "greedy and as many sampled episodes"
        trainer.progress.say(f"Evaluating {episodes} {kind} of each seed.")
        policies, key, spec = learner(), jax.random.key(0), trainer.env.spec
        if (first := play(policies, key, episodes, True)) is not None:
            sampled = partial(play, policies, key, episodes, False)
            return in_modes(spec, greedy, lambda mode: first if mode else sampled() or first)
    if compiled and (compiled.episodes, compiled.greedy) == (episodes, greedy):
        return compiled(learner(), jax.random.key(0))
    return None


def write_evaluation(
    folder: Path, last: Evaluation, best: Evaluation | None, episodes: int, step: int, ended: str = ""
) -> str:
    """Write ``evaluation.json``: the evaluations on ``episodes`` episodes per seed in the mode in which policies act
    by default (``greedy``), with the other mode's under ``other``.

    Args:
        folder: the run's.
        last: of the policies after ``step`` steps.
        best: of the best policies, if they were kept.
        episodes: episodes per seed.
        step: environment steps per seed.
        ended: why training ended before its last step; empty if it did not.

    Returns:
        Both as text.

    Raises:
        WriteError: the disk is full.
    """
    entries: dict[str, Any] = {"episodes": episodes, "step": step, "text": str(last)} | _modes(last)
    if ended:
        entries["ended"] = ended
    if best is not None:
        meta = Checkpoints(folder / BEST_FOLDER).load_meta()
        entries["best"] = best.as_json() | _modes(best) | {"step": meta["step"], "selected_with": meta["score"]}
        which = "best policies" if best.greedy == last.greedy else f"best policies, {best.mode} actions,"
        lines = [f"{which} {line}" for line in str(best._replace(other=None)).split("\n")]
        if best.other is not None:  # the last line, which names the other mode
            lines.append(f"best policies {str(best).split(chr(10))[-1]}")
        entries["text"] += "\n" + "\n".join(lines)
    write_text(folder / EVALUATION_FILE, dumps(last.as_json() | entries, "evaluation", indent=1) + "\n")
    return entries["text"]


def _modes(found: Evaluation) -> dict[str, Any]:
    return {"greedy": found.greedy} | ({"other": found.other.as_json()} if found.other is not None else {})


def known_evaluation_text(folder: Path, step: int, episodes: int | None) -> str | None:
    """The text of the evaluation after ``step`` steps on ``episodes`` (None: any number); None if there is none."""
    found = folders.read_evaluation(folder)
    if found is None or found.get("step") != step or not isinstance(text := found.get("text"), str):
        return None
    if episodes not in (None, found.get("episodes")) or not all(line.isprintable() for line in text.split("\n")):
        return None
    return text
