"""The state of a study: records, run folders, the time of the remaining runs, and records that are stale.

A record is stale if it was made with other behaviour versions or other resolved options than its run would have today.
"""

import contextlib
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.algorithms import canonical
from shoal.config.resolve import SIZES
from shoal.errors import InputError
from shoal.options.flags import flags_of, override
from shoal.plots.texts import duration_text
from shoal.presets import sizes_for
from shoal.runs import behaviour
from shoal.storage import manifest
from shoal.studies.archive import Stored, find, stored
from shoal.studies.keys import frozen, key
from shoal.studies.plan import Cell, existing_path
from shoal.studies.record import Record, opened_record, readable_records
from shoal.studies.study_file import StudyFile, home
from shoal.system import notices
from shoal.system.files import to_json
from shoal.system.notices import Warn
from shoal.training import ending

FORMER = "former"
"""The folder in that of a study's records with the records of stale runs that are trained again
(:mod:`shoal.studies.renewal`)."""


@dataclass(frozen=True)
class State:
    """The state of one run."""

    cell: Cell
    record: Record | None
    trained: float
    """Fraction of the training that is done in the run's folder."""
    begun: bool
    """Whether there is such a folder."""
    changed: bool = False
    """Whether one of the user's modules has changed since the run was recorded."""
    stale: bool = False
    """Whether the record has other behaviour versions than a run would have today (:mod:`shoal.studies.state`); without
    a record, whether that of before is such a one and the run is to be trained again."""

    @property
    def word(self) -> str:
        """``recorded``, ``stale`` (recorded with other behaviour versions), ``changed`` (recorded with another version
        of one of the user's modules), ``trained`` (only the evaluation is missing), ``unfinished`` or ``missing``."""
        if self.record is not None:
            return "changed" if self.changed else "stale" if self.stale else "recorded"
        if self.stale:
            return "stale"
        return "missing" if not self.begun else "trained" if self.trained >= 1 else "unfinished"


def records_folder(study: StudyFile, records: str | Path | None) -> Path:
    """The folder of a study's records: in ``records``, by default ``records/`` in its :func:`home`."""
    return (home(study.path) / "records" if records is None else Path(records)) / study.name


def recorded_in(study: StudyFile, records: str | Path | None) -> Path:
    """As :func:`records_folder`, to read from.

    Raises:
        InputError: there is no folder ``records``.
    """
    if records is not None and not Path(records).is_dir():
        raise InputError(f"There is no folder {str(records)!r} of records.")
    return records_folder(study, records)


def record_path(folder: Path, cell: Cell) -> Path:
    """The path of a cell's record if it has a file of its own, also if an earlier version of the study's file gave it
    another readable name."""
    return existing_path(folder / f"{cell.name}.json")


def records_of_cells(folder: Path, cells: Iterable[Cell], warn: Warn = notices.warn) -> dict[str, Record]:
    """The records that belong to ``cells``, by the cells' names: those with their digests, or with their whole
    configuration, since a value that has become the default, or is no longer, gives another digest.

    A record of another configuration or evaluation is ignored, and ``warn`` is called with one sentence about it.

    Raises:
        InputError: a record is damaged.
    """
    found, cells = {}, list(cells)
    every = stored_records(folder, cells)
    for cell in (cell for cell in cells if cell.name in every):
        record = opened_record(one := every[cell.name])
        protocol = _protocol(record)
        changed = [name for name, value in vars(cell.evaluation).items() if protocol[name] != value]
        if difference := cell.difference(record.run):
            warn(f"{one.where} is not used, since it belongs to another run: {difference}.")
        elif changed:
            name = changed[0]
            now, was = ("better" if one is None else one for one in (vars(cell.evaluation)[name], protocol[name]))
            warn(f"{one.where} is not used: {name} of its evaluation is {was}, but {now} in the study.")
        else:
            found[cell.name] = record
    return found


def stored_records(folder: Path, cells: Iterable[Cell]) -> dict[str, Stored]:
    """Where the records are that have the digests of ``cells``, or their whole configuration, by the cells' names."""
    every = stored(folder)
    found = {cell.name: find(every, cell.name) or _same(every, cell) for cell in cells}
    return {name: one for name, one in found.items() if one is not None}


def _same(every: Mapping[str, Stored], cell: Cell) -> Stored | None:
    """A record with another digest of a run's whole configuration and evaluation; damaged ones are ignored."""
    begin = cell.name.removesuffix(cell.digest)
    for one in every.values():
        if one.name.rpartition("-")[0] + "-" == begin:
            with contextlib.suppress(InputError):
                if _is_same(cell, opened_record(one)):
                    return one
    return None


