"""The contents of a study's page as data, from which the Markdown page and the HTML report are made.

They depend only on the study's file, its records, and on later changes of the user's own modules. Texts from records
are not escaped here; the writers of the pages escape them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.options.flags import flags_of
from shoal.plots.charts import metric_words
from shoal.plots.texts import duration_text, estimate_text, number_text, number_texts
from shoal.statistics.intervals import scaled
from shoal.studies.combinations import axes_of, matches
from shoal.studies.crossplay import CrossplayRecord, Played
from shoal.studies.crossplay_tables import crossplay_section
from shoal.studies.keys import label
from shoal.studies.levels import NO_LEVELS, Levels
from shoal.studies.limits import primary_text, undecided
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import STALE_MARK, stale_records, stale_sentences
from shoal.studies.study_file import Reference, ScoreRange, StudyFile, Table
from shoal.studies.summaries import unit_of
from shoal.studies.tables import (
    MISSING,
    Place,
    Rows,
    Section,
    column_head,
    entries_of,
    mean_text,
    tables_of,
    values_of_axes,
)
from shoal.studies.user_modules import changed_modules
from shoal.system.files import to_json
from shoal.training.evaluation import mode_name

# Flags that differ between compared rows beyond the axes, since presets and ``[[overrides]]`` give methods values of
# their own.


WITHOUT_EFFECT = frozenset(
    {
        "address",
        "block",
        "checkpoint_seconds",
        "curve_episodes",
        "devices",
        "eval_episodes",
        "eval_every",
        "keep",
        "num_workers",
        "rows",
        "tensorboard",
        "worker_timeout",
        "workers",
    }
)
"""Flags that do not change what the last policy learns."""
_MAX_FLAG_VALUE = 60
_MAX_FLAGS_LISTED = 4
"""If more rows have the most frequent value, they are not listed."""


def differing_flags(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> Rows:
    """A line for each flag that differs between rows of a table although neither the grid nor the rows' variants set
    it: the flag, its values with the rows that have them, and where they are compared. A flag that not all of the rows'
    algorithms have is compared between those that have it.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; the flags of other runs are those that they would have today.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    flags = {cell.name: _flags(cell, records.get(cell.name)) for cell in cells}
    for table in study.tables or (Table(),):
        entries = entries_of(study, table, cells, records)
        compared: dict[Place, list[tuple[str, Cell]]] = {}
        for line in entries.grid.values():
            for each in line.values():
                for cell in each:
                    name = " ".join(label(cell.values[axis]) for axis in entries.rows)
                    compared.setdefault(values_of_axes(cell, (*entries.columns, *entries.over)), []).append(
                        (name, cell)
                    )
        for rows in compared.values():
            where = column_head(rows[0][1], (*entries.columns, *entries.over))
            for flag in dict.fromkeys(flag for _, cell in rows for flag in flags[cell.name]):
                if said := _said(study, flag, rows, flags):
                    places = lines.setdefault((flag, said), [])
                    places += [where] if where not in places else []
    return [
        {"flag": flag, "values": said} | ({"compared in": "; ".join(places)} if any(places) else {})
        for (flag, said), places in sorted(lines.items())
    ]


def _flags(cell: Cell, record: Record | None) -> dict[str, Any]:
    if record is not None:
        found = record.run["settings"] | record.run["config"]
    else:
        merged = cell.merged()
        found = to_json(flags_of(merged.settings) | flags_of(merged.config))
        found = {flag: value for flag, value in found.items() if flag not in merged.sized}
    return {flag: value for flag, value in found.items() if flag not in WITHOUT_EFFECT}


