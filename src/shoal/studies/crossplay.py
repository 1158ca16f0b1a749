"""The cross-play of a study: its groups of runs that play with each other, and the records of their games.

The runs of an environment with the same options are a group. Their games have one record, beside those of the runs
(:mod:`shoal.studies.archive`). It counts as long as the runs have the records that it was made with.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.environments.registry import options_of
from shoal.errors import InputError, shortened
from shoal.studies.archive import CROSSPLAY_PREFIX, Stored, find, json_text, stored
from shoal.studies.combinations import matches
from shoal.studies.execution import listed
from shoal.studies.keys import frozen, key, label
from shoal.studies.plan import Cell, existing_path
from shoal.studies.record import (
    Record,
    check_hardware,
    check_keys,
    check_kind,
    check_list,
    check_record_number,
    machines_text,
    opened,
    take_format,
)
from shoal.studies.study_file import CROSSPLAY, Crossplay, StudyFile
from shoal.system.files import make_folder, to_json, write_text

# Groups: the runs that play with each other.


_MAX_NAME = 80


@dataclass(frozen=True)
class Group:
    """The runs of a study in one environment with the same options, in the order of its plan."""

    study: str
    """Name of the study."""
    title: str
    """The environment; with its options where the study has other options of it."""
    name: str
    """The name of the record: the environment, and a digest of all that defines the games."""
    cells: tuple[Cell, ...]
    protocol: Crossplay

    @property
    def baseline(self) -> int | None:
        """The index of the run with which the others are compared; None if the file names none."""
        wanted = self.protocol.baseline
        named = (i for i, cell in enumerate(self.cells) if wanted and matches(cell.values, wanted))
        return next(named, None)


def groups_of(study: StudyFile, cells: Sequence[Cell]) -> list[Group]:
    """The groups of a study, in the order of their first runs; none if its file asks for no cross-play.

    Args:
        study: the study.
        cells: all its runs.

    Raises:
        InputError: the baseline does not name one run of each group.
    """
    if (protocol := study.crossplay) is None:
        return []
    alike: dict[Any, list[Cell]] = {}
    for cell in cells:
        alike.setdefault((cell.environment, frozenset(_options(cell).items())), []).append(cell)
    several = [environment for environment, _ in alike]
    found = []
    for (environment, _), each in alike.items():
        title = _title(each[0]) if several.count(environment) > 1 else environment
        found.append(Group(study.name, title, _name(each, protocol), tuple(each), protocol))
    for group in found if protocol.baseline else ():
        named = sum(matches(cell.values, protocol.baseline) for cell in group.cells)
        if named != 1:
            said = " and ".join(f"{axis} {label(value)}" for axis, value in protocol.baseline.items())
            raise study.error(
                f"{CROSSPLAY} baseline must name one run of each environment, but {named} of {group.title} have {said}."
            )
    return found


def _options(cell: Cell) -> dict[str, Any]:
    """The options of a run's environment that differ from their defaults, hashable."""
    known = options_of(cell.environment)
    return {name: key(frozen(x)) for name, x in cell.env.items() if name not in known or known[name].default != x}


def _title(cell: Cell) -> str:
    options = [f"{name} {label(cell.env[name])}" for name in _options(cell)]
    return ", ".join([cell.environment, *(options or ["default options"])])


def _name(cells: Sequence[Cell], protocol: Crossplay) -> str:
    """The name of the record of a group's games, which do not depend on the order of its runs."""
    first = cells[0]
    runs = sorted(json.dumps(_values(cell), sort_keys=True) for cell in cells)
    env = {name: first.env[name] for name in _options(first)}
    parts = {"environment": first.environment, "env": env, "runs": runs} | _protocol(protocol)
    text = json.dumps(to_json(parts), sort_keys=True, ensure_ascii=True, allow_nan=False)
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", first.environment)[:_MAX_NAME].strip("-.")
    return f"{CROSSPLAY_PREFIX}{readable}-{hashlib.sha256(text.encode('ascii')).hexdigest()[:10]}"


