"""Records of tuning: a small JSON text for each method, with the budget, every trial, and the winner.

Scores are rounded as in :mod:`shoal.studies.record`; values of hyper-parameters are exact. Reading a record executes
nothing and imports nothing that it names.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError, shortened
from shoal.options.flags import flags_of
from shoal.studies.archive import Stored, find, json_text, stored
from shoal.studies.combinations import Combination
from shoal.studies.keys import label
from shoal.studies.plan import existing_path
from shoal.studies.record import (
    check_behaviour,
    check_hardware,
    check_keys,
    check_kind,
    check_list,
    check_record_number,
    opened,
    take_format,
)
from shoal.studies.study_file import StudyFile
from shoal.studies.tuning.file import ranked
from shoal.studies.tuning.methods import Method, method_of, methods
from shoal.system.files import make_folder, to_json, write_text
from shoal.training.settings import CHANGEABLE

TUNING_FORMAT = 2
"""Format 1 has no behaviour versions."""
OF_RUNS = CHANGEABLE | {"seed", "seeds", "steps", "eval_every"}
"""Settings of the study's runs that trials do not have."""
_KINDS: dict[str, Any] = {
    "study": str,
    "commit": (str, type(None)),
    "changed": bool,
    "platform": str,
    "programs": int,
    "winner": int,
    "rungs": list,
    "runs": list,
    "behaviour": list,
    "trials": list,
}
_NUMBERS = ("eta", "rounds", "seeds", "seed", "episodes", "evaluation_seed", "draw")
_SETTINGS: dict[str, Any] = dict.fromkeys(_NUMBERS, int)
_SETTINGS |= {"search": str, "default": bool, "greedy": (bool, type(None))}
_BOUND = (int, float, type(None))
_RANGE: dict[str, Any] = {"low": _BOUND, "high": _BOUND, "log": bool, "values": list, "kind": str}


@dataclass(frozen=True)
class TuningRecord:
    """The record of the search of one method."""

    study: str
    """Name of the study."""
    method: dict[str, Any]
    """The values of the axes that the method's runs have in common."""
    runs: list[dict[str, Any]]
    """For each environment, the whole configuration of a trial before values are drawn: ``algorithm``, ``environment``,
    ``env``, ``settings`` and ``config``."""
    tuning: dict[str, Any]
    """The settings of the search: ``eta``, ``rounds``, ``seeds``, ``seed``, ``episodes``, ``evaluation_seed``,
    ``draw``, ``search``, ``default``, and ``greedy``, which older records lack: they are greedy."""
    ranges: dict[str, dict[str, Any]]
    """By flag: ``low``, ``high``, ``log`` and ``values``; and ``kind``, ``traced`` or ``structural``."""
    rungs: list[list[int]]
    """Of each round: the nominal steps of a seed in an environment, and the trials that reach them."""
    budget: dict[str, int]
    """``steps``: environment steps allowed, over all trials, seeds, environments and rounds; ``trained``: those done,
    which are fewer by parts of updates and by the later rungs of trials that diverged; ``episodes``: of the
    evaluations, over all of them."""
    programs: int
    """Structures: combinations of the values that need compiled programs of their own."""
    trials: list[dict[str, Any]]
    """Every trial: ``values`` by flag, and ``scores``: at each rung that it reached, in each environment, the mean
    score of each seed; None in an environment where it diverged."""
    winner: int
    """Index of the best trial."""
    versions: dict[str, str | None]
    commit: str | None
    changed: bool
    platform: str
    hardware: dict[str, Any]
    seconds: dict[str, float | int]
    """Wall time: ``training`` and ``other``, which is compilation, evaluation and storing."""
    behaviour: list[dict[str, int]]
    """Behaviour versions (:func:`shoal.runs.behaviour.versions`) of each of :attr:`runs`, of a search that was
    continued with others the oldest; empty if unknown."""

    @property
    def flags(self) -> dict[str, Any]:
        """The winner's values, with tuples for lists."""
        found = self.trials[self.winner]["values"]
        return {flag: tuple(value) if isinstance(value, list) else value for flag, value in found.items()}

    @property
    def environments(self) -> list[str]:
        """Where trials were made."""
        return [run["environment"] for run in self.runs]

    @property
    def tasks(self) -> list[str]:
        """The environments with their options, as in a command, for example ``lbf/8x8-2p-2f --env.horizon 25``."""
        return [task_text(run["environment"], run["env"]) for run in self.runs]

    def ranked(self) -> list[int]:
        """Trials from the best to the worst: by the last rung that they reached, then by the ranks of their scores."""
        found = []
        for reached in range(len(self.rungs), 0, -1):
            scores = {i: one["scores"][-1] for i, one in enumerate(self.trials) if len(one["scores"]) == reached}
            found += ranked(scores)
        return found