def _said(
    study: StudyFile, flag: str, rows: Sequence[tuple[str, Cell]], flags: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """The values of a flag with the rows that have them; None if the axes explain every difference."""
    if flag in study.grid:
        return None
    values: dict[str, list[str]] = {}
    unexplained = set()
    for name, cell in rows:
        if flag in flags[cell.name]:
            text = label(flags[cell.name][flag])
            text = text if len(text) <= _MAX_FLAG_VALUE else text[: _MAX_FLAG_VALUE - 1] + "…"
            values.setdefault(text, []).append(name)
            if flag not in study.variants.get(str(cell.values.get("variant")), {}):
                unexplained.add(text)
    if len(unexplained) < 2:
        return None
    most = max(values, key=lambda text: len(values[text]))
    if len(values[most]) > _MAX_FLAGS_LISTED:
        values[most] = ["the others"]
        values[most] = values.pop(most)  # the last
    return "; ".join(f"{text}: {' · '.join(names)}" for text, names in values.items())


# The contents.


DIFFERING_TITLE = "Flags that differ beyond the axes"
DIFFERING_NOTE = "Presets and overrides give rows of the tables these values; the axes do not name them."


class Contents(NamedTuple):
    """All parts of the page but its figures (:func:`shoal.studies.charts.charts_of`)."""

    primary: str
    """The primary metric; empty if the file names none."""
    undecided: tuple[str, ...]
    """A sentence for each task in which the primary metric decides nothing (:mod:`shoal.studies.limits`)."""
    missing: int
    """Number of runs without a record."""
    runs: int
    mixed: str
    """``2 commits and 3 machines`` if the runs of the tables were made on several of either; else empty."""
    changes: tuple[str, ...]
    """A sentence for each of the user's modules that has changed since runs were recorded."""
    stale: tuple[str, ...]
    """A sentence for each reason why records are stale (:mod:`shoal.studies.state`)."""
    tables: tuple[Section, ...]
    """Those of the file, then those of its cross-play."""
    differing: Rows
    """The flags that differ between compared rows beyond the axes (:mod:`shoal.studies.contents`); may be empty."""
    ranges: Rows
    """The worst and best scores, which are normalised to 0 and 1; empty if there are none."""
    references: Rows
    """Published values and those of the records; empty if there are none."""
    each_run: Rows
    """A row for each run, with the score of each seed."""
    conditions: dict[str, list[str]]
    """Conditions under which the records were made, by topic; empty without records. Where they differ, each says of
    how many runs."""


def contents_of(
    study: StudyFile,
    cells: Sequence[Cell],
    records: Mapping[str, Record],
    levels: Levels = NO_LEVELS,
    games: Sequence[Played] = (),
) -> Contents:
    """The contents of a study's page.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are missing.
        levels: the levels of their tasks.
        games: the groups of its cross-play (:func:`shoal.studies.crossplay.crossplays_of`).
    """
    made = [records[cell.name] for cell in cells if cell.name in records]
    old = stale_records(cells, records)
    marked = frozenset(old)
    return Contents(
        primary=primary_text(study, cells) if study.primary else "",
        undecided=undecided(study, cells, records),
        missing=len(cells) - len(made),
        runs=len(cells),
        mixed=_mixed(made),
        changes=tuple(one.sentence for one in changed_modules(cells, records)),
        stale=_stale(old, cells),
        tables=(
            *_values_once(
                [tables_of(study, table, cells, records, marked, levels) for table in study.tables or (Table(),)]
            ),
            *(crossplay_section(one, marked) for one in games),
        ),
        differing=differing_flags(study, cells, records),
        ranges=_ranges(study.scales),
        references=_references(study.references, cells, records, marked),
        each_run=_runs(cells, records, marked),
        conditions=_conditions(made) | _conditions_of_games(games),
    )


def _values_once(sections: Sequence[Section]) -> list[Section]:
    """Sections of which a later one, with another baseline, names an earlier one that has the same values."""
    found: list[Section] = []
    for one in sections:
        values, compared = one.blocks[:2], one.blocks[2:]
        same = next((other for other in found if compared and str(other.blocks[:2]) == str(values)), None)
        said = (f'The values are those of "{same.title}" above.',) if same else values
        found.append(one._replace(blocks=(*said, *compared)))
    return found


def count_text(number: int, word: str, plural: str | None = None) -> str:
    """A number of things, for example ``2 runs``."""
    return f"{number} {word if number == 1 else plural or f'{word}s'}"


def commit_text(record: Record | CrossplayRecord) -> str:
    """The commit that made a record, and whether its files were changed."""
    if record.commit is None:
        return f"an installed Shoal without commit, version {record.versions.get('shoal')}"
    return f"commit {record.commit[:12]}" + (" with changed files" if record.changed else "")


def _mixed(made: Sequence[Record]) -> str:
    numbers = {"commit": len({commit_text(record) for record in made}), "machine": len({one.machine for one in made})}
    return " and ".join(count_text(number, what) for what, number in numbers.items() if number > 1)


def _ranges(ranges: Sequence[ScoreRange]) -> Rows:
    rows = []
    for one in ranges:
        where = ", ".join(f"{axis} {label(wanted)}" for axis, wanted in one.where.items())
        scores = {"worst": number_text(one.worst), "best": number_text(one.best)}
        rows.append({"runs": where.removeprefix("environment ")} | scores | {"source": one.source})
    return rows


def _references(
    references: Sequence[Reference], cells: Sequence[Cell], records: Mapping[str, Record], marked: Collection[str]
) -> Rows:
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
                | {"metric": f"{metric_words(reference.metric)}{', in per cent' if unit == 100.0 else ''}"}
                | {"published": estimate_text(scaled(published, unit))}
                | {"here": mean_text(record, reference.metric) + (f" {STALE_MARK}" if cell.name in marked else "")}
                | {"source": reference.source}
            )
    return rows


