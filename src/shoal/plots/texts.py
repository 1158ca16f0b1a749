"""Summaries of a run as text and tables.

:func:`summary` reads these columns of the log where they exist: ``step`` (environment steps per seed), the metric, and
``seconds`` (wall time of training so far).
"""

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.plots.charts import SHARES, metric_words
from shoal.plots.curves import series
from shoal.statistics.intervals import Estimate, interval, interval_text
from shoal.storage import manifest
from shoal.storage.log import read_log
from shoal.system.notices import escaped


def _width(estimate: Estimate) -> float:
    """Of an interval; 0 if it is the rounding error of float32, which equal returns leave in their means."""
    width = estimate[2] - estimate[1]
    return 0.0 if width <= 1e-6 * max(map(abs, estimate)) else width


def estimate_text(estimate: Estimate) -> str:
    """``mean [low, high]``, rounded to the half-width's second digit; the mean alone if there is no interval."""
    mean, low, high = estimate
    half = _width(estimate) / 2
    if not math.isfinite(half):
        return number_text(mean)
    digits = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 2
    return f"{mean:z,.{digits}f} {_interval_text(low, high, digits)}".replace("-", "−")


def _interval_text(low: float, high: float, digits: int) -> str:
    """``[low, high]``; an end that would read 0 although the interval lies on one side of 0 gets its first digit."""
    ends, shown = (low, high), [f"{end:z,.{digits}f}" for end in (low, high)]
    zeros = [float(text.replace(",", "")) == 0 for text in shown]
    if low * high > 0 and any(zeros) and not all(zeros):
        near = zeros.index(True)
        if (first := math.ceil(-math.log10(abs(ends[near])))) <= digits + 3:
            shown[near] = f"{ends[near]:.{first}f}"
    return f"[{', '.join(shown)}]"


def estimate_texts(estimates: Sequence[Estimate], typical: bool = False) -> list[str]:
    """Estimates of one quantity as :func:`estimate_text`, all with the same decimals.

    They are those of the most precise estimate, at most four digits of the largest; if ``typical``, those of the median
    half-width, at most four digits of the median value.
    """
    return _with_equal_decimals(estimates, [_width(one) for one in estimates], typical)


