"""The curves of runs: which metrics of the log are charts, and what each chart holds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.plots.curves import series_of
from shoal.plots.texts import SHARES
from shoal.reporting.charts import Drawn, curve, lines_chart, points_for
from shoal.reporting.facts import Facts
from shoal.statistics.intervals import interval_text

MOST = 60
"""Largest number of charts of a run."""
AGENTS = 12
"""Largest number of agents whose returns are drawn."""
STEPS = "Environment steps per seed"
_GREEDY, _AGENT = "greedy/", "return/"
_LEFT_OUT = {"step", "update", "seconds", "greedy/seconds"}


class Chart(NamedTuple):
    """A chart of one metric."""

    metric: str
    drawn: Drawn


def curves_of(runs: Sequence[tuple[str, Facts]]) -> tuple[list[Chart], list[Chart]]:
    """The charts of return and of the environment's metrics, and those of all other metrics.

    Args:
        runs: labelled; each chart has a line for each.
    """
    names = dict.fromkeys(name for _, facts in runs for row in facts.rows for name in row)
    plain = [name for name in names if name not in _LEFT_OUT and not name.startswith((_GREEDY, _AGENT))]
    first = [name for name in ("return", *runs[0][1].metrics, "episode_length") if name in plain]
    greedy = [name.removeprefix(_GREEDY) for name in names if name.startswith(_GREEDY) and name not in _LEFT_OUT]
    first += [name for name in greedy if name not in plain]  # metrics that only evaluations have
    main = [chart for name in first if (chart := _chart(name, runs)) is not None]
    agents = [name for name in names if name.startswith(_AGENT)][:AGENTS]
    if len(agents) > 1 and (chart := _each_agent(agents, runs[:1])) is not None:
        main.append(chart)
    rest = sorted(name for name in plain if name not in first)
    other = [chart for name in rest[:MOST] if (chart := _chart(name, runs)) is not None]
    return main, other


def _chart(metric: str, runs: Sequence[tuple[str, Facts]]) -> Chart | None:
    """The metric in training, and in greedy evaluations if the log has them; None if it has neither."""
    lines, notes, greedy = [], [], False
    for label, facts in runs:
        of = f"{label}, " if len(runs) > 1 else ""
        for column, which in ((metric, "training"), (_GREEDY + metric, "greedy evaluations")):
            found = _known(facts, column)
            if found is None:
                continue
            greedy |= column != metric
            lines.append(curve(f"{of}{which}", *found, facts.seeds[0]))
            notes += _notes(found[1].shape[1], len(found[0]))
    if not lines:
        return None
    if len(lines) == 1 and not greedy:
        lines[0]["name"] = metric
    said = ["During training, actions are sampled and exploration is on."] if greedy else []
    chart = lines_chart(lines, x=STEPS, y=_title(metric), percent=metric in SHARES)
    return Chart(metric, Drawn(chart, _title(metric), " ".join(dict.fromkeys([*said, *notes]))))


def _each_agent(columns: Sequence[str], runs: Sequence[tuple[str, Facts]]) -> Chart | None:
    facts = runs[0][1]
    every = {column.removeprefix(_AGENT): _known(facts, column) for column in columns}
    known = {name: found for name, found in every.items() if found is not None}
    if not known:
        return None
    lines = [curve(name, *found, facts.seeds[0]) for name, found in known.items()]
    note = " ".join(_notes(*next((values.shape[1], len(steps)) for steps, values in known.values())))
    return Chart(_AGENT, Drawn(lines_chart(lines, x=STEPS, y="Return"), "Return of each agent", note))


def _known(facts: Facts, column: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The steps and values of a column; None if it has no numbers, or too large ones."""
    try:
        steps, values = series_of(facts.rows, column, facts.name)
    except (InputError, OverflowError):
        return None
    return (steps, values) if np.isfinite(values).any() else None


def _notes(seeds: int, rows: int) -> list[str]:
    parts = [f"Mean of {seeds} seeds; band: {interval_text(seeds)}." if seeds > 1 else "1 seed."]
    if rows > points_for(seeds):
        parts.append(f"Each point is the mean of about {round(rows / points_for(seeds))} of {rows} rows of the log.")
    return parts


def _title(metric: str) -> str:
    text = metric.replace("_", " ").replace("/", ": ")
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    return shown[:1].upper() + shown[1:]
