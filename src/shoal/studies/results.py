"""The results of a study, from its file and its records alone: a page in Markdown, figures, scores for other tools.

The same input gives the same bytes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from shoal.errors import unknown
from shoal.plots import figures
from shoal.plots.texts import markdown_table, markdown_text
from shoal.statistics import marl_eval as marl_eval_format
from shoal.studies.charts import charts_of
from shoal.studies.combinations import matches
from shoal.studies.contents import DIFFERING_NOTE, DIFFERING_TITLE, contents_of
from shoal.studies.crossplay import Played, crossplays_of
from shoal.studies.exchange import to_marl_eval
from shoal.studies.levels import NO_LEVELS, Levels, levels_of
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record
from shoal.studies.state import former_records, recorded_in, records_of_cells
from shoal.studies.study_file import TRAINING, StudyFile, command_in_folder, link_text, read_study, study_path
from shoal.studies.tables import Section
from shoal.studies.tuning import page as tuning_page
from shoal.studies.tuning.record import winner
from shoal.studies.user_modules import check_imports
from shoal.system import notices
from shoal.system.files import make_folder, write_text, written_to

# The figures of the page, drawn from its records.


class Drawn(NamedTuple):
    """A figure in its file."""

    title: str
    note: str
    """What it shows."""


def draw_figures(
    study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record], folder: Path, levels: Levels = NO_LEVELS
) -> dict[str, Drawn]:
    """Draw the figures of a study into ``folder``; returns them by file name.

    Raises:
        InputError: a value cannot be drawn on the figure's vertical axis.
        WriteError: a figure cannot be written.
    """
    found = {}
    for chart in charts_of(study, cells, records, levels):
        path = figures.draw(chart.panels, folder / f"{chart.name}.png")
        found[path.name] = Drawn(chart.title, chart.note)
    return found


# The page.

_MADE = "How it was made"


def markdown_page(
    study: StudyFile,
    cells: Sequence[Cell],
    records: Mapping[str, Record],
    figures: Mapping[str, Drawn] = MappingProxyType({}),
    levels: Levels = NO_LEVELS,
    games: Sequence[Played] = (),
) -> str:
    """The page in Markdown.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are shown as missing.
        figures: the figures by their file names, which are relative to the page.
        levels: the levels of the study's tasks.
        games: the groups of its cross-play.
    """
    found = contents_of(study, cells, records, levels, games)
    parts = [
        f"# {study.title}",
        study.question,
        f"**Primary metric:** {found.primary}." if found.primary else "",
        _origin(study),
    ]
    if found.missing:
        parts.append(f"**{found.missing} of {found.runs} runs are missing.**")
    parts += [f"**{one}**" for one in found.undecided]
    parts += [f"**{_plain(sentence)}**" for sentence in found.changes]
    parts += [f"**{one}**" for one in found.stale]
    if found.mixed:
        parts.append(f"**The tables mix {found.mixed}** ([which](#{_MADE.lower().replace(' ', '-')})).")
    for section in found.tables:
        parts += _section(section)
    if study.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in study.notes)]
    if found.differing:
        parts += [f"## {DIFFERING_TITLE}", markdown_table(found.differing), DIFFERING_NOTE]
    parts += [f"## {drawn.title}\n\n![{drawn.title}]({name})\n\n{drawn.note}" for name, drawn in figures.items()]
    if found.ranges:
        parts += ["## Worst and best scores", markdown_table(found.ranges)]
    if found.references:
        parts += ["## Published values", markdown_table(found.references)]
    parts += ["## Runs", markdown_table(found.each_run)]
    if found.conditions:
        parts += [f"## {_MADE}", "\n".join(_condition(what, texts) for what, texts in found.conditions.items())]
    return markdown_text("\n\n".join(part.strip("\n") for part in parts if part) + "\n")


def _origin(study: StudyFile) -> str:
    name, (where, word) = study.name, command_in_folder(study)
    return (
        f"{where}`shoal study {word}` runs what is missing of {link_text(study)}, and "
        f"`shoal results {word}` writes this page from the [records](../records/{name}/)."
    )


def _section(section: Section) -> list[str]:
    return [
        f"## {section.title}",
        *(block if isinstance(block, str) else markdown_table(block) for block in section.blocks),
    ]


def _condition(what: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"- {what}: {_plain(texts[0])}."
    return "\n".join([f"- {what}:", *(f"  - {_plain(text)}" for text in texts)])


def _plain(text: str) -> str:
    """Text of a record without characters that Markdown or HTML would interpret; a commit as code."""
    return re.sub(r"^commit ([0-9a-f]+)", r"commit `\1`", "".join(x for x in text if x not in "`<>|[]*\\"))


# Writing.


def results(
    file: str | Path,
    *,
    records: str | Path | None = None,
    output: str | Path | None = None,
    marl_eval: str | Path | None = None,
    trust: bool = False,
) -> Path:
    """Write the page of a study's results, only from its file and its records; returns the page's path.

    Values of stale records (:mod:`shoal.studies.state`) are marked, and replace those of runs that have no other.

    Figures are written to the page's folder.

    Args:
        file: a study file ``*.toml``, or the name of one in ``studies/``.
        records: see :func:`shoal.study`.
        output: the page; by default ``results/STUDY.md`` next to the folder ``records``.
        marl_eval: if given, also write the records to this file in the JSON format of marl-eval.
        trust: import algorithms and environments of the user's own that the file names; not needed if this process
            has imported them or has run the study.

    Raises:
        InputError: the file or a combination in it is invalid, there is no folder ``records``, a record is damaged,
            there is none for ``marl_eval``, or the file names a module that is not imported without ``trust``.
        WriteError: the page cannot be written.
    """
    described = read_study(study_path(file))
    check_imports(described, trust)
    where = recorded_in(described, records)
    cells = plan(described, Path(), winner(described, where))
    default = where.parent.parent / "results" / f"{described.name}.md"
    path, held = written_to(default if output is None else output, default), records_of_cells(where, cells)
    if marl_eval is not None:
        if not held:
            raise described.error("no run is recorded, so no file can be written for marl-eval.")
        make_folder(Path(marl_eval).parent)
        marl_eval_format.write(marl_eval, to_marl_eval(cells, held))
    held |= former_records(where, cells, held)
    _warn_of_unknown_metrics(described, cells, held)
    levels, games = levels_of(described, records, trust=trust), crossplays_of(described, cells, held, where)
    figures = draw_figures(described, cells, held, path.parent, levels)
    write_text(path, markdown_page(described, cells, held, figures, levels, games))
    tuning_page.write_tuning_page(described, where, path)
    return path


def _warn_of_unknown_metrics(study: StudyFile, cells: Sequence[Cell], records: Mapping[str, Record]) -> None:
    """Warn of each table and figure whose runs are recorded, none with its metric: all its entries are dashes."""
    for one in (*study.tables, *study.figures):
        shown = [records.get(cell.name) for cell in cells if matches(cell.values, one.where)]
        held = [record for record in shown if record is not None]
        known = {"score", "length"}.union(*(record.evaluation["metrics"] for record in held))
        known |= {TRAINING + name for record in held for name in record.curve if name != "step"}
        if len(held) == len(shown) and one.metric not in known:
            notices.warn(str(study.error(f"[[{one.part}]] {one.number}: {unknown('metric', one.metric, known)}")))
