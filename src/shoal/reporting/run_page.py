"""The page of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.plots.charts import SHARES, Line, learning_curves, metric_title, seeds_line
from shoal.plots.curves import series_of
from shoal.plots.texts import duration_text, estimate_texts, number_text, number_texts
from shoal.reporting.charts import Drawn, chart_element, lines_data, points_for, thinned
from shoal.reporting.facts import Facts, Scores, changed_rows, every_row, json_number, other_commands, train_command
from shoal.reporting.page import Html, Page, Section, bullets, commands, html_table, joined_html, pairs, player, tag
from shoal.statistics.intervals import Estimate, interval_text, scaled
from shoal.storage.manifest import earlier_machines
from shoal.system.machine import cores_text

# Curves: which metrics of the log are charts, and what each chart holds.


MAX_CHARTS = 60
"""Largest number of charts of a run."""
MAX_AGENT_CURVES = 12
"""Largest number of agents whose returns are drawn."""
_GREEDY, _SAMPLED, _AGENT = "greedy/", "sampled/", "return/"
_MODES = {"": "training", _GREEDY: "greedy evaluations", _SAMPLED: "sampled evaluations"}
_LEFT_OUT = {"step", "update", "seconds", "greedy/seconds"}


class MetricChart(NamedTuple):
    """A chart of one metric."""

    metric: str
    drawn: Drawn


def metric_charts(runs: Sequence[tuple[str, Facts]]) -> tuple[list[MetricChart], list[MetricChart], str]:
    """The charts of return and of the environment's metrics, those of all other metrics, and a sentence if some of
    these are left out.

    Args:
        runs: labelled; each chart has a line for each. A run has the same colours in all charts.
    """
    names = dict.fromkeys(name for _, facts in runs for row in facts.rows for name in row)
    plain = [name for name in names if name not in _LEFT_OUT and not name.startswith((_GREEDY, _SAMPLED, _AGENT))]
    first = [name for name in ("return", *runs[0][1].metrics, "episode_length") if name in plain]
    greedy = [name.removeprefix(_GREEDY) for name in names if name.startswith(_GREEDY) and name not in _LEFT_OUT]
    first += [name for name in greedy if name not in plain]  # metrics that only evaluations have
    kinds = _kinds(runs)
    main = [chart for name in first if (chart := _chart(name, runs, kinds)) is not None]
    main += [chart for one in runs if (chart := _each_agent(*one, alone=len(runs) == 1)) is not None]
    rest = sorted(name for name in plain if name not in first and any(_known(facts, name) for _, facts in runs))
    other = [chart for name in rest[:MAX_CHARTS] if (chart := _chart(name, runs, kinds)) is not None]
    return main, other, f"The first {MAX_CHARTS} of {len(rest)} metrics." if len(rest) > MAX_CHARTS else ""


class Kind(NamedTuple):
    """A line that charts may have."""

    run: str
    """The label of its run."""
    name: str
    facts: Facts
    prefix: str
    """Of the columns with its values."""


def _kinds(runs: Sequence[tuple[str, Facts]]) -> list[Kind]:
    """The lines of all charts; the number of a line's colour is its place here."""
    found = []
    for label, facts in runs:
        names = {name for row in facts.rows for name in row if name not in _LEFT_OUT}
        for prefix, mode in _MODES.items():
            if not prefix or any(name.startswith(prefix) for name in names):
                found.append(Kind(label, f"{label}, {mode}" if len(runs) > 1 else mode, facts, prefix))
    return found


