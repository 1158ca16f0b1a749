"""Compares trained runs; ``shoal compare`` and :func:`shoal.compare`.

The result holds estimates of each method and of each pair, as text and as a figure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shoal.errors import InputError, unknown
from shoal.options.convert import items_of
from shoal.plots import charts, figures
from shoal.plots.charts import PER_SEED, Panel, metric_words
from shoal.plots.figures import check_format
from shoal.plots.texts import markdown_table, markdown_text
from shoal.statistics import (
    Band,
    Comparison,
    Estimate,
    Scores,
    area,
    efficiency,
    estimate,
    interval_text,
    normalise,
    profile,
    spanning,
)
from shoal.statistics import compare as compare_scores
from shoal.studies.compare.published import check_names, environments_of, sources_of
from shoal.studies.compare.published import read_results_file as read_results
from shoal.studies.compare.sources import (
    GREEDY,
    TRAINING,
    Curve,
    Methods,
    Source,
    in_one_mode,
    methods_by_name,
    methods_of,
    read_archive,
    read_source,
)
from shoal.studies.summaries import start_of
from shoal.system.files import written_to

# Curves of several methods at common steps: sample efficiency, and the area under each run's curve.


POINTS = 50
"""Number of common steps where the steps of runs differ."""


class Curves(NamedTuple):
    """The curves of all methods."""

    kind: str
    """Of evaluations during training, or of the episodes of training."""
    steps: dict[str, Float[np.ndarray, " _"]]
    """The common steps [X] by environment, up to the end of the shortest run."""
    values: dict[str, dict[str, Float[np.ndarray, "_ _"]]]
    """[X, seeds] by method and environment; linearly interpolated where a run has no score at a common step."""

    @property
    def same_steps(self) -> bool:
        """Whether all environments have the same steps."""
        first, *others = self.steps.values()
        return all(np.array_equal(first, other) for other in others)

    @property
    def places(self) -> Float[np.ndarray, " _"]:
        """The horizontal axis: steps, or per cent of each environment's last one if they differ, from where all have a
        score on."""
        if self.same_steps:
            return next(iter(self.steps.values()))
        start = max(start_of(steps) for steps in self.steps.values())
        return np.linspace(100.0 * start, 100.0, POINTS) if start < 1 else np.array([100.0])

    def band(self, method: str, statistic: str) -> Band:
        """The aggregate over runs and environments at each place; see :func:`shoal.statistics.efficiency`."""
        values = self.values[method]
        if not self.same_steps:
            share = self.places / 100.0
            values = {task: _at(share * self.steps[task][-1], (self.steps[task], x)) for task, x in values.items()}
        return efficiency(values, statistic)

    def areas(self, method: str) -> Scores:
        """The area under each run's curve by environment; see :func:`shoal.statistics.area`."""
        return {task: area(self.steps[task], values) for task, values in self.values[method].items()}


def curves_of(methods: Methods) -> Curves | str:
    """The curves of all methods, or one sentence why there are none.

    Those of evaluations are taken if all runs have them, else those of the episodes of training.
    """
    every = [one for tasks in methods.values() for runs in tasks.values() for one in runs]
    kind = next((kind for kind in (GREEDY, TRAINING) if all(kind in one.curves for one in every)), None)
    if kind is None:
        lacking = next(one for one in every if TRAINING not in one.curves)
        if GREEDY in lacking.curves:
            other = next(one for one in every if GREEDY not in one.curves)
            return f"There are no curves and areas, since {lacking.path} has evaluations alone, and {other.path} none."
        return f"There are no curves and areas, since {lacking.path} has no scores of training."
    held = {
        name: {task: [one.curves[kind] for one in runs] for task, runs in tasks.items()}
        for name, tasks in methods.items()
    }
    environments = list(next(iter(methods.values())))
    together = {task: [curve for tasks in held.values() for curve in tasks[task]] for task in environments}
    for task, some in together.items():
        if not all(len(steps) for steps, _ in some) or max(s[0] for s, _ in some) > min(s[-1] for s, _ in some):
            return f"There are no curves and areas, since the runs in {task} have no scores at common steps."
    alike = len({tuple(steps) for some in together.values() for steps, _ in some}) == 1
    grids = {task: some[0][0] if alike else _grid(some) for task, some in together.items()}
    values = {
        name: {
            task: np.concatenate([_at(grids[task], curve) for curve in tasks[task]], axis=1) for task in environments
        }
        for name, tasks in held.items()
    }
    return Curves(kind, grids, values)