def _values(cell: Cell) -> dict[str, Any]:
    """The values of a run's axes as JSON."""
    return {axis: listed(value) for axis, value in cell.values.items()}


def _protocol(protocol: Crossplay) -> dict[str, Any]:
    """What of the file's table defines the games, as JSON."""
    return {
        "episodes": protocol.episodes,
        "seed": protocol.seed,
        "side": list(protocol.side),
        "greedy": protocol.greedy,
    }


# Records of games.


CROSSPLAY_FORMAT = 1
"""Format number of records of games."""
_KINDS: dict[str, Any] = {
    "study": str,
    "environment": str,
    "runs": list,
    "sides": list,
    "pairs": list,
    "wins": list,
    "commit": (str, type(None)),
    "changed": bool,
    "platform": str,
    "seconds": (int, float),
}


@dataclass(frozen=True)
class CrossplayRecord:
    """The record of the games of a group of R runs; run a has S_a seeds. Numbers are rounded as in records of runs."""

    study: str
    """Name of the study."""
    environment: str
    env: dict[str, Any]
    """Options of the environment that differ from their defaults."""
    protocol: dict[str, Any]
    """``episodes`` of each pair of seeds, ``seed`` of the episodes, ``side`` and ``greedy`` as in the study's file."""
    runs: list[dict[str, Any]]
    """Of each run its ``name``, the ``values`` of the study's axes, whether it acted greedily (``greedy``), and the
    digest of its record (``result``, :func:`result_digest`)."""
    sides: list[list[str]]
    """The names of the agents of each side."""
    pairs: list[list[list]]
    """``pairs[a][b]`` [S_a, S_b, 2]: each side's return, the mean over its agents and over the episodes of a pair of
    seeds, where run a plays side 1 and run b side 2."""
    metrics: dict[str, list[list[list]]]
    """The environment's metrics by name: ``metrics[name][a][b]`` [S_a, S_b] are means over the episodes in which they
    are known, None where there are none."""
    wins: list[list[float | None]]
    """[R, R] shares of the episodes that run a wins on side 1 against run b, a draw being half
    (:attr:`shoal.training.crossplay.CrossPlay.scores`)."""
    versions: dict[str, str | None]
    commit: str | None
    changed: bool
    platform: str
    hardware: dict[str, Any]
    seconds: float = field(default=0.0)
    """Wall time of all games, with compilation."""

    def returns(self, side: int) -> list[list[Float[np.ndarray, "A B"]]]:
        """The returns of side 0 or 1, by the run that plays side 1 and the run that plays side 2."""
        return [[np.asarray(pairs, np.float64)[..., side] for pairs in row] for row in self.pairs]

    def values(self, metric: str) -> list[list[Float[np.ndarray, "A B"]]]:
        """A metric as :meth:`returns`, NaN where unknown."""
        return [[np.asarray(pairs, np.float64) for pairs in row] for row in self.metrics[metric]]

    @property
    def seeds(self) -> list[int]:
        """The number of seeds of each run."""
        return [len(self.pairs[run][run]) for run in range(len(self.runs))]

    @property
    def machine(self) -> str:
        """The hardware as one line."""
        return machines_text(self.hardware)