def task_text(environment: str, options: Mapping[str, Any]) -> str:
    """An environment with its options, as in a command."""
    return " ".join([environment, *(f"--env.{x.replace('_', '-')} {label(value)}" for x, value in options.items())])


def mean_score(scores: Any) -> float:
    """A trial's mean over seeds and environments; NaN if it diverged."""
    return math.nan if any(one is None for one in scores) else float(np.mean(scores))


def tuning_record_path(folder: Path, method: Method) -> Path:
    """The path of a method's record in the study's folder of records, if it has a file of its own."""
    return existing_path(folder / f"{method.name}.json")


def write_tuning_record(path: Path, record: TuningRecord) -> None:
    """Write a record atomically; its folder is created if needed. The same record gives the same bytes.

    Raises:
        WriteError: it cannot be written.
    """
    found = {"format": TUNING_FORMAT, "kind": "tuning"} | {
        field.name: getattr(record, field.name) for field in fields(record)
    }
    make_folder(path.parent)
    write_text(path, json_text(to_json(found, "record")) + "\n")


def read_tuning_record(path: Path) -> TuningRecord:
    """Read and validate a record that has a file of its own.

    Raises:
        InputError: there is none, it is damaged, of another program, or of a newer Shoal.
    """
    return opened_tuning_record(Stored(path.stem, path))


def opened_tuning_record(one: Stored) -> TuningRecord:
    """Read and validate a record, which may be in an archive.

    Raises:
        InputError: it is damaged, of another program, or of a newer Shoal.
    """
    return opened(one, "tuning", _checked)


def winner(study: StudyFile, folder: Path) -> Callable[[Combination], Mapping[str, Any] | None]:
    """A function that gives the flags of the best trial for a tuned run, from the records in ``folder``; None if its
    method has no record."""
    found: list[Method] = []
    held: dict[str, TuningRecord] = {}

    def flags(one: Combination) -> Mapping[str, Any] | None:
        found.extend([] if found else methods(study))
        method = method_of(found, one)
        if method.name not in held:
            held.update(tuning_records(folder, [method]))
        if method.name not in held:
            return None
        best = held[method.name].flags
        for flag, value in best.items():
            if not _is_tried(method, flag, value):
                raise study.error(f"the record of {method.title}'s search has a {flag} that [tuning] does not try.")
        return best

    return flags


def _is_tried(method: Method, flag: str, value: Any) -> bool:
    """Whether a search may have tried a value. Of texts, which may name modules, those of the file, which were checked,
    and that of the first trial, whose values are the run's without tuning."""
    span = method.ranges.get(flag)
    texts = [x for x in (value if isinstance(value, tuple) else (value,)) if not isinstance(x, int | float | None)]
    if span is None or not texts or value in span.values:
        return span is not None
    found = method.cells[0].merged()
    return (flags_of(found.settings) | flags_of(found.config)).get(flag) == value


def tuning_records(folder: Path, found: Iterable[Method]) -> dict[str, TuningRecord]:
    """The records of methods, by the methods' names.

    Raises:
        InputError: a record is damaged.
    """
    every, held = stored(folder), {}
    for method in found:
        if (one := find(every, method.name)) is not None:
            held[method.name] = opened_tuning_record(one)
        else:
            others = (opened_tuning_record(one) for one in every.values() if one.is_tuning)
            same = [record for record in others if _is_search(method, record)]
            held |= {method.name: same[0]} if same else {}
    return held


