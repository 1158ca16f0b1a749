"""Executes the missing runs of a study: one after the other in this process, or on a Ray cluster.

The runs are checked with their environments before the first one starts.
"""

import difflib
import gc
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal import algorithms
from shoal.bounds import check_bounds
from shoal.environments import registry
from shoal.errors import FULL, GameError, InputError, NonFiniteError, shortened, unknown
from shoal.options.flags import flags_of, override
from shoal.plots.texts import markdown_table
from shoal.runs.build import Built, check_build, update_metrics, wrapped_environment
from shoal.storage import manifest
from shoal.studies import archive, execution, ray_runs
from shoal.studies.again import Again, records_root, rows_of, with_seed
from shoal.studies.again import write_again_page as write_again
from shoal.studies.combinations import matches, selected
from shoal.studies.crossplay import Group, Played, crossplays_of, write_crossplay_record
from shoal.studies.crossplay_runs import check_together, folders_there, play_group, seeds_text, without_policies
from shoal.studies.levels import studies_of_levels
from shoal.studies.plan import Cell, plan
from shoal.studies.ray_runs import Cluster, check_cells, cluster_of, without_preallocation
from shoal.studies.record import Record, write_record
from shoal.studies.renewal import set_aside
from shoal.studies.separate import (
    check_separable,
    chosen_seeds,
    join_all,
    join_seeds,
    partly_recorded,
    records_of_seeds,
    seed_cells,
    seed_of,
    write_seed,
)
from shoal.studies.state import (
    State,
    estimate_seconds,
    former_records,
    record_path,
    records_folder,
    records_of_cells,
    silent,
    speeds,
    stale_records,
    stale_sentences,
    state_of,
    time_text,
)
from shoal.studies.study_file import CROSSPLAY, TRAINING, StudyFile, command_word, read_study, study_path
from shoal.studies.tuning.record import winner
from shoal.studies.user_modules import changed_modules, check_imports, permit_imports
from shoal.system import notices
from shoal.training import checks, memory, sharding
from shoal.training.settings import Settings
from shoal.training.trainer import column_of
from shoal.types import AnyEnvironment, Environment, EnvSpec

OUT = Path("runs/studies")
"""Default folder of the run folders of all studies."""


@dataclass
class StudyReport:
    """The result of :func:`study`."""

    study: StudyFile
    states: list[State]
    """The selected runs as they were found; with ``separate_seeds``, those of single seeds in place of missing ones."""
    seconds: list[float | None]
    """Estimated time of each."""
    records: dict[str, Record]
    """All records of the selected runs, by the names of the cells."""
    cells: list[Cell]
    """The selected runs."""
    wholes: dict[str, Cell] = field(default_factory=dict)
    """With ``separate_seeds``: by the name of the run of a single seed, the run that it is a part of."""
    seeds: dict[str, Record] = field(default_factory=dict)
    """The records of single seeds of runs that are not recorded, by their names."""
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    """Runs that failed, with the reason."""
    games: tuple[Played, ...] = ()
    """The groups of the study's cross-play that have a selected run, as they were found."""
    unplayed: list[tuple[str, str]] = field(default_factory=list)
    """The titles of groups whose games failed, with the reason."""
    changes: tuple[str, ...] = ()
    """For each of the user's modules that has changed since runs were recorded, and each reason why records are stale,
    the effect and how to run again."""

    again: Again | None = None
    """The records of other seeds that these are compared with, if the study is measured again."""
    compared: dict[str, Record] = field(default_factory=dict)
    """The records of all runs that have been measured again, by the names of the cells."""
    page: Path | None = None
    """The page of this comparison."""

    @property
    def ok(self) -> bool:
        """Whether no run and no cross-play failed."""
        return not self.failed and not self.unplayed

    @property
    def plan(self) -> str:
        """The runs and the cross-play with their states, and an estimate of the runs' time."""
        lines = []
        for state, seconds in zip(self.states, self.seconds, strict=True):
            word = f"{100 * state.trained:.0f} % trained" if state.word == "unfinished" else state.word
            lines.append(f"  {word:<12}  {state.cell.title}  ({state.cell.name})")
            if state.record is None and seconds is not None:
                lines[-1] += f"  {time_text([seconds])}"
        lines += [f"  {one.word:<12}  cross-play in {one.group.title}  ({one.group.name})" for one in self.games]
        left = [seconds for state, seconds in zip(self.states, self.seconds, strict=True) if state.record is None]
        total = len(self.states)
        count = f"{total} run{'s' * (total != 1)}, {total - len(left)} recorded, {len(left)} to run"
        return "\n".join([f"{self.study.name}: {count}", *lines, *([_time(left)] if left else []), *self.changes])

    def __str__(self) -> str:
        """The number of recorded runs, and a line for each that failed."""
        lines = [f"{self.study.name}: {len(self.records)} of {len(self.cells)} runs recorded"]
        for cell in self.cells:
            names = [name for name in self.seeds if self.wholes[name].name == cell.name]
            lines += [f"{cell.title}: {len(names)} of {len(seed_cells(cell))} seeds recorded"] if names else []
        lines += [f"failed: {cell.title}: {reason}" for cell, reason in self.failed]
        lines += [f"failed: cross-play in {title}: {reason}" for title, reason in self.unplayed]
        if self.again is not None:
            lines += ["", markdown_table(rows_of(self.again, self.compared))]
        return "\n".join(lines)


