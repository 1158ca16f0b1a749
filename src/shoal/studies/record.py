"""Records: a small JSON text for each finished run, from which tables are made without its folder.

:mod:`shoal.studies.archive` stores them, in a file each or together.

Measured numbers (scores, metrics, curves, seconds, product rate) are rounded to :data:`DIGITS` significant digits; the
configuration is exact. Reading a record executes nothing and imports nothing that it names.
"""

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError, shortened, unknown
from shoal.statistics.scores import MAX_FLOAT32
from shoal.studies.archive import Stored, json_text, stored
from shoal.system.files import make_folder, to_json, write_text
from shoal.system.machine import cores_text

# The validation of records, before anything in them is used.


_LONGEST = 300
_RUN: dict[str, type] = {
    "algorithm": str,
    "environment": str,
    "env": dict,
    "by_name": bool,
    "settings": dict,
    "config": dict,
    "spec": dict,
}
T = TypeVar("T")
_OPTIONAL = "separate_seeds"  # only in records for which it is true
_EVALUATION = ("episodes", "greedy", "lengths", "metrics", "scores", "seed", "step")


def checked(found: Any, known: int, names: Collection[str]) -> dict[str, Any]:
    """The fields of a record, from JSON.

    Args:
        found: the contents of the file.
        known: the format that is read.
        names: the fields of :class:`shoal.studies.record.Record`.

    Raises:
        InputError: a key is missing, unknown, or of the wrong type.
    """
    version = take_format(found, None, known)
    if version < known:
        raise InputError(
            f"its format {version} is of a version of Shoal before 0.2.0; delete it and run the study again."
        )
    kinds = {"study": str, "commit": (str, type(None)), "changed": bool, "platform": str, _OPTIONAL: bool}
    check_keys("record", found, [name for name in names if name != _OPTIONAL or name in found])
    for name in found:
        check_kind(name, found[name], kinds.get(name, dict))
    if not re.fullmatch(r"[0-9a-f]{7,64}", found["commit"] or "0000000"):
        raise InputError(f"commit cannot be {shortened(found['commit'])}.")
    for name, value in found["cell"].items():
        check_kind(f"the axis {name[:80]!r}", value, (bool, int, float, str, list))
    check_keys("run", found["run"], _RUN)
    for name, kind in _RUN.items():
        check_kind(f"run.{name}", found["run"][name], kind)
    for name, value in found["sources"].items():
        if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{8,64}", value):
            raise InputError(f"sources.{name[:80]} cannot be {shortened(value)}.")
    check_behaviour(found["behaviour"])
    for name, value in found["versions"].items():
        check_kind(f"versions.{name[:80]}", value, (str, type(None)))
    check_hardware(found["hardware"])
    check_keys("seconds", found["seconds"], ("training", "other"))
    for name, value in found["seconds"].items():
        check_record_number(f"seconds.{name}", value)
    seeds = found["run"]["settings"].get("seeds")
    _check_evaluation(found["evaluation"], seeds)
    _check_curves("curve", found["curve"], seeds)
    if found["evaluations"]:
        _check_curves("evaluations", found["evaluations"], seeds)
    return found


def take_format(found: Any, kind: str | None, known: int) -> int:
    """The format of a record, from JSON, out of which it and the kind are taken.

    Args:
        found: the contents of the file.
        kind: what the record must name as its kind; None for the record of a run, which names none.
        known: the newest format that is read.

    Raises:
        InputError: it is of another kind, or of a newer format, or there is none.
    """
    if not isinstance(found, dict) or "format" not in found:
        raise InputError("it is not a JSON object with a format.")
    named = [found.pop("kind")] if "kind" in found else []
    if named != ([] if kind is None else [kind]):
        raise InputError(f"it is of the kind {shortened(named[0])}." if named else "it names no kind.")
    version = found.pop("format")
    if type(version) is not int or version < 1:
        raise InputError(f"its format is {shortened(version)}.")
    if version > known:
        raise InputError(f"its format {version} is of a newer version of Shoal; this one reads {known}.")
    return version


