"""The methods that a study tunes, each with the configurations and ranges of its trials. Builds no environment."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.errors import InputError, unknown
from shoal.options.flags import check_names, flags_of, override
from shoal.studies.archive import TUNING_PREFIX
from shoal.studies.combinations import Combination, axes_of, check_values, combinations, matches
from shoal.studies.keys import key, label
from shoal.studies.plan import Cell, cell_of, checked_flag, is_tuned, plan
from shoal.studies.study_file import StudyFile
from shoal.studies.tuning import file
from shoal.studies.tuning.file import Range, Ranges, Tuning
from shoal.system.files import to_json
from shoal.system.shipped import page
from shoal.training.settings import Settings

SETTINGS = ("num_envs", "rollout_length", "normalise_rewards", "reward_clip")
"""Settings of a run that can be tuned; the others change the problem, the budget, or what is stored and where."""
_LONGEST = 60


@dataclass(frozen=True)
class Method:
    """Runs that share one search: all environments of an algorithm, or one of them."""

    study: str
    values: dict[str, Any]
    """The values of the axes that its runs have in common."""
    cells: tuple[Cell, ...]
    """One for each environment in which trials are made, without tuned values."""
    ranges: dict[str, Range]
    tuning: Tuning
    rungs: tuple[file.Rung, ...]
    """Of each round, with nominal steps; a trial has the whole updates in them."""
    name: str
    """For the record and the folder: a readable text and a digest of everything that determines the search."""

    @property
    def title(self) -> str:
        """For example ``qmix, variant tuned``."""
        others = {axis: value for axis, value in self.values.items() if axis not in ("algorithm", "environment")}
        words = [self.values["algorithm"], *(f"{axis} {label(value)}" for axis, value in others.items())]
        return ", ".join(words) + (f" in {self.values['environment']}" if "environment" in self.values else "")

    @property
    def environments(self) -> tuple[str, ...]:
        """Where trials are made."""
        return tuple(cell.environment for cell in self.cells)

    @property
    def trials(self) -> int:
        """Trials that start in each round."""
        return self.rungs[0].trials

    @property
    def budget(self) -> int:
        """Environment steps of training, over all trials, seeds, environments and rounds."""
        return self.tuning.cost(self.rungs, len(self.cells))


def methods(study: StudyFile) -> list[Method]:
    """The methods that a study tunes: its runs with the flag ``tuned``, or all of them if none has it.

    Raises:
        InputError: the study has no ``[tuning]``, or a combination or a range is invalid, budgets would differ, or
            seeds of trials are also seeds of runs. The message names the file and the key.
    """
    cells = plan(study, Path())
    tuning = _tuning(study)
    whole = combinations(study)
    _check_seeds(study, tuning, cells)
    known = axes_of([one.values for one in whole])
    for table in tuning.ranges:
        check_values(study, f"{table.title} where", table.where, known)
    chosen = [one for one in whole if is_tuned(study, one)] or whole
    groups: dict[Any, list[Combination]] = {}
    for one in chosen:
        groups.setdefault(_key(tuning, one), []).append(one)
    found = [_method(study, tuning, group) for group in groups.values()]
    for method in found[1:]:
        for what, here, there in (
            ("steps", method.rungs[-1].steps, found[0].rungs[-1].steps),
            ("environments", len(method.cells), len(found[0].cells)),
        ):
            if here != there:
                hint = "; set steps in [tuning]" if what == "steps" else ""
                raise study.error(
                    f"[tuning] gives every method the same budget, but {method.title} has {here} {what} and "
                    f"{found[0].title} has {there}{hint}."
                )
    return found


def method_of(found: Sequence[Method], one: Combination) -> Method:
    """The method that a tuned run belongs to."""
    return next(method for method in found if matches(one.values, method.values))


def _tuning(study: StudyFile) -> Tuning:
    if study.tuning is None:
        raise study.error(f"The table [tuning] with the flags to tune is missing ({page('docs/tuning.md')}).")
    return study.tuning


def _check_seeds(study: StudyFile, tuning: Tuning, cells: Sequence[Cell]) -> None:
    first, last = tuning.seed, tuning.seed + tuning.seeds - 1
    for cell in cells:
        settings, _ = cell.resolved()
        low, high = settings.seed, settings.seed + settings.seeds - 1
        if first <= high and low <= last:
            raise study.error(
                f"[tuning] seed: trials have the seeds {first} to {last}, and {cell.title} has {low} to {high}; "
                f"reported runs and trials must have different seeds."
            )
    if tuning.evaluation_seed == study.evaluation.seed:
        raise study.error(
            f"[tuning] evaluation_seed is {tuning.evaluation_seed} as in [evaluation]; reported runs and trials must "
            f"be evaluated on different episodes."
        )


def _key(tuning: Tuning, one: Combination) -> Any:
    return tuple((axis, key(value)) for axis, value in _values(tuning, one).items())


def _values(tuning: Tuning, one: Combination) -> dict[str, Any]:
    return {axis: value for axis, value in one.values.items() if tuning.separately or axis != "environment"}


def _method(study: StudyFile, tuning: Tuning, group: Sequence[Combination]) -> Method:
    values = _values(tuning, group[0])
    names = [one.values["environment"] for one in group]
    if tuning.environments is not None:
        if tuning.separately:
            raise study.error("[tuning] separately tunes in each environment, so remove environments.")
        for name in tuning.environments:
            if name not in names:
                raise study.error(f"[tuning] environments: {unknown('environment of the tuned runs', name, names)}")
        group = [one for one in group if one.values["environment"] in tuning.environments]
    checked: set[tuple] = set()
    cells = tuple(cell_of(study, one, Path(), checked) for one in group)
    ranges = _ranges(study, tuning, group[0], values, checked)
    lengths = {tuning.steps or cell.resolved()[0].steps for cell in cells}
    if len(lengths) > 1:
        raise study.error("[tuning] steps is missing; set it, since the runs of the environments differ in steps.")
    rungs = tuning.plan(int(lengths.pop()), len(cells))
    if rungs[-1].trials < 1:
        raise study.error(
            f"[tuning] budget {tuning.budget:g} is too small for {tuning.eta ** (tuning.rungs - 1)} trials, the "
            f"minimum for {tuning.rungs} rungs; raise it, or lower steps, seeds or rungs."
        )
    method = Method(study.name, values, cells, ranges, tuning, rungs, "")
    text = "-".join(label(value) for value in values.values())
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{TUNING_PREFIX}{text}")[:_LONGEST].strip("-.")
    return Method(study.name, values, cells, ranges, tuning, rungs, f"{readable}-{_digest(method)}")


def _ranges(
    study: StudyFile, tuning: Tuning, one: Combination, values: Mapping[str, Any], checked: set[tuple]
) -> dict[str, Range]:
    """The ranges of a method, with values of the flags' types."""
    found: dict[str, Range] = {}
    for table in tuning.ranges:
        if "environment" in table.where and "environment" not in values:
            raise study.error(f"{table.title} where environment requires separately = true in [tuning].")
        if matches(values, table.where):
            for flag, span in table.ranges.items():
                if flag in found:
                    raise study.error(
                        f"{table.title} {flag}: another table has a range of this flag for the same runs."
                    )
                found[flag] = _checked(study, table, one, flag, span, checked)
    if not found:
        raise study.error(f"No table [[tuning.ranges]] has a range for {values['algorithm']}.")
    return found


