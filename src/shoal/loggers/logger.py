"""What the loggers have in common: when they are called, what they send, and the id that a resumed run continues."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError, shortened
from shoal.security import reading
from shoal.storage import manifest
from shoal.storage.log import or_none
from shoal.storage.tensorboard import scalars
from shoal.system.files import dumps, to_json, write_bytes, write_text
from shoal.training.callbacks import Callback, Context, Metrics

MAX_ID_BYTES = reading.MIB
"""Largest size in bytes of the file with the id."""


class Logger(Callback):
    """Sends each row of the log to a tracker: means over seeds, and ``name/seed0`` … where there are several.

    A tracker that fails when training has begun is warned of once, and training goes on without it.
    """

    after_others = True
    tracker: str
    """Its name."""
    file: str
    """Name of the file in the run's folder that holds the id of the tracker's run."""
    _begun = False
    """Whether the tracker's run has been started."""

    @abstractmethod
    def begin(self, context: Context, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start the tracker's run, or continue the one that ``stored`` names; returns what is to be stored.

        Args:
            context: the run.
            stored: what the run's folder holds; it may be somebody else's. Empty for a new run.

        Raises:
            InputError: the tracker is not installed, or refuses.
        """

    @abstractmethod
    def send(self, values: Mapping[str, float], step: int) -> None:
        """Send finite numbers by name after ``step`` environment steps per seed."""

    @abstractmethod
    def finish(self, context: Context, summary: Mapping[str, Any]) -> None:
        """Send what waits and how the run ended, and upload the policies if that is wanted.

        Args:
            context: the run, with how it ended.
            summary: numbers and texts by name.
        """

    @abstractmethod
    def end(self, context: Context) -> None:
        """End the tracker's run with the run's status."""

    def on_start(self, context: Context) -> None:
        """Start or continue the tracker's run."""
        self._begun, self._failed, self._sent = False, False, (-1, frozenset[str]())
        path = reading.own_file(context.folder, self.file)
        self._before = _contents(path)
        stored = self.begin(context, _stored(self._before))
        self._begun = True
        try:
            write_text(path, dumps(stored, self.file, indent=1) + "\n")
        except InputError:  # on_end is not called of a callback that refuses
            context.status = "failed"
            with suppress(Exception):
                self.end(context)
            raise

    def on_evaluation(self, context: Context, metrics: Metrics) -> None:
        """Send an evaluation."""
        self._sent = context.update, frozenset(metrics)
        self._try(context, lambda: self.send(values_of(metrics), context.step))

    def on_metrics(self, context: Context, metrics: Metrics) -> None:
        """Send a row, without the columns of the evaluation that was sent here already."""
        sent = self._sent[1] if self._sent[0] == context.update else ()
        row = {name: value for name, value in metrics.items() if name not in sent}
        self._try(context, lambda: self.send(values_of(row), context.step))

    def on_end(self, context: Context) -> None:
        """Send the summary and end the tracker's run, the latter also if the tracker has failed before."""
        if not self._begun:  # Ctrl-C came while it was started
            return
        self._try(context, lambda: self.finish(context, summary_of(context)))
        self._try(context, lambda: self.end(context), always=True)
        if context._trainer.hooks.refused:  # by another callback: the folder of a new run is to be removed
            path = context.folder / self.file
            path.unlink(missing_ok=True) if self._before is None else write_bytes(path, self._before)

    def _try(self, context: Context, act: Any, always: bool = False) -> None:
        if self._failed and not always:
            return
        try:
            act()
        except Exception as error:
            if not self._failed:
                context.warn(f"{self.tracker} failed, so training continues without it: {one_line(error)}")
            self._failed = True


def one_line(error: Exception) -> str:
    """The message of an exception on one line, at most 300 characters."""
    return " ".join(f"{error}".split())[:300] or type(error).__name__


def required(where: str, what: str) -> str:
    """``where``, which the user gives.

    Raises:
        InputError: it is not text, or empty.
    """
    if not isinstance(where, str) or not where.strip():
        raise InputError(f"{what}, not {shortened(where)}.")
    return where


def values_of(metrics: Metrics) -> dict[str, float]:
    """The finite numbers of a row by name: means over seeds, and those of the seeds where there are several."""
    lists = {name: or_none(x) if isinstance(x, np.ndarray) else x for name, x in metrics.items()}
    one = {f"{name}/seed0" for name, x in lists.items() if isinstance(x, list) and len(x) == 1}
    return {name: float(x) for name, x in scalars(lists).items() if name not in one and math.isfinite(x)}


def run_facts(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says of a run, as JSON values: configuration, versions, commit and hardware."""
    found = manifest.read_run_json(folder)
    config = {name: value for name, value in found["config"].items() if name not in ("spec", "by_name")}
    return to_json(config | found["made_with"], "run")


def summary_of(context: Context) -> dict[str, Any]:
    """How a run ended: its status, why it ended early, and the final evaluation with its mode of acting."""
    summary: dict[str, Any] = {"status": context.status, "steps": context.step, "seconds": round(context.seconds, 3)}
    if context.ended:
        summary["ended"] = context.ended
    if (found := context.run.evaluation) is not None and context.status == "finished":
        low, high = found.interval
        summary |= {"mode": found.mode, "evaluation/mean": found.mean, "evaluation/low": low, "evaluation/high": high}
        summary |= {f"evaluation/{name}": found.metric(name).mean for name in found.metrics}
    return summary


def _contents(path: Path) -> bytes | None:
    """The file of an earlier process; None if there is none or it is too large."""
    try:
        return reading.read_bytes(path, MAX_ID_BYTES)
    except (OSError, ValueError):
        return None


def _stored(data: bytes | None) -> dict[str, Any]:
    """What the file of an earlier process holds; empty if there is none or it is damaged."""
    try:
        found = reading.parse_json(data or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