def _chart(metric: str, runs: Sequence[tuple[str, Facts]], kinds: Sequence[Kind]) -> MetricChart | None:
    """The metric in training, and in evaluations if the log has them; None if it has neither."""
    notes: dict[str, dict[str, None]] = {}
    lines, evaluated = [], False
    for colour, (label, name, facts, prefix) in enumerate(kinds):
        if (found := _known(facts, prefix + metric)) is not None:
            evaluated |= prefix != ""
            lines.append(replace(_curve(name, found), colour=colour))
            notes.setdefault(label, {}).update(dict.fromkeys(_notes(found[1], facts)))
    if not lines:
        return None
    if len(lines) == len(runs) == 1 and not evaluated:
        lines[0] = replace(lines[0], name=metric)
    said = ["During training, actions are sampled and exploration is on."] if evaluated else []
    each = {label: " ".join(of) for label, of in notes.items()}
    alike = len(set(each.values())) == 1
    said += [text if alike else f"{label}: {text}" for label, text in each.items()]
    chart = learning_curves(lines, metric, _marks(metric, runs))
    return MetricChart(metric, Drawn(chart, chart.y, " ".join(dict.fromkeys(said))))


def _marks(metric: str, runs: Sequence[tuple[str, Facts]]) -> dict[str, float]:
    """The means of teams that do not learn, by their names."""
    found = {team: _estimate(scores, metric) for team, scores in _references(runs).items()}
    return {team: one[0] / _unit(metric) for team, one in found.items() if one is not None and math.isfinite(one[0])}


def _curve(name: str, found: tuple[np.ndarray, np.ndarray]) -> Line:
    """A line of a run, of few enough points for a page."""
    steps, values = thinned(*found, points_for(found[1].shape[1]))
    return seeds_line(name, steps, values)


def _each_agent(label: str, facts: Facts, alone: bool) -> MetricChart | None:
    """The returns of a run's agents; None if the log has at most one. A run that is not ``alone`` is named."""
    columns = dict.fromkeys(name for row in facts.rows for name in row if name.startswith(_AGENT))
    every = {column.removeprefix(_AGENT): _known(facts, column) for column in columns}
    known = {name: found for name, found in every.items() if found is not None}
    if len(known) < 2:
        return None
    lines = [_curve(name, found) for name, found in islice(known.items(), MAX_AGENT_CURVES)]
    few = [f"The first {MAX_AGENT_CURVES} of {len(known)} agents."] if len(known) > MAX_AGENT_CURVES else []
    note = " ".join([*few, *_notes(next(values for _, values in known.values()), facts)])
    title = "Return of each agent" if alone else f"Return of each agent, {label}"
    return MetricChart(_AGENT, Drawn(learning_curves(lines, "return"), title, note))


