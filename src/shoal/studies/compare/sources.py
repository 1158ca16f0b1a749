"""What a run folder or a study's record says of its seeds, final scores and curves, and which runs are one method.

Files of others' results are read by :mod:`shoal.studies.compare.published`. One method are runs of one algorithm with
one configuration, on one or several environments.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shoal import algorithms
from shoal.errors import InputError, shortened, unknown
from shoal.options.flags import flags_of
from shoal.plots.curves import series
from shoal.runs import behaviour
from shoal.storage import folders, log, manifest
from shoal.studies import archive, record
from shoal.studies.exchange import options_text
from shoal.studies.keys import label
from shoal.system.files import to_json
from shoal.training.evaluation import mode_name
from shoal.training.settings import CHANGEABLE, Settings

Curve = tuple[Float[np.ndarray, " _"], Float[np.ndarray, "_ _"]]
"""Environment steps per seed [X], and the scores there [X, seeds]."""
GREEDY, TRAINING = "greedy", "training"
LENGTH = {"steps", "schedule_steps", "stop_at", "time_budget"}
_SAME = (CHANGEABLE - LENGTH) | {"seed", "seeds", "rows"}
"""Settings in which runs of one method may differ."""


@dataclass(frozen=True)
class Source:
    """The seeds of one run, or the runs of one algorithm in one environment of a file of results."""

    path: Path
    name: str
    """Name of its folder or record, or of the algorithm in a file of results."""
    algorithm: str
    environment: str
    """Name, with the options that were given."""
    flags: dict[str, Any]
    """Everything else that distinguishes its method from others, by flag."""
    axes: dict[str, Any]
    """Values of the study's axes but the environment; empty for a run folder."""
    seeds: tuple[int | str, ...]
    """In a file of results, the names of its runs."""
    step: int | None
    """Environment steps per seed after which it was evaluated; None where a file of results has none."""
    greedy: bool | None
    """Whether the final evaluation was greedy; None for a file of results, which does not tell."""
    scores: Float[np.ndarray, " seeds"]
    """The mean of the final evaluation's episodes."""
    curves: Mapping[str, Curve]
    """Those that are known: of evaluations during training (:data:`GREEDY`) and of the episodes of training
    (:data:`TRAINING`)."""
    better: bool = False
    """Whether its study evaluates each run in its better mode, so that modes may differ."""
    other: Float[np.ndarray, " seeds"] | None = None
    """The scores in the other mode, where they are known."""
    worse: bool = False
    """Whether a run's folder says that its other mode is better."""
    stale: str = ""
    """Why it is stale (:mod:`shoal.studies.state`), as a clause; empty if it is not."""


def read_source(path: Path, metric: str) -> Source:
    """Read a run folder, or a record ``*.json`` of a study.

    Args:
        path: the folder or file.
        metric: ``return`` for the score, or a metric of the environment.

    Raises:
        InputError: there is none, it is damaged, the run has no final evaluation or has trained on since, or no such
            metric.
    """
    if path.suffix == ".json":
        return _from_record(archive.Stored(path.stem, path), metric)
    return _from_folder(path, metric)