def check_behaviour(found: Mapping[str, Any]) -> None:
    """Check the behaviour versions of a record."""
    for name, value in found.items():
        check_kind(f"behaviour.{name[:80]}", value, int)
        if value < 0:
            raise InputError(f"behaviour.{name[:80]} must be at least 0, not {shortened(value)}.")


def _check_curves(part: str, found: Mapping[str, Any], seeds: Any) -> None:
    check_keys(part, found, ("step", "score"), more=True)
    steps = check_list(f"{part}.step", found["step"])
    for step in steps:
        check_kind(f"{part}.step", step, int)
    for name, values in found.items():
        if name != "step":
            _check_array(f"{part}.{name[:80]}", values, len(steps), seeds)


def check_hardware(found: Mapping[str, Any]) -> None:
    """Check the entry ``hardware`` of a record."""
    measured = ("product_gflops", *(name for name in ("earlier",) if name in found))
    _check_machine(found, measured)
    for one in check_list("hardware.earlier", found.get("earlier", [])):
        check_kind("an earlier machine", one, dict)
        _check_machine(one)


def _check_machine(found: Mapping[str, Any], more: tuple[str, ...] = ()) -> None:
    check_keys("hardware", found, ("processor", "cores", "memory_gib", "devices", *more))
    check_kind("hardware.processor", found["processor"], str)
    for name in ("cores", "memory_gib", "product_gflops"):
        if found.get(name) is not None:
            check_record_number(f"hardware.{name}", found[name])
    for one in check_list("hardware.devices", found["devices"]):
        check_kind("a device", one, dict)
        check_keys("hardware.devices", one, ("platform", "kind", "count"))
        check_kind("a device's kind", one["kind"], str)
        check_record_number("a device's count", one["count"])


def _check_evaluation(found: Mapping[str, Any], seeds: Any) -> None:
    check_keys("evaluation", found, (*_EVALUATION, *(name for name in ("best", "better", "other") if name in found)))
    check_kind("evaluation.better", found.get("better", True), bool)
    check_kind("evaluation.greedy", found["greedy"], bool)
    for name in ("episodes", "seed", "step"):
        check_kind(f"evaluation.{name}", found[name], int)
    _check_episodes("evaluation", found, seeds, found["episodes"])
    if "other" in found:
        if len(check_list("evaluation.other", found["other"])) != seeds:
            raise InputError(f"evaluation.other must hold {seeds} numbers.")
        for mean in found["other"]:
            check_record_number("evaluation.other", mean)
    if "best" in found:
        check_kind("evaluation.best", found["best"], dict)
        check_keys("evaluation.best", found["best"], ("lengths", "metrics", "scores", "step"))
        _check_episodes("evaluation.best", found["best"], seeds, found["episodes"])
        if len(check_list("evaluation.best.step", found["best"]["step"])) != seeds:
            raise InputError(f"evaluation.best.step must hold {seeds} numbers.")
        for step in found["best"]["step"]:
            check_kind("evaluation.best.step", step, int)


def _check_episodes(part: str, found: Mapping[str, Any], seeds: Any, episodes: Any) -> None:
    """Check ``scores``, ``lengths`` and ``metrics`` [seeds, episodes]."""
    check_kind(f"{part}.metrics", found["metrics"], dict)
    _check_array(f"{part}.scores", found["scores"], seeds, episodes, unknowns=False)
    _check_array(f"{part}.lengths", found["lengths"], seeds, episodes, unknowns=False)
    for name, values in found["metrics"].items():
        _check_array(f"{part}.metrics.{name[:80]}", values, seeds, episodes)