def study(
    file: str | Path,
    *,
    only: Mapping[str, Any] | None = None,
    out: str | Path = OUT,
    records: str | Path | None = None,
    dry_run: bool = False,
    again: int | None = None,
    renew: bool = False,
    separate_seeds: bool = False,
    progress: bool = True,
    workers: str | None = None,
    address: str | None = None,
    cpus_per_run: int | None = None,
    gpus_per_run: float = 0.0,
    trust: bool = False,
) -> StudyReport:
    """Execute the missing runs of a study: runs without a record, from their newest checkpoint if there is one.

    Args:
        file: a study file ``*.toml``, or the name of one in ``studies/``.
        only: values of axes, for example ``{"algorithm": "mappo"}``, or tuples of values; other runs are ignored. With
            ``separate_seeds`` also ``seed``.
        out: folder that contains a folder with the runs' folders of each study.
        records: folder that contains a folder with the records of each study; by default ``records/`` next to the file.
        dry_run: only check the study and find missing runs.
        again: measure the study again: train all its runs with seeds from this number on, in folders of their own
            (``again/STUDY-seedN`` next to the file or in ``records``), and compare them with the study's records. The
            study's own records and run folders are not changed.
        renew: also train the runs whose records are stale again, with the same seeds. Their records and folders are set
            aside (:mod:`shoal.studies.renewal`).
        separate_seeds: train each seed of a missing run as a run of its own, with a record of its own, which become one
            record when all seeds of the run are recorded (:mod:`shoal.studies.separate`).
        progress: show the progress of the study and of its runs.
        workers: ``"ray"`` executes the runs on a Ray cluster, as many at a time as its resources allow; None: one after
            the other in this process.
        address: address of the cluster; None for ``RAY_ADDRESS``, or else a local one that is started here.
        cpus_per_run: CPUs of each run on the cluster; None for those of its smallest node.
        gpus_per_run: GPUs of each run on the cluster.
        trust: with ``dry_run``, import modules of the user's own that the file names; not needed if this process has
            imported them. Without ``dry_run`` they are imported, since the study is to be run.

    If the file has a table ``[crossplay]``, the runs of an environment play with each other as soon as all of them are
    recorded (:mod:`shoal.studies.crossplay`).

    Returns:
        The runs, their records, and failures. A run that fails does not stop the others. When all runs of the study
        are recorded, their records are moved to one compressed file (:mod:`shoal.studies.archive`).

    Raises:
        InputError: the file or a combination in it is invalid, a record is damaged, or the cluster cannot be reached or
            lacks the resources of a run; raised before any run starts.
        KeyboardInterrupt: on Ctrl-C; active runs are saved, and the same call continues.
    """
    cluster = cluster_of(workers, address=address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run)
    described = read_study(study_path(file))
    if renew and again is not None:
        raise InputError("--renew trains stale runs again in place, --again all runs with other seeds; leave out one.")
    for one in (described, *studies_of_levels(described)):
        if dry_run:
            check_imports(one, trust, builds=one is described)
        else:
            permit_imports(one)
        if one is not described:
            plan(one, Path(out))  # before anything is trained: the page of results reads it
    if separate_seeds and described.crossplay is not None:
        raise described.error(
            f"{CROSSPLAY} needs the policies of all seeds of a run in one folder, so its seeds cannot be separated; "
            f"leave out --separate-seeds."
        )
    where = records_folder(described, records)
    tuned = winner(described, where)
    every = plan(described, Path(out), tuned)
    axes = _tuples(only or {})
    seeds = axes.pop("seed", None) if separate_seeds else None
    chosen = selected(described, [cell.values for cell in every], axes)
    cells = [every[i] for i in chosen]
    if unsearched := [cell for cell in cells if not cell.searched]:
        raise described.error(
            f"{unsearched[0].title} takes the values of a search that has no record in {where}; run shoal tune "
            f"{command_word(described)}."
        )
    roots, measured_again = [where.parent], None
    if again is not None:
        first, others = described, with_seed(described, cells, again)
        before = records_of_cells(where, every, silent)  # of all runs: the page also has those that are not selected
        before |= former_records(where, every, before)
        measured_again = Again(first, again, every, before, plan(others, Path(out), tuned))
        described, cells = others, [measured_again.new[i] for i in chosen]
        where = records_folder(others, records_root(first, records))
        roots.append(where.parent)
    if not dry_run:
        join_all(where, cells)
    held = records_of_cells(where, cells)
    aside = {name: held.pop(name) for name in _to_renew(cells, held)} if renew else {}
    missing = [cell for cell in cells if cell.name not in held]
    report = StudyReport(described, [], [], held, cells, again=measured_again)
    units = _separated(report, missing, where, chosen_seeds(cells, seeds), aside) if separate_seeds else cells
    if renew:
        aside |= {name: report.seeds.pop(name) for name in _to_renew(units, report.seeds)}
    known = held | report.seeds
    missing = [cell for cell in units if cell.name not in known]
    if again is None and described.crossplay is not None:
        report.games = _games_of(described, every, cells, records_of_cells(where, every, silent), where)
    if cluster:
        check_cells(described, missing)
    with without_preallocation() if cluster else nullcontext():
        check_built(described, missing, every)
        check_together(described, _to_play(report.games, missing))
        hardware = manifest.describe_machine()["hardware"]
    if aside and not dry_run:
        both = {cell.name: cell for cell in (*cells, *units)}
        notices.warn(set_aside(where, [both[name] for name in aside]))
    changes = changed_modules(units, known)
    altered = {name for change in changes for name in change.runs}
    old = stale_records(units, known)
    report.states = [
        State(cell, None, 0.0, False, stale=True)
        if cell.name in aside
        else state_of(cell, known.get(cell.name), cell.name in altered, cell.name in old)
        for cell in units
    ]
    measured = [one for root in roots for one in speeds(root, hardware)]
    report.seconds = [estimate_seconds(state, measured) for state in report.states]
    report.changes += tuple(
        f"{sentence} What is recorded is used as before; `--renew` trains it again."
        for sentence in [*(change.sentence for change in changes), *stale_sentences(old, units)]
    )
    if not separate_seeds:
        report.changes += tuple(partly_recorded(where, missing))
    if not dry_run:
        for sentence in report.changes:
            notices.warn(sentence)
    if not dry_run and cluster:
        _gather(report, where, cluster, progress)
    elif not dry_run:
        _run(report, where, measured, progress)
    if not dry_run and report.games:
        _play(report, where, every, progress)
    if measured_again is not None and not dry_run:
        report.compared = records_of_cells(where, measured_again.new, silent) | report.records
        report.page = write_again(measured_again, report.compared, where.parent)
    if not dry_run:
        wanted = every if measured_again is None else measured_again.new
        if len(report.records) == len(cells) and _all_recorded(where, wanted):
            archive.gather(where)
    return report