def _checked(study: StudyFile, table: Ranges, one: Combination, flag: str, span: Range, checked: set[tuple]) -> Range:
    module = algorithms.get(one.values["algorithm"])
    named = Combination(one.values, one.flags, one.origins | {flag: f"{table.title} {flag}"})

    def valid(value: Any) -> Any:
        return checked_flag(study, named, flag, value, module, checked)

    for value in span.values or (span.low, span.high):
        valid(value)
    try:
        check_names([flag], module.Config())
    except InputError:
        if flag not in SETTINGS:
            raise study.error(
                f"{table.title} {flag} is a setting of the run and not of the method, so it cannot be tuned."
            ) from None
    if span.values:
        return Range(values=tuple(_typed(module.Config(), flag, valid(value)) for value in span.values))
    try:
        for config in (Settings(), module.Config()):
            override(config, {flag: math.floor(span.low) + 0.5})
    except InputError:
        return Range(int(span.low), int(span.high), span.log)  # whole numbers
    return Range(float(span.low), float(span.high), span.log)


def _typed(config: Any, flag: str, value: Any) -> Any:
    """A value as the configuration holds it, for example 1.0 for 1; unchanged for a flag of several sides."""
    return {flag: value, **flags_of(override(Settings(), {flag: value})), **flags_of(override(config, {flag: value}))}[
        flag
    ]


def _digest(method: Method) -> str:
    known = ("trials", "budget", "ranges", *(["greedy"] if method.tuning.greedy is True else []))
    tuning = {name: value for name, value in vars(method.tuning).items() if name not in known}
    parts = {
        "cells": [cell.digest for cell in method.cells],
        "ranges": {flag: asdict(span) for flag, span in method.ranges.items()},
        "rungs": method.rungs,
        "tuning": tuning | {"environments": method.environments},
    }
    text = json.dumps(to_json(parts), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]
