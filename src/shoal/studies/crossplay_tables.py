"""The tables of a study's cross-play, as data: returns of both sides, metrics, and differences from a baseline."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from jaxtyping import Float

from shoal.plots.charts import metric_words
from shoal.plots.texts import enumerated, estimate_texts
from shoal.statistics.intervals import Estimate, interval_text, scaled
from shoal.studies.combinations import axes_of
from shoal.studies.crossplay import CrossplayRecord, Group, Played
from shoal.studies.keys import key, label
from shoal.studies.plan import Cell
from shoal.studies.state import STALE_MARK
from shoal.studies.summaries import unit_of
from shoal.studies.tables import Rows, Section, column_head
from shoal.training.crossplay import own_pairs, pairs_difference, pairs_interval
from shoal.training.evaluation import mode_name

Square = Sequence[Sequence[Float[np.ndarray, "A B"]]]
"""By the run that plays side 1 and the run that plays side 2: a number for each pair of their seeds."""

_CORNER, _TOGETHER = "side 1 \\ side 2", "trained together"


def crossplay_section(played: Played, stale: Collection[str] = frozenset()) -> Section:
    """The part of the page on the games of one group.

    Args:
        played: the group and its record.
        stale: the names of the runs whose records are stale; values of their games are marked.
    """
    group, record = played.group, played.record
    title = f"Cross-play in {group.title}"
    if record is None:
        waits = "when all runs are recorded" if played.missing else "if the folders of the runs hold their policies"
        return Section(title, (f"Missing: shoal study plays it {waits}.",))
    tables = _Tables(group, record, frozenset(stale))
    blocks: list[str | Rows] = []
    for side in (0, 1):
        agents = ", ".join(record.sides[side])
        blocks += [f"Return of side {side + 1}, mean over its agents ({agents}):", tables.means(record.returns(side))]
    for name in record.metrics:
        unit = unit_of(name)
        said = f"{metric_words(name)}{', in per cent' if unit == 100.0 else ''}, mean over episodes"
        blocks += [f"{said[0].upper()}{said[1:]}:", tables.means(record.values(name), unit)]
    blocks.append(_note(tables))
    if (base := group.baseline) is not None and len(group.cells) > 1:
        said = " and ".join(f"{axis} {label(value)}" for axis, value in group.protocol.baseline.items())
        blocks += [
            f"Side 1's difference from {said}, against the same side 2, in side 1's return:",
            tables.rows_less(base, record.returns(0)),
            f"Side 2's difference from {said}, against the same side 1, in side 2's return:",
            tables.columns_less(base, record.returns(1)),
        ]
    return Section(title, tuple(blocks))


def run_titles(cells: Sequence[Cell]) -> list[str]:
    """Short different names of the runs of a group: their variants or algorithms where these tell them apart, otherwise
    the values of all axes in which they differ."""
    known = axes_of([cell.values for cell in cells])
    several = [axis for axis, values in known.items() if len(values) > 1]
    alone = [axis for axis in ("variant", "algorithm") if len({key(c.values.get(axis)) for c in cells}) == len(cells)]
    alone = [axis for axis in alone if axis in known]
    titles = [column_head(cell, alone[:1] or several or ["algorithm"]) for cell in cells]
    return [f"run {title}" if title in (_CORNER, _TOGETHER) else title for title in titles]


class _Tables:
    """The tables of one group."""

    def __init__(self, group: Group, record: CrossplayRecord, stale: frozenset[str]):
        self.record, self.stale = record, stale
        self.names, self.titles = [cell.name for cell in group.cells], run_titles(group.cells)
        self.runs = range(len(self.names))

    def means(self, square: Square, unit: float = 1.0) -> Rows:
        """A table of means, with a last column of the pairs that were trained together if there are several seeds."""

        def entry(a: int, b: int | None) -> Estimate:
            if b is None:
                return scaled(own_pairs(square[a][a][..., None]), unit)
            return scaled(pairs_interval(square[a][b][..., None], self.names[a] == self.names[b]), unit)

        columns = [*self.runs, *([None] if max(self.record.seeds) > 1 else [])]
        return self._rows(self.runs, columns, entry)

    def rows_less(self, base: int, square: Square) -> Rows:
        """Each run on side 1 less the baseline on side 1, against the same runs on side 2."""

        def entry(a: int, b: int | None) -> Estimate:
            assert b is not None
            return self._difference(square, (a, b), (base, b))

        return self._rows([a for a in self.runs if a != base], self.runs, entry, base)

    def columns_less(self, base: int, square: Square) -> Rows:
        """Each run on side 2 less the baseline on side 2, against the same runs on side 1."""

        def entry(a: int, b: int | None) -> Estimate:
            assert b is not None
            return self._difference(square, (a, b), (a, base))

        return self._rows(self.runs, [b for b in self.runs if b != base], entry, base)

    def _difference(self, square: Square, one: tuple[int, int], other: tuple[int, int]) -> Estimate:
        (a, b), (c, d) = one, other
        runs = (self.names[a], self.names[b]), (self.names[c], self.names[d])
        return pairs_difference(square[a][b], square[c][d], runs)

    def _rows(
        self,
        rows: Sequence[int],
        columns: Sequence[int | None],
        entry: Callable[[int, int | None], Estimate],
        base: int | None = None,
    ) -> Rows:
        """A table, whose entries have the same decimals; ``base`` is a run that all entries also depend on."""
        places = [(a, b) for a in rows for b in columns]
        texts = iter(estimate_texts([entry(a, b) for a, b in places], typical=True))
        found: Rows = []
        for a in rows:
            row = {_CORNER: self.titles[a]}
            for b in columns:
                mark = self._mark(a, *((b,) if b is not None else ()), *((base,) if base is not None else ()))
                row[_TOGETHER if b is None else self.titles[b]] = next(texts) + mark
            found.append(row)
        return found

    def _mark(self, *runs: int) -> str:
        return f" {STALE_MARK}" if any(self.names[run] in self.stale for run in runs) else ""


def _note(tables: _Tables) -> str:
    """How the games were played, and what the brackets are."""
    record, titles = tables.record, tables.titles
    counts = {
        f"{n} seed{'s' * (n != 1)}": [t for t, m in zip(titles, record.seeds, strict=True) if m == n]
        for n in sorted(set(record.seeds))
    }
    modes: dict[str, list[str]] = {}
    for title, run in zip(titles, record.runs, strict=True):
        modes.setdefault(mode_name(run["greedy"]), []).append(title)
    parts = [
        f"Rows play side 1 and columns side 2, every seed of one with every seed of the other: {_each(counts)}, "
        f"{record.protocol['episodes']} episodes for each pair of seeds.",
        f"Actions are {_each(modes)}.",
    ]
    if max(record.seeds) > 1:
        few = ", too narrow for so few seeds" if interval_text(min(record.seeds)) == "range" else ""
        parts.append(f"Brackets are 95% intervals over seeds{few}; the last column has each seed with itself.")
    return " ".join(parts)


def _each(groups: dict[str, list[str]]) -> str:
    """Words with the runs that they are said of, or the only one."""
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{word} in {enumerated(titles)}" for word, titles in groups.items())
