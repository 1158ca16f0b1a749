"""The results page of a study, made from its file and its records alone: the same input gives the same bytes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from shoal.records.report import duration_text, estimate_text, markdown_table, number_text
from shoal.studies.combinations import axes_of, matches
from shoal.studies.entries import label
from shoal.studies.page_figures import Drawn
from shoal.studies.page_tables import MISSING, tables_of, value_text
from shoal.studies.plan import Cell
from shoal.studies.presented import Level, Reference, Table
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile


def page(
    study: StudyFile,
    cells: Sequence[Cell],
    records: Mapping[str, Record],
    figures: Mapping[str, Drawn] = MappingProxyType({}),
) -> str:
    """The page in Markdown.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are shown as missing.
        figures: the figures by their file names, which are relative to the page.
    """
    made = [records[cell.name] for cell in cells if cell.name in records]
    tables = study.tables or (Table(),)
    parts = [f"# {study.title}", study.question, _origin(study)]
    if len(made) < len(cells):
        parts.append(f"**{len(cells) - len(made)} of {len(cells)} runs are missing.**")
    parts += [_mixture("commits", [_commit(record) for record in made])]
    parts += [_mixture("machines", [_plain(record.machine) for record in made])]
    for table in tables:
        parts += tables_of(study, table, cells, records)
    parts += [f"## {drawn.title}\n\n![{drawn.title}]({name})\n\n{drawn.note}" for name, drawn in figures.items()]
    if study.scales:
        parts += ["## Worst and best scores", _levels(study.scales)]
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


def _levels(levels: Sequence[Level]) -> str:
    """The scores that are normalised to 0 and 1."""
    rows = []
    for level in levels:
        where = ", ".join(f"{axis} {label(wanted)}" for axis, wanted in level.where.items())
        scores = {"worst": number_text(level.worst), "best": number_text(level.best)}
        rows.append({"runs": where.removeprefix("environment ")} | scores | {"source": level.source})
    return markdown_table(rows)


def _references(references: Sequence[Reference], cells: Sequence[Cell], records: Mapping[str, Record]) -> str:
    """Published values beside those of the records."""
    rows = []
    several = [axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1]
    for reference in references:
        for cell in (cell for cell in cells if matches(cell.values, reference.where)):
            record = records.get(cell.name)
            low, high = reference.low, reference.high
            unknown = float("nan")
            published = (reference.value, unknown if low is None else low, unknown if high is None else high)
            rows.append(
                {axis: label(cell.values[axis]) for axis in several or ["algorithm"]}
                | {"metric": reference.metric, "published": estimate_text(published)}
                | {"here": value_text(record, reference.metric)}
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