def _to_renew(cells: Sequence[Cell], records: Mapping[str, Record]) -> set[str]:
    """The names of runs whose records are stale, or of earlier versions of the user's own modules."""
    changed = {name for change in changed_modules(cells, records) for name in change.runs}
    return changed.union(stale_records(cells, records))


def _games_of(
    study: StudyFile, every: Sequence[Cell], cells: Sequence[Cell], held: Mapping[str, Record], records: Path
) -> tuple[Played, ...]:
    """The groups of the study's cross-play that have a selected run, with what is recorded now.

    Args:
        study: the study.
        every: all its runs.
        cells: the selected ones.
        held: the records of ``every``.
        records: the folder of records.
    """
    names = {cell.name for cell in cells}
    found = crossplays_of(study, every, held, records)
    return tuple(one for one in found if any(cell.name in names for cell in one.group.cells))


def _to_play(games: Sequence[Played], training: Sequence[Cell]) -> list[Group]:
    """The groups that may play after the runs in ``training``."""
    names = {cell.name for cell in training}
    left = [one for one in games if one.record is None]
    return [
        one.group
        for one in left
        if any(cell.name in names for cell in one.group.cells) or (not one.missing and folders_there(one.group))
    ]


def _play(report: StudyReport, records: Path, every: Sequence[Cell], progress: bool) -> None:
    """Play the games of the groups whose runs are all recorded, and write a record of each."""
    held = records_of_cells(records, every, silent)
    for one in _games_of(report.study, every, report.cells, held, records):
        if one.record is not None or one.missing:
            continue
        group = one.group
        if absent := without_policies(group, held):
            notices.warn(_without_policies(group, absent, records))
            continue
        if progress:
            counts = [held[cell.name].seeds for cell in group.cells]
            runs = f"{len(counts)} run{'s' * (len(counts) != 1)}"
            notices.warn(f"cross-play in {group.title}: {runs}, {seeds_text(counts)}")
        try:
            write_crossplay_record(records, group, play_group(group, held))
        except KeyboardInterrupt:
            raise _stopped(report) from None
        except Exception as error:
            reason = reason_of(error)
            report.unplayed.append((group.title, reason))
            notices.warn(f"Failed: cross-play in {group.title}: {reason}")
        _free_programs()