def _from_folder(folder: Path, metric: str) -> Source:
    run = _checked(manifest.read_run_json(folder)["config"], str(folder))
    evaluation = folders.read_evaluation(folder)
    if evaluation is None:
        raise InputError(
            f"{folder} has no final evaluation: shoal train --resume {folder} finishes the run (--eval-episodes 256 if "
            f"it was trained without)."
        )
    step = _step(evaluation, folder)
    if (newest := folders.newest_step(folder, _steps_per_update(run, str(folder)))) > step:
        raise InputError(
            f"{folder} has trained on to step {newest:,} since its final evaluation: shoal train --resume {folder} "
            f"finishes it."
        )
    worse = evaluation.get("greedy") is False and isinstance(evaluation.get("other"), dict)
    if worse:
        evaluation |= {"metrics": {}} | evaluation["other"]  # all are compared in one mode, and all have greedy scores
    metrics = evaluation.get("metrics", {})
    held = {"return": evaluation, **(metrics if isinstance(metrics, dict) else {})}
    if metric not in held:
        raise unknown(f"metric in the final evaluation of {folder} named", metric, map(printable, held))
    seeds = _seeds(run, str(folder))
    scores = _scores(held[metric].get("per_seed") if isinstance(held[metric], dict) else None, seeds, metric, folder)
    rows, curves = log.read_log(folder), {}
    for kind, column in ((GREEDY, f"greedy/{metric}"), (TRAINING, metric)):
        if any(column in row for row in rows):
            steps, values = series(folder, column)
            if values.shape[1] == len(seeds):
                curves[kind] = known_points(steps, values)
    found = _source(folder, folder.resolve().name, run, {}, seeds, step, True, scores, curves)
    if (folder / folders.PREPARATION_FILE).exists():
        found = replace(found, flags=found.flags | _undecided(found))
    stale = _changes(behaviour.kept(manifest.read_run_json(folder)["made_with"]), run)
    return replace(found, worse=worse, stale=stale)


def _undecided(one: Source) -> dict[str, Any]:
    """The default of what the algorithm decided before training, in place of what it found, which other seeds may not
    find. Modules of the user's own are not imported."""
    if algorithms.own(one.algorithm):
        return {}
    decided, defaults = getattr(algorithms.get(one.algorithm), "DECIDED", ()), _defaults(one.algorithm)
    return {flag: defaults[flag] for flag in decided if flag in one.flags}


def read_archive(path: Path, metric: str) -> tuple[list[Source], list[str]]:
    """Read the records of runs of a study from their archive; the arguments are those of :func:`read_source`.

    Of several records with the same values of the study's axes, the newest is read: an archive keeps those of runs that
    the study no longer has, since a preset or a default has changed.

    Returns:
        The runs, and a sentence if there are records that are not read.

    Raises:
        InputError: there is none, one is damaged, or one has no such metric.
    """
    if not path.is_file():
        raise InputError(f"There is no archive of records {path}.")
    every = [(one, record.opened_record(one)) for one in archive.archived(path).values() if one.is_run]
    newest: dict[str, tuple[int, ...]] = {}
    for _, held in every:
        newest[_cell(held)] = max(newest.get(_cell(held), ()), _age(held))
    used = [(one, held) for one, held in every if _age(held) == newest[_cell(held)]]
    left = len(every) - len(used)
    said = f"{left} of the {len(every)} records in {path} are left out, since the same runs have newer ones."
    return [_source_of(one, held, metric) for one, held in used], [said] if left else []


def _cell(held: record.Record) -> str:
    """The study and the values of its axes as a key."""
    run = held.run
    return json.dumps(to_json([held.study, run["algorithm"], run["environment"], held.cell]), sort_keys=True)


def _age(held: record.Record) -> tuple[int, ...]:
    """What grows from one record of a run to the next: behaviour versions, Shoal's version, and the number of flags. A
    record has no date."""
    version = [int(part) for part in re.findall(r"\d+", held.versions.get("shoal") or "")[:3]]
    padded = version + [0] * (3 - len(version))
    return sum(held.behaviour.values()), *padded, len(held.run["settings"]) + len(held.run["config"])


def _from_record(one: archive.Stored, metric: str) -> Source:
    return _source_of(one, record.opened_record(one), metric)


