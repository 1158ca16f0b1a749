"""Records: a small JSON text for each finished run, from which tables are made without its folder.

Measured numbers (scores, metrics, curves, seconds, product rate) are rounded to :data:`DIGITS` significant digits; the
configuration is exact. Reading a record executes nothing and imports nothing that it names.
"""

import json
import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError
from shoal.records import reading
from shoal.records.files import from_json, make_folder, to_json, write_text
from shoal.studies.record_checks import checked

FORMAT = 4
"""2 added ``evaluations``, ``best`` in ``evaluation``, and further curves; 3 added ``sources``; 4 ``behaviour``."""
DIGITS = 6
LARGEST = 2**26
"""Largest size of a record in bytes."""


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
    None if the run was not evaluated on the machine that trained it."""
    seconds: dict[str, float | int]
    """Wall time: ``training``, without compilation, and ``other``, which is compilation and evaluation."""
    curve: dict[str, list]
    """The learning curve: ``step`` [X], and ``score`` [X, seeds], the means over the episodes of training that ended
    since the previous point; None where none did. It also has the metrics of training that the study names."""
    evaluation: dict[str, Any]
    """The final evaluation: ``episodes``, ``greedy``, ``seed`` of the episodes, ``step`` of the evaluated policy,
    ``scores`` and ``lengths`` [seeds, episodes], and ``metrics`` by name, [seeds, episodes] with None where unknown.
    With ``eval_every``, ``best`` holds ``scores``, ``lengths`` and ``metrics`` of the best policy of each seed on the
    same episodes, which are not those that selected it, and the ``step`` [seeds] at which it was selected."""
    evaluations: dict[str, list] = field(default_factory=dict)
    """With ``eval_every``, the greedy evaluations during training: ``step`` [X], ``score`` [X, seeds], and metrics of
    the environment by name."""
    sources: dict[str, str] = field(default_factory=dict)
    """A digest of the file of each of the user's modules that the run names, by module: those of its algorithm,
    networks, environment or opponents."""
    behaviour: dict[str, int] = field(default_factory=dict)
    """Behaviour versions (:func:`shoal.behaviour.versions`); empty in records of earlier formats."""

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
    found = {"format": FORMAT} | {each.name: getattr(record, each.name) for each in fields(record)}
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


def parsed(path: Path) -> Any:
    """The contents of a record's JSON file.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        return from_json(reading.parse(reading.read_bytes(path, LARGEST)))
    except FileNotFoundError:
        raise InputError(f"There is no record {path}.") from None
    except reading.ReadingError as error:
        raise InputError(f"The record {path} {error}.") from None


def read(path: Path) -> Record:
    """Read and validate a record.

    Raises:
        InputError: there is none, it is damaged, of another program, or of a newer Shoal.
    """
    found = parsed(path)
    try:
        return Record(**checked(found, FORMAT, [each.name for each in fields(Record)]))
    except InputError as error:
        raise InputError(f"{path} is not a record of a run: {error}") from None