def _grid(curves: Iterable[Curve]) -> Float[np.ndarray, " _"]:
    """Common steps: from the latest first one to the earliest last one."""
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    return np.linspace(first, last, POINTS) if first < last else np.array([first])


def _at(grid: Float[np.ndarray, " _"], curve: Curve) -> Float[np.ndarray, "_ _"]:
    """A curve at other steps."""
    steps, values = curve
    return values if np.array_equal(grid, steps) else np.stack([np.interp(grid, steps, one) for one in values.T], 1)


def scaled_curves(curves: Curves, bounds: Mapping[str, tuple[float, float]]) -> Curves:
    """Normalised curves: the worst score of an environment becomes 0, the best 1."""
    values = {
        name: {task: (x - bounds[task][0]) / (bounds[task][1] - bounds[task][0]) for task, x in tasks.items()}
        for name, tasks in curves.values.items()
    }
    return curves._replace(values=values)


# The result.


STATISTIC_NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
"""The statistics as tables name them."""


class MethodSummary(NamedTuple):
    """Estimates of one method over its seeds and environments, each (value, low, high)."""

    seeds: dict[str, int]
    """Number of seeds by environment."""
    estimates: dict[str, Estimate]
    """By statistic: "mean", "median", "iqm", and "optimality_gap" if the best scores are known."""
    area: Estimate | None
    """Of the area under each run's curve, by the comparison's statistic; None without curves."""


class Pair(NamedTuple):
    """Two methods."""

    x: str
    y: str
    found: Comparison
    """The difference of means X − Y, and the probability that a run of X exceeds one of Y."""


@dataclass(frozen=True)
class RunComparison:
    """Methods compared by the scores of their runs."""

    metric: str
    statistic: str
    """Of the curves and of the area under them."""
    normalised: bool
    environments: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Float[np.ndarray, " seeds"]]]
    """The final score of each seed by method and environment."""
    methods: Mapping[str, MethodSummary]
    pairs: tuple[Pair, ...]
    curves: Curves | None
    notes: tuple[str, ...]
    """What to know when reading the numbers, one sentence each."""

    def __str__(self) -> str:
        """A table of the methods, a table of the pairs, and notes."""
        normalised = "normalised " if self.normalised else ""
        head = f"Final {normalised}{metric_words(self.metric)} in {', '.join(self.environments)}"
        parts = [head, markdown_table([self._row(name) for name in self.methods])]
        if self.pairs:
            rows = [
                {
                    "X": pair.x,
                    "Y": pair.y,
                    "P(X > Y)": pair.found.improvement,
                    "X − Y": pair.found.difference,
                }
                for pair in self.pairs
            ]
            parts.append(markdown_table(rows))
        return markdown_text("\n".join([*(part.rstrip("\n") + "\n" for part in parts), *self.notes]))

    def _row(self, name: str) -> dict[str, object]:
        found = self.methods[name]
        counts = sorted(set(found.seeds.values()))
        seeds = counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        row: dict[str, object] = {"method": name, "seeds": seeds}
        row |= {STATISTIC_NAMES[statistic]: estimate for statistic, estimate in found.estimates.items()}
        return row | ({} if found.area is None else {f"area ({STATISTIC_NAMES[self.statistic]})": found.area})

    def plot(self, path: str | Path) -> Path:
        """Draw sample-efficiency curves, performance profiles and probabilities of improvement in one figure.

        Raises:
            InputError: the suffix is not .png, .pdf or .svg.
            WriteError: the figure cannot be written.
        """
        name = f"{'normalised ' if self.normalised else ''}{metric_words(self.metric)}"
        panels: list[Panel] = []
        if self.curves is not None:
            lines = {method: (self.curves.places, self.curves.band(method, self.statistic)) for method in self.methods}
            when = "evaluated" if self.curves.kind == GREEDY else "in training"
            label = f"{STATISTIC_NAMES[self.statistic]} of {name}, {when}"
            panels.append(charts.efficiency(lines, label, steps=PER_SEED if self.curves.same_steps else None))
        thresholds = spanning(*self.scores.values())
        profiles = {method: (thresholds, profile(held, thresholds)) for method, held in self.scores.items()}
        panels.append(charts.profiles(profiles, f"Final {name} τ"))
        if self.pairs:
            panels.append(charts.improvement({(pair.x, pair.y): pair.found.improvement for pair in self.pairs}))
        return figures.draw(panels, path)


# The comparison.


STATISTICS = ("iqm", "mean", "median")
Level = tuple[float | int, float | int]


