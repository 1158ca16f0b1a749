"""The results page of a study in Markdown, made from its file and its records alone: the same input gives the same
bytes."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shoal.records.report import markdown_table, markdown_text
from shoal.studies.contents import DIFFERING_NOTE, DIFFERING_TITLE, Mixture, contents, count_text
from shoal.studies.page_figures import Drawn
from shoal.studies.page_tables import Section
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile, command_in_folder


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
    found = contents(study, cells, records)
    parts = [
        f"# {study.title}",
        study.question,
        f"**Primary metric:** {found.primary}." if found.primary else "",
        _origin(study),
    ]
    if found.missing:
        parts.append(f"**{found.missing} of {found.runs} runs are missing.**")
    parts += [f"**{_plain(sentence)}**" for sentence in found.changes]
    parts += [f"**{one}**" for one in found.stale]
    parts += [_mixture(one) for one in found.mixtures]
    for section in found.tables:
        parts += _section(section)
    if found.differing:
        parts += [f"## {DIFFERING_TITLE}", markdown_table(found.differing), DIFFERING_NOTE]
    parts += [f"## {drawn.title}\n\n![{drawn.title}]({name})\n\n{drawn.note}" for name, drawn in figures.items()]
    if found.levels:
        parts += ["## Worst and best scores", markdown_table(found.levels)]
    if found.references:
        parts += ["## Published values", markdown_table(found.references)]
    parts += ["## Runs", markdown_table(found.each_run)]
    if found.conditions:
        lines = [f"- {what}: {'; '.join(map(_plain, texts))}." for what, texts in found.conditions.items()]
        parts += ["## How it was made", "\n".join(lines)]
    return markdown_text("\n\n".join(part.strip("\n") for part in parts if part) + "\n")


def _origin(study: StudyFile) -> str:
    name, (where, word) = study.name, command_in_folder(study)
    return (
        f"{where}`shoal study {word}` runs what is missing of [{name}.toml](../{name}.toml), and "
        f"`shoal results {word}` writes this page from the [records](../records/{name}/)."
    )


def _section(section: Section) -> list[str]:
    return [
        f"## {section.title}",
        *(block if isinstance(block, str) else markdown_table(block) for block in section.blocks),
    ]


def _mixture(mixture: Mixture) -> str:
    listed = "\n".join(f"- {_plain(one)}: {count_text(count, 'run')}" for one, count in mixture.each.items())
    return f"**The tables mix {len(mixture.each)} {mixture.what}:**\n\n{listed}"


def _plain(text: str) -> str:
    """Text of a record without characters that Markdown or HTML would interpret; a commit as code."""
    return re.sub(r"^commit ([0-9a-f]+)", r"commit `\1`", "".join(x for x in text if x not in "`<>|[]*\\"))