def _is_same(cell: Cell, record: Record) -> bool:
    """Whether a record is of a run's axes, evaluation and whole configuration. Flags that are newer than the record had
    today's default."""
    merged, run = cell.merged(), record.run
    horizon, limit = run["spec"].get("horizon"), merged.settings.wrapping.time_limit
    if type(horizon) is not int or not _is_former(cell, record):
        return False
    sizes = sizes_for(min(horizon, limit or horizon))
    settings = override(merged.settings, {size: sizes[size] for size in merged.sized})
    now = flags_of(settings) | flags_of(merged.config)
    was = flags_of(type(settings)()) | flags_of(type(merged.config)()) | run["settings"] | run["config"]
    own = {"eval_episodes": None}  # of the study's own evaluation
    return to_json(now | own) == to_json(was | own)


def silent(sentence: str) -> None:
    """No warning."""


def _protocol(record: Record) -> dict[str, Any]:
    """The :class:`shoal.studies.study_file.Protocol` with which a record was made."""
    found = {name: record.evaluation[name] for name in ("episodes", "greedy", "seed")}
    return found | ({"greedy": None} if record.evaluation.get("better") else {})


def state_of(cell: Cell, record: Record | None, changed: bool = False, stale: bool = False) -> State:
    """The state of a run; ``changed`` and ``stale`` are as in :class:`State`."""
    if record is not None or not (cell.folder / manifest.RUN_JSON).exists():
        return State(cell, record, float(record is not None), False, changed, stale)
    try:
        config, settings = manifest.read_run_json(cell.folder)["config"]["settings"], cell.merged().settings
        settings = override(settings, {size: config[size] for size in SIZES})  # they may depend on the environment
        return State(cell, None, ending.fraction(settings, ending.saved(cell.folder)), True)
    except (InputError, KeyError, TypeError, ZeroDivisionError):  # running it raises the error
        return State(cell, None, 0.0, True)


def speeds(root: Path, hardware: Mapping[str, Any]) -> list[Record]:
    """The records in all folders of ``root`` that were made on this hardware; unreadable ones are ignored."""
    found = []
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        for record in readable_records(folder):
            one = record.hardware
            if "earlier" not in one and {name: one[name] for name in hardware} == hardware:
                found.append(record)
    return found


def estimate_seconds(state: State, measured: Sequence[Record]) -> float | None:
    """Estimated seconds until a run is recorded; None if there is no record to estimate it from.

    It is estimated from records of the same algorithm and environment. Without any it is the longer of two estimates,
    from records of the same algorithm and from records of the same environment: of which of them the time is does not
    show in either. Of the records those count whose options differ least: the median time of a step, and the median
    time of compilation and evaluation. Other processes may have slowed the machine down while a record was made; its
    times are scaled by its ``product_gflops`` to the median of all records.
    """
    if state.record is not None:
        return 0.0
    algorithm, environment = state.cell.algorithm, state.cell.environment
    for groups in ([(algorithm, environment)], [(algorithm, None), (None, environment)]):
        like = [[one for one in measured if _like(one, *group)] for group in groups]
        if any(like):
            return max(_estimated(state, records, measured) for records in like if records)
    return None


def _estimated(state: State, records: Sequence[Record], measured: Sequence[Record]) -> float:
    """The estimate from some of the measured records."""
    merged = state.cell.merged()
    settings, here = merged.settings, _structure(flags_of(merged.settings) | flags_of(merged.config), merged.sized)
    distances = [_distance(here, one) for one in records]
    chosen = [one for one, distance in zip(records, distances, strict=True) if distance == min(distances)]
    rates = [rate for one in measured if (rate := one.hardware["product_gflops"])]
    usual = statistics.median(rates) if rates else 1.0
    quiet = [(one.hardware["product_gflops"] or usual) / usual for one in chosen]
    steps = [one.seconds["training"] / (one.evaluation["step"] * one.seeds) for one in chosen]
    per_step = statistics.median(x * share for x, share in zip(steps, quiet, strict=True))
    runs = [one.seeds if one.separate_seeds else 1 for one in chosen]  # each with a compilation and an evaluation
    other = statistics.median(
        one.seconds["other"] / count * share for one, count, share in zip(chosen, runs, quiet, strict=True)
    )
    training = per_step * settings.steps * settings.seeds
    return min(training, settings.time_budget or math.inf) * (1 - state.trained) + other


