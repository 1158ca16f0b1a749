"""The contents of a study's page as data, from which the Markdown page and the HTML report are made.

They depend only on the study's file, its records, and on later changes of the user's own modules. Texts from records
are not escaped here; the writers of the pages escape them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shoal.plots.texts import duration_text, estimate_text, number_text
from shoal.statistics.intervals import scaled
from shoal.studies.combinations import axes_of, matches
from shoal.studies.differing import differing
from shoal.studies.entries import label
from shoal.studies.page_tables import MISSING, Rows, Section, tables_of, value_text
from shoal.studies.plan import Cell
from shoal.studies.presented import Level, Reference, Table
from shoal.studies.record import Record
from shoal.studies.sources import changed
from shoal.studies.stale import MARK, sentences, stale
from shoal.studies.study_file import StudyFile
from shoal.studies.summaries import primary_text, unit_of


class Mixture(NamedTuple):
    """A warning: the records were made on several commits or machines."""

    what: str
    """``commits`` or ``machines``."""
    each: dict[str, int]
    """The number of runs on each."""


DIFFERING_TITLE = "Flags that differ beyond the axes"
DIFFERING_NOTE = "Presets and overrides give rows of the tables these values; the axes do not name them."


class Contents(NamedTuple):
    """All parts of the page but its figures (:func:`shoal.studies.charts.charts_of`)."""

    primary: str
    """The primary metric; empty if the file names none."""
    missing: int
    """Number of runs without a record."""
    runs: int
    mixtures: tuple[Mixture, ...]
    changes: tuple[str, ...]
    """A sentence for each of the user's modules that has changed since runs were recorded."""
    stale: tuple[str, ...]
    """A sentence for each reason why records are stale (:mod:`shoal.studies.stale`)."""
    tables: tuple[Section, ...]
    differing: Rows
    """The flags that differ between compared rows beyond the axes (:mod:`shoal.studies.differing`); may be empty."""
    levels: Rows
    """The worst and best scores, which are normalised to 0 and 1; empty if there are none."""
    references: Rows
    """Published values and those of the records; empty if there are none."""
    each_run: Rows
    """A row for each run, with the score of each seed."""
    conditions: dict[str, list[str]]
    """Conditions under which the records were made, by topic; empty without records."""


def contents(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> Contents:
    """The contents of a study's page.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are missing.
    """
    made = [records[cell.name] for cell in cells if cell.name in records]
    mixtures = (
        _mixture("commits", [commit_text(record) for record in made]),
        _mixture("machines", [record.machine for record in made]),
    )
    old = stale(cells, records)
    marked = frozenset(old)
    return Contents(
        primary=primary_text(study.primary) if study.primary else "",
        missing=len(cells) - len(made),
        runs=len(cells),
        mixtures=tuple(mixture for mixture in mixtures if mixture is not None),
        changes=tuple(one.sentence for one in changed(cells, records)),
        stale=_stale(old, cells),
        tables=tuple(tables_of(study, table, cells, records, marked) for table in study.tables or (Table(),)),
        differing=differing(study, cells, records),
        levels=_levels(study.scales),
        references=_references(study.references, cells, records),
        each_run=_runs(cells, records, marked),
        conditions=_conditions(made),
    )


def count_text(number: int, word: str) -> str:
    """A number of things, for example ``2 runs``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def commit_text(record: Record) -> str:
    """The commit that made a record, and whether its files were changed."""
    if record.commit is None:
        return f"an installed Shoal without commit, version {record.versions.get('shoal')}"
    return f"commit {record.commit[:12]}" + (" with changed files" if record.changed else "")


def _mixture(what: str, each: Sequence[str]) -> Mixture | None:
    counts = {one: each.count(one) for one in dict.fromkeys(each)}
    return Mixture(what, counts) if len(counts) > 1 else None


def _levels(levels: Sequence[Level]) -> Rows:
    rows = []
    for level in levels:
        where = ", ".join(f"{axis} {label(wanted)}" for axis, wanted in level.where.items())
        scores = {"worst": number_text(level.worst), "best": number_text(level.best)}
        rows.append({"runs": where.removeprefix("environment ")} | scores | {"source": level.source})
    return rows


def _references(references: Sequence[Reference], cells: Sequence[Cell], records: Mapping[str, Record]) -> Rows:
    rows = []
    several = [axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1]
    for reference in references:
        for cell in (cell for cell in cells if matches(cell.values, reference.where)):
            record = records.get(cell.name)
            low, high = reference.low, reference.high
            unknown, unit = float("nan"), unit_of(reference.metric)
            published = (reference.value, unknown if low is None else low, unknown if high is None else high)
            rows.append(
                {axis: label(cell.values[axis]) for axis in several or ["algorithm"]}
                | {"metric": f"{reference.metric}{', in per cent' if unit == 100.0 else ''}"}
                | {"published": estimate_text(scaled(published, unit))}
                | {"here": value_text(record, reference.metric)}
                | {"source": reference.source}
            )
    return rows


def _stale(old: Mapping[str, str], cells: Sequence[Cell]) -> tuple[str, ...]:
    said = sentences(old, cells)
    if not said:
        return ()
    return (*said, f"Their values are marked {MARK}. The option --again of shoal study measures all runs again.")


def _runs(cells: Sequence[Cell], records: Mapping[str, Record], marked: Collection[str]) -> Rows:
    rows = []
    for cell in cells:
        row = {axis: label(value) for axis, value in cell.values.items()}
        if (record := records.get(cell.name)) is None:
            rows.append(row | {"steps per seed": MISSING, "score of each seed": MISSING, "training": MISSING})
            continue
        seeds = ", ".join(number_text(float(f"{x:.4g}")) for x in np.mean(record.scores, 1))
        seeds += f" {MARK}" if cell.name in marked else ""
        steps, seconds = number_text(record.evaluation["step"]), duration_text(record.seconds["training"])
        rows.append(row | {"steps per seed": steps, "score of each seed": seeds, "training": seconds})
    return rows


def _conditions(made: Sequence[Record]) -> dict[str, list[str]]:
    """Evaluation, convention of the score, commit, hardware and versions, each as often as it differs."""
    if not made:
        return {}
    evaluations, scores = [], []
    for record in made:
        found = record.evaluation
        seeds = record.run["settings"]["seeds"]
        kind = "greedy" if found["greedy"] else "sampled"
        evaluations.append(
            f"{count_text(seeds, 'seed')}, {found['episodes']} {kind} episodes of the last policy of each"
        )
        of = "agents'" if record.run["spec"].get("scored") is None else "learning agents'"
        scores.append(f"{record.run['spec'].get('score')} of the {of} undiscounted returns")
    versions = [
        ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()) if version)
        for record in made
    ]
    every = {
        "Evaluation": evaluations,
        "Score": scores,
        "Code": [commit_text(record) for record in made],
        "Machine": [f"{record.machine}{_rates(made, record.machine)}" for record in made],
        "Versions": versions,
    }
    return {what: list(dict.fromkeys(texts)) for what, texts in every.items()}


def _rates(made: Sequence[Record], machine: str) -> str:
    """The lowest and highest product rate that runs on a machine measured."""
    rates = [record.hardware["product_gflops"] for record in made if record.machine == machine]
    known = [f"{rate:.0f}" for rate in sorted(rate for rate in rates if rate is not None)]
    if not known:
        return ""
    span = known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"
    return f"; {span} GFLOP/s in a 2048³ float32 product"
