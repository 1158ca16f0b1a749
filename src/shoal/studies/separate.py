"""The seeds of a study's runs, each trained as a run of its own, and the records that are joined from theirs.

The seeds of a run are usually trained side by side in one program. Trained separately they need the memory of one seed
(a replay buffer is held for each), several processes or nodes can share them, and a lost machine costs one seed.
"""

import contextlib
import functools
import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.environments import registry
from shoal.errors import InputError
from shoal.runs import behaviour
from shoal.studies.combinations import as_listed
from shoal.studies.plan import Cell, config_digest, existing_path, readable_name
from shoal.studies.record import Record, rounded_numbers, write_record
from shoal.studies.state import record_path, records_of_cells, silent
from shoal.studies.study_file import StudyFile

SEEDS_FOLDER = "seeds"
"""Name of the folder, in that of a study's records, which holds the records of single seeds until they are joined."""
_SEEDS = ("seed", "seeds")
_TOGETHER = {
    "stop_at": "which ends all seeds of a run together",
    "time_budget": "which ends all seeds of a run together",
    "init_from": "from whose seeds those of a run take one each",
}


def check_separable(study: StudyFile, cells: Sequence[Cell]) -> None:
    """Check that the seeds of runs can be trained separately.

    Raises:
        InputError: they cannot, because an axis sets seeds, or because something depends on all seeds of a run: when it
            ends, what it starts from, what is decided before training, or in which mode it is evaluated.
    """
    axes = [*study.grid, *(flag for flags in study.variants.values() for flag in flags)]
    if found := [axis for axis in axes if axis in _SEEDS]:
        raise study.error(f"--separate-seeds requires that {found[0]} is set only in [defaults] or [[overrides]].")
    if cells and study.evaluation.greedy is None:
        raise study.error(
            "--separate-seeds requires that greedy is true or false in [evaluation]: 'better' compares both modes over "
            "all seeds of a run."
        )
    for cell in cells:
        settings = cell.merged().settings
        for name, reason in _TOGETHER.items():
            if getattr(settings, name) is not None:
                raise study.error(f"{cell.title}: --separate-seeds does not go with {name}, {reason}.")
        if hasattr(algorithms.get(cell.algorithm), "prepare"):
            raise study.error(
                f"{cell.title}: --separate-seeds does not go with {cell.algorithm}, which decides once for all seeds "
                "of a run before it trains them."
            )


def seed_cells(cell: Cell) -> list[Cell]:
    """A run for each seed of a run, in their order; a run of one seed is its own.

    Each is evaluated in episodes of its own, from consecutive seeds of the evaluation.
    """
    settings = cell.merged().settings
    if settings.seeds == 1:
        return [cell]
    return [_of_seed(cell, i, settings.seed + i) for i in range(settings.seeds)]


def seed_of(cell: Cell) -> int:
    """The seed of a run of one seed, or the first one of others."""
    return cell.merged().settings.seed


def _of_seed(cell: Cell, i: int, seed: int) -> Cell:
    values, flags = cell.values | {"seed": seed}, cell.flags | {"seed": seed, "seeds": 1}
    evaluation = replace(cell.evaluation, seed=cell.evaluation.seed + i)
    one = replace(cell, values=values, flags=flags, evaluation=evaluation)
    known = registry.options_of(cell.environment)
    digest = config_digest(cell.algorithm, cell.environment, cell.env, one.merged(), known)
    name = f"{readable_name(values)}-{digest}"
    return replace(one, name=name, folder=existing_path(cell.folder.parent / name))


def chosen_seeds(cells: Sequence[Cell], seeds: Any) -> tuple[int, ...] | None:
    """The seeds that ``--only`` names, a number or a tuple of numbers; None for all.

    Raises:
        InputError: no run has one of them.
    """
    if seeds is None:
        return None
    found = seeds if isinstance(seeds, tuple) else (seeds,)
    every = [cell.merged().settings for cell in cells]
    known = sorted({one.seed + i for one in every for i in range(one.seeds)})
    found = as_listed({"seed": found}, {"seed": known})["seed"]
    for seed in found:
        if isinstance(seed, bool) or seed not in known:
            raise InputError(f"--only seed cannot be {seed}; the runs have {', '.join(map(str, known))}.")
    return found


def write_seed(folder: Path, cell: Cell, record: Record) -> None:
    """Write the record of a single seed.

    Args:
        folder: that of the study's records.
        cell: the seed's run.
        record: its record.

    Raises:
        WriteError: it cannot be written.
    """
    write_record(record_path(folder / SEEDS_FOLDER, cell), record)


def records_of_seeds(folder: Path, cells: Sequence[Cell]) -> dict[str, Record]:
    """The records of runs of single seeds, by their names.

    Args:
        folder: that of the study's records.
        cells: the runs.

    Raises:
        InputError: a record is damaged.
    """
    return records_of_cells(folder / SEEDS_FOLDER, cells, silent)


def partly_recorded(folder: Path, cells: Sequence[Cell]) -> list[str]:
    """A sentence for each run without a record of which some seeds are recorded separately."""
    if not (folder / SEEDS_FOLDER).is_dir():
        return []
    said = []
    for cell in cells:
        parts = seed_cells(cell)
        number = len(records_of_seeds(folder, parts)) if len(parts) > 1 else 0
        if number == len(parts):
            said.append(f"All seeds of {cell.title} are recorded separately; the study joins their records.")
        elif number:
            said.append(
                f"{number} of {len(parts)} seeds of {cell.title} are recorded separately; --separate-seeds runs the "
                "others."
            )
    return said


