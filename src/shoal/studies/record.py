"""Records: a small JSON text for each finished run, from which tables are made without its folder.

Measured numbers (scores, metrics, curves, seconds, product rate) are rounded to :data:`DIGITS` significant digits; the
configuration is exact. Reading a record executes nothing and imports nothing that it names.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError, shortened, unknown
from shoal.records import reading
from shoal.records.files import from_json, make_folder, to_json, write_text

FORMAT = 1
DIGITS = 6
LARGEST = 2**26
"""Largest size of a record in bytes."""
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
_EVALUATION = ("episodes", "greedy", "lengths", "metrics", "scores", "seed", "step")


@dataclass(frozen=True)
class Record:
    """What remains of a finished run."""

    study: str
    """Name of the study."""
    cell: dict[str, Any]
    """The value of each axis of the study."""
    run: dict[str, Any]
    """The run's whole configuration, the entry ``config`` of its ``run.json``."""
    versions: dict[str, str | None]
    """Versions of Python and of the main packages."""
    commit: str | None
    """Shoal's commit; None if it did not run from a checkout."""
    changed: bool
    """Whether files of the package differed from that commit."""
    platform: str
    hardware: dict[str, Any]
    """Processor, cores, memory and devices, and ``product_gflops``: the rate of a 2048³ float32 product in GFLOP/s, or
    None if the run was trained on another machine than the one that evaluated it."""
    seconds: dict[str, float | int]
    """Wall time: ``training``, without compilation, and ``other``, which is compilation and evaluation."""
    curve: dict[str, list]
    """The learning curve: ``step`` [X], and ``score`` [X, seeds], the means over the episodes of training that ended
    since the previous point; None where none did."""
    evaluation: dict[str, Any]
    """The final evaluation: ``episodes``, ``greedy``, ``seed`` of the episodes, ``step`` of the evaluated policy,
    ``scores`` and ``lengths`` [seeds, episodes], and ``metrics`` by name, [seeds, episodes] with None where unknown."""

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
        devices = ", ".join(f"{one['count']} × {one['kind']}" for one in self.hardware["devices"])
        return f"{self.hardware['processor']}, {self.hardware['cores']} cores; devices: {devices}"


def write(path: Path, record: Record) -> None:
    """Write a record atomically; its folder is created if needed. The same record gives the same bytes.

    Raises:
        InputError: a value has no JSON form.
        WriteError: the disk is full, or the folder cannot be created.
    """
    found = {"format": FORMAT} | {field.name: getattr(record, field.name) for field in fields(record)}
    make_folder(path.parent)
    write_text(path, json_text(to_json(found, "record")) + "\n")