def _structure(flags: Mapping[str, Any], but: Collection[str] = ()) -> dict[str, Any]:
    """The options that may change how long a step takes: all but real numbers, the first seed and those in ``but``."""
    return {
        name: value
        for name, value in to_json(dict(flags)).items()
        if name not in but and name != "seed" and not isinstance(value, float)
    }


def _distance(here: Mapping[str, Any], record: Record) -> int:
    """How many options of a record's run differ from those in ``here``."""
    there = _structure(record.run.get("settings", {}) | record.run.get("config", {}))
    there |= {"seeds": 1} if record.separate_seeds else {}
    return sum(there[name] != value for name, value in here.items() if name in there)


def _like(record: Record, algorithm: str | None, environment: str | None) -> bool:
    run = record.run
    return (algorithm is None or run["algorithm"] == canonical(algorithm)) and environment in (None, run["environment"])


def time_text(seconds: Sequence[float | None]) -> str:
    """The sum of estimates as text, for example ``about 41.2 s``; ``time unknown`` if none is known."""
    known = [x for x in seconds if x is not None]
    unknown = len(seconds) - len(known)
    if not known:
        return "time unknown"
    text = f"about {duration_text(sum(known))}"
    return f"{text}, and an unknown time for {unknown} of {len(seconds)} runs" if unknown else text


STALE_MARK = "†"
"""Behind values of stale records on pages."""


def stale_records(cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, str]:
    """Why records are stale, by the cells' names: clauses without a full stop; records that are not stale are omitted.

    Args:
        cells: runs of a study.
        records: records by the cells' names, also those of :func:`former`.
    """
    found = {}
    for cell in cells:
        if (record := records.get(cell.name)) is None:
            continue
        run = record.run
        reasons = behaviour.changes(
            record.behaviour, run["algorithm"], run["environment"], run["settings"] | run["config"]
        )
        if difference := cell.difference(run):
            reasons.append(difference.replace(" there and ", " in the record and ").replace(" in the study", " today"))
        if reasons:
            found[cell.name] = "; ".join(reasons)
    return found


def stale_sentences(found: Mapping[str, str], cells: Sequence[Cell]) -> list[str]:
    """A sentence for each reason why records are stale, with the runs that it concerns."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.name in found:
            groups.setdefault(found[cell.name], []).append(cell)
    said = []
    for reason, each in groups.items():
        which = "All runs are" if len(each) == len(cells) else f"{each[0].title} is"
        if 1 < len(each) < len(cells):
            which = f"{len(each)} of {len(cells)} runs, the first of them {each[0].title}, are"
        said.append(f"{which} stale: {reason}.")
    return said


def former_records(folder: Path, cells: Iterable[Cell], records: Mapping[str, Record]) -> dict[str, Record]:
    """Records of runs without a current one that differ from them only in what presets and defaults say, by the cells'
    names: a preset or a default has changed since, or the record was set aside. They have the values of the run's axes
    and all flags and options that the study's file sets; of several, that with the newest behaviour versions. Damaged
    files are ignored.

    Args:
        folder: the records of the study.
        cells: runs of the study.
        records: the current records, by the cells' names.
    """
    left = [cell for cell in cells if cell.name not in records]
    held = [*readable_records(folder), *readable_records(folder / FORMER)] if left else []
    used = list(records.values())
    found = {}
    for cell in left:
        same = [record for record in held if _is_former(cell, record) and record not in used]
        if same:
            found[cell.name] = min(same, key=_behind)
    return found


def _behind(record: Record) -> int:
    """How far a record's behaviour versions are behind today's."""
    run = record.run
    now = behaviour.versions(run["algorithm"], run["environment"], run["settings"] | run["config"])
    return sum(now.values()) - sum(behaviour.oldest(record.behaviour or None, now).values())


def _is_former(cell: Cell, record: Record) -> bool:
    """Whether a record has a run's axes, evaluation, options and the flags that the study's file sets."""
    run, merged = record.run, cell.merged()
    if {axis: key(frozen(x)) for axis, x in record.cell.items()} != {axis: key(x) for axis, x in cell.values.items()}:
        return False
    if _protocol(record) != vars(cell.evaluation):
        return False
    named = (canonical(cell.algorithm), cell.environment, to_json(cell.env))
    if named != (run["algorithm"], run["environment"], run["env"]):
        return False
    now, was = flags_of(merged.settings) | flags_of(merged.config), run["settings"] | run["config"]
    return all(to_json(now[flag]) == was.get(flag) for flag in cell.flags if flag in now and flag not in merged.sized)