def compare(
    runs: Sequence[Any] | Mapping[str, Sequence[Any]],
    *,
    metric: str = "return",
    statistic: str = "iqm",
    normalise: Level | Mapping[str, Level] | None = None,
    output: str | Path | None = None,
    file_metric: str | None = None,
    tasks: Mapping[str, str] = MappingProxyType({}),
) -> RunComparison:
    """Compare trained runs by the final evaluation of their last policies; nothing is trained or played.

    Runs of one algorithm are one method. Where runs of an algorithm in the same environment have different settings or
    hyper-parameters, they are different methods, named by what differs. Intervals are those of
    :mod:`shoal.statistics`: of other seeds in the same environments.

    A file in marl-eval's JSON format gives a method for each of its algorithms, ``qmix (FILE)``. Its scores are the
    absolute metrics where all its runs have them, otherwise those of the last evaluation. Tasks without other runs, and
    algorithms that lack an environment, are left out.

    Args:
        runs: two or more runs: folders, :class:`~shoal.Run` objects, records ``*.json`` or ``*.jsonl.xz`` of studies,
            or files ``*.json`` of marl-eval's format. In a mapping the keys are the methods' names.
        metric: ``return``, or a metric of the environment, for example ``won``.
        statistic: of the curves and of the area under them: "iqm", "mean" or "median".
        normalise: (worst, best) score, or one pair for each environment under its name; scores become
            (score − worst) / (best − worst).
        output: also draw a figure, .png, .pdf or .svg.
        file_metric: what files of marl-eval's format call the metric; by default the same, and for ``return`` also
            ``mean_episode_return`` or ``episode_return``.
        tasks: the environment that a task of such a file is, where their names differ, for example
            ``{"smax/3m": "jaxmarl/smax/3m"}``.

    Raises:
        InputError: there are fewer than two runs, a run has no final evaluation, has trained on since, or lacks the
            metric, a method lacks an environment that another has, a file is damaged, or an argument is invalid.
        WriteError: the figure cannot be written.
    """
    if statistic not in STATISTICS:
        raise unknown("statistic of curves named", statistic, STATISTICS)
    if output is not None:
        check_format(Path(output))  # before anything is read
    groups = runs if isinstance(runs, Mapping) else {"": runs}
    paths = {
        name: [Path(getattr(run, "folder", run)) for run in items_of("runs", group, (str, Path))]
        for name, group in groups.items()
    }
    sources, notes = _read(paths, metric, file_metric, tasks)
    if sum(map(len, sources.values())) < 2:
        raise InputError("A comparison needs at least two runs.")
    methods = methods_by_name(sources) if isinstance(runs, Mapping) else methods_of(sources[""])
    result = _compared(methods, metric, statistic, normalise, notes)
    if output is not None:
        result.plot(written_to(output, Path(output)))
    return result


def _read(
    paths: Mapping[str, Sequence[Path]], metric: str, file_metric: str | None, names: Mapping[str, str]
) -> tuple[dict[str, list[Source]], list[str]]:
    """The sources of each group, and notes on files of results."""
    given_paths = [path for group in paths.values() for path in group]
    archives = {path: read_archive(path, metric) for path in given_paths if path.name.endswith(".jsonl.xz")}
    every = {path: read_results(path, names) for path in given_paths if path not in archives}
    own = {path: [read_source(path, metric)] for path, file in every.items() if file is None}
    own |= {path: found for path, (found, _) in archives.items()}
    files = [file for file in every.values() if file is not None]
    for given, what in ((names, "tasks"), (file_metric, "file_metric")):
        if given and not files:
            raise InputError(f"{what} is for files in marl-eval's format, but no such file is given.")
    check_names(names, files)
    environments = environments_of(chain(*own.values()), files) if files else []
    stems = [file.path.stem for file in files]
    held, notes = dict(own), [sentence for _, said in archives.values() for sentence in said]
    for file in files:
        label = file.path.stem if stems.count(file.path.stem) == 1 else str(file.path)
        held[file.path], said = sources_of(file, environments, metric, file_metric, label)
        notes += said
    named = [(name, one) for name, group in paths.items() for path in group for one in held[path]]
    sources, said = in_one_mode([one for _, one in named])
    found: dict[str, list[Source]] = {name: [] for name in paths}
    for (name, _), one in zip(named, sources, strict=True):
        found[name].append(one)
    return found, notes + said