def check_keys(part: str, found: Mapping[str, Any], known: Any, more: bool = False) -> None:
    """Check that all known keys exist, and no others unless ``more`` are allowed."""
    for name in found:
        if name not in known and not more:
            raise unknown(f"key in {part!r} named", name[:80], known)
    for name in known:
        if name not in found:
            raise InputError(f"{part!r} lacks {name!r}.")


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Check a type, and that text is short and printable, since it is printed."""
    wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float))
    if wrong or (isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST)):
        raise InputError(f"{name} cannot be {shortened(value)}.")


def check_record_number(name: str, value: Any) -> None:
    """Check that a value is a finite number of single precision."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_FLOAT32:
        raise InputError(f"{name} must be a number, not {shortened(value)}.")


def check_list(name: str, value: Any) -> list:
    """Check that a value is a list, and return it."""
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list, not {shortened(value)}.")
    return value


def _check_array(name: str, values: Any, rows: Any, columns: Any, unknowns: bool = True) -> None:
    """Check that nested lists hold ``rows`` × ``columns`` finite numbers, or None with ``unknowns``."""
    found = check_list(name, values)
    if len(found) != rows or any(len(check_list(name, one)) != columns for one in found):
        raise InputError(f"{name} must hold {rows} lists of {columns} numbers.")
    for one in found:  # not check_number for each: there are thousands
        for value in one:
            known = type(value) in (int, float) and abs(value) <= MAX_FLOAT32
            if not known and not (unknowns and value is None):
                check_record_number(name, value)


# Records.


RECORD_FORMAT = 4
"""Format number of records, the only one that is read."""
DIGITS = 6


@dataclass(frozen=True)
class Record:
    """The record of a finished run."""

    study: str
    """Name of the study."""
    cell: dict[str, Any]
    """The value of each axis of the study."""
    run: dict[str, Any]
    """The run's whole configuration, the entry ``config`` of its ``run.json``: ``settings`` and ``config`` hold every
    flag as presets, the study's file and defaults resolved it."""
    versions: dict[str, str | None]
    """Versions of Python and of the main packages."""
    commit: str | None
    """Shoal's commit; None if it did not run from a checkout."""
    changed: bool
    """Whether files of the package differed from that commit."""
    platform: str
    hardware: dict[str, Any]
    """Processor, cores, memory and devices, and ``product_gflops``: the rate of a 2048³ float32 product in GFLOP/s, or
    None if the run was not evaluated on the machine that trained it. ``earlier`` holds the other machines, if there
    are any, on which the run was trained before it was resumed on this one."""
    seconds: dict[str, float | int]
    """Wall time: ``training``, without compilation, and ``other``, which is compilation and evaluation."""
    curve: dict[str, list]
    """The learning curve: ``step`` [X], and ``score`` [X, seeds], the means over the episodes of training that ended
    since the previous point; None where none did. It also has the metrics of training that the study names."""
    evaluation: dict[str, Any]
    """The final evaluation: ``episodes``, ``greedy``, ``seed`` of the episodes, ``step`` of the evaluated policy,
    ``scores`` and ``lengths`` [seeds, episodes], and ``metrics`` by name, [seeds, episodes] with None where unknown.
    With ``eval_every``, ``best`` holds ``scores``, ``lengths`` and ``metrics`` of the best policy of each seed in
    the same mode, on episodes that did not select it, and the ``step`` [seeds] at which it was selected. ``better``
    is true where ``greedy`` was not chosen by the study, but is the better mode of this run, and ``other`` [seeds]
    then holds the mean scores in the other mode, if the policy is stochastic."""
    evaluations: dict[str, list] = field(default_factory=dict)
    """With ``eval_every``, the greedy evaluations during training: ``step`` [X], ``score`` [X, seeds], and metrics of
    the environment by name."""
    sources: dict[str, str] = field(default_factory=dict)
    """A digest of the file of each of the user's modules that the run names, by module: those of its algorithm,
    networks, environment or opponents."""
    behaviour: dict[str, int] = field(default_factory=dict)
    """Behaviour versions (:func:`shoal.runs.behaviour.versions`); empty if unknown."""
    separate_seeds: bool = False
    """Whether each seed was trained as a run of its own (:mod:`shoal.studies.separate`). If other machines trained some
    of them, they are in ``earlier`` of :attr:`hardware`; ``commit`` is that of the last seed, and ``changed`` is also
    true if others had another one."""

    @cached_property
    def scores(self) -> Float[np.ndarray, "seeds episodes"]:
        """The score of every final episode."""
        return np.asarray(self.evaluation["scores"], np.float64)

    def values(self, metric: str) -> Float[np.ndarray, "seeds episodes"] | None:
        """``score``, ``length`` or a metric of every final episode, NaN where unknown; None if there is no such metric.

        An environment's metric of one of these names is not accessible.
        """
        if metric == "score":
            return self.scores
        found = self.evaluation["lengths"] if metric == "length" else self.evaluation["metrics"].get(metric)
        return None if found is None else np.asarray(found, np.float64)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.evaluation["scores"])

    @property
    def machine(self) -> str:
        """The hardware as one line, without the product rate, which varies between processes."""
        return machines_text(self.hardware)


