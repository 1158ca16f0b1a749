"""The contents of a study's page: the parts ``[[tables]]``, ``[[figures]]``, ``[[scales]]`` and ``[[references]]``."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from shoal.plots.style import Vertical
from shoal.studies.entries import Entries

Scaling = Literal["raw", "known", "observed"]
Kind = Literal["curves", "profiles", "estimates", "improvement"]
TRAINING = "train/"
"""Prefix of a metric of training, whose curve the records keep (``[record] metrics``)."""


@dataclass(frozen=True)
class Table:
    """A table of the results page: one value for each combination of rows and columns."""

    number: int = 1
    """Counted from 1, for messages."""
    title: str = ""
    rows: tuple[str, ...] | None = None
    """Axes; None for all that are not columns."""
    columns: tuple[str, ...] | None = None
    """Axes; None for the environment, unless it is in ``over``."""
    over: tuple[str, ...] = ()
    """Axes whose runs are tasks: an entry is an aggregate over them."""
    where: dict[str, Any] = field(default_factory=dict)
    """Values of axes; other runs are left out."""
    metric: str = "score"
    """``score``, ``length``, a metric of the environment, ``return/`` and a role (:meth:`EnvSpec.role_returns`), or
    ``train/`` and a metric of training."""
    statistics: tuple[str, ...] = ("mean",)
    """Keys of :data:`shoal.studies.summaries.STATISTICS`; several are columns."""
    scale: Scaling | None = None
    """``raw`` scores, normalised by the ``known`` worst and best of ``[[scales]]``, or by the lowest and highest score
    ``observed`` in the table. None: raw for one task, else known where all tasks have such scores, else observed."""
    baseline: dict[str, Any] = field(default_factory=dict)
    """Values of row axes; if given, a second table compares each row with this one."""

    part = "tables"


@dataclass(frozen=True)
class Figure(Table):
    """A figure of the results page: a line or a row of dots for each combination of ``rows``."""

    kind: Kind = "curves"
    """Sample-efficiency ``curves``, performance ``profiles``, point ``estimates`` with intervals, or the probability of
    ``improvement`` of each pair of lines. Each combination of ``columns`` has a picture of its own."""
    vertical: Vertical = "linear"
    """The scale of the vertical axis of curves."""

    part = "figures"


@dataclass(frozen=True)
class Primary:
    """The metric on which a study's conclusions are based, chosen before its results are known."""

    metric: str
    """As :attr:`Table.metric`."""
    statistic: str = "mean"
    """A key of :data:`shoal.studies.summaries.STATISTICS` that is a number of a single run."""


@dataclass(frozen=True)
class Level:
    """The known worst and best score of one or several tasks: they become 0 and 1."""

    number: int
    where: dict[str, Any]
    """Values of axes."""
    worst: float
    best: float
    source: str


@dataclass(frozen=True)
class Reference:
    """A published value for one or several runs."""

    number: int
    """Counted from 1, for messages."""
    where: dict[str, Any]
    """Values of axes."""
    metric: str
    value: float
    low: float | None
    high: float | None
    source: str


def table(number: int, part: Entries) -> Table:
    """Read one of ``[[tables]]``."""
    rows, columns, common = part.texts("rows"), part.texts("columns"), _common(part)
    baseline = part.table("baseline").flags()
    part.end(("rows", "columns", "over", "title", "where", "metric", "statistic", "scale", "baseline"))
    return Table(number=number, rows=rows, columns=columns, baseline=baseline, **common)


def figure(number: int, part: Entries) -> Figure:
    """Read one of ``[[figures]]``, whose rows are called ``lines`` and whose columns ``panels``."""
    lines, panels, common = part.texts("lines"), part.texts("panels"), _common(part)
    kind = _among(part, "kind", get_args(Kind), "curves")
    vertical = _among(part, "vertical", get_args(Vertical), "linear")
    part.end(("kind", "lines", "panels", "over", "title", "where", "metric", "statistic", "scale", "vertical"))
    if kind != "curves" and vertical != "linear":
        part.refuse("vertical", f"applies only to curves, so it cannot be {vertical!r} if kind is {kind!r}.")
    if kind != "curves" and common["metric"].startswith(TRAINING):
        part.refuse("metric", f"is a metric of training, so kind must be 'curves', not {kind!r}.")
    if kind == "curves" and (len(common["statistics"]) > 1 or common["statistics"][0] not in ("mean", "median", "iqm")):
        part.refuse("statistic", "must be mean, median or iqm for curves.")
    given: dict[str, Any] = {"kind": kind, "vertical": vertical}
    return Figure(number=number, rows=lines, columns=panels, **given, **common)


def primary(part: Entries) -> Primary:
    """Read ``[primary]``."""
    found = Primary(part.text("metric"), part.text("statistic", Primary.statistic))
    part.end(("metric", "statistic"))
    return found


def level(number: int, part: Entries) -> Level:
    """Read one of ``[[scales]]``."""
    source, worst, best = part.text("source"), part.number("worst"), part.number("best")
    assert worst is not None and best is not None
    if math.isclose(worst, best):
        part.refuse("best", f"must differ from worst, but both are {best:g}.")
    return Level(number, part.flags(), worst, best, source)


def reference(number: int, part: Entries) -> Reference:
    """Read one of ``[[references]]``."""
    source, metric, value = part.text("source"), part.text("metric", "score"), part.number("value")
    low, high = part.number("low", None), part.number("high", None)
    assert value is not None
    if low is None and high is not None:
        part.refuse("low", "is missing; an interval has both low and high.")
    if low is not None and high is None:
        part.refuse("high", "is missing; an interval has both low and high.")
    if low is not None and high is not None and not low <= value <= high:
        part.refuse("value", f"must be in the interval [{low:g}, {high:g}] from low to high, not {value:g}.")
    return Reference(number, part.flags(), metric, value, low, high, source)


def _common(part: Entries) -> dict[str, Any]:
    return {
        "title": part.text("title", ""),
        "over": part.texts("over") or (),
        "where": part.table("where").flags(),
        "metric": part.text("metric", "score"),
        "statistics": part.texts("statistic") or ("mean",),
        "scale": _among(part, "scale", get_args(Scaling), None),
    }


def _among(part: Entries, key: str, known: tuple[str, ...], default: str | None) -> str | None:
    found = part.text(key, "") or default
    if found is not default and found not in known:
        part.refuse(key, f"must be one of {', '.join(known)}, not {found!r}.")
    return found