def _source_of(one: archive.Stored, held: record.Record, metric: str) -> Source:
    path = one.path
    name = "score" if metric == "return" else metric
    values = held.values(name)
    if values is None:
        raise unknown(f"metric in {path} named", metric, ["return", *map(printable, held.evaluation["metrics"])])
    run = _checked(held.run, str(path))
    seeds = _seeds(run, str(path))
    means = [float(np.mean(row[np.isfinite(row)])) if np.isfinite(row).any() else None for row in values]
    scores, curves = _scores(means, seeds, metric, path), {}
    if metric == "return" and held.curve["step"]:
        steps, points = (np.asarray(held.curve[key], np.float64) for key in ("step", "score"))
        curves[TRAINING] = known_points(steps, points)
    if held.evaluations.get(name):
        steps, points = (np.asarray(held.evaluations[key], np.float64) for key in ("step", name))
        curves[GREEDY] = known_points(steps, points)
    axes = {axis: value for axis, value in held.cell.items() if axis != "environment" and not axis.startswith("env.")}
    step, greedy = held.evaluation["step"], held.evaluation["greedy"]
    found = _source(path, one.name, run, axes, seeds, step, greedy, scores, curves)
    other: np.ndarray | None = scores  # of a policy with one mode
    if "other" in held.evaluation:
        other = np.array(held.evaluation["other"], np.float64) if metric == "return" else None
    stale = _changes(held.behaviour, run)
    return replace(found, better=held.evaluation.get("better", False), other=other, stale=stale)


def _changes(made: Mapping[str, int] | None, run: Mapping[str, Any]) -> str:
    """What of a run has another behaviour version today than the one it was made with, as a clause."""
    flags = run["settings"] | run["config"]
    return "; ".join(behaviour.changes(made or {}, run["algorithm"], run["environment"], flags))