def _without_policies(group: Group, absent: Sequence[Cell], records: Path) -> str:
    """A sentence: which run's policies are not there, and how to train it again."""
    cell, more = absent[0], len(absent) - 1
    others = f", nor are those of {more} other run{'s' * (more != 1)}" if more else ""
    path = record_path(records, cell)
    first = "" if path.exists() else "move the records to files of their own with `--extract`, "
    folder = f" and {cell.folder}" if cell.folder.exists() else ""
    return (
        f"The cross-play in {group.title} is not played: the policies that the record of {cell.title} is of are not in "
        f"{cell.folder}{others}. To train such a run again, {first}delete its record {path}{folder}, and run the study "
        f"again."
    )


def _all_recorded(records: Path, cells: Sequence[Cell]) -> bool:
    """Whether all runs have a record that can be read, also those that were not selected."""
    try:
        return len(records_of_cells(records, cells, silent)) == len(cells)
    except InputError:
        return False


def _separated(
    report: StudyReport, missing: list[Cell], records: Path, seeds: tuple[int, ...] | None, aside: Collection[str]
) -> list[Cell]:
    """The selected runs with those of single seeds in place of each missing one; the report gets their records.

    Args:
        report: of the study.
        missing: the selected runs without a record.
        records: the folder of records.
        seeds: those that are to run; None for all.
        aside: the names of runs whose folders will be set aside.
    """
    check_separable(report.study, missing)
    parts = {cell.name: seed_cells(cell) for cell in missing}
    report.wholes = {one.name: cell for cell in missing for one in parts[cell.name] if one is not cell}
    single = [one for each in parts.values() for one in each if one.name in report.wholes]
    report.seeds = records_of_seeds(records, single)
    report.changes = tuple(
        f"{state.cell.title} is {state.trained:.0%} trained with all its seeds; without --separate-seeds it continues."
        for state in map(state_of, missing, repeat(None))
        if state.begun and state.cell.name not in aside and len(parts[state.cell.name]) > 1
    )
    each = [one for cell in report.cells for one in parts.get(cell.name, [cell])]
    return [one for one in each if seeds is None or one.name in report.records or seed_of(one) in seeds]


def _tuples(only: Mapping[str, Any]) -> dict[str, Any]:
    return {axis: tuple(value) if isinstance(value, list) else value for axis, value in only.items()}


def _run(report: StudyReport, records: Path, measured: list[Record], progress: bool) -> None:
    """Execute runs without a record; new records are added to ``measured``, for later estimates."""
    total, left = len(report.states), [state for state in report.states if state.record is None]
    for i, state in enumerate(left):
        cell = state.cell
        if _recorded_meanwhile(report, records, cell):
            continue
        if progress:
            place = f"{total - len(left) + i + 1} of {total}"
            notices.warn(f"{place} · {cell.title} · {time_text([estimate_seconds(one, measured) for one in left[i:]])}")
        try:
            record = execution.run_cell(cell, progress)
            _keep(report, records, cell, record)
            measured.append(record)
        except KeyboardInterrupt:
            raise _stopped(report) from None
        except Exception as error:
            _note(report, cell, error)
        _free_programs()


