"""The page of a study, from its file and its records: the contents of the Markdown page, with interactive charts."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from shoal.environments.names import path_words
from shoal.plots.charts import Lines
from shoal.reporting.charts import Drawn, chart_element, estimates_table, lines_data
from shoal.reporting.facts import without_folders
from shoal.reporting.page import (
    Html,
    Page,
    Section,
    bullets,
    commands,
    html_table,
    joined_html,
    pairs,
    player,
    tag,
    with_code,
)
from shoal.studies import contents as study_contents
from shoal.studies.charts import Chart, charts_of
from shoal.studies.contents import DIFFERING_NOTE, DIFFERING_TITLE, Contents, contents_of
from shoal.studies.crossplay import Played
from shoal.studies.levels import NO_LEVELS, Levels
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.study_file import StudyFile, command_word
from shoal.studies.tables import Rows


def study_page(
    study: StudyFile,
    cells: Sequence[Cell],
    records: Mapping[str, Record],
    notes: Sequence[str] | None,
    folder: Path | None = None,
    levels: Levels = NO_LEVELS,
    games: Sequence[Played] = (),
) -> Page:
    """The page.

    Args:
        study: the study.
        cells: all its runs.
        records: their records by the cells' names; other runs are shown as missing.
        notes: sentences about the replays; None for a page without a section on replays.
        folder: the folder ``records`` where it is not the default, for the commands on the page.
        levels: the levels of the study's tasks.
        games: the groups of its cross-play.

    Raises:
        InputError: a value cannot be drawn on a figure's vertical axis.
    """
    found, charts = contents_of(study, cells, records, levels, games), []
    tables = [_tables(number, section) for number, section in enumerate(found.tables, 1)]
    together = groupby(charts_of(study, cells, records, levels), key=lambda chart: chart.number)
    figures = [_figure(number, list(panels), charts) for number, panels in together]
    sections = [*tables, *figures]
    if found.differing:
        body = joined_html(
            _table(found.differing, DIFFERING_TITLE, hidden=True), tag("p", DIFFERING_NOTE, class_="note")
        )
        sections.insert(len(tables), Section("flags", DIFFERING_TITLE, body))
    if study.notes:
        sections.insert(len(tables), Section("notes", "Notes", bullets([with_code(note) for note in study.notes])))
    if found.references:
        sections.append(
            Section("published", "Published values", _table(found.references, "Published values, and here"))
        )
    if notes is not None:
        sections.append(Section("replays", "Replays", player(list(notes))))
    if found.ranges:
        caption = "Scores that become 0 and 1 when scores are normalised"
        sections.append(Section("ranges", "Worst and best scores", _table(found.ranges, caption)))
    caption = "Every run: environment steps and score of each seed, and time of training"
    sections.append(Section("runs", "Runs", _table(found.each_run, caption)))
    sections.append(Section("again", "Run it again", _again(study, folder)))
    if found.conditions:
        made = {what: bullets(texts) if len(texts) > 1 else texts[0] for what, texts in found.conditions.items()}
        sections.append(Section("machine", "How it was made", pairs(made, class_="facts")))
    return Page(study.title, _lead(study, found), sections, charts)


def _lead(study: StudyFile, found: Contents) -> Html:
    parts: list[Html] = [tag("p", with_code(study.question))]
    if found.primary:
        parts.append(tag("p", tag("strong", "Primary metric: "), f"{found.primary}."))
    if found.missing:
        parts.append(tag("p", f"{found.missing} of {found.runs} runs are missing.", class_="warning"))
    parts += [tag("p", sentence, class_="warning") for sentence in (*found.undecided, *found.stale, *found.changes)]
    if found.mixed:
        which = tag("a", "which", href="#machine")
        parts.append(tag("p", f"The tables mix {found.mixed} (", which, ").", class_="warning"))
    return joined_html(*parts)


def _tables(number: int, section: study_contents.Section) -> Section:
    blocks, caption = [], ""
    for block in section.blocks:
        if not isinstance(block, str):
            blocks.append(_table(block, caption or section.title, hidden=not caption))
            caption = ""
        elif block.endswith(":"):
            caption = block.removesuffix(":")
        else:
            blocks.append(tag("p", block, class_="note"))
    return Section(f"table-{number}", section.title, joined_html(*blocks))


def _table(rows: Rows, caption: str, *, hidden: bool = False) -> Html:
    """A table; its caption is ``hidden`` where a heading says the same."""
    cells = [{name: str(value) for name, value in row.items()} for row in rows]
    return html_table(cells, caption, class_="titled" if hidden else None)


def _figure(number: int, parts: Sequence[Chart], charts: list[dict[str, Any]]) -> Section:
    """A figure of the study; ``charts`` receives the data of its interactive charts."""
    several = len(parts) > 1
    title = parts[0].title.removesuffix(f", {parts[0].columns}") if several else parts[0].title
    notes = list(dict.fromkeys(part.note for part in parts))
    bodies = []
    for part in parts:
        heading = part.columns if several else ""
        note = part.note if len(notes) > 1 else ""
        bodies.append(_drawn(part, heading, note, charts))
    body = tag("div", *bodies, class_="charts") if several else bodies[0]
    return Section(
        f"figure-{number}", title, joined_html(body, tag("p", notes[0], class_="note") if len(notes) == 1 else None)
    )


def _drawn(chart: Chart, heading: str, note: str, charts: list[dict[str, Any]]) -> Html:
    first = chart.panels[0]
    if isinstance(first, Lines):
        charts.append(lines_data(first))
        return chart_element(len(charts) - 1, Drawn(first, heading, note))
    tables = [estimates_table(panel) for panel in chart.panels if not isinstance(panel, Lines)]
    title, said = tag("h3", heading) if heading else None, tag("p", note, class_="note") if note else None
    return tag("div", title, *tables, said)


def _again(study: StudyFile, records: Path | None) -> Html:
    """The commands that run the study and write its pages."""
    named = command_word(study, on_page=True)
    named += f" --records {path_words(without_folders(str(records)))}" if records is not None else ""
    lines = {
        "Train the missing runs": f"shoal study {named}",
        "Measure all of them again with other seeds": f"shoal study {named} --again",
        "Write the Markdown page": f"shoal results {named}",
        "Write this page": f"shoal report {named}",
    }
    said = "Tables and charts are made only from the study's file and its records."
    return joined_html(commands(lines), tag("p", said, class_="note"))
