"""Tunes the methods of a study without a record, and writes their records and presets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.algorithms import canonical
from shoal.config import config_files
from shoal.errors import CheckpointError, GameError, InputError, NonFiniteError
from shoal.options.flags import flags_of
from shoal.storage import manifest
from shoal.storage.manifest import product_rate
from shoal.studies.combinations import as_listed, axes_of, check_values, matches
from shoal.studies.execution import earlier_hardware, listed
from shoal.studies.keys import label
from shoal.studies.record import rounded_numbers
from shoal.studies.running import OUT, reason_of
from shoal.studies.state import records_folder
from shoal.studies.study_file import StudyFile, read_study, study_path
from shoal.studies.tuning import proposals, search
from shoal.studies.tuning.file import Range
from shoal.studies.tuning.methods import Method, methods
from shoal.studies.tuning.record import (
    OF_RUNS,
    TuningRecord,
    tuning_record_path,
    tuning_records,
    write_tuning_record,
)
from shoal.studies.tuning.search import Search
from shoal.studies.tuning.structures import Instance, Setting, sorted_by_structure
from shoal.studies.user_modules import check_imports, permit_imports
from shoal.system import notices
from shoal.system.files import to_json

# The plan of a search as text, and its record when it has ended.


def plan_of(method: Method, state: Search | None) -> list[str]:
    """Trials, rungs, budget, and traced and structural hyper-parameters; ``state`` is None for a recorded method."""
    tuning, rungs = method.tuning, method.rungs
    per = f"× {tuning.seeds} seeds" + (f" × {len(method.cells)} environments" if len(method.cells) > 1 else "")
    lines = [f"rung {i}: {rung.trials} trials {per} to {rung.steps:,} steps" for i, rung in enumerate(rungs, 1)]
    rounds = f" in {tuning.rounds} rounds" if tuning.rounds > 1 else ""
    played = sum(rung.trials for rung in rungs) * tuning.seeds * tuning.episodes * len(method.cells) * tuning.rounds
    each = " in each mode" if any(cell.evaluation.greedy is None for cell in method.cells) else ""
    lines.append(f"budget: {method.budget:,} environment steps{rounds}, and {played:,} episodes of evaluation{each}")
    lines.append(f"search: {tuning.search}, seeds {tuning.seed} to {tuning.seed + tuning.seeds - 1}")
    if state is not None:
        structural = [flag for flag in method.ranges if flag not in state.traced]
        hosted = any(setting.hosted for setting in state.settings)
        if hosted:
            lines.append("trials are runs, one after the other: worker processes step the environment")
        else:
            lines.append(f"traced (one program): {', '.join(state.traced) or 'nothing'}")
        if structural and not hosted:
            trials = state.trials or ([] if tuning.search == "optuna" else state.propose())
            count = len(sorted_by_structure(dict(enumerate(trials)), state.traced)) if trials else "several"
            lines.append(f"structural (a program for each combination, {count} here): {', '.join(structural)}")
    return lines


def tuning_record_of(state: Search) -> TuningRecord:
    """The record of a finished search.

    Raises:
        NonFiniteError: all trials diverged.
    """
    method, here, reached = state.method, manifest.describe_machine(), state.reached()
    made = here | (state.machines[-1] if state.machines else {})  # that trained last, perhaps in another process
    rate = rounded_numbers(product_rate() / 1e9) if made["hardware"] == to_json(here["hardware"]) else None
    commit: str | None = made["commit"]
    tuning = method.tuning
    names = ("eta", "rounds", "seeds", "seed", "episodes", "evaluation_seed", "draw", "search", "default", "greedy")
    return TuningRecord(
        study=method.study,
        method={axis: listed(value) for axis, value in method.values.items()},
        runs=[_run_of(setting) for setting in state.settings],
        tuning={name: getattr(tuning, name) for name in names},
        ranges={flag: _range_text(span, flag in state.traced) for flag, span in method.ranges.items()},
        rungs=[list(rung) for rung in method.rungs],
        budget={"steps": method.budget, "trained": _trained(state), "episodes": _played(state)},
        programs=state.programs,
        trials=[
            {"values": {flag: listed(x) for flag, x in values.items()}, "scores": reached[number]}
            for number, values in enumerate(state.trials)
        ],
        winner=state.winner(),
        versions=made["versions"],
        commit=commit.removesuffix("+") if commit else None,
        changed=bool(commit) and commit.endswith("+"),
        platform=made["platform"],
        hardware=made["hardware"] | {"product_gflops": rate} | earlier_hardware(made | {"earlier": state.machines}),
        seconds={name: rounded_numbers(value) for name, value in state.seconds.items()},
        behaviour=state.behaviour or [],
    )


def _run_of(setting: Setting) -> dict[str, Any]:
    instance = Instance(setting, {})
    return {
        "algorithm": canonical(setting.cell.algorithm),
        "environment": setting.cell.environment,
        "env": {option: listed(value) for option, value in setting.cell.env.items()},
        "settings": to_json(flags_of(instance.settings)),
        "config": to_json(flags_of(instance.config)),
    }


def _range_text(span: Range, traced: bool) -> dict[str, Any]:
    interval = {"low": None, "high": None} if span.values else {"low": span.low, "high": span.high}
    values = [listed(value) for value in span.values]
    return interval | {"log": span.log, "values": values, "kind": "traced" if traced else "structural"}


def _trained(state: Search) -> int:
    """Environment steps that were done, over all trials, seeds and environments: to the last rung with a score of each
    trial, also where it diverged before the end of that rung."""
    total = 0
    for setting in state.settings:
        for structure in sorted_by_structure(dict(enumerate(state.trials)), state.traced):
            instance, reached = Instance(setting, structure.fixed), state.reached()
            updates = sum(instance.updates[len(reached[number]) - 1] for number in structure.trials if reached[number])
            total += updates * instance.settings.steps_per_update * state.method.tuning.seeds
    return total


def _played(state: Search) -> int:
    tuning = state.method.tuning
    return sum(len(one) for one in state.reached().values()) * tuning.seeds * tuning.episodes * len(state.settings)


# The searches of a study.


@dataclass
class TuningReport:
    """The result of :func:`tune`."""

    study: StudyFile
    methods: list[Method]
    """The selected methods."""
    searches: dict[str, Search]
    """Of the methods that had no record at the start, by name."""
    records: dict[str, TuningRecord]
    """All records of the selected methods, by name."""
    presets: dict[str, Path] = field(default_factory=dict)
    """The preset files that were written, by the names of the methods."""
    failed: list[tuple[Method, str]] = field(default_factory=list)
    """Methods whose search failed, with the reason."""

    @property
    def ok(self) -> bool:
        """Whether no search failed."""
        return not self.failed

    @property
    def plan(self) -> str:
        """For each method its trials, rungs, budget, and traced and structural hyper-parameters."""
        count = f"{len(self.methods)} method{'s' if len(self.methods) > 1 else ''}, {len(self.records)} recorded"
        lines = [f"{self.study.name}: {count}"]
        for method in self.methods:
            word = "recorded" if method.name in self.records else "missing"
            where = "" if "environment" in method.values else f" in {', '.join(method.environments)}"
            lines.append(f"  {word}  {method.title}{where}  ({method.name})")
            lines += [f"    {line}" for line in plan_of(method, self.searches.get(method.name))]
        return "\n".join(lines)

    def __str__(self) -> str:
        """The winner of each method, as flags, and a line for each search that failed."""
        lines = [f"{self.study.name}: {len(self.records)} of {len(self.methods)} methods tuned"]
        for method in self.methods:
            if (record := self.records.get(method.name)) is not None:
                lines.append(f"{method.title}: {command_flags(record.flags)}")
        lines += [f"preset: {path}" for path in self.presets.values()]
        return "\n".join([*lines, *(f"failed: {method.title}: {reason}" for method, reason in self.failed)])


def tune(
    file: str | Path,
    *,
    only: Mapping[str, Any] | None = None,
    out: str | Path = OUT,
    records: str | Path | None = None,
    dry_run: bool = False,
    progress: bool = True,
    trust: bool = False,
) -> TuningReport:
    """Tune the hyper-parameters of a study's methods without a record of tuning; continues stopped searches.

    Args:
        file: a study file ``*.toml`` with a part ``[tuning]``, or the name of one in ``studies/``.
        only: values of axes, for example ``{"algorithm": "qmix"}``, or tuples of values; other methods are ignored.
        out: folder that contains a folder with the states of the searches of each study.
        records: folder that contains a folder with the records of each study; by default ``records/`` next to the file.
        dry_run: only check the study, and find traced and structural hyper-parameters.
        progress: show the progress line and notes.
        trust: as for :func:`shoal.study`.

    Returns:
        The methods, their records, and failures. A search that fails does not stop the others.

    Raises:
        InputError: the file or a range in it is invalid, or a record is damaged; raised before any trial starts.
        KeyboardInterrupt: on Ctrl-C; the state is saved, and the same call continues.
    """
    described = read_study(study_path(file))
    if dry_run:
        check_imports(described, trust, builds=True)
    else:
        permit_imports(described)
    chosen = _selected(described, methods(described), only or {})
    where = records_folder(described, records)
    held = tuning_records(where, chosen)
    searches = {}
    for method in chosen:
        if method.name not in held:
            searches[method.name] = _prepared(described, method, Path(out) / described.name / method.name)
    report = TuningReport(described, chosen, searches, held)
    if not dry_run:
        _run(report, Path(out) / described.name, where, progress)
    return report


def command_flags(flags: Mapping[str, Any]) -> str:
    """Flags as they are written after ``shoal train``."""
    words = []
    for flag, value in flags.items():
        spelt = flag.replace("_", "-")
        no, rest = ("no-" if value is False else ""), "" if isinstance(value, bool) else f" {label(value)}"
        words.append(f"--{no}{spelt}{rest}")
    return " ".join(words)


def _selected(study: StudyFile, known: list[Method], only: Mapping[str, Any]) -> list[Method]:
    wanted = {axis: tuple(value) if isinstance(value, list) else value for axis, value in only.items()}
    axes = axes_of([method.values for method in known])
    wanted = as_listed(wanted, axes)
    check_values(study, "--only", wanted, axes)
    chosen = [method for method in known if matches(method.values, wanted)]
    if not chosen:
        said = " and ".join(f"{axis} {label(value)}" for axis, value in wanted.items())
        raise InputError(f"{study.path}: --only matches no method: none has {said}.")
    return chosen


def _prepared(study: StudyFile, method: Method, folder: Path) -> Search:
    """The stored or new search of a method, whose trials are checked; nothing is compiled.

    Raises:
        InputError: an environment, a trial or a rung is not possible. The message names the file and the method.
    """
    try:
        if method.tuning.search == "optuna":
            proposals.optuna_library()
        settings = [Setting(method, cell) for cell in method.cells]
        traced = [flag for flag in settings[0].traced if all(flag in setting.traced for setting in settings)]
        state = search.open_search(method, settings, traced, folder)
        trials = state.trials or ([] if method.tuning.search == "optuna" else state.propose())
        for setting in settings:
            for structure in search.sorted_by_structure(dict(enumerate(trials)), traced):
                Instance(setting, structure.fixed).check(trials[number] for number in structure.trials)
    except InputError as error:
        raise study.error(f"{method.title}: {error}") from None
    return state


def _run(report: TuningReport, out: Path, where: Path, progress: bool) -> None:
    for method in report.methods:
        folder = out / method.name
        try:
            if method.name not in report.records:  # another process may have recorded it since the start
                report.records |= tuning_records(where, [method])
            if (record := report.records.get(method.name)) is not None:
                if not _preset_path(report.study, method, where).exists():  # stopped between the record and its preset
                    report.presets[method.name] = _preset(report.study, method, record, where)
                    search.forget_states(folder)
                continue
            state = report.searches[method.name]
            if not search.complete_search(state, folder, progress, notices.warn if progress else _quiet):
                raise KeyboardInterrupt
            record = tuning_record_of(state)
            write_tuning_record(tuning_record_path(where, method), record)
            report.records[method.name] = record
            report.presets[method.name] = _preset(report.study, method, record, where)
            search.forget_states(folder)
        except KeyboardInterrupt:
            done = f"{len(report.records)} of {len(report.methods)} methods tuned"
            raise KeyboardInterrupt(f"Stopped with {done}; the same command continues.") from None
        except (InputError, NonFiniteError, GameError, MemoryError, RuntimeError, CheckpointError) as error:
            reason = reason_of(error)
            report.failed.append((method, reason))
            notices.warn(f"Failed: {method.title}: {reason}")


def _quiet(sentence: str) -> None:
    pass


def _preset_path(study: StudyFile, method: Method, where: Path) -> Path:
    return where.parent.parent / "presets" / f"{study.name}-{method.name.removeprefix('tuning-')}.toml"


def _preset(study: StudyFile, method: Method, record: TuningRecord, where: Path) -> Path:
    path = _preset_path(study, method, where)
    source = (
        f"shoal tune {study.name}: the best of {len(record.trials)} trials in {', '.join(record.tasks)}, "
        f"{record.budget['trained']:,} environment steps in total, commit {record.commit or 'unknown'}"
        + (" with changed files" if record.changed else "")
    )
    fixed, unequal = fixed_flags(method)
    if unequal:
        source += f"; not here, since the environments differ in them: {', '.join(unequal)}"
    config_files.write_preset(path, record.runs[0]["algorithm"], record.environments, fixed | record.flags, source)
    return path


def fixed_flags(method: Method) -> tuple[dict[str, Any], list[str]]:
    """The flags that the study file sets for all trials, and the names of those that differ between environments."""
    each = [{flag: x for flag, x in cell.flags.items() if flag not in OF_RUNS} for cell in method.cells]
    names = dict.fromkeys(flag for flags in each for flag in flags if flag not in method.ranges)
    unequal = [name for name in names if any(name not in flags or flags[name] != each[0].get(name) for flags in each)]
    return {name: each[0][name] for name in names if name not in unequal}, unequal