def _stale(old: Mapping[str, str], cells: Sequence[Cell]) -> tuple[str, ...]:
    said = stale_sentences(old, cells)
    return (*said, f"Their values are marked {STALE_MARK}. shoal study --renew trains them again.") if said else ()


def _runs(cells: Sequence[Cell], records: Mapping[str, Record], marked: Collection[str]) -> Rows:
    rows = []
    chosen = any(record.evaluation.get("better") for record in records.values())
    both = any("other" in record.evaluation for record in records.values())
    for cell in cells:
        row = {axis: label(value) for axis, value in cell.values.items()}
        if (record := records.get(cell.name)) is None:
            rows.append(row | {"steps per seed": MISSING, "score of each seed": MISSING, "training": MISSING})
            continue
        seeds = ", ".join(number_texts([float(f"{x:.4g}") for x in np.mean(record.scores, 1)]))
        seeds += f" {STALE_MARK}" if cell.name in marked else ""
        steps, seconds = number_text(record.evaluation["step"]), duration_text(record.seconds["training"])
        mode = {"acting": mode_name(record.evaluation["greedy"])} if chosen else {}
        if both:
            means = [float(f"{x:.4g}") for x in record.evaluation.get("other", ())]
            mode["in the other mode"] = ", ".join(number_texts(means)) or "–"
        rows.append(row | {"steps per seed": steps, "score of each seed": seeds} | mode | {"training": seconds})
    return rows


def _conditions(made: Sequence[Record]) -> dict[str, list[str]]:
    """Evaluation, convention of the score, commit, hardware, versions; where they differ, with the number of runs."""
    if not made:
        return {}
    evaluations, scores = [], []
    for record in made:
        found = record.evaluation
        seeds = record.run["settings"]["seeds"]
        kind = mode_name(found["greedy"]) + (" (the better mode)" if found.get("better") else "")
        each = f"{count_text(seeds, 'seed')}{', trained separately' if record.separate_seeds else ''}"
        evaluations.append(f"{each}, {found['episodes']} {kind} episodes of the last policy of each")
        of = "agents'" if record.run["spec"].get("scored") is None else "learning agents'"
        scores.append(f"{record.run['spec'].get('score')} of the {of} undiscounted returns")
    versions = [_versions_text(record) for record in made]
    every = {
        "Evaluation": evaluations,
        "Score": scores,
        "Code": [commit_text(record) for record in made],
        "Machine": [f"{record.machine}{_rates(made, record.machine)}" for record in made],
        "Versions": versions,
    }
    return {what: _counted(texts) for what, texts in every.items()}


def _counted(texts: Sequence[str]) -> list[str]:
    counts = Counter(texts)
    return [f"{text}: {count_text(count, 'run')}" for text, count in counts.items()] if len(counts) > 1 else [*counts]


def _versions_text(record: Record | CrossplayRecord) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()) if version)


def _conditions_of_games(games: Sequence[Played]) -> dict[str, list[str]]:
    """Commit, machine and versions of the games; empty without any."""
    made = [one.record for one in games if one.record is not None]
    texts = [f"{commit_text(record)}; {record.machine}; {_versions_text(record)}" for record in made]
    return {"Cross-play": list(dict.fromkeys(texts))} if texts else {}


def _rates(made: Sequence[Record], machine: str) -> str:
    """The lowest and highest product rate that runs on a machine measured."""
    rates = [record.hardware["product_gflops"] for record in made if record.machine == machine]
    known = [f"{rate:.0f}" for rate in sorted(rate for rate in rates if rate is not None)]
    if not known:
        return ""
    span = known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"
    return f"; {span} GFLOP/s in a 2048³ float32 product"
