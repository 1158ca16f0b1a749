"""The page of several studies: their comparisons in one table with filters, and what is recorded of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal.plots.texts import estimate_texts
from shoal.reporting.charts import bar
from shoal.reporting.page import Html, Page, Section, commands, html_table, joined_html, tag
from shoal.studies.contents import count_text
from shoal.studies.limits import primary_text
from shoal.studies.plan import Cell
from shoal.studies.record import Record
from shoal.studies.state import STALE_MARK, stale_records
from shoal.studies.study_file import StudyFile
from shoal.studies.verdicts import VERDICTS, Comparison, comparisons_of


class Studied(NamedTuple):
    """A study with its runs and its records by their names."""

    study: StudyFile
    cells: Sequence[Cell]
    records: Mapping[str, Record]


RULES = (
    "Differences are in the units of each study's primary metric, with the 95% interval of the study's page: of three "
    "seeds it is their range, weak evidence. Equal means within 5 % of the distance between floor and ceiling, where "
    "both are known. At the floor or the ceiling are all runs of a task, so nothing is decided. Many comparisons stand "
    "here: of twenty equal settings one looks better or worse by chance with five seeds or more, two with three."
)


def studies_page(every: Sequence[Studied], title: str) -> Page:
    """The page.

    Args:
        every: the studies.
        title: of the page.
    """
    compared = [(one, found) for one in every for found in comparisons_of(*one)]
    sections = [
        Section("comparisons", "Comparisons", _comparisons(compared)),
        Section("studies", "Studies", _studies(every)),
        Section("again", "Run them", _commands()),
    ]
    return Page(title, _lead(every, [found for _, found in compared]), sections, [])


def _lead(every: Sequence[Studied], compared: Sequence[Comparison]) -> Html:
    runs, made = sum(len(one.cells) for one in every), sum(len(one.records) for one in every)
    counts = [f"{sum(one.verdict == verdict for one in compared)} {verdict}" for verdict in VERDICTS]
    known = ", ".join(count for count in counts if not count.startswith("0 "))
    said = f"{count_text(len(every), 'study', 'studies')}, {made} of {runs} runs recorded."
    found = f"{count_text(len(compared), 'comparison')} with the baselines of tables: {known}." if compared else ""
    return joined_html(tag("p", said), tag("p", found) if found else None)


def _comparisons(every: Sequence[tuple[Studied, Comparison]]) -> Html:
    if not every:
        return tag("p", "No table of these studies has a baseline.")
    texts, rows, attributes = _differences(every), [], []
    for (study, _, records), one in every:
        made = [records[cell.name] for cell in one.cells if cell.name in records]
        text = texts.get(id(one), "missing" if one.verdict == "missing" else "–")
        rows.append(
            {
                "comparison": one.what,
                "task": one.where,
                "difference": f"{text} {STALE_MARK}" if one.stale and one.found is not None else text,
                "interval": "" if one.found is None else bar(one.found, _places(one), 0.0),
                "verdict": one.verdict,
                "seeds": _range(record.seeds for record in made),
                "million steps": _millions(made),
                "metric": one.metric,
                "study": study.name,
            }
        )
        attributes.append(_about(one.cells) | {"data_verdict": one.verdict})
    note = f"{RULES} {STALE_MARK}: from stale records. Each bar's scale is that of the widest interval of its column."
    heads = {"interval": tag("span", "interval")}
    table = html_table(
        rows, "Each row less its baseline", class_="titled comparisons", heads=heads, attributes=attributes
    )
    return joined_html(tag("p", note, class_="note"), table)


def _differences(every: Sequence[tuple[Studied, Comparison]]) -> dict[int, str]:
    """The differences by the identities of comparisons; those of a study's task have the same decimals."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for (study, *_), one in every:
        if one.found is not None:
            groups.setdefault((study.name, one.where), []).append(one)
    texts: dict[int, str] = {}
    for group in groups.values():
        shown = estimate_texts([one.found for one in group if one.found is not None], typical=True)
        texts |= {id(one): text for one, text in zip(group, shown, strict=True)}
    return texts


def _millions(made: Sequence[Record]) -> str:
    return _range(float(f"{record.evaluation['step'] / 1e6:.3g}") for record in made)


def _places(one: Comparison) -> Callable[[float], str]:
    span = one.span or 1.0
    return lambda value: f"{500 + 480 * value / span:.0f}"


def _about(cells: Sequence[Cell]) -> dict[str, str]:
    """The attributes by which rows are filtered: algorithms, and environments with their families."""
    environments = [cell.environment for cell in cells]
    families = [f"{name.partition('/')[0]}/…" for name in environments if "/" in name and ":" not in name]
    algorithms = dict.fromkeys(cell.algorithm for cell in cells)
    return {"data_algorithm": "|".join(algorithms), "data_task": "|".join(dict.fromkeys([*families, *environments]))}


def _range(values: Iterable[float]) -> str:
    known = sorted(set(values))
    return " to ".join(f"{x:g}" for x in dict.fromkeys(known[:1] + known[-1:])) or "–"


def _studies(every: Sequence[Studied]) -> Html:
    rows, attributes = [], []
    for study, cells, records in every:
        made = list(records.values())
        missing, stale = len(cells) - len(made), len(stale_records(cells, records))
        rows.append(
            {
                "study": study.name,
                "title": study.title,
                "runs": str(len(cells)),
                "missing": str(missing),
                "stale": str(stale),
                "seeds": _range(record.seeds for record in made),
                "million steps": _millions(made),
                "primary metric": primary_text(study, cells),
            }
        )
        state = "complete" if not missing else "missing" if not made else "incomplete"
        attributes.append(_about(cells) | {"data_records": f"{state}|stale" if stale else state})
    return html_table(rows, "What is recorded", class_="titled", attributes=attributes)


def _commands() -> Html:
    lines = {
        "Train what a study lacks": "shoal study NAME",
        "Write the page of one study, with its tables and curves": "shoal report NAME",
        "The time that it takes": "shoal study NAME --dry-run",
    }
    return commands(lines)