def _gather(report: StudyReport, records: Path, cluster: Cluster, progress: bool) -> None:
    """Execute runs without a record on a cluster, and write each record as soon as it arrives."""
    left = [state.cell for state in report.states if state.record is None]
    cells = list({cell.digest: cell for cell in reversed(left)}.values())[::-1]  # a tuned run may be the default
    try:
        with closing(ray_runs.outcomes(cells, cluster, len(report.states), progress)) as outcomes:
            for cell, outcome in outcomes:
                try:
                    if isinstance(outcome, Exception):
                        raise outcome
                    _keep(report, records, cell, outcome)
                except Exception as error:
                    _note(report, cell, error)
        for cell in left:
            _recorded_meanwhile(report, records, cell)
    except KeyboardInterrupt:
        raise _stopped(report) from None


def _keep(report: StudyReport, records: Path, cell: Cell, record: Record) -> None:
    """Write a record; with that of a run's last seed, also the run's."""
    if (whole := report.wholes.get(cell.name)) is None:
        write_record(record_path(records, cell), record)
        report.records[cell.name] = record
    elif whole.name not in report.records:
        write_seed(records, cell, record)
        report.seeds[cell.name] = record
        _join(report, records, whole)


def _join(report: StudyReport, records: Path, whole: Cell) -> None:
    """Join the records of a run's seeds, if all are there; another process may have done so."""
    if (record := join_seeds(records, whole)) is not None:
        report.records[whole.name] = record
        report.seeds = {name: one for name, one in report.seeds.items() if report.wholes[name] is not whole}


def _recorded_meanwhile(report: StudyReport, records: Path, cell: Cell) -> bool:
    """Whether a run has been recorded since this process began, by another one or as the same run with other axes."""
    if (whole := report.wholes.get(cell.name)) is None:
        with suppress(InputError):
            report.records |= records_of_cells(records, [cell], silent)
        return cell.name in report.records
    with suppress(InputError):  # another process has joined and deleted it since its folder was listed
        report.seeds |= records_of_seeds(records, [cell])
    _join(report, records, whole)
    return cell.name in report.seeds or whole.name in report.records


def _note(report: StudyReport, cell: Cell, error: Exception) -> None:
    """Report that a run failed."""
    reason = reason_of(error)
    report.failed.append((cell, reason))
    notices.warn(f"Failed: {cell.title}: {reason}")


def _stopped(report: StudyReport) -> KeyboardInterrupt:
    done = f"{len(report.records)} of {len(report.cells)} runs recorded"
    return KeyboardInterrupt(f"Stopped with {done}; the same command continues.")


def _time(seconds: list[float | None]) -> str:
    if not any(x is not None for x in seconds):
        return "The time is unknown, since this machine has no record of these algorithms or environments."
    return f"Estimated from records of this machine: {time_text(seconds)}."


def reason_of(error: Exception) -> str:
    """Why a run failed, as one line; for an unexpected error, the traceback is also printed."""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return FULL
    if isinstance(error, GameError) and error.trace:
        notices.warn(error.trace)
    if isinstance(error, InputError | NonFiniteError | GameError):
        return " ".join(str(error).split())
    notices.warn("".join(traceback.format_exception(error)))
    return " ".join(f"{type(error).__name__}: {error}".split())


def _free_programs() -> None:
    """Free compiled programs: each holds memory maps, of which Linux gives a process 65,530."""
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


_ALWAYS = ("score", "length")


class _Checked(NamedTuple):
    """A cell whose environment and algorithm fit."""

    spec: EnvSpec
    """The wrapped environment's."""
    settings: Settings
    built: Built | None
    """None for an algorithm that is made from experience."""
    kind: str
    """The same for cells with the same columns of the log, as no number decides which there are."""