def json_text(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, and each list without objects on one line."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        names = {key: json.dumps(key, ensure_ascii=False) for key in sorted(value)}
        lines = [f"{deeper}{name}: {json_text(value[key], deeper)}" for key, name in names.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(one, list | dict) for one in value):
        return "[\n" + ",\n".join(f"{deeper}{json_text(one, deeper)}" for one in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def rounded(values: Any) -> Any:
    """Numbers in nested lists or arrays, rounded to :data:`DIGITS` significant digits; None where not finite."""
    if isinstance(values, np.ndarray | list | tuple):
        return [rounded(one) for one in (values.tolist() if isinstance(values, np.ndarray) else values)]
    if values is None or not math.isfinite(values):
        return None
    number = float(f"{values:.{DIGITS}g}")
    return int(number) if number.is_integer() and abs(number) < 10**DIGITS else number


def read(path: Path) -> Record:
    """Read and validate a record.

    Raises:
        InputError: there is none, it is damaged, of another program, or of a newer Shoal.
    """
    try:
        found = from_json(reading.parse(reading.read_bytes(path, LARGEST)))
    except FileNotFoundError:
        raise InputError(f"There is no record {path}.") from None
    except reading.ReadingError as error:
        raise InputError(f"The record {path} {error}.") from None
    try:
        return _checked(found)
    except InputError as error:
        raise InputError(f"{path} is not a record of a run: {error}") from None


def _checked(found: Any) -> Record:
    if not isinstance(found, dict) or "format" not in found:
        raise InputError("it is not a JSON object with a format.")
    version = found.pop("format")
    if type(version) is not int or version < 1:
        raise InputError(f"its format is {shortened(version)}.")
    if version > FORMAT:
        raise InputError(f"its format {version} is of a newer Shoal, and this one reads up to {FORMAT}.")
    kinds = {"study": str, "commit": (str, type(None)), "changed": bool, "platform": str}
    check_keys("record", found, [field.name for field in fields(Record)])
    for name in found:
        check_kind(name, found[name], kinds.get(name, dict))
    if not re.fullmatch(r"[0-9a-f]{7,64}", found["commit"] or "0000000"):
        raise InputError(f"commit cannot be {shortened(found['commit'])}.")
    for name, value in found["cell"].items():
        check_kind(f"the axis {name[:80]!r}", value, (bool, int, float, str, list))
    check_keys("run", found["run"], _RUN)
    for name, kind in _RUN.items():
        check_kind(f"run.{name}", found["run"][name], kind)
    for name, value in found["versions"].items():
        check_kind(f"versions.{name[:80]}", value, (str, type(None)))
    check_hardware(found["hardware"])
    check_keys("seconds", found["seconds"], ("training", "other"))
    for name, value in found["seconds"].items():
        check_number(f"seconds.{name}", value)
    seeds = found["run"]["settings"].get("seeds")
    _check_evaluation(found["evaluation"], seeds)
    check_keys("curve", found["curve"], ("step", "score"))
    _check_array("curve.score", found["curve"]["score"], len(check_list("curve.step", found["curve"]["step"])), seeds)
    return Record(**found)


def check_hardware(found: Mapping[str, Any]) -> None:
    """Check the entry ``hardware`` of a record."""
    check_keys("hardware", found, ("processor", "cores", "memory_gib", "devices", "product_gflops"))
    check_kind("hardware.processor", found["processor"], str)
    for name in ("cores", "memory_gib", "product_gflops"):
        if found[name] is not None:
            check_number(f"hardware.{name}", found[name])
    for one in check_list("hardware.devices", found["devices"]):
        check_kind("a device", one, dict)
        check_keys("hardware.devices", one, ("platform", "kind", "count"))
        check_kind("a device's kind", one["kind"], str)
        check_number("a device's count", one["count"])


def _check_evaluation(found: Mapping[str, Any], seeds: Any) -> None:
    check_keys("evaluation", found, _EVALUATION)
    check_kind("evaluation.greedy", found["greedy"], bool)
    for name in ("episodes", "seed", "step"):
        check_kind(f"evaluation.{name}", found[name], int)
    check_kind("evaluation.metrics", found["metrics"], dict)
    _check_array("evaluation.scores", found["scores"], seeds, found["episodes"], unknowns=False)
    _check_array("evaluation.lengths", found["lengths"], seeds, found["episodes"], unknowns=False)
    for name, values in found["metrics"].items():
        _check_array(f"evaluation.metrics.{name[:80]}", values, seeds, found["episodes"])


def check_keys(part: str, found: Mapping[str, Any], known: Any) -> None:
    """Check that an object has exactly the ``known`` keys."""
    for name in found:
        if name not in known:
            raise unknown(f"key in {part!r} named", name[:80], known)
    for name in known:
        if name not in found:
            raise InputError(f"{part!r} lacks {name!r}.")


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Check a type, and that text is short and printable, since it is printed."""
    wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float))
    if wrong or (isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST)):
        raise InputError(f"{name} cannot be {shortened(value)}.")


def check_number(name: str, value: Any) -> None:
    """Check that a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} cannot be {shortened(value)}; it is a number.")


def check_list(name: str, value: Any) -> list:
    """Check that a value is a list, and return it."""
    if not isinstance(value, list):
        raise InputError(f"{name} cannot be {shortened(value)}; it is a list.")
    return value


def _check_array(name: str, values: Any, rows: Any, columns: Any, unknowns: bool = True) -> None:
    """Check that nested lists hold ``rows`` × ``columns`` finite numbers, or None with ``unknowns``."""
    found = check_list(name, values)
    if len(found) != rows or any(len(check_list(name, one)) != columns for one in found):
        raise InputError(f"{name} must hold {rows} lists of {columns} numbers.")
    for one in found:  # not check_number for each: there are thousands
        for value in one:
            known = type(value) in (int, float) and math.isfinite(value)
            if not known and not (unknowns and value is None):
                check_number(name, value)
