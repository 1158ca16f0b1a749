"""The page of a study's tuning and its figures, made from its file and the records alone.

The same input gives the same bytes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from shoal.plots.texts import duration_text, markdown_table, markdown_text, number_text
from shoal.runs import behaviour
from shoal.studies.keys import label
from shoal.studies.record import machines_text
from shoal.studies.study_file import StudyFile, command_in_folder, link_text
from shoal.studies.tuning.methods import Method, methods
from shoal.studies.tuning.record import TuningRecord, mean_score, tuning_records
from shoal.system.files import write_text
from shoal.training.evaluation import mode_name

# A figure of all trials of a search as SVG text, which has the same bytes with any version of any library.


WIDTH, HEIGHT = 230, 170
"""Of a panel, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 34
_BEST, _OTHER, _DEFAULT, _INK = "#D55E00", "#0072B2", "#000000", "#404040"


def trials_figure(record: TuningRecord) -> str:
    """Panels: scores at the rungs, a line for each trial; then for each numeric range the last score against the value.

    The winner is orange, the default black. Trials that diverged before the first rung are not shown.
    """
    scores = [[mean_score(one) for one in trial["scores"]] for trial in record.trials]
    known = [x for each in scores for x in each if math.isfinite(x)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    vertical = _scale(low, high, HEIGHT - _BOTTOM, _TOP)
    panels = [_lines(record, scores, vertical)]
    for flag, span in record.ranges.items():
        values = [trial["values"].get(flag) for trial in record.trials]
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in values):
            panels.append(_points(record, flag, bool(span["log"]), values, [each[-1] for each in scores], vertical))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    parts = []
    for i, panel in enumerate(panels):
        place = f"translate({i % columns * WIDTH},{i // columns * HEIGHT})"
        parts.append(f'<g transform="{place}">\n{_axes(low, high, vertical)}{panel}</g>\n')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{rows * HEIGHT}" '
    style = f'font-family="sans-serif" font-size="9" fill="{_INK}">\n<rect width="100%" height="100%" fill="white"/>\n'
    return head + style + "".join(parts) + "</svg>\n"


def _scale(low: float, high: float, start: float, end: float, log: bool = False) -> Callable[[float], float]:
    """Value -> pixel; ``low`` is at ``start``."""
    a, b = (math.log(low), math.log(high)) if log else (low, high)
    return lambda x: start + (end - start) * (((math.log(x) if log else x) - a) / (b - a) if b > a else 0.5)


def _axes(low: float, high: float, vertical: Callable[[float], float]) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    lines = f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#B0B0B0"/>\n'
    marks = [low, high] if high > low else [low]
    return lines + "".join(_text(_LEFT - 4, vertical(x) + 3, _short(x), "end") for x in marks)


def _lines(record: TuningRecord, scores: Sequence[Sequence[float]], vertical: Callable[[float], float]) -> str:
    steps = [rung[0] for rung in record.rungs]
    across = _scale(0, steps[-1], _LEFT, WIDTH - _RIGHT)
    parts = []
    for i in _order(record):
        known = [(across(x), vertical(y)) for x, y in zip(steps, scores[i], strict=False) if math.isfinite(y)]
        if known:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in known)
            parts.append(f'<path d="M{path}" fill="none" stroke="{_colour(record, i)}" stroke-opacity="0.6"/>\n')
        parts += [_dot(x, y, _colour(record, i)) for x, y in known]
    parts += [_text(across(x), HEIGHT - _BOTTOM + 12, number_text(x), "middle") for x in steps]
    return "".join([*parts, _title("score at each rung"), _below("steps per seed")])


def _points(
    record: TuningRecord,
    flag: str,
    log: bool,
    values: Sequence[Any],
    scores: Sequence[float],
    vertical: Callable[[float], float],
) -> str:
    low, high = min(values), max(values)
    log = log and low > 0
    across = _scale(low, high, _LEFT + 8, WIDTH - _RIGHT - 8, log)
    parts = []
    for i in _order(record):
        if math.isfinite(scores[i]):
            parts.append(_dot(across(values[i]), vertical(scores[i]), _colour(record, i)))
    for x in [low, high] if high > low else [low]:
        parts.append(_text(across(x), HEIGHT - _BOTTOM + 12, _short(x), "middle"))
    return "".join([*parts, _title(f"last score by {flag}"), _below(flag + (" (logarithmic)" if log else ""))])