def check_built(study: StudyFile, cells: Sequence[Cell], every: Sequence[Cell] = ()) -> None:
    """Build the environment of every cell and make its algorithm; nothing is compiled.

    Args:
        study: the study.
        cells: those that will train.
        every: all of the study, which need not be buildable here. A metric has to be one of theirs.

    Raises:
        InputError: an environment cannot be built, an algorithm does not support its environment, or no environment has
            the metric of a table, or no run the metric of ``[record]``. The message names the file and the run.
    """
    if any(cell.flags.get("devices") != 1 for cell in cells):
        sharding.one_device_per_core()  # before JAX starts its devices
    environments: dict[str, AnyEnvironment] = {}
    checked, others = [], [cell for cell in every if cell not in cells]
    for cell in cells:
        try:
            checked.append(_check(cell, environments))
        except InputError as error:
            raise study.error(f"{cell.title}: {error}") from None
    specs = [one.spec for one in checked]
    named = [(f"[[{one.part}]] {one.number}", one.metric, one.where) for one in (*study.tables, *study.figures)]
    named += [(f"[[references]] {one.number}", one.metric, one.where) for one in study.references]
    named += [("[primary]", study.primary.metric, {})] if study.primary is not None else []
    for title, metric, where in named:
        if metric.startswith(TRAINING):
            kept = tuple(f"{TRAINING}{name}" for name in ("score", *study.curves))
            if metric not in kept:
                raise study.error(f"{title}: {unknown('metric in [record] metrics named', metric, kept)}")
            continue
        both = zip(cells, specs, strict=True)
        shown = [(cell.environment, spec) for cell, spec in both if matches(cell.values, where)]
        if shown and _no_metric(metric, shown):
            left = [cell for cell in others if matches(cell.values, where)]
            try:
                shown += [(cell.environment, _check(cell, environments).spec) for cell in left]
            except InputError:
                continue  # a run of another machine, which may have it
            if wrong := _no_metric(metric, shown):
                raise study.error(f"{title}: {wrong}")
    if cells:
        _check_curves(study, checked, others, environments)


def _no_metric(metric: str, specs: Sequence[tuple[str, EnvSpec]]) -> InputError | None:
    """The error that none of these environments, with their names, has a metric; None if one has it."""
    known = {*_ALWAYS}.union(*((*spec.metrics, *spec.role_returns(np.zeros(spec.num_agents))) for _, spec in specs))
    if metric in known:
        return None
    if not difflib.get_close_matches(metric, known, n=1, cutoff=0.8):
        for name, spec in specs:  # numbers of the info of foreign environments are metrics only if they are named
            if spec.interface and "metrics" in registry.options_of(name):
                return InputError(
                    f"There is no metric {shortened(metric)}; if it is in the info of {name}, name it in env.metrics."
                )
    return unknown("metric", metric, known)


def _check_curves(
    study: StudyFile, checked: Sequence[_Checked], others: Sequence[Cell], environments: dict[str, AnyEnvironment]
) -> None:
    """Check that each metric of ``[record]`` is one of training, at least in one run; updates are traced if need be."""
    kinds: set[str] = set()
    known: set[str] = set()
    left = chain(checked, map(partial(_check, environments=environments), others))
    while wrong := [name for name in study.curves if name not in known]:
        try:
            one = next(left, None)
        except InputError:
            return  # a run of another machine, which may have it
        if one is None:
            raise study.error(f"[record] {unknown('metric of training named', wrong[0], known)}")
        if one.built is None or one.settings.workers == "ray":
            return  # not known before it trains
        if one.kind not in kinds:
            kinds.add(one.kind)
            known |= _columns(one.spec, update_metrics(one.built, one.settings), one.settings.eval_every is not None)


def _columns(spec: EnvSpec, updates: Sequence[str], evaluated: bool) -> set[str]:
    """The columns of a log that have a number for each seed."""
    of_episodes, roles = ("return", *spec.metrics), spec.role_returns(np.zeros(spec.num_agents))
    columns = {*of_episodes, *(f"return/{agent}" for agent in spec.agents), "episode_length"}
    columns |= {column_of(name, spec) for name in updates}
    return columns | {f"greedy/{name}" for name in (*of_episodes, *roles)} if evaluated else columns


def _check(cell: Cell, environments: dict[str, AnyEnvironment]) -> _Checked:
    """Check one cell as training does."""
    found = cell.merged()
    same = repr((cell.environment, sorted(cell.env.items())))
    if same not in environments:
        environments[same] = registry.make(cell.environment, **cell.env)
    built, protocol = environments[same], cell.evaluation
    settings, config = override(found.sized_for(built.spec), {"eval_episodes": 0}), found.config  # as execution does
    checks.check_rewards(settings, config)
    settings.check()
    check_bounds(config)
    env = wrapped_environment(built, settings)
    algorithms.check_alone(cell.algorithm, env.spec)
    built = check_build(algorithms.canonical(cell.algorithm), env, config, settings)
    if isinstance(env, Environment):
        both = protocol.greedy is None and (built is None or built.algorithm.stochastic)
        played, what = (1 + both) * protocol.episodes, "episodes in [evaluation]"
        memory.check_episode_memory(env.spec, settings.seeds, played, env.spec.horizon, what)
    options = {name: x for name, x in (flags_of(settings) | flags_of(config)).items() if not isinstance(x, int | float)}
    return _Checked(env.spec, settings, built, repr((cell.algorithm, same, sorted(options.items()))))