def _compared(
    methods: Methods,
    metric: str,
    statistic: str,
    level: Level | Mapping[str, Level] | None,
    known: Sequence[str],
) -> RunComparison:
    environments = tuple(next(iter(methods.values())))
    scores = {
        name: {task: np.concatenate([one.scores for one in tasks[task]]) for task in environments}
        for name, tasks in methods.items()
    }
    found = curves_of(methods)
    curves = found if isinstance(found, Curves) else None
    if level is not None:
        bounds = _bounds(level, environments)
        worst, best = ({task: pair[i] for task, pair in bounds.items()} for i in (0, 1))
        scores = {name: normalise(tasks, worst, best) for name, tasks in scores.items()}
        curves = curves and scaled_curves(curves, bounds)
    statistics = ("mean", "median", "iqm", *(("optimality_gap",) if level is not None else ()))
    summaries = {
        name: MethodSummary(
            {task: one.size for task, one in tasks.items()},
            {each: estimate(tasks, each) for each in statistics},
            None if curves is None else estimate(curves.areas(name), statistic),
        )
        for name, tasks in scores.items()
    }
    pairs = tuple(Pair(x, y, compare_scores(scores[x], scores[y])) for x, y in combinations(scores, 2))
    notes = [
        *known,
        *([] if isinstance(found, Curves) else [found]),
        *_notes(methods, scores, curves, level is not None),
    ]
    return RunComparison(
        metric, statistic, level is not None, environments, scores, summaries, pairs, curves, tuple(notes)
    )


def _bounds(level: Level | Mapping[str, Level], environments: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The worst and the best score of each environment."""
    bounds = level if isinstance(level, Mapping) else dict.fromkeys(environments, level)
    for task in environments:
        if task not in bounds:
            raise InputError(f"The worst and best score of {task} are missing.")
        pair = bounds[task]
        if len(pair) != 2 or not all(math.isfinite(x) for x in pair) or pair[0] == pair[1]:
            raise InputError(f"The worst and best score of {task} are two different numbers, not {pair}.")
    return {task: (float(bounds[task][0]), float(bounds[task][1])) for task in environments}


def _brackets(scores: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """What brackets contain, as one sentence; none if no method has several seeds."""
    tasks = max(map(len, scores.values()))
    counts = sorted({x.size for each in scores.values() for x in each.values()} - {1})
    if not counts:
        return []
    if tasks > 1:
        return [f"Brackets are 95% stratified bootstrap intervals over the seeds of {tasks} environments."]
    kinds: dict[str, list[str]] = {}
    for count in counts:
        kinds.setdefault(interval_text(count), []).append(str(count))
    said = ", and ".join(f"the {kind} over {' or '.join(each)} seeds" for kind, each in kinds.items())
    also = "; those of P(X > Y) are 95% intervals" if len(scores) > 1 and "range" in kinds else ""
    return [f"Brackets are {said}{also}."]


def _notes(
    methods: Methods, scores: Mapping[str, Mapping[str, np.ndarray]], curves: Curves | None, normalised: bool
) -> list[str]:
    notes = _brackets(scores)
    every: list[Source] = [one for tasks in methods.values() for runs in tasks.values() for one in runs]
    if curves is not None:
        greedy = "greedy " if all(one.greedy is not None for one in every) else ""
        what = f"{greedy}evaluations during training" if curves.kind == GREEDY else "the episodes of training"
        notes.append(f"The area is that under the curve of {what}, divided by its length.")
    if single := [(name, task) for name, tasks in scores.items() for task, one in tasks.items() if one.size == 1]:
        name, task = single[0]
        more = f" (and {len(single) - 1} more like it)" if len(single) > 1 else ""
        notes.append(f"{name} has one seed in {task}{more}, so it has no intervals.")
    if len({one.greedy for one in every if one.greedy is not None}) > 1:
        sampled, unknown = (sum(one.greedy is mode for one in every) for mode in (False, None))
        others = f"the others greedily, but for {unknown} whose mode is not known" if unknown else "the others greedily"
        notes.append(f"Each run acts in its better mode: {sampled} of {len(every)} sampled, {others}.")
    if len({one.environment for one in every}) > 1 and not normalised:
        notes.append("Scores of the environments are averaged as they are; normalise takes their worst and best.")
    stale = [one for one in every if one.stale]
    for reason in dict.fromkeys(one.stale for one in stale):
        names = [one.name for one in stale if one.stale == reason]
        which = f"{names[0]} is" if len(names) == 1 else f"{len(names)} runs, the first of them {names[0]}, are"
        notes.append(f"{which} stale: {reason}.")
    for task in {one.environment: None for one in every}:
        steps = sorted({one.step for one in every if one.environment == task and one.step is not None})
        if len(steps) > 1:
            notes.append(f"The runs in {task} ended after {steps[0]:,} to {steps[-1]:,} steps per seed.")
    return notes