def enumerated(words: Sequence[str]) -> str:
    """At least one word in a sentence, for example ``mean, median and iqm``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def number_texts(values: Sequence[float | int]) -> list[str]:
    """Numbers of one quantity with the same decimals, – where they are not finite: none if all are integers."""
    return _with_equal_decimals([(value,) for value in values], [])


def _with_equal_decimals(
    each: Sequence[Sequence[float | int]], widths: Sequence[float], typical: bool = False
) -> list[str]:
    known = [[abs(x) for x in one if math.isfinite(x)] for one in each]
    whole = all(float(x).is_integer() for one in known for x in one)
    sizes = sorted(3 - math.floor(math.log10(max(one))) for one in known if one and max(one) > 0) or [3]
    halves = sorted(1 - math.floor(math.log10(w / 2)) for w in widths if math.isfinite(w) and w > 0)
    middle = (len(sizes) // 2, len(halves) // 2) if typical else (0, -1)
    wanted = halves[middle[1]] if halves else 0 if whole else sizes[middle[0]]
    digits = max(0, min(wanted, sizes[middle[0]]))

    def text(one: Sequence[float | int]) -> str:
        value, *ends = one
        if not math.isfinite(value):
            return "–"
        between = f" {_interval_text(ends[0], ends[1], digits)}" if ends and all(map(math.isfinite, ends)) else ""
        return f"{value:z,.{digits}f}{between}".replace("-", "−")

    return [text(one) for one in each]


def number_text(value: float | int) -> str:
    """Integers with thousands separators, other numbers with four significant digits; from 10¹⁵ on with an exponent."""
    if not math.isfinite(value):
        return str(float(value)).replace("-", "−")
    if abs(value) >= 1e15:
        return f"{value:.3e}".replace("-", "−")
    if float(value).is_integer():
        return f"{int(value):,}".replace("-", "−")
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}" if digits <= 6 else f"{value:.3e}"
    return text.replace("-", "−")


def decimals(mean: float, low: float = math.nan, high: float = math.nan) -> int:
    """The decimals of a score in a line of text, from 2 to 6: enough for the first digit of its interval's half-width,
    or for two digits of a score without interval, so that 0.004 is not written as 0.00."""
    half = _width((mean, low, high)) / 2
    place = 1 - math.log10(abs(mean)) if not half > 0 and math.isfinite(mean) and mean else 0.0
    place = -math.log10(half) if half > 0 and math.isfinite(half) else place
    return min(6, max(2, math.ceil(place)))


def metric_text(name: str, value: float | int) -> str:
    """An episode metric and its value, in per cent if it is a share."""
    return f"{metric_words(name)} {100 * value:.1f} %" if name in SHARES else f"{name} {number_text(value)}"


def result_text(metrics: Mapping[str, float]) -> str:
    """An episode's result: "won" or "lost" from the metric ``won``, "draw" if the metrics ``won`` and ``lost`` are both
    0, else the values of its metrics; may be empty."""
    if metrics.keys() >= {"won", "lost"} and max(metrics["won"], metrics["lost"]) < 0.5:
        return "draw"
    if "won" in metrics:
        return "won" if metrics["won"] >= 0.5 else "lost"
    return ", ".join(metric_text(name, value) for name, value in metrics.items())


def markdown_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """A Markdown table. Numbers are right-aligned, an :data:`Estimate` is ``mean [low, high]``, missing values are –.

    Args:
        rows: one mapping per line, from column to value.
        columns: the columns in their order; by default all, in the order of first appearance.

    Raises:
        InputError: there are no rows.
    """
    if not rows:
        raise InputError("A table requires at least one row.")
    columns = list(dict.fromkeys(name for row in rows for name in row)) if columns is None else list(columns)
    cells = [[markdown_text(_cell(row.get(name))) for name in columns] for row in rows]
    right = [all(not isinstance(row.get(name), str) for row in rows) for name in columns]
    heads = [markdown_text(_cell(name)) for name in columns]
    widths = [max(3, *(len(line[i]) for line in [heads, *cells])) for i in range(len(columns))]

    def join(line: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = " | ".join("-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True))
    return "\n".join([join(heads), f"| {rule} |", *map(join, cells)]) + "\n"


def markdown_text(text: str) -> str:
    """Markdown whose texts come from files of other people, without what a browser would execute.

    HTML tags are shown as text, and so are links but those to web pages and within their site.
    """
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", escaped(text))
    return re.sub(r"\]([(:])(?=\s*<?\s*([^\s)\]]*))", _link, text)


def _link(found: re.Match[str]) -> str:
    """The start of a link's destination: of a scheme other than that of web pages, as a text that starts no link.

    Renderers decode backslashes and entities in it, so ``&#106;avascript&colon;`` is a scheme too.
    """
    address = html.unescape(re.sub(r"\\(?=[!-/:-@[-`{-~])", "", found[2]))
    unsafe = re.match(r"(?!https?:)[^/?#]*:", address, re.IGNORECASE)
    return f"]\\{found[1]}" if unsafe else found[0]


def summary(folder: Path | str, metric: str = "return", confidence: float = 0.95, ended: str = "") -> str:
    """Summary of the run in ``folder``: the final value of ``metric`` and of the environment's metrics, steps, speed
    and wall time.

    The final value of a seed is its mean over the last 5 % of the rows that have the metric (at least one row, NaN left
    out); the interval over seeds is :func:`~shoal.statistics.intervals.interval`.

    Raises:
        InputError: the run has no log, or no row has the metric.
    """
    folder = Path(folder)
    logged, known = read_log(folder), True
    try:
        seeds = series(folder, metric)[1].shape[1]
    except InputError:
        known = not any(metric in row for row in logged)
        if known:
            raise
        seeds = max(np.size(row[metric]) for row in logged if metric in row)  # nothing but unknown values
    last = max(logged, key=lambda row: row["step"])
    metrics = [name for name in _metrics(folder) if name != metric and any(name in row for row in logged)]
    nowhere = {
        name for name in metrics if all(x is None for row in logged for x in np.array([row.get(name)], object).ravel())
    }
    lines = [
        (
            f"final {metric_words(name).replace('_', ' ')}",
            "unknown in all episodes" if name in nowhere else _final(folder, name, confidence),
        )
        for name in ((metric, *metrics) if known else ())
    ]
    lines += [] if known else [("final return", "no episode ended")]
    total = f", {number_text(last['step'] * seeds)} in total" if seeds > 1 else ""
    lines.append(("steps", f"{number_text(last['step'])} per seed{total}"))
    lines += [("ended", ended)] if ended else []
    seconds = last.get("seconds")
    if isinstance(seconds, (int, float)) and seconds > 0:
        lines.append(("speed", f"{number_text(round(last['step'] * seeds / seconds))} environment steps per second"))
        lines.append(("time", duration_text(seconds)))
    if (folder / manifest.RUN_JSON).exists() and (text := manifest.hardware(folder)):
        lines.append(("on", text))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines) + "\n"


def _final(folder: Path, metric: str, confidence: float) -> str:
    """The final value of one metric as text."""
    values = series(folder, metric)[1]
    seeds, window = values.shape[1], max(1, len(values) // 20)
    there = np.isfinite(values[-window:])
    with np.errstate(invalid="ignore"):  # a seed without any finite value there is NaN, and so is the result
        scores = np.where(there, values[-window:], 0.0).sum(axis=0) / there.sum(axis=0)
        final = interval(scores, confidence=confidence)
    rows = f"mean of the last {window} rows" if window > 1 else "last row"
    over = f"{interval_text(seeds, confidence)} over {seeds} seeds" if seeds > 1 else "1 seed"
    return f"{estimate_text(final)}  ({over}; {rows})"


def _metrics(folder: Path) -> list[str]:
    """The names of the environment's metrics, from ``run.json``."""
    if not (folder / manifest.RUN_JSON).exists():
        return []
    return list(manifest.read_run_json(folder)["config"].get("spec", {}).get("metrics", ()))


def duration_text(seconds: float | int) -> str:
    """A duration, for example ``41.2 s``, ``2 min 13 s`` or ``3 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple) and len(value) == 3:
        return estimate_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number_text(value)
    return str(value).replace("|", "\\|").replace("\n", " ")