def in_one_mode(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """The sources with the scores of one mode, greedy or sampled, and a note on those of which it is not the better.

    Where the studies of all evaluate each run in its better mode, they stay as they are.

    Raises:
        InputError: the scores of a source in the mode of the others are not known.
    """
    fixed = [one for one in sources if one.greedy is not None and not one.better]
    found, changed, greedy = [], sum(one.worse for one in sources), bool(fixed and fixed[0].greedy)
    for one in sources:
        if not fixed or not one.better or one.greedy is greedy:
            found.append(one)
            continue
        if one.other is None:
            raise InputError(
                f"The final evaluation of {one.path} is {mode_name(not greedy)}, its better mode, and that of "
                f"{fixed[0].path} is {mode_name(greedy)}; only the return of {one.path} is known in both."
            )
        changed += one.other is not one.scores
        found.append(replace(one, greedy=greedy, scores=one.other, better=False))
    also = f", also of {changed} evaluation{'s' if changed > 1 else ''} whose other mode is better"
    return found, [f"All scores are {mode_name(greedy)}{also}."] if changed else []


def _source(
    path: Path,
    name: str,
    run: Mapping[str, Any],
    axes: dict[str, Any],
    seeds: tuple[int, ...],
    step: int,
    greedy: bool,
    scores: np.ndarray,
    curves: Mapping[str, Curve],
) -> Source:
    flags = {flag: value for flag, value in run["settings"].items() if flag not in _SAME} | run["config"]
    environment = printable(run["environment"] + options_text(run["env"]))
    name = printable(name)
    return Source(path, name, run["algorithm"], environment, flags, axes, seeds, step, greedy, scores, curves)


def known_points(steps: np.ndarray, values: np.ndarray) -> Curve:
    """A curve without the steps at which the score of a seed is not known, for example because no episode had ended."""
    there = np.isfinite(values).all(1)
    return steps[there], values[there]


def _checked(run: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Check the parts of a configuration that are read here."""
    kinds = {"algorithm": str, "environment": str, "env": dict, "settings": dict, "config": dict}
    for key, kind in kinds.items():
        if not isinstance(run.get(key), kind):
            raise InputError(f"{where} does not describe a run: {key!r} is {shortened(run.get(key))}.")
    if not run["algorithm"].isprintable() or not run["environment"].isprintable():
        raise InputError(f"{where} does not describe a run: a name in it cannot be printed.")
    return run


def _seeds(run: Mapping[str, Any], where: str) -> tuple[int, ...]:
    first, count = run["settings"].get("seed"), run["settings"].get("seeds")
    if type(first) is not int or type(count) is not int or not 1 <= count <= 65_536:
        raise InputError(
            f"{where} does not describe a run: its seeds are {shortened(count)} from {shortened(first)} on."
        )
    return tuple(range(first, first + count))


def _steps_per_update(run: Mapping[str, Any], where: str) -> int:
    found = folders.steps_per_update(run["settings"])
    if found is None:
        raise InputError(f"{where} does not describe a run: its num_envs and rollout_length are no two whole numbers.")
    return found


def _step(evaluation: Mapping[str, Any], folder: Path) -> int:
    step = evaluation.get("step")
    if type(step) is not int:
        raise InputError(f"The final evaluation of {folder} is damaged: its step is {shortened(step)}.")
    return step


def _scores(found: Any, seeds: tuple[int, ...], metric: str, path: Path) -> Float[np.ndarray, " seeds"]:
    """The score of each seed.

    Raises:
        InputError: they are not one finite number for each.
    """
    numbers = isinstance(found, list) and all(x is None or type(x) in (int, float) for x in found)
    if not numbers or len(found) != len(seeds):
        raise InputError(f"The final evaluation of {path} is damaged: it has no score of each of {len(seeds)} seeds.")
    scores = np.array([np.nan if x is None else x for x in found], np.float64)
    if not np.isfinite(scores).all():
        seed = seeds[int(np.argmin(np.isfinite(scores)))]
        raise InputError(f"{metric} of seed {seed} in {path} is not known, so this run cannot be compared by it.")
    return scores


def printable(text: str) -> str:
    """A text from a file of somebody else, without what could change the terminal."""
    return "".join(x for x in text if x.isprintable())[:120]


MAX_NAMED = 3
"""If methods of one algorithm differ in more flags, they are named by their folders."""
Methods = dict[str, dict[str, list[Source]]]
"""``methods[method][environment]``: the runs, whose seeds are put together."""


def methods_of(sources: Sequence[Source]) -> Methods:
    """Group runs by algorithm; where runs in one environment have different flags, by algorithm and these flags.

    If more than :data:`MAX_NAMED` flags differ, or a flag has another value in each environment, a study's records are
    named by the study's axes. Other runs with so many are named by their folders. Runs with a common seed of the same
    configuration, for example of two versions, are named by their folders or records.

    Raises:
        InputError: as :func:`check_methods`.
    """
    found: Methods = {}
    for algorithm in dict.fromkeys(one.algorithm for one in sources):
        group = _completed([one for one in sources if one.algorithm == algorithm])
        flags = sorted({flag for pair in _pairs(group) for flag in _different(*pair)})
        axes = sorted(
            {axis for a, b in _pairs(group) for axis in a.axes | b.axes if a.axes.get(axis) != b.axes.get(axis)}
        )
        told = all(bool(_different(a, b)) == (a.axes != b.axes) for a, b in _pairs(group))
        again = any(not _different(*pair) and set(pair[0].seeds) & set(pair[1].seeds) for pair in _pairs(group))
        by_flags = [[f"{flag} {label(one.flags.get(flag, '–'))}" for flag in flags] for one in group]
        by_axes = [[label(one.axes.get(axis, "–")) for axis in axes] for one in group]
        texts = [[""]] * len(group)
        if not again and told and (len(flags) > MAX_NAMED or (_cover(group, by_axes) and not _cover(group, by_flags))):
            texts = by_axes
        elif not again and len(flags) <= MAX_NAMED:
            texts = by_flags
        names = [printable(", ".join([algorithm, *(_end(text, 60) for text in each if text)])) for each in texts]
        clear = len(set(names)) == len(set(map(tuple, texts))) and (texts[0] != [""] or not (flags or again))
        for one, name in zip(group, names, strict=True):
            method = name if clear else _alone(one, sources)
            found.setdefault(method, {}).setdefault(one.environment, []).append(one)
    check_methods(found)
    return found


def _cover(group: Sequence[Source], texts: Sequence[Sequence[str]]) -> bool:
    """Whether what distinguishes these runs is the same in all of their environments."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for one, text in zip(group, texts, strict=True):
        found.setdefault(one.environment, set()).add(tuple(text))
    return len(set(map(frozenset, found.values()))) == 1


def _alone(one: Source, sources: Sequence[Source]) -> str:
    """The name of a run that no flags tell from others: its folder's or record's, with the path if others share it."""
    if sum(one.name == other.name for other in sources) == 1:
        return printable(one.name)
    several = sum(one.path == other.path for other in sources) > 1  # records in one archive
    return "".join(x for x in (f"{one.name} ({one.path})" if several else str(one.path)) if x.isprintable())


def _end(text: str, most: int) -> str:
    """At most ``most`` characters, without some in the middle: paths and variants that begin alike end differently."""
    return text if len(text) <= most else f"{text[: most // 3]}…{text[1 + most // 3 - most :]}"


def methods_by_name(groups: Mapping[str, Iterable[Source]]) -> Methods:
    """Methods that the caller has put together; a file of several algorithms gives a method for each of them.

    Raises:
        InputError: as :func:`check_methods`.
    """
    found: Methods = {}
    for name, sources in groups.items():
        held = list(sources)
        several = len({one.name for one in held if one.greedy is None}) > 1
        for one in held:
            method = f"{name}, {one.name}" if several and one.greedy is None else name
            found.setdefault(method, {}).setdefault(one.environment, []).append(one)
    check_methods(found)
    return found


def check_methods(methods: Methods) -> None:
    """Check that the methods can be compared.

    Raises:
        InputError: a method lacks an environment that another has, a seed occurs twice in a method, or some final
            evaluations are greedy and others sampled.
    """
    environments = dict.fromkeys(environment for tasks in methods.values() for environment in tasks)
    for environment in environments:
        there = [name for name, tasks in methods.items() if environment in tasks]
        for name in methods:
            if name not in there:
                raise InputError(
                    f"Methods are compared on the same environments, but {name} has no run in {environment}, and "
                    f"{there[0]} has."
                )
    for name, tasks in methods.items():
        for environment, runs in tasks.items():
            for one, other in combinations(runs, 2):
                others = set(other.seeds)
                if twice := [seed for seed in one.seeds if seed in others]:
                    raise InputError(
                        f"{one.path} and {other.path} both have seed {twice[0]} of {name} in {environment}; leave "
                        f"one of them out."
                    )
    every = [one for tasks in methods.values() for runs in tasks.values() for one in runs]
    sampled, greedy = ([one for one in every if one.greedy is kind and not one.better] for kind in (False, True))
    if sampled and greedy:
        raise InputError(
            f"The final evaluation of {sampled[0].path} is sampled and that of {greedy[0].path} is greedy."
        )


def _completed(group: Sequence[Source]) -> list[Source]:
    """The runs of an algorithm, with the flags that only others of them have: formats gain some, and a run that lacks
    one did what :data:`shoal.storage.manifest.LATER` says, or else had today's default."""
    known = {flag for one in group for flag in one.flags}
    found = []
    for one in group:
        flags = manifest.with_later(one.flags, known)
        if missing := known - flags.keys():
            defaults = _defaults(one.algorithm)
            flags |= {flag: defaults[flag] for flag in missing if flag in defaults}
        found.append(replace(one, flags=flags))
    return found


def _defaults(algorithm: str) -> dict[str, Any]:
    """The defaults of all flags; of an algorithm of the user's own, whose module is not imported, of the settings."""
    own = bool(algorithms.own(algorithm))
    return flags_of(Settings()) | ({} if own else flags_of(algorithms.get(algorithm).Config()))


def _pairs(group: Sequence[Source]) -> list[tuple[Source, Source]]:
    """Pairs of runs in the same environment."""
    return [pair for pair in combinations(group, 2) if pair[0].environment == pair[1].environment]


def _different(one: Source, other: Source) -> set[str]:
    """The flags in which two runs differ."""
    return {flag for flag in one.flags.keys() | other.flags.keys() if _text(one, flag) != _text(other, flag)}


def _text(source: Source, flag: str) -> str:
    return json.dumps(to_json(source.flags[flag]), sort_keys=True) if flag in source.flags else ""
