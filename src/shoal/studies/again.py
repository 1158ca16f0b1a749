"""A study measured again with other seeds: its runs and records have folders of their own, and a page compares them
with the study's records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.plots.texts import estimate_text, markdown_table, markdown_text, number_text
from shoal.statistics.intervals import scaled
from shoal.studies.combinations import axes_of
from shoal.studies.keys import label
from shoal.studies.limits import MARGIN, less_is_better, limits_of, primary_text
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import STALE_MARK, stale_records, stale_sentences
from shoal.studies.study_file import StudyFile, command_in_folder, home
from shoal.studies.summaries import STATISTICS, Statistic, primary_of, unit_of
from shoal.studies.tables import MISSING, Rows
from shoal.system.files import write_text

AGAIN_FOLDER = "again"
"""Name of the folder, next to the study's file or in the folder of records, that holds the new records and pages."""
AGAIN_SEED = 100
"""Default first seed."""


class Again(NamedTuple):
    """A study's records beside those of other seeds."""

    study: StudyFile
    """The study as it was recorded first."""
    seed: int
    """The first of the other seeds."""
    cells: Sequence[Cell]
    """Its runs as they were recorded first."""
    before: Mapping[str, Record]
    """The first records by the names of :attr:`cells`."""
    new: Sequence[Cell]
    """The same runs with the other seeds, in the same order."""


def with_seed(study: StudyFile, cells: Sequence[Cell], seed: int) -> StudyFile:
    """The study with other seeds of training and of the final episodes, under the name ``STUDY-seedSEED``.

    Raises:
        InputError: a run or a search has one of these seeds already, or the file sets seeds for some runs only.
    """
    several = [study.grid, *study.variants.values(), *(choice.flags for choice in study.overrides)]
    if any("seed" in part for part in several):
        raise study.error("--again requires that seed is set only in [defaults]; it replaces the seed of all runs.")
    for cell in cells:
        settings = cell.merged().settings
        if seed < settings.seed + settings.seeds and settings.seed < seed + settings.seeds:
            raise InputError(
                f"--seed {seed} would repeat seeds of {cell.title}, which are {settings.seed} to "
                f"{settings.seed + settings.seeds - 1}; choose seeds that do not overlap, for example --seed "
                f"{settings.seed + max(settings.seeds, AGAIN_SEED)}."
            )
    if (tuning := study.tuning) is not None:
        last = max((seed + cell.merged().settings.seeds for cell in cells), default=seed + 1) - 1
        if seed <= tuning.seed + tuning.seeds - 1 and tuning.seed <= last:
            raise InputError(
                f"--seed {seed} would repeat seeds of the search, which are {tuning.seed} to "
                f"{tuning.seed + tuning.seeds - 1}; choose other seeds, for example --seed {AGAIN_SEED}."
            )
        if study.evaluation.seed + seed == tuning.evaluation_seed:
            raise InputError(f"--seed {seed} would repeat the episodes of the search; choose --seed {seed + 1}.")
    evaluation = replace(study.evaluation, seed=study.evaluation.seed + seed)
    return replace(
        study, name=f"{study.name}-seed{seed}", defaults=study.defaults | {"seed": seed}, evaluation=evaluation
    )


def records_root(study: StudyFile, records: str | Path | None) -> Path:
    """The folder that contains the folders of the new records."""
    return (home(study.path) if records is None else Path(records)) / AGAIN_FOLDER


def rows_of(again: Again, records: Mapping[str, Record]) -> Rows:
    """A line for each run: the primary metric before and now, the difference, and whether they agree.

    Args:
        again: the first records.
        records: the new ones by the names of ``again.new``.
    """
    old = stale_records(again.cells, again.before)
    several = [axis for axis, known in axes_of([cell.values for cell in again.cells]).items() if len(known) > 1]
    rows = []
    for first, cell in zip(again.cells, again.new, strict=True):
        before, now = again.before.get(first.name), records.get(cell.name)
        mark = f" {STALE_MARK}" if first.name in old else ""
        rows.append(
            {axis: label(first.values[axis]) for axis in several or ["algorithm"]}
            | {"before": _text(before, again.study, cell) + mark, "again": _text(now, again.study, cell)}
            | dict(zip(("again − before", "verdict"), _verdict(before, now, again.study, cell), strict=True))
        )
    return rows