def machines_text(hardware: Mapping[str, Any]) -> str:
    """A record's hardware as one line, with the machines on which it was trained before."""
    return ", before on ".join(machine_text(one) for one in (hardware, *hardware.get("earlier", ())))


def machine_text(hardware: Mapping[str, Any]) -> str:
    """Processor, cores and devices of a record's hardware as one line."""
    devices = ", ".join(f"{one['count']} × {one['kind']}" for one in hardware["devices"])
    return f"{hardware['processor']}, {cores_text(hardware['cores'])}; devices: {devices}"


def write_record(path: Path, record: Record) -> None:
    """Write a record atomically; its folder is created if needed. The same record gives the same bytes.

    Raises:
        InputError: a value has no JSON form.
        WriteError: the disk is full, or the folder cannot be created.
    """
    found = {"format": RECORD_FORMAT} | {each.name: getattr(record, each.name) for each in fields(record)}
    if not record.separate_seeds:
        del found[_OPTIONAL]
    make_folder(path.parent)
    write_text(path, json_text(to_json(found, "record")) + "\n")


def rounded_numbers(values: Any) -> Any:
    """Numbers in nested lists or arrays, rounded to :data:`DIGITS` significant digits; None where not finite."""
    if isinstance(values, np.ndarray | list | tuple):
        return [rounded_numbers(one) for one in (values.tolist() if isinstance(values, np.ndarray) else values)]
    if values is None or not math.isfinite(values):
        return None
    number = float(f"{values:.{DIGITS}g}")
    return int(number) if number.is_integer() and abs(number) < 10**DIGITS else number


def read_record(path: Path) -> Record:
    """Read and validate a record that has a file of its own.

    Raises:
        InputError: there is none, it is damaged, of another program, or of a newer Shoal.
    """
    return opened_record(Stored(path.stem, path))


def opened_record(one: Stored) -> Record:
    """Read and validate a record, which may be in an archive.

    Raises:
        InputError: it is damaged, of another program, or of a newer Shoal.
    """
    return opened(one, "a run", _record)


def opened(one: Stored, what: str, check: Callable[[Any], T]) -> T:
    """Read and validate what is stored of ``what``, with ``check``, a function of its JSON.

    Raises:
        InputError: it is damaged, or ``check`` refuses it.
    """
    found = one.contents()
    try:
        return check(found)
    except InputError as error:
        raise InputError(f"{one.where} is not a record of {what}: {error}") from None


def _record(found: Any) -> Record:
    return Record(**checked(found, RECORD_FORMAT, [each.name for each in fields(Record)]))


def readable_records(folder: Path) -> list[Record]:
    """All records of runs in a study's folder, in the order of their names; damaged ones and those of tuning and of
    cross-play are left out."""
    found = []
    with contextlib.suppress(InputError):
        for one in filter(lambda one: one.is_run, stored(folder).values()):
            with contextlib.suppress(InputError):
                found.append(opened_record(one))
    return found