def result_digest(record: Record) -> str:
    """A digest of the final scores in a run's record, their mode and the learning curve: of other policies, or of
    policies that act in the other mode, it is another one."""
    mode, scores = (record.evaluation[name] for name in ("greedy", "scores"))
    found = to_json({"greedy": mode, "scores": scores, "curve": record.curve})
    text = json.dumps(found, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def about_games(group: Group) -> dict[str, Any]:
    """The fields of a group's record that do not depend on its games."""
    first = group.cells[0]
    env = {name: listed(first.env[name]) for name in _options(first)}
    return {
        "study": group.study,
        "environment": first.environment,
        "env": env,
        "protocol": _protocol(group.protocol),
    }


def about_run(cell: Cell, record: Record, greedy: bool) -> dict[str, Any]:
    """One of :attr:`CrossplayRecord.runs`."""
    return {"name": cell.name, "values": _values(cell), "greedy": greedy, "result": result_digest(record)}


def write_crossplay_record(folder: Path, group: Group, record: CrossplayRecord) -> Path:
    """Write the record of a group's games to the study's folder of records atomically; returns its path.

    Raises:
        WriteError: it cannot be written.
    """
    path = existing_path(folder / f"{group.name}.json")
    found = {"format": CROSSPLAY_FORMAT, "kind": "crossplay"}
    found |= {each.name: getattr(record, each.name) for each in fields(record)}
    make_folder(path.parent)
    write_text(path, json_text(to_json(found, "record")) + "\n")
    return path


def opened_crossplay_record(one: Stored) -> CrossplayRecord:
    """Read and validate a record of games, which may be in an archive. Nothing that it names is executed or imported.

    Raises:
        InputError: it is damaged, of another program, or of a newer Shoal.
    """
    return opened(one, "cross-play", _checked)


def _checked(found: Any) -> CrossplayRecord:
    take_format(found, "crossplay", CROSSPLAY_FORMAT)
    check_keys("record", found, [each.name for each in fields(CrossplayRecord)])
    for name in found:
        check_kind(name, found[name], _KINDS.get(name, dict))
    if not re.fullmatch(r"[0-9a-f]{7,64}", found["commit"] or "0000000"):
        raise InputError(f"commit cannot be {shortened(found['commit'])}.")
    for name, value in found["versions"].items():
        check_kind(f"versions.{name[:80]}", value, (str, type(None)))
    check_hardware(found["hardware"])
    check_record_number("seconds", found["seconds"])
    _check_protocol(found["protocol"])
    _check_runs(found["runs"])
    _check_sides(found["sides"])
    _check_games(found)
    return CrossplayRecord(**found)


def _check_protocol(found: Mapping[str, Any]) -> None:
    check_keys("protocol", found, ("episodes", "seed", "side", "greedy"))
    for name in ("episodes", "seed"):
        check_kind(f"protocol.{name}", found[name], int)
        if found[name] < (name == "episodes"):
            raise InputError(f"protocol.{name} cannot be {found[name]}.")
    for agent in check_list("protocol.side", found["side"]):
        check_kind("protocol.side", agent, str)
    check_kind("protocol.greedy", found["greedy"], (bool, type(None)))


def _check_runs(found: Sequence[Any]) -> None:
    if not found:
        raise InputError("it has no runs.")
    for run in found:
        check_kind("a run", run, dict)
        check_keys("runs", run, ("name", "values", "greedy", "result"))
        for name, kind in (("name", str), ("values", dict), ("greedy", bool), ("result", str)):
            check_kind(f"a run's {name}", run[name], kind)
        if not re.fullmatch(r"[0-9a-f]{16}", run["result"]):
            raise InputError(f"a run's result cannot be {shortened(run['result'])}.")
        for axis, value in run["values"].items():
            check_kind(f"the axis {axis[:80]!r}", value, (bool, int, float, str, list))


def _check_sides(found: Sequence[Any]) -> None:
    if len(found) != 2 or not all(check_list("a side", side) for side in found):
        raise InputError("sides must hold two lists of agents.")
    for agent in (*found[0], *found[1]):
        check_kind("an agent", agent, str)


def _check_games(found: Mapping[str, Any]) -> None:
    """Check the numbers, whose sizes are those of ``pairs``."""
    count = len(found["runs"])
    _check_square("pairs", found["pairs"], count)
    seeds = [len(check_list("pairs", found["pairs"][run][run])) for run in range(count)]
    if not all(seeds):
        raise InputError("pairs has a run without seeds.")
    for a, b in np.ndindex(count, count):
        for both in _cells("pairs", found["pairs"][a][b], seeds[a], seeds[b]):
            if len(check_list("pairs", both)) != 2:
                raise InputError(f"pairs must hold the returns of two sides, not {shortened(both)}.")
            for value in both:
                check_record_number("pairs", value)
    for name, values in found["metrics"].items():
        part = f"metrics.{name[:80]}"
        check_kind("a metric's name", name, str)
        check_kind(part, values, list)
        _check_square(part, values, count)
        for a, b in np.ndindex(count, count):
            for value in _cells(part, values[a][b], seeds[a], seeds[b]):
                if value is not None:
                    check_record_number(part, value)
    _check_square("wins", found["wins"], count)
    for value in (value for row in found["wins"] for value in row):
        if value is not None:
            check_record_number("wins", value)


def _check_square(part: str, found: Any, count: int) -> None:
    """Check that a list has an entry for each ordered pair of runs."""
    if len(found) != count or any(len(check_list(part, row)) != count for row in found):
        raise InputError(f"{part} must hold {count} lists of {count} entries.")


def _cells(part: str, found: Any, rows: int, columns: int) -> list[Any]:
    """The entries of a pair of runs, one for each pair of their seeds."""
    if len(check_list(part, found)) != rows or any(len(check_list(part, row)) != columns for row in found):
        raise InputError(f"{part} must hold {rows} lists of {columns} pairs of seeds.")
    return [one for row in found for one in row]


# The records of a study.


class Played(NamedTuple):
    """A group and the record of its games."""

    group: Group
    record: CrossplayRecord | None
    """With its runs in the group's order; None if there is none that was made with the runs' records."""
    missing: int
    """The number of its runs without a record."""

    @property
    def word(self) -> str:
        """``recorded``, ``missing``, or for how many runs it waits."""
        if self.record is not None:
            return "recorded"
        runs = f"{self.missing} run{'s' * (self.missing != 1)}"
        return f"waits for {runs}" if self.missing else "missing"


def crossplays_of(
    study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record], folder: Path
) -> tuple[Played, ...]:
    """The groups of a study with the records of their games.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names. Games count if they were made with these.
        folder: of the study's records.

    Raises:
        InputError: a record is damaged, or the baseline of ``[crossplay]`` does not name one run of each group.
    """
    groups = groups_of(study, cells)
    every = {name: one for name, one in stored(folder).items() if one.is_crossplay} if groups else {}
    found = []
    for group in groups:
        missing = sum(cell.name not in records for cell in group.cells)
        one = find(every, group.name) if not missing else None
        record = _in_order(opened_crossplay_record(one), group) if one else None
        results = [result_digest(records[cell.name]) for cell in group.cells] if record else []
        counts = record is not None and [run["result"] for run in record.runs] == results
        found.append(Played(group, record if counts else None, missing))
    return tuple(found)


def _in_order(record: CrossplayRecord, group: Group) -> CrossplayRecord | None:
    """The record with its runs in the group's order; None if it is of other runs, as its name denies."""
    places = {json.dumps(run["values"], sort_keys=True): i for i, run in enumerate(record.runs)}
    named = [json.dumps(_values(cell), sort_keys=True) for cell in group.cells]
    if len(record.runs) != len(named) or not all(name in places for name in named):
        return None
    order = [places[name] for name in named]

    def ordered(square: Sequence[Sequence[Any]]) -> list[list[Any]]:
        return [[square[a][b] for b in order] for a in order]

    changed = {
        "runs": [record.runs[i] for i in order],
        "pairs": ordered(record.pairs),
        "metrics": {name: ordered(values) for name, values in record.metrics.items()},
        "wins": ordered(record.wins),
    }
    return CrossplayRecord(**{each.name: getattr(record, each.name) for each in fields(record)} | changed)
