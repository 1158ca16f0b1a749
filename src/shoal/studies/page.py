"""The results page of a study, made from its file and its records alone: the same input gives the same bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.records.report import duration_text, estimate_text, markdown_table, number_text
from shoal.statistics.intervals import Estimate
from shoal.studies.combinations import axes_of, axes_of_table, matches
from shoal.studies.entries import key, label
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import Reference, StudyFile, Table
from shoal.studies.summaries import STATISTICS, Statistic

MISSING = "missing"
_PLAIN = ("algorithm", "environment", "variant")
"""Axes whose values need no name of the axis beside them."""


def page(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> str:
    """The page in Markdown.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are shown as missing.
    """
    made = [records[cell.name] for cell in cells if cell.name in records]
    tables = study.tables or (Table(1, "", None, None, {}, "score", "mean", {}),)
    parts = [f"# {study.title}", study.question, _origin(study)]
    if len(made) < len(cells):
        parts.append(f"**{len(cells) - len(made)} of {len(cells)} runs are missing.**")
    parts += [_mixture("commits", [_commit(record) for record in made])]
    parts += [_mixture("machines", [_plain(record.machine) for record in made])]
    for table in tables:
        parts += _table(study, table, cells, records)
    if study.references:
        parts += ["## Published values", _references(study.references, cells, records)]
    parts += ["## Runs", _runs(cells, records), *_conditions(made)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _origin(study: StudyFile) -> str:
    name = study.name
    return (
        f"`shoal study {name}` runs what is missing of [{name}.toml](../{name}.toml), and `shoal results {name}` "
        f"writes this page from the [records](../records/{name}/)."
    )


def _mixture(what: str, each: Sequence[str]) -> str:
    """A warning if records were made on several commits or machines."""
    counts = {one: each.count(one) for one in dict.fromkeys(each)}
    if len(counts) < 2:
        return ""
    listed = "\n".join(f"- {one}: {_count(count, 'run')}" for one, count in counts.items())
    return f"**The tables mix {len(counts)} {what}:**\n\n{listed}"


def _commit(record: Record) -> str:
    if record.commit is None:
        return "an installed Shoal without commit, version " + _plain(str(record.versions.get("shoal")))
    return f"commit `{record.commit[:12]}`" + (" with changed files" if record.changed else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _plain(text: str) -> str:
    """Text of a record without characters that Markdown or HTML would interpret."""
    return "".join(x for x in text if x not in "`<>|[]*\\")


def _table(study: StudyFile, table: Table, cells: Sequence[Cell], records: Mapping[str, Record]) -> list[str]:
    """A table with its heading, and a second one of differences if it has a baseline."""
    shown = [cell for cell in cells if matches(cell.values, table.where)]
    rows, columns = axes_of_table(table, axes_of([cell.values for cell in cells]))
    grid: dict[Any, dict[Any, Cell]] = {}
    for cell in shown:
        grid.setdefault(_place(cell, rows), {})[_place(cell, columns)] = cell
    heads = {_place(cell, columns): cell for cell in shown}
    statistic, metric = STATISTICS[table.statistic], table.metric

    def value(cell: Cell | None) -> str:
        record = None if cell is None else records.get(cell.name)
        return "" if cell is None else MISSING if record is None else _value(record, metric, statistic)

    def drawn(entry: Any, lines: Mapping[Any, Mapping[Any, Cell]]) -> str:
        found = []
        for line in lines.values():
            values = next(iter(line.values())).values
            row = {axis: label(values[axis]) for axis in rows}
            found.append(row | {_head(head, columns, metric): entry(line.get(place)) for place, head in heads.items()})
        return markdown_table(found)

    seeds = sorted({records[cell.name].seeds for cell in shown if cell.name in records})
    brackets = " or ".join(statistic.interval(n) for n in seeds)
    title = table.title or f"{metric.replace('_', ' ').capitalize()} by {' and '.join([*rows, *columns])}"
    note = f"{statistic.title.capitalize()} of the {_named(metric)}" + (f" [{brackets}]." if brackets else ".")
    parts = [f"## {title}", drawn(value, grid), note]
    if not table.baseline:
        return parts
    base = next(cell for cell in shown if matches(cell.values, table.baseline))
    fixed = {axis: base.values[axis] for axis in rows} | table.baseline

    def difference(cell: Cell | None) -> str:
        if cell is None or matches(cell.values, fixed):
            return ""
        wanted = {axis: cell.values[axis] for axis in (*rows, *columns)} | table.baseline
        other = next((one for one in shown if matches(one.values, wanted)), None)
        pair = [records.get(one.name) for one in (cell, other) if one is not None]
        if len(pair) < 2:
            return ""
        return MISSING if None in pair else _difference(pair[0], pair[1], metric, statistic)  # pyright: ignore

    others = {place: line for place, line in grid.items() if not _is_base(line, table.baseline)}
    said = " and ".join(f"{axis} {label(wanted)}" for axis, wanted in table.baseline.items())
    return [*parts, f"Difference from {said}:", drawn(difference, others)] if others else parts


def _is_base(line: Mapping[Any, Cell], baseline: Mapping[str, Any]) -> bool:
    return matches(next(iter(line.values())).values, baseline)


def _place(cell: Cell, axes: Sequence[str]) -> tuple:
    return tuple(key(cell.values[axis]) for axis in axes)


def _head(cell: Cell, columns: Sequence[str], metric: str) -> str:
    words = [label(cell.values[axis]) if axis in _PLAIN else f"{axis} {label(cell.values[axis])}" for axis in columns]
    return ", ".join(words) or metric


def _named(metric: str) -> str:
    return {"score": "score", "length": "length of episodes"}.get(metric, f"metric {metric}")


def _value(record: Record, metric: str, statistic: Statistic) -> str:
    values = record.values(metric)
    return _text(None if values is None else statistic.estimate(values))


def _difference(record: Record, baseline: Record, metric: str, statistic: Statistic) -> str:
    here, there = record.values(metric), baseline.values(metric)
    return "–" if here is None or there is None else _text(statistic.difference(here, there))


def _text(estimate: Estimate | None) -> str:
    return "–" if estimate is None else estimate_text(estimate)


def _references(references: Sequence[Reference], cells: Sequence[Cell], records: Mapping[str, Record]) -> str:
    """Published values beside those of the records."""
    rows = []
    several = [axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1]
    for reference in references:
        for cell in (cell for cell in cells if matches(cell.values, reference.where)):
            record = records.get(cell.name)
            low, high = reference.low, reference.high
            published = (reference.value, float("nan") if low is None else low, float("nan") if high is None else high)
            rows.append(
                {axis: label(cell.values[axis]) for axis in several or ["algorithm"]}
                | {"metric": reference.metric, "published": estimate_text(published)}
                | {"here": MISSING if record is None else _value(record, reference.metric, STATISTICS["mean"])}
                | {"source": reference.source}
            )
    return markdown_table(rows)


def _runs(cells: Sequence[Cell], records: Mapping[str, Record]) -> str:
    """A row for each run, with the score of each seed."""
    rows = []
    for cell in cells:
        row = {axis: label(value) for axis, value in cell.values.items()}
        if (record := records.get(cell.name)) is None:
            rows.append(row | {"steps per seed": MISSING, "score of each seed": MISSING, "training": MISSING})
            continue
        seeds = ", ".join(number_text(float(f"{x:.4g}")) for x in np.mean(record.scores, 1))
        steps, seconds = number_text(record.evaluation["step"]), duration_text(record.seconds["training"])
        rows.append(row | {"steps per seed": steps, "score of each seed": seeds, "training": seconds})
    return markdown_table(rows)


def _conditions(made: Sequence[Record]) -> list[str]:
    """How the records were made: evaluation, convention of the score, commit, hardware and versions."""
    if not made:
        return []
    evaluations, scores = [], []
    for record in made:
        found = record.evaluation
        seeds = record.run["settings"]["seeds"]
        kind = "greedy" if found["greedy"] else "sampled"
        evaluations.append(f"{_count(seeds, 'seed')}, {found['episodes']} {kind} episodes of the last policy of each")
        scores.append(f"{_plain(str(record.run['spec'].get('score')))} of the agents' undiscounted returns")
    versions = [
        ", ".join(f"{name} {_plain(str(version))}" for name, version in sorted(record.versions.items()) if version)
        for record in made
    ]
    lines = {
        "Evaluation": evaluations,
        "Score": scores,
        "Code": [_commit(record) for record in made],
        "Machine": [f"{_plain(record.machine)}{_rates(made, record.machine)}" for record in made],
        "Versions": versions,
    }
    return ["## How it was made", "\n".join(f"- {name}: {'; '.join(dict.fromkeys(x))}." for name, x in lines.items())]


def _rates(made: Sequence[Record], machine: str) -> str:
    """The lowest and highest product rate that runs on a machine measured."""
    rates = [record.hardware["product_gflops"] for record in made if record.machine == machine]
    known = [f"{rate:.0f}" for rate in sorted(rate for rate in rates if rate is not None)]
    if not known:
        return ""
    span = known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"
    return f"; {span} GFLOP/s in a 2048³ float32 product"