def _known(facts: Facts, column: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The steps and values of a column; None if it has no numbers, or too large ones."""
    try:
        steps, values = series_of(facts.rows, column, facts.name)
    except (InputError, OverflowError):
        return None
    return (steps, values) if np.isfinite(values).any() else None


def _notes(values: np.ndarray, facts: Facts) -> list[str]:
    """What a line of these values [rows, seeds] shows."""
    rows, seeds = values.shape
    alone = "1 seed." if len(facts.seeds) == 1 else "One value for all seeds."
    parts = [f"Mean of {seeds} seeds; band: {interval_text(seeds)}." if seeds > 1 else alone]
    if rows > (points := points_for(seeds)):
        least, most = rows // points, -(-rows // points)
        of = f"{least} or {most}" if least < most else f"{least}"
        parts.append(f"Each point is the mean of {of} of {rows} rows of the log.")
    return parts


# The page.


Labelled = Sequence[tuple[str, Facts]]
"""The run, and optionally another run to compare it with, with their names on the page."""


def run_page(runs: Labelled, rates: Sequence[float | None], comparison: Html | None, notes: Sequence[str]) -> Page:
    """The page.

    Args:
        runs: the run, and optionally one to compare it with.
        rates: rate in FLOP/s of a 2048³ float32 product on the machine of each; None where unknown.
        comparison: statistics of two runs.
        notes: sentences about the replays.
    """
    first = runs[0][1]
    title = first.title if len(runs) == 1 else f"{first.title}, compared with {runs[1][0]}"
    charts: list[dict[str, Any]] = []
    curves = _curves(runs, charts)
    sections = [Section("score", "Score", joined_html(_scores(runs), comparison))]
    sections.append(Section("replays", "Replays", player(list(notes))))
    sections += [Section("curves", "Curves", curves)] if charts else []
    sections.append(Section("again", "Run it again", _again(runs)))
    sections.append(
        Section("configuration", "Configuration", joined_html(*(_configuration(*one, len(runs)) for one in runs)))
    )
    sections.append(Section("machine", "How it was made", _made(runs, rates)))
    return Page(title, _lead(runs), sections, charts)


def _lead(runs: Labelled) -> Html:
    parts = []
    for label, facts in runs:
        name = tag("strong", f"{label}: ") if len(runs) > 1 else None
        parts.append(tag("p", name, facts.ended, class_="ended"))
        if facts.notes:
            parts.append(bullets(facts.notes, class_="missing"))
    return joined_html(*parts)


def _scores(runs: Labelled) -> Html:
    every = [
        (f"{label}, {which}" if len(runs) > 1 else which, facts, scores)
        for label, facts in runs
        for which, scores in _evaluations(facts)
        if scores is not None
    ]
    parts: list[Html | None] = [_cards(runs)]
    if not every:
        return joined_html(*parts, tag("p", "The run has no final evaluation."))
    parts.append(_metrics(every, _references(runs)))
    parts += [_seeds(label if len(runs) > 1 else "", facts) for label, facts in runs if len(facts.seeds) > 1]
    if any(facts.best for _, facts in runs):
        said = "The best policies were selected by evaluations during training; these scores are from other episodes."
        parts.append(tag("p", said, class_="note"))
    return joined_html(*parts)


def _evaluations(facts: Facts) -> list[tuple[str, Scores | None]]:
    found, best = facts.evaluation, facts.evaluation.get("best")
    of_last, of_best = facts.evaluated
    if facts.other is None:
        return [(of_last, facts.last), (of_best, facts.best)]
    last, other = ("greedy", "sampled") if found.get("greedy") else ("sampled", "greedy")
    mode = "sampled" if isinstance(best, dict) and best.get("greedy") is False else "greedy"
    every = [(f"{of_last}, {last}", facts.last), (f"{of_last}, {other}", facts.other)]
    return [*every, (f"{of_best}, {mode}", facts.best)]


def _references(runs: Labelled) -> Mapping[str, Scores]:
    """Scores of teams that do not learn in the environment, which is that of all runs."""
    return next((facts.references for _, facts in runs if facts.references), {})


def _metrics(every: Sequence[tuple[str, Facts, Scores]], references: Mapping[str, Scores]) -> Html:
    """A line for each metric, a column for each evaluation; the numbers of a line have the same decimals."""
    columns = {name: scores for name, _, scores in every} | dict(references)
    rows = []
    for metric in dict.fromkeys(name for _, _, scores in every for name in (SCORE, *scores.metrics)):
        found = {name: one for name, scores in columns.items() if (one := _estimate(scores, metric)) is not None}
        texts = [_wrapping(text) for text in estimate_texts([*found.values()])]
        rows.append({"metric": _title(metric)} | dict(zip(found, texts, strict=True)))
    over = [_over(len(scores.per_seed), facts.evaluation.get("episodes")) for _, facts, scores in every]
    played = "".join(dict.fromkeys(_episodes(facts) for _, facts, _ in every))
    told = f". Teams that do not learn, over their episodes: {', '.join(references)}" if references else ""
    return html_table(rows, f"Mean [{' or '.join(dict.fromkeys(over))}]{played}{told}", class_="metrics")


def _over(seeds: int, episodes: Any) -> str:
    """What an interval of a score is over; ``episodes`` of each seed are unchecked."""
    if seeds > 1:
        return f"{interval_text(seeds)} over {seeds} seeds"
    return f"{interval_text(episodes if type(episodes) is int else 1)} over the episodes of 1 seed"


def _wrapping(text: str) -> Html:
    """A mean and its interval, which has a line of its own where columns are narrow."""
    mean, space, ends = text.partition(" ")
    return joined_html(mean, space, tag("span", ends, class_="interval"))


SCORE = "return"
"""The score among the metrics, none of which has this name (``environments/spec_rules.py``)."""


def _title(metric: str) -> str:
    """The score or a metric as the head of a line or column."""
    title = "Score" if metric == SCORE else metric_title(metric)
    return f"{title} (metric)" if title == "Score" and metric != SCORE else title


def _estimate(scores: Scores, metric: str) -> Estimate | None:
    """The score or a metric, shares in per cent; None if it is not known."""
    if metric == SCORE:
        return scores.estimate
    return scaled(scores.metrics[metric][0], _unit(metric)) if metric in scores.metrics else None


def _unit(metric: str) -> float:
    return 100.0 if metric in SHARES else 1.0


def _episodes(facts: Facts) -> str:
    episodes, kind = facts.evaluation.get("episodes"), "greedy " if facts.evaluation.get("greedy") else "sampled "
    kind = "" if facts.other is not None else kind  # the rows say it
    return f"; {episodes} {kind}episodes per seed" if type(episodes) is int else ""


def _seeds(label: str, facts: Facts) -> Html:
    """A row per seed; collapsed, since there may be many."""
    found: dict[str, Sequence[str]] = {}
    for which, one in _evaluations(facts):
        each = {} if one is None else {SCORE: one.per_seed} | {name: x for name, (_, x) in one.metrics.items()}
        for name, values in each.items():
            shown = [_unit(name) * values[i] if i < len(values) else math.nan for i in range(len(facts.seeds))]
            found[f"{_title(name)}, {which}"] = number_texts(shown)
    rows = [
        {"seed": str(seed)} | {name: texts[i] for name, texts in found.items()} for i, seed in enumerate(facts.seeds)
    ]
    caption = f"Mean over the final episodes of each seed{f' of {label}' if label else ''}"
    return tag("details", tag("summary", f"All seeds of {label}" if label else "All seeds"), html_table(rows, caption))


def _cards(runs: Labelled) -> Html:
    """Score, steps, time and speed."""
    each = [scores | _extent(facts) for scores, (_, facts) in zip(_main_scores(runs), runs, strict=True)]
    if len(runs) == 1:
        return pairs({name: _short_first(text) for name, text in each[0].items()}, class_="cards")
    rows = [{"run": label} | extent for (label, _), extent in zip(runs, each, strict=True)]
    what = "last policies" if all(facts.passed is None for _, facts in runs) else "scores"
    return html_table(rows, f"The {what}, and steps, time and speed of training")


def _short_first(text: str) -> Html:
    """A value and, smaller, its interval or what its unit says."""
    value, space, rest = text.partition(" ")
    return joined_html(value, tag("small", space + rest)) if rest[:1] in ("[", "s") else joined_html(text)


def _main_scores(runs: Labelled) -> list[dict[str, str]]:
    """The score and the win rate of the last policies of each run; one metric has the same decimals in all. Those of
    earlier policies have the step."""
    found: list[dict[str, str]] = [{} for _ in runs]
    for name in (SCORE, "won"):
        every = [None if facts.last is None else _estimate(facts.last, name) for _, facts in runs]
        texts = iter(estimate_texts([one for one in every if one is not None]))
        for scores, one, (_, facts) in zip(found, every, runs, strict=True):
            if one is not None:
                step = "" if facts.passed is None else f" after step {number_text(facts.passed)}"
                scores[f"{_title(name)}{step}"] = next(texts)
    return found


def _extent(facts: Facts) -> dict[str, str]:
    last = max(facts.rows, key=lambda row: row["step"], default={"step": json_number(facts.evaluation.get("step"))})
    seconds, steps, seeds = json_number(last.get("seconds")), last["step"], len(facts.seeds)
    found = {"Seeds": number_text(seeds)}
    if math.isfinite(steps):
        found["Steps per seed"] = number_text(steps)
    if seconds > 0:
        speed = f"{number_text(round(steps * seeds / seconds))} steps per second, all seeds"
        found |= {"Training": duration_text(seconds), "Speed": speed}
    return found


def _curves(runs: Labelled, charts: list[dict[str, Any]]) -> Html:
    """The curves of all metrics; ``charts`` receives their data."""
    main, other, left_out = metric_charts(runs)

    def placed(found: Sequence[MetricChart]) -> list[Html]:
        start = len(charts)
        charts.extend(lines_data(one.drawn.chart) for one in found)
        return [chart_element(start + i, one.drawn) for i, one in enumerate(found)]

    said = tag(
        "p",
        "Select a range with the mouse to zoom, and double-click to reset it. Click a line's name to show or hide it.",
        class_="note screen",
    )
    parts = [said, tag("div", *placed(main), class_="charts")]
    if other:
        inner = joined_html(
            tag("p", left_out, class_="note") if left_out else None,
            tag("div", *placed(other), class_="charts small"),
        )
        parts.append(tag("details", tag("summary", f"Losses and other metrics ({len(other)})"), inner, class_="more"))
    return joined_html(*parts)


def _again(runs: Labelled) -> Html:
    parts = []
    for i, (label, facts) in enumerate(runs):
        lines = {} if facts.run is None else {"Train it again": train_command(facts.run)}
        lines |= other_commands(facts, runs[1][1] if i == 0 and len(runs) > 1 else None)
        parts.append(tag("h3", label) if len(runs) > 1 else None)
        parts.append(commands(lines))
    said = "The same commit, versions and type of device give the same numbers."
    return joined_html(*parts, tag("p", said, class_="note"))


def _configuration(label: str, facts: Facts, count: int) -> Html:
    every = html_table(every_row(facts), "All flags of the run", class_="plain")
    folded = tag("details", tag("summary", "All flags"), every)
    head = tag("h3", label) if count > 1 else None
    if facts.run is None:
        return joined_html(head, folded)
    rows = changed_rows(facts.run)
    caption = "Flags that differ from the code's defaults: from Shoal's preset for this task, or given by the user"
    return joined_html(
        head,
        html_table(rows, caption, class_="plain") if rows else tag("p", "All flags have their default values."),
        folded,
    )


def _made(runs: Labelled, rates: Sequence[float | None]) -> Html:
    parts = []
    for (label, facts), rate in zip(runs, rates, strict=True):
        parts.append(tag("h3", label) if len(runs) > 1 else None)
        parts.append(pairs(origin_rows(facts, rate), class_="facts"))
    return joined_html(*parts)


def _machine_text(hardware: Mapping[str, Any]) -> str:
    """The processor, memory and devices of a machine; unchecked values as they are."""
    devices = hardware.get("devices")
    each = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    known = ", ".join(f"{one.get('count')} × {one.get('kind')}" for one in each)
    memory = f", {hardware['memory_gib']} GiB of memory" if hardware.get("memory_gib") else ""
    return f"{hardware.get('processor')}, {cores_text(hardware.get('cores'))}{memory}; devices: {known}"


def origin_rows(facts: Facts, rate: float | None) -> dict[str, str]:
    """Commit, versions, platform and hardware, where ``run.json`` has them.

    Args:
        facts: the run's.
        rate: see :func:`run_page`.
    """
    made = facts.made
    commit, versions, hardware = made.get("commit"), made.get("versions"), made.get("hardware")
    found = {}
    if isinstance(commit, str):
        found["Commit"] = commit.removesuffix("+") + (" with changed files" if commit.endswith("+") else "")
    else:
        found["Commit"] = "unknown, since Shoal was installed as a package"
    if isinstance(versions, dict):
        found["Versions"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if isinstance(made.get("platform"), str):
        found["Platform"] = made["platform"]
    if isinstance(hardware, dict):
        found["Machine"] = _machine_text(hardware)
    before = [one.get("hardware") for one in earlier_machines(made)]
    if others := [_machine_text(one) for one in before if isinstance(one, dict) and one != hardware]:
        found["Before it was resumed"] = "; ".join(dict.fromkeys(others))
    measured = "unknown, since this page was not written on the run's machine"
    found["Matrix product rate"] = measured if rate is None else f"{rate / 1e9:.0f} GFLOP/s in a 2048³ float32 product"
    return {name: text if len(text) <= 500 else f"{text[:499]}…" for name, text in found.items()}