def _statistic(study: StudyFile, cell: Cell) -> Statistic:
    """That of the primary metric in a run's task."""
    primary = primary_of(study)
    return STATISTICS[primary.statistic].where(less_is_better(study, primary.metric, cell))


def _text(record: Record | None, study: StudyFile, cell: Cell) -> str:
    primary, statistic = primary_of(study), _statistic(study, cell)
    if record is None:
        return MISSING
    (samples,) = statistic.alone(primary.metric, record)
    if samples is None or statistic.estimate is None:
        return "–"
    return estimate_text(scaled(statistic.estimate([samples]), unit_of(primary.metric)))


def _verdict(before: Record | None, now: Record | None, study: StudyFile, cell: Cell) -> tuple[str, str]:
    """(difference, ``agree``, ``differ``, ``not told apart``, or why that cannot be said).

    An interval that contains 0 may be wide: both agree only if all of it is within the margin of equality.
    """
    primary, margin = primary_of(study), limits_of(study, cell).margin
    if before is None or now is None:
        return MISSING, MISSING
    statistic = _statistic(study, cell)
    old, new = statistic.alone(primary.metric, before, now)
    if old is None or new is None:
        return "–", "no value"
    value, low, high = statistic.difference([new], [old])
    text = estimate_text(scaled((value, low, high), unit_of(primary.metric)))
    if before.seeds < 2 or now.seeds < 2:
        return text, "one seed"
    if not math.isfinite(low) or not math.isfinite(high):
        return text, "no interval"
    if not low <= 0 <= high:
        return text, "differ"
    return text, "agree" if -margin <= low and high <= margin else "not told apart"


def again_page(again: Again, records: Mapping[str, Record]) -> str:
    """The page in Markdown; the arguments are those of :func:`rows_of`."""
    study, rows = again.study, rows_of(again, records)
    where, word = command_in_folder(study)
    seeds = sorted({record.seeds for record in (*again.before.values(), *records.values())})
    primary = primary_of(study)
    kinds = [STATISTICS[primary.statistic].interval_of(primary.metric, n, 1) for n in seeds]
    brackets = " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    verdicts = [row["verdict"] for row in rows if row["verdict"] in ("agree", "differ", "not told apart")]
    known = any(limits_of(study, cell).margin for cell in again.new)
    close = f"the whole interval is within {MARGIN:.0%} of the distance between floor and ceiling"
    parts = [
        f"# {study.title}, measured again",
        f"**Primary metric:** {primary_text(study, again.new)}" + (f" [{brackets}]." if brackets else "."),
        f"{where}`shoal study {word} --again --seed {again.seed}` trains every run with the seeds from "
        f"{number_text(again.seed)} on and evaluates it in other episodes.",
        *(f"**{sentence} Its values before are marked {STALE_MARK}.**" for sentence in _stale(again)),
        markdown_table(rows),
        f"Of {len(verdicts)} runs with several seeds {verdicts.count('differ')} differ: the interval of the difference "
        f"does not contain 0. {verdicts.count('agree')} agree: "
        + (close if known else f"{close}, which are not known here")
        + f". {verdicts.count('not told apart')} are not told apart. Of exact 95% intervals one in twenty does not "
        f"contain 0 although nothing has changed; with 2 or 3 seeds an interval is a range, which covers less. A run "
        f"of one seed cannot show how much seeds differ.",
    ]
    return markdown_text("\n\n".join(part.strip("\n") for part in parts) + "\n")


def _stale(again: Again) -> list[str]:
    return stale_sentences(stale_records(again.cells, again.before), again.cells)


def write_again_page(again: Again, records: Mapping[str, Record], root: Path) -> Path:
    """Write the page next to the folder of the new records, in ``root``; returns its path.

    Raises:
        WriteError: it cannot be written.
    """
    path = root / f"{again.study.name}-seed{again.seed}.md"
    write_text(path, again_page(again, records))
    return path