def _order(record: TuningRecord) -> list[int]:
    """All trials, with the default and the winner last, so that nothing covers them."""
    special = [i for i in (0, record.winner) if i == record.winner or record.tuning["default"]]
    return [i for i in range(len(record.trials)) if i not in special] + list(dict.fromkeys(special))


def _colour(record: TuningRecord, i: int) -> str:
    return _BEST if i == record.winner else _DEFAULT if i == 0 and record.tuning["default"] else _OTHER


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}" fill-opacity="0.8"/>\n'


def _text(x: float, y: float, text: str, anchor: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>\n'


def _title(text: str) -> str:
    return _text(_LEFT, 14, text, "start", ' font-weight="bold"')


def _below(text: str) -> str:
    return _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, text, "middle")


def _short(x: float) -> str:
    return f"{x:.3g}"


# The page.


SHOWN_TRIALS = 100
"""Largest number of trials in a table; the record has all of them."""


def tuning_page_path(page_path: Path) -> Path:
    """The path of the page of tuning, beside a study's page."""
    return page_path.with_name(f"{page_path.stem}-tuning.md")


def write_tuning_page(study: StudyFile, records: Path, page_path: Path) -> Path | None:
    """Write the page of tuning and its figures to the folder of a study's page; None if no search is recorded.

    Raises:
        InputError: the file is invalid, or a record is damaged.
        WriteError: it cannot be written.
    """
    if study.tuning is None:
        return None
    found = methods(study)
    held = tuning_records(records, found)
    if not held:
        return None
    path = tuning_page_path(page_path)
    figures = {name: f"{page_path.stem}-{name}.svg" for name in held}
    for name, file in figures.items():
        write_text(path.with_name(file), trials_figure(held[name]))
    write_text(path, tuning_page(study, found, held, figures))
    return path


def tuning_page(
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
        f"{where}`shoal tune {word}` searches what is missing of {link_text(study)}, and "
        f"`shoal results {word}` writes this page from the [records](../records/{study.name}/).",
    ]
    for method in found:
        parts.append(f"## {method.title}")
        record = records.get(method.name)
        parts += ["missing"] if record is None else _method(method, record, figures[method.name])
    return markdown_text("\n\n".join(part.strip("\n") for part in parts) + "\n")


def _method(method: Method, record: TuningRecord, file: str) -> list[str]:
    tuning, order = record.tuning, record.ranked()
    environments = len(record.runs)
    across = " in " + " and ".join(f"`{_plain(task)}`" for task in record.tasks)
    kind = "random search" if tuning["search"] == "random" else f"search by {_plain(str(tuning['search']))}"
    rounds = f" in each of {tuning['rounds']} rounds" if tuning["rounds"] > 1 else ""
    rungs = ", ".join(f"{number_text(trials)} trials to {number_text(steps)} steps" for steps, trials in record.rungs)
    first, greedy = tuning["seed"], tuning.get("greedy", True)
    acting = "episodes in the better mode" if greedy is None else f"{mode_name(greedy)} episodes"
    budget = (
        f"Successive halving with {kind}{across}: {rungs}{rounds}. Each trial has the seeds {first} to "
        f"{first + tuning['seeds'] - 1}, and {tuning['episodes']} {acting} of each at every rung. Budget: "
        f"{number_text(record.budget['steps'])} environment steps over all trials and seeds, of which "
        f"{number_text(record.budget['trained'])} were done (whole updates; a trial that diverged counts up to its "
        f"last rung), and {number_text(record.budget['episodes'])} episodes of evaluation"
        f"{' in each mode' if greedy is None else ''}. {_programs(record)}{_shorter(method, record)}"
    )
    several = ""
    if environments > 1:
        several = " Trials are ranked in each environment, and the ranks averaged; the figure has mean scores of all."
    defaults = [run["config"] | run["settings"] for run in record.runs]
    if record.tuning["default"] and any(len({_value(one.get(flag)) for one in defaults}) > 1 for flag in record.ranges):
        several += f" Trial 0 has the values of {_plain(record.environments[0])} in all of them."
    chosen = ", ".join(f"`{_plain(flag)}` {_value(x)}" for flag, x in record.flags.items())
    shown = "All trials" if len(order) <= SHOWN_TRIALS else f"The best {SHOWN_TRIALS} of {len(order)} trials"
    note = (
        f"{shown}, from the best to the worst, with the mean score over seeds at each rung that they reached.{several} "
        f"Scores of the best are biased upwards, since they were chosen by them; the study's own runs have other seeds."
    )
    return [
        budget,
        markdown_table([_range(record, flag, span) for flag, span in record.ranges.items()]),
        f"The winner, trial {record.winner}: {chosen}.",
        f"![Scores of all trials: the winner is orange{', trial 0 black' if tuning['default'] else ''}]({file})",
        note,
        markdown_table([_trial(record, i, place) for place, i in enumerate(order[:SHOWN_TRIALS], 1)]),
        _made(record) + ("" if record.behaviour else " Behaviour versions were not recorded then."),
        *(f"**The search is stale in {_plain(environment)}: {reason}.**" for environment, reason in _stale(record)),
    ]