def _is_search(method: Method, record: TuningRecord) -> bool:
    """Whether a record is of a method's search although its name is another: it depends on the seeds and the steps of
    the study's runs, on which the search does not."""
    if {flag: _span(to_json(asdict(span))) for flag, span in method.ranges.items()} != {
        flag: _span(span) for flag, span in record.ranges.items()
    }:
        return False
    if to_json(method.values) != record.method or [list(rung) for rung in method.rungs] != record.rungs:
        return False
    settings = {"greedy": True} | record.tuning
    if any(to_json(getattr(method.tuning, name)) != value for name, value in settings.items()):
        return False
    runs = [
        run | {"settings": {name: x for name, x in run["settings"].items() if name not in OF_RUNS}}
        for run in record.runs
    ]
    return len(runs) == len(method.cells) and all(
        cell.difference(run) is None for cell, run in zip(method.cells, runs, strict=True)
    )


def _span(span: Any) -> Any:
    """What a range says: a list of values, or the bounds of an interval."""
    return span["values"] or [span[name] for name in ("low", "high", "log")]


def _checked(found: Any) -> TuningRecord:
    if take_format(found, "tuning", TUNING_FORMAT) == 1:
        found.setdefault("behaviour", [])
    check_keys("record", found, [field.name for field in fields(TuningRecord)])
    for name in found:
        check_kind(name, found[name], _KINDS.get(name, dict))
    for name, value in [*found["method"].items(), *found["versions"].items()]:
        check_kind(f"{name[:80]!r}", value, (bool, int, float, str, list, type(None)))
    lacking = {"greedy"} - found["tuning"].keys()
    _check_kinds("tuning", found["tuning"], {name: x for name, x in _SETTINGS.items() if name not in lacking})
    check_hardware(found["hardware"])
    for part, names in (("seconds", ("training", "other")), ("budget", ("steps", "trained", "episodes"))):
        check_keys(part, found[part], names)
        for name, value in found[part].items():
            check_record_number(f"{part}.{name}", value)
    for run in found["runs"]:
        check_kind("a run", run, dict)
        check_keys("runs", run, ("algorithm", "environment", "env", "settings", "config"))
        check_kind("a run's algorithm", run["algorithm"], str)
        check_kind("a run's environment", run["environment"], str)
    for versions in found["behaviour"]:
        check_kind("behaviour", versions, dict)
        check_behaviour(versions)
    if found["behaviour"] and len(found["behaviour"]) != len(found["runs"]):
        raise InputError(f"behaviour is of {len(found['behaviour'])} runs of {len(found['runs'])}.")
    for flag, span in found["ranges"].items():
        check_kind(f"the range of {flag[:80]}", span, dict)
        _check_kinds(f"ranges.{flag[:80]}", span, _RANGE)
    for rung in found["rungs"]:
        if len(check_list("rungs", rung)) != 2:
            raise InputError(f"rungs cannot hold {shortened(rung)}.")
        for value in rung:
            check_record_number("rungs", value)
    _check_trials(found)
    return TuningRecord(**found)


def _check_kinds(part: str, found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    check_keys(part, found, kinds)
    for name, value in found.items():
        check_kind(f"{part}.{name}", value, kinds[name])


def _check_trials(found: Mapping[str, Any]) -> None:
    seeds, environments, flags = found["tuning"].get("seeds"), len(found["runs"]), set(found["ranges"])
    for i, trial in enumerate(found["trials"]):
        check_kind(f"trial {i}", trial, dict)
        check_keys("trials", trial, ("values", "scores"))
        check_kind("values", trial["values"], dict)
        if set(trial["values"]) - flags:
            raise InputError(f"trial {i} has values without a range.")
        for value in trial["values"].values():
            check_kind("a value", value, (bool, int, float, str, list, type(None)))
        rungs = check_list("scores", trial["scores"])
        if not 1 <= len(rungs) <= len(found["rungs"]):
            raise InputError(f"trial {i} has {len(rungs)} rungs of {len(found['rungs'])}.")
        for rung in rungs:
            if len(check_list("scores", rung)) != environments:
                raise InputError(f"trial {i} has scores of {len(rung)} environments of {environments}.")
            for one in rung:
                if one is not None and len(check_list("scores", one)) != seeds:
                    raise InputError(f"trial {i} has scores of {len(one)} seeds of {seeds}.")
                for value in one or ():
                    check_record_number("a score", value)
    if not 0 <= found["winner"] < len(found["trials"]):
        raise InputError(f"winner cannot be {found['winner']}.")
