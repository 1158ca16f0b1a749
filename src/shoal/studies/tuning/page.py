"""The page of a study's tuning, made from its file and the records alone: the same input gives the same bytes."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.plots.texts import duration_text, markdown_table, markdown_text, number_text
from shoal.studies.entries import label
from shoal.studies.study_file import StudyFile, command_in_folder
from shoal.studies.tuning.figure import figure
from shoal.studies.tuning.methods import Method, methods
from shoal.studies.tuning.record import TuningRecord, mean, recorded
from shoal.system.files import write_text

SHOWN = 100
"""Largest number of trials in a table; the record has all of them."""


def write(study: StudyFile, records: Path, page_path: Path) -> Path | None:
    """Write the page of tuning and its figures to the folder of a study's page; None if no search is recorded.

    Raises:
        InputError: the file is invalid, or a record is damaged.
        WriteError: it cannot be written.
    """
    if study.tuning is None:
        return None
    found = methods(study)
    held = recorded(records, found)
    if not held:
        return None
    path = page_path.with_name(f"{page_path.stem}-tuning.md")
    figures = {name: f"{page_path.stem}-{name}.svg" for name in held}
    for name, file in figures.items():
        write_text(path.with_name(file), figure(held[name]))
    write_text(path, page(study, found, held, figures))
    return path


def page(
    study: StudyFile, found: Sequence[Method], records: Mapping[str, TuningRecord], figures: Mapping[str, str]
) -> str:
    """The page in Markdown.

    Args:
        study: the study.
        found: all its methods.
        records: their records by the methods' names; other methods are shown as missing.
        figures: file names of the figures by the methods' names.
    """
    where, word = command_in_folder(study)
    parts = [
        f"# Tuning: {study.title}",
        f"{where}`shoal tune {word}` searches what is missing of [{study.name}.toml](../{study.name}.toml), and "
        f"`shoal results {word}` writes this page from the [records](../records/{study.name}/).",
    ]
    for method in found:
        parts.append(f"## {method.title}")
        record = records.get(method.name)
        parts += ["missing"] if record is None else _method(record, figures[method.name])
    return markdown_text("\n\n".join(part.strip("\n") for part in parts) + "\n")


def _method(record: TuningRecord, file: str) -> list[str]:
    tuning, order = record.tuning, record.ranked()
    environments = len(record.runs)
    across = f", {environments} environments" if environments > 1 else f" in `{_plain(record.environments[0])}`"
    kind = "random search" if tuning["search"] == "random" else f"search by {_plain(str(tuning['search']))}"
    rounds = f" in each of {tuning['rounds']} rounds" if tuning["rounds"] > 1 else ""
    rungs = ", ".join(f"{number_text(trials)} trials to {number_text(steps)} steps" for steps, trials in record.rungs)
    first = tuning["seed"]
    budget = (
        f"Successive halving with {kind}{across}: {rungs}{rounds}. Each trial has the seeds {first} to "
        f"{first + tuning['seeds'] - 1}, and {tuning['episodes']} greedy episodes of each at every rung. Budget: "
        f"{number_text(record.budget['steps'])} environment steps over all trials and seeds, of which "
        f"{number_text(record.budget['trained'])} were done (whole updates, and none of trials that diverged), and "
        f"{number_text(record.budget['episodes'])} episodes of evaluation. {_programs(record)}"
    )
    several = "" if environments == 1 else " Trials are ranked in each environment, and the ranks averaged."
    chosen = ", ".join(f"`{_plain(flag)}` {_value(x)}" for flag, x in record.flags.items())
    shown = "All trials" if len(order) <= SHOWN else f"The best {SHOWN} of {len(order)} trials"
    note = (
        f"{shown}, from the best to the worst, with the mean score over seeds at each rung that they reached.{several} "
        f"Scores of the best are biased upwards, since they were chosen by them; the study's own runs have other seeds."
    )
    return [
        budget,
        markdown_table([_range(record, flag, span) for flag, span in record.ranges.items()]),
        f"The winner, trial {record.winner}: {chosen}.",
        f"![Scores of all trials: the winner is orange{', the default black' if tuning['default'] else ''}]({file})",
        note,
        markdown_table([_trial(record, i, place) for place, i in enumerate(order[:SHOWN], 1)]),
        _made(record),
    ]


def _programs(record: TuningRecord) -> str:
    return "All are trained in one program." if record.programs == 1 else f"They have {record.programs} structures."


def _range(record: TuningRecord, flag: str, span: Mapping[str, Any]) -> dict[str, str]:
    if span["values"]:
        tried = ", ".join(_value(x) for x in span["values"])
    else:
        tried = f"{_value(span['low'])} to {_value(span['high'])}" + (", logarithmic" if span["log"] else "")
    defaults = record.runs[0]["config"] | record.runs[0]["settings"]
    return {
        "flag": f"`{_plain(flag)}`",
        "range": tried,
        "without tuning": _value(defaults[flag]) if flag in defaults else "–",
        "winner": _value(record.flags[flag]) if flag in record.flags else "–",
        "kind": _plain(str(span["kind"])),
    }


def _trial(record: TuningRecord, i: int, place: int) -> dict[str, Any]:
    trial = record.trials[i]
    row: dict[str, Any] = {
        "place": place,
        "trial": f"{i}, the default" if i == 0 and record.tuning["default"] else str(i),
    }
    row |= {_plain(flag): _value(trial["values"][flag]) if flag in trial["values"] else "–" for flag in record.ranges}
    for number, (steps, _) in enumerate(record.rungs):
        if number < len(trial["scores"]):
            score = mean(trial["scores"][number])
            row[f"{number_text(steps)} steps"] = (
                number_text(float(f"{score:.4g}")) if math.isfinite(score) else "diverged"
            )
        else:
            row[f"{number_text(steps)} steps"] = ""
    return row


def _made(record: TuningRecord) -> str:
    commit = f"commit `{record.commit[:12]}`" if record.commit else "an installed Shoal"
    changed = " with changed files" if record.changed else ""
    devices = ", ".join(f"{one['count']} × {one['kind']}" for one in record.hardware["devices"])
    machine = f"{record.hardware['processor']}, {record.hardware['cores']} cores; devices: {devices}"
    seconds = sum(record.seconds.values())
    return f"Made on {_plain(machine)}, in {duration_text(seconds)}, {commit}{changed}."


def _value(value: Any) -> str:
    return "None" if value is None else _plain(label(value))


def _plain(text: str) -> str:
    """Text of a record without characters that Markdown or HTML would interpret."""
    return "".join(x for x in text if x not in "`<>|[]*\\")