def join_seeds(folder: Path, cell: Cell) -> Record | None:
    """The record of a run; if its seeds are all recorded separately, theirs are joined to it first and deleted.

    None if there is none. Several processes may call this for the same run: they write the same bytes.

    Args:
        folder: that of the study's records.
        cell: the run.

    Raises:
        InputError: a record is damaged.
        WriteError: the record cannot be written.
    """
    parts = seed_cells(cell)
    whole = records_of_cells(folder, [cell], silent).get(cell.name)
    if len(parts) == 1 or not (folder / SEEDS_FOLDER).is_dir():
        return whole
    if whole is None:
        try:
            found = records_of_seeds(folder, parts)
        except InputError:
            if (whole := records_of_cells(folder, [cell], silent).get(cell.name)) is None:
                raise
            return whole  # another process joined them meanwhile
        if len(found) < len(parts):
            return records_of_cells(folder, [cell], silent).get(cell.name)
        whole = joined(cell, [found[part.name] for part in parts])
        write_record(record_path(folder, cell), whole)
    if whole.separate_seeds:
        for part in parts:
            with contextlib.suppress(OSError):
                record_path(folder / SEEDS_FOLDER, part).unlink()
        with contextlib.suppress(OSError):
            (folder / SEEDS_FOLDER).rmdir()
    return whole


def join_all(folder: Path, cells: Sequence[Cell]) -> None:
    """Join the seeds of all runs whose seeds are recorded: they were copied here, or their process ended before it did.

    Args:
        folder: that of the study's records.
        cells: the runs.

    Raises:
        InputError: a record is damaged.
        WriteError: a record cannot be written.
    """
    if (folder / SEEDS_FOLDER).is_dir():  # seldom; otherwise nothing is read
        for cell in cells:
            join_seeds(folder, cell)


def joined(cell: Cell, parts: Sequence[Record]) -> Record:
    """The record of a run from those of its seeds, in their order.

    Curves have the steps that all seeds have. Wall times are sums over the seeds.
    """
    first, last = parts[0], parts[-1]
    settings = cell.merged().settings
    run = first.run | {"settings": first.run["settings"] | {"seed": settings.seed, "seeds": settings.seeds}}
    commits = {one.commit for one in parts}
    kept = {name: first.evaluation[name] for name in ("episodes", "greedy", "step")} | {"seed": cell.evaluation.seed}
    evaluation = kept | _episodes([one.evaluation for one in parts])
    if all("best" in one.evaluation for one in parts):
        best = [one.evaluation["best"] for one in parts]
        evaluation["best"] = _episodes(best) | {"step": [step for one in best for step in one["step"]]}
    return Record(
        study=cell.study,
        cell={axis: value for axis, value in first.cell.items() if axis in cell.values},
        run=run,
        versions={name: _texts([one.versions.get(name) for one in parts]) for name in _common(_of("versions", parts))},
        commit=last.commit,
        changed=len(commits) > 1 or any(one.changed for one in parts),
        platform=_texts([one.platform for one in parts]) or "",
        hardware=_hardware(parts),
        seconds={name: rounded_numbers(sum(one.seconds[name] for one in parts)) for name in first.seconds},
        curve=_curve([one.curve for one in parts]),
        evaluation=evaluation,
        evaluations=_curve([one.evaluations for one in parts]) if all(_of("evaluations", parts)) else {},
        sources={name: _digest([one.sources[name] for one in parts]) for name in _common(_of("sources", parts))},
        behaviour=functools.reduce(behaviour.oldest, _of("behaviour", parts)),
        separate_seeds=True,
    )


def _of(name: str, parts: Sequence[Record]) -> list[Any]:
    return [getattr(one, name) for one in parts]


def _common(each: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that all have."""
    return [name for name in each[0] if all(name in one for one in each)]


def _texts(values: Sequence[str | None]) -> str | None:
    return ", ".join(dict.fromkeys(value for value in values if value is not None)) or None


def _digest(digests: Sequence[str]) -> str:
    """The digest of a file with which all seeds were trained; if it changed between them, one that no file has."""
    if len(set(digests)) == 1:
        return digests[0]
    return hashlib.sha256(" ".join(digests).encode("ascii")).hexdigest()[: len(digests[0])]


def _hardware(parts: Sequence[Record]) -> dict[str, Any]:
    """The last machine with the median of the product rates; the others are earlier ones."""
    measured = ("product_gflops", "earlier")
    rates = [rate for one in parts if (rate := one.hardware["product_gflops"]) is not None]
    machines: list[dict[str, Any]] = []
    for one in reversed(parts):
        here = {name: value for name, value in one.hardware.items() if name not in measured}
        machines += [each for each in (here, *one.hardware.get("earlier", ())) if each not in machines]
    last, *others = machines
    rate = rounded_numbers(statistics.median(rates)) if rates else None
    return last | {"product_gflops": rate} | ({"earlier": others} if others else {})


def _episodes(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``scores``, ``lengths`` and ``metrics`` [seeds, episodes]."""
    metrics = [one["metrics"] for one in each]
    found: dict[str, Any] = {name: [row for one in each for row in one[name]] for name in ("scores", "lengths")}
    return found | {"metrics": {name: [row for one in metrics for row in one[name]] for name in _common(metrics)}}


def _curve(each: Sequence[Mapping[str, list]]) -> dict[str, list]:
    """Curves [X, seeds] at the steps that all have."""
    rows = [{step: i for i, step in enumerate(one["step"])} for one in each]
    steps = [step for step in each[0]["step"] if all(step in one for one in rows)]

    def at(step: int, name: str) -> list:
        return [value for one, row in zip(each, rows, strict=True) for value in one[name][row[step]]]

    return {name: steps if name == "step" else [at(step, name) for step in steps] for name in _common(each)}
