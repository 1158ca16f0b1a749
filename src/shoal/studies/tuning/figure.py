"""A figure of all trials of a search as SVG text, which has the same bytes with any version of any library."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from shoal.plots.texts import number_text
from shoal.studies.tuning.record import TuningRecord, mean

WIDTH, HEIGHT = 230, 170
"""Of a panel, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 34
_BEST, _OTHER, _DEFAULT, _INK = "#D55E00", "#0072B2", "#000000", "#404040"


def figure(record: TuningRecord) -> str:
    """Panels: scores at the rungs, a line for each trial; then for each numeric range the last score against the value.

    The winner is orange, the default black. Trials that diverged before the first rung are not shown.
    """
    scores = [[mean(one) for one in trial["scores"]] for trial in record.trials]
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