def _stale(record: TuningRecord) -> list[tuple[str, str]]:
    """Environments in which a search would give other scores today, and why."""
    return [
        (run["environment"], "; ".join(reasons))
        for run, was in zip(record.runs, record.behaviour, strict=False)
        if (reasons := behaviour.changes(was, run["algorithm"], run["environment"], run["settings"] | run["config"]))
    ]


def _shorter(method: Method, record: TuningRecord) -> str:
    """How much longer the study's runs are than its trials."""
    runs = max(cell.resolved()[0].steps for cell in method.cells)
    if runs <= record.rungs[-1][0]:
        return ""
    return (
        f" The study's runs have {number_text(runs)} steps: what learns fast at first may win the search and end "
        f"behind there."
    )


def _programs(record: TuningRecord) -> str:
    return "All are trained in one program." if record.programs == 1 else f"They have {record.programs} structures."


def _range(record: TuningRecord, flag: str, span: Mapping[str, Any]) -> dict[str, str]:
    if span["values"]:
        tried = ", ".join(_value(x) for x in span["values"])
    else:
        tried = f"{_value(span['low'])} to {_value(span['high'])}" + (", logarithmic" if span["log"] else "")
    defaults = [run["config"] | run["settings"] for run in record.runs]
    known = dict.fromkeys(_value(one[flag]) for one in defaults if flag in one)
    return {
        "flag": f"`{_plain(flag)}`",
        "range": tried,
        "without tuning": "; ".join(known) or "–",
        "winner": _value(record.flags[flag]) if flag in record.flags else "–",
        "kind": _plain(str(span["kind"])),
    }


def _trial(record: TuningRecord, i: int, place: int) -> dict[str, Any]:
    trial = record.trials[i]
    row: dict[str, Any] = {
        "place": place,
        "trial": f"{i}, without tuning" if i == 0 and record.tuning["default"] else str(i),
    }
    row |= {_plain(flag): _value(trial["values"][flag]) if flag in trial["values"] else "–" for flag in record.ranges}
    for number, (steps, _) in enumerate(record.rungs):
        for k, name in enumerate(record.environments):
            where = f", {_plain(name)}" if len(record.runs) > 1 else ""
            scores = trial["scores"][number][k] if number < len(trial["scores"]) else ()
            row[f"{number_text(steps)} steps{where}"] = (
                "diverged" if scores is None else number_text(float(f"{np.mean(scores):.4g}")) if scores else ""
            )
    return row


def _made(record: TuningRecord) -> str:
    commit = f"commit `{record.commit[:12]}`" if record.commit else "an installed Shoal"
    changed = " with changed files" if record.changed else ""
    seconds = sum(record.seconds.values())
    return f"Made on {_plain(machines_text(record.hardware))}, in {duration_text(seconds)}, {commit}{changed}."


def _value(value: Any) -> str:
    return "None" if value is None else _plain(label(value))


def _plain(text: str) -> str:
    """Text of a record without characters that Markdown or HTML would interpret."""
    return "".join(x for x in text if x not in "`<>|[]*\\")
