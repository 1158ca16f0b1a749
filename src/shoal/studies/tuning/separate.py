"""Trials in environments that worker processes step: each is a run of its own, trained from rung to rung."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import NonFiniteError, Terminated
from shoal.options.flags import flags_of
from shoal.runs import api
from shoal.runs.run import Run
from shoal.storage import manifest
from shoal.studies.execution import discard_opponents, requested
from shoal.studies.record import rounded_numbers
from shoal.studies.tuning.structures import WHOLE, Instance, Trial, TrialScores, trained_further
from shoal.training import ending
from shoal.training.stopping import Stop

SEED_DISTANCE = 10_000_000
"""Between the seeds of the episodes of two rungs."""


class SeparateRuns:
    """Trains trials one after the other; the interface is that of :class:`shoal.studies.tuning.structures.Population`.

    A trial is the run of ``shoal train`` with its values whose schedules span all rungs, continued at each of them.
    """

    def __init__(self, instance: Instance, folder: Path):
        """Prepare; nothing is trained.

        Args:
            instance: the setting with the structure's values.
            folder: contains a folder for each trial's run.
        """
        self.instance, self.folder = instance, folder
        self.tuning = instance.setting.method.tuning
        self.seconds = 0.0
        """Of training, in this process."""

    def rung(self, number: int, trials: Mapping[int, Trial], progress: bool, stop: Stop) -> TrialScores | None:
        """Train ``trials`` to a rung and evaluate them; None if a signal stopped it, in which case the runs are saved.

        Args:
            number: number of the rung, from 0.
            trials: their values.
            progress: show each run's progress line.
            stop: whether to stop before the next trial.

        Raises:
            InputError: a run cannot be trained.
            GameError: the environment raised.
            CheckpointError: a run's checkpoints are missing or damaged, or of a later rung.
        """
        found: TrialScores = {}
        for trial in trials:
            if stop.asked:
                return None
            began = time.monotonic()
            try:
                run = self._trained(number, self.folder / str(trial), progress)
            except NonFiniteError:
                found[trial] = None
                continue
            except (KeyboardInterrupt, Terminated):
                return None
            finally:
                self.seconds += time.monotonic() - began
            seed = self.tuning.evaluation_seed + number * SEED_DISTANCE
            played = run.evaluate(self.tuning.episodes, greedy=self.tuning.greedy, seed=seed)
            scores = played.scores.mean(1)
            found[trial] = rounded_numbers(scores) if all(map(math.isfinite, scores)) else None
        return found

    def _trained(self, number: int, folder: Path, progress: bool) -> Run:
        setting, per_update = self.instance.setting, self.instance.settings.steps_per_update
        cell, steps = setting.cell, self.instance.updates[number] * per_update
        if (folder / manifest.RUN_JSON).exists():
            if ending.saved(folder).update > self.instance.updates[number]:
                raise trained_further(folder)
            named = flags_of(self.instance.settings) | flags_of(self.instance.config)
            trust = requested(cell, named, folder)
            return api.resume(folder, environment=cell.environment, trust=trust, progress=progress, steps=steps)
        discard_opponents(folder)
        flags: dict[str, Any] = (
            cell.flags | self.instance.fixed | {"seeds": self.tuning.seeds, "seed": self.tuning.seed}
        )
        flags |= {"steps": steps, "schedule_steps": self.instance.updates[-1] * per_update}
        flags |= WHOLE | {"eval_episodes": 0}
        return api.train(cell.algorithm, cell.environment, env=cell.env, folder=folder, progress=progress, **flags)
