"""When a run ends: after its last step, when every seed has reached a score, when its time budget is used up, or when a
callback stops it.

Checkpoints record the progress of the run, and whether a callback stopped it. The other ends follow from the settings,
which may change when the run is resumed.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from shoal.bounds import bounds_text
from shoal.security import reading
from shoal.storage.checkpoint import Checkpoints
from shoal.system.files import from_json
from shoal.training.settings import Settings
from shoal.types import Seconds

FIRST = 4
"""Updates in the first call, whose duration is not known; one if time is limited."""

MAX_REASON = 200
"""Largest number of characters of a callback's reason to stop."""


class Standing(NamedTuple):
    """The progress of a run."""

    update: int
    """Updates so far."""
    seconds: Seconds = 0.0
    """Wall time of training so far, over all parts of the run: rollouts and updates, without compilation, evaluations
    and checkpoints. It is the log's column ``seconds``."""
    best: tuple[float, ...] | None = None
    """The highest mean return of each seed in an evaluation; None before the first evaluation."""

    stopped: str = ""
    """The reason that a callback gave when it stopped the run here; empty if none did."""
    beyond: float = 0.0
    """Environment steps per seed beyond those that an agent was asked for, since each of its parts ends with a whole
    update."""
    owed: bool = False
    """Whether an error of the environment ended the evaluation here, so that it has to be repeated, and the row of the
    log to be written, before the run goes on or ends."""

    def as_json(self) -> dict[str, Any]:
        """The entries of a checkpoint's ``meta``; the checkpoint's number is the update."""
        rare = {"stopped": self.stopped, "beyond": self.beyond, "owed": self.owed}
        return {"elapsed": self.seconds, "best": self.best} | {name: value for name, value in rare.items() if value}


def standing(update: int, meta: Mapping[str, Any]) -> Standing:
    """The progress in a checkpoint's ``meta``, which is untrusted; damaged and missing entries are unknown."""
    seconds, found, stopped, beyond = map(meta.get, ("elapsed", "best", "stopped", "beyond"))
    best = found if isinstance(found, list) and found and all(map(_is_number, found)) else None
    return Standing(
        update,
        float(seconds) if _is_number(seconds) else 0.0,
        None if best is None else tuple(map(float, best)),
        stopped if is_reason(stopped) else "",
        float(beyond) if _is_number(beyond) else 0.0,
        meta.get("owed") is True,
    )


def is_reason(value: Any) -> TypeGuard[str]:
    """Whether a value is the reason of a stop: printable text of at most :data:`MAX_REASON` characters."""
    return isinstance(value, str) and value.isprintable() and bool(value.strip()) and len(value) <= MAX_REASON


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def saved(folder: Path) -> Standing:
    """The progress in the newest checkpoint of the run in ``folder`` whose index is intact; that of a new run if there
    is none. Arrays are not read, since they may be large."""
    try:
        index = from_json(reading.parse_json(Checkpoints(folder / "checkpoints").file("index.json") or b""))
        return standing(int(index["step"]), dict(index["meta"]))
    except (OSError, ValueError, TypeError, KeyError):
        return Standing(0)


def higher(best: tuple[float, ...] | None, scores: Sequence[float | None]) -> tuple[float, ...]:
    """The higher of ``best`` and an evaluation's ``scores`` for each seed; None is lower than any score."""
    found = [-math.inf if x is None else x for x in scores]
    return tuple(found if best is None else map(max, best, found))


def spent(settings: Settings, at: Standing) -> bool:
    """Whether the steps or the time of the run are used up."""
    return at.update >= settings.num_updates or _out_of_time(settings, at)


def ended(settings: Settings, at: Standing) -> bool:
    """Whether the run ends here."""
    return not at.owed and (spent(settings, at) or _reached(settings, at) or bool(at.stopped))


def _out_of_time(settings: Settings, at: Standing) -> bool:
    return settings.time_budget is not None and at.seconds >= settings.time_budget


def _reached(settings: Settings, at: Standing) -> bool:
    wanted = settings.stop_at
    return wanted is not None and at.best is not None and all(score >= wanted for score in at.best)


def reason(settings: Settings, at: Standing) -> str:
    """Why the run ends before its last step, for example ``at step 3,200 of 6,400: every seed reached 20``; else empty.

    For a run with one seed it is ``the return reached 20``.
    """
    if at.update >= settings.num_updates or not ended(settings, at):
        return ""
    if _reached(settings, at):
        who = "every seed" if settings.seeds > 1 else "the return"
        why = f"{who} reached {bounds_text(settings.stop_at)}"
    elif at.stopped:
        why = at.stopped
    else:
        why = f"{bounds_text(settings.time_budget)} s of training are used up"
    return f"at step {at.update * settings.steps_per_update:,} of {settings.last_step:,}: {why}"


def more(settings: Settings, at: Standing) -> dict[str, float | bool | None]:
    """Options of ``resume`` with which a run that has ended would continue; None removes a limit."""
    changes: dict[str, float | bool | None] = {}
    if at.update >= settings.num_updates:
        changes["steps"] = 2 * settings.steps
    if _reached(settings, at):
        changes["stop_at"] = None
    if settings.time_budget is not None and _out_of_time(settings, at):
        changes["time_budget"] = 2 * settings.time_budget
    if at.stopped:
        changes["continue_stopped"] = True
    return changes


def sentence(settings: Settings, at: Standing) -> str:
    """The message for a run that has ended when it is resumed."""
    words = {"steps": "more steps", "stop_at": "a higher stop_at", "time_budget": "a larger time_budget"}
    words["continue_stopped"] = "continue_stopped (--continue-stopped)"
    further = " and ".join(words[name] for name in more(settings, at))
    why = reason(settings, at)
    done = f"ended {why}" if why else f"finished its {settings.last_step:,} steps per seed"
    return f"This run has {done}; {further} would continue it."


def fraction(settings: Settings, at: Standing) -> float:
    """Lower bound on the fraction of training that is done, by steps and time; 1 if and only if the run has ended."""
    if ended(settings, at):
        return 1.0
    time = at.seconds / settings.time_budget if settings.time_budget is not None else 0.0
    return min(max(at.update / settings.num_updates, time), math.nextafter(1.0, 0.0))


def seconds_left(settings: Settings, at: Standing) -> Seconds:
    """Upper bound on the time of training until the run ends, from the settings; may be infinite."""
    if ended(settings, at):
        return 0.0
    return math.inf if settings.time_budget is None else settings.time_budget - at.seconds


def call_size(settings: Settings, at: Standing, per_update: Seconds | None, target: Seconds, filling: int = 0) -> int:
    """The number of updates of the next call: as many as take ``target``, and none that begins after the time is up.

    A call ends where replay buffers hold enough to learn from: how long the updates that follow take is not known.

    Args:
        settings: the run's.
        at: its progress; the run has not ended.
        per_update: duration of an update in the last call; None before the first one.
        target: duration of a call.
        filling: updates of the run that only fill replay buffers.
    """
    left = settings.num_updates - at.update
    if at.update < filling:
        left = min(left, filling - at.update)
    if per_update is None or at.update == filling:
        return min(FIRST if settings.time_budget is None else 1, left)
    time, per_update = seconds_left(settings, at), max(per_update, 1e-9)
    most = left if math.isinf(time) else math.ceil(time / per_update)
    return max(1, min(int(target / per_update), most, left))
