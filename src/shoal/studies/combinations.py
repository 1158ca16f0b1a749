"""The combinations of a study's grid, and the selections of them in its other tables. Does not import JAX."""

import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shoal.errors import InputError, unknown
from shoal.studies.keys import key, label, labels, same
from shoal.studies.study_file import ALONE, CROSSPLAY, StudyFile, Table

MAX_COMBINATIONS = 10_000
"""Largest number of combinations."""
VARIANT = "variant"
"""The axis of the names in ``[[variants]]``."""
_FIRST = ("algorithm", "environment")


@dataclass(frozen=True)
class Combination:
    """One run of a study."""

    values: dict[str, Any]
    """The value of each axis; ``algorithm`` and ``environment`` come first, and are axes even with one value."""
    flags: dict[str, Any]
    """All flags, with ``algorithm``, ``environment`` and the options ``env.NAME``."""
    origins: dict[str, str]
    """Where the file sets each flag, for messages."""


def combinations(study: StudyFile) -> list[Combination]:
    """All runs of a study, in the order of the file; the last axis changes fastest, ``[[variants]]`` are the last.

    Raises:
        InputError: a flag is set in two places, a table names an axis, a value or a run that does not exist, or no run
            or too many are left.
    """
    _check_places(study)
    axes = list(study.grid.values()) + ([tuple(study.variants)] if study.variants else [])
    count = math.prod(map(len, axes))
    if count > MAX_COMBINATIONS:
        raise study.error(f"[grid] has {count} combinations, and the limit is {MAX_COMBINATIONS}; split the study.")
    names = [*study.grid, *([VARIANT] if study.variants else [])]
    whole = [_combined(study, dict(zip(names, chosen, strict=True))) for chosen in itertools.product(*axes)]
    known = axes_of([one.values for one in whole])
    left = whole
    for choice in study.exclude:
        title = f"[[exclude]] {choice.number}"
        if not choice.where:
            raise study.error(f"{title} is empty, so it would exclude every run.")
        check_values(study, title, choice.where, known)
        if not any(matches(one.values, choice.where) for one in whole):
            raise study.error(f"{title} matches no run: none has {_said(choice.where)}.")
        left = [one for one in left if not matches(one.values, choice.where)]
    if not left:
        raise study.error("[[exclude]] excludes all runs of the grid.")
    _check_overrides(study, known, left)
    done = [_overridden(study, one) for one in left]
    values = [one.values for one in done]
    for level in study.scales:
        _check_named(study, f"[[scales]] {level.number}", level.where, values)
    for table in (*study.tables, *study.figures):
        check_table(study, table, values)
    _check_primary(study)
    if study.crossplay is not None:
        check_values(study, f"{CROSSPLAY} baseline", study.crossplay.baseline, axes_of(values))
    for reference in study.references:
        _check_named(study, f"[[references]] {reference.number}", reference.where, values)
    return done


def axes_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The distinct values of each axis, in their order."""
    axes: dict[str, dict[Any, Any]] = {}
    for values in runs:
        for axis, value in values.items():
            axes.setdefault(axis, {}).setdefault(key(value), value)
    return {axis: list(values.values()) for axis, values in axes.items()}


def matches(values: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run has the values of ``where``, each of which may also be a list of alternatives."""
    return all(axis in values and _among(values[axis], wanted) for axis, wanted in where.items())


def _among(value: Any, wanted: Any) -> bool:
    return same(value, wanted) or (isinstance(wanted, tuple) and any(same(value, one) for one in wanted))


def _said(where: Mapping[str, Any]) -> str:
    return " and ".join(f"{axis} {label(value)}" for axis, value in where.items())


def _check_places(study: StudyFile) -> None:
    """Check that each flag is set in one place, apart from those that set it for some runs only."""
    for flag in study.grid:
        places = [("[defaults]", study.defaults)]
        places += [(f"the variant {name!r}", flags) for name, flags in study.variants.items()]
        places += [(f"[[overrides]] {choice.number}", choice.flags) for choice in study.overrides]
        for place, flags in places:
            if flag in flags:
                raise study.error(f"[grid] {flag} is also set in {place}; remove one of them.")
    for choice in study.overrides:
        title = f"[[overrides]] {choice.number}"
        if not choice.where:
            raise study.error(f"{title} where is missing; it selects runs, for example {{ algorithm = 'mappo' }}.")
        if not choice.flags:
            raise study.error(f"{title} sets no flag.")
        for flag in _FIRST:
            if flag in choice.flags:
                raise study.error(f"{title} cannot set {flag}; set it in [defaults], [grid] or [[variants]].")


def _combined(study: StudyFile, chosen: dict[str, Any]) -> Combination:
    variant = chosen.get(VARIANT)
    parts = [("[defaults]", study.defaults)]
    if variant is not None:
        parts.append((f"the variant {variant!r}", study.variants[variant]))
    parts.append(("[grid]", {axis: value for axis, value in chosen.items() if axis in study.grid}))
    flags = {flag: value for _, part in parts for flag, value in part.items()}
    origins = {flag: f"{place} {flag}" for place, part in parts for flag in part}
    for flag in _FIRST:
        if flag not in flags:
            raise study.error(f"{flag} is missing; set it in [defaults], or several values in [grid] or [[variants]].")
        if not isinstance(flags[flag], str):
            raise study.error(f"{origins[flag]} must be a string, not {flags[flag]!r}.")
    values = {flag: flags[flag] for flag in _FIRST}
    return Combination(values | {axis: value for axis, value in chosen.items() if axis not in values}, flags, origins)


def _check_overrides(study: StudyFile, known: Mapping[str, list[Any]], left: Sequence[Combination]) -> None:
    for choice in study.overrides:
        title = f"[[overrides]] {choice.number}"
        check_values(study, f"{title} where", choice.where, known)
        if not any(matches(other.values, choice.where) for other in left):
            raise study.error(f"{title} matches no run: none has {_said(choice.where)}.")


def _overridden(study: StudyFile, one: Combination) -> Combination:
    flags, origins = dict(one.flags), dict(one.origins)
    for choice in study.overrides:
        if matches(one.values, choice.where):
            flags |= choice.flags
            origins |= {flag: f"[[overrides]] {choice.number} {flag}" for flag in choice.flags}
    return Combination(one.values, flags, origins)


def check_values(study: StudyFile, title: str, where: Mapping[str, Any], known: Mapping[str, list[Any]]) -> None:
    """Check that axes and their values exist; the message suggests the most similar axis, or lists the values."""
    for axis, wanted in where.items():
        _check_axis(study, title, axis, known)
        each = wanted if isinstance(wanted, tuple) and not any(same(wanted, x) for x in known[axis]) else (wanted,)
        for value in each:
            if not any(same(value, other) for other in known[axis]):
                alike = label(value) in map(label, known[axis])  # a text and a number, for example
                shown = partial(json.dumps, ensure_ascii=False) if alike else label
                values = ", ".join(map(shown, known[axis]))
                raise study.error(f"{title} {axis} cannot be {shown(value)}; the runs have {values}.")


def _check_axis(study: StudyFile, title: str, axis: str, known: Mapping[str, list[Any]]) -> None:
    if axis not in known:
        raise study.error(f"{title}: {unknown('axis', axis, known)}")


def check_table(study: StudyFile, table: Table, runs: Sequence[Mapping[str, Any]]) -> None:
    """Check that the axes and values of a table or figure exist, and that an entry's runs differ only in ``over``.

    Raises:
        InputError: they do not; the message names the table.
    """
    title, known = f"[[{table.part}]] {table.number}", axes_of(runs)
    named = ("rows", "columns") if table.part == "tables" else ("lines", "panels")
    for part, axes in zip((*named, "over"), (table.rows, table.columns, table.over), strict=True):
        for axis in axes or ():
            _check_axis(study, f"{title} {part}", axis, known)
    check_values(study, f"{title} where", table.where, known)
    rows, columns = axes_of_table(table, known)
    places = {named[0]: rows, named[1]: columns, "over": table.over}
    for one, other in itertools.combinations(places, 2):
        if both := [axis for axis in places[one] if axis in places[other]]:
            raise study.error(f"{title} has {both[0]} in both {one} and {other}.")
    shown = [values for values in runs if matches(values, table.where)]
    if not shown:
        raise study.error(f"{title} matches no run: none has {_said(table.where)}.")
    seen: dict[Any, Mapping[str, Any]] = {}
    for values in shown:
        held = seen.setdefault(tuple(key(values[axis]) for axis in (*rows, *columns, *table.over)), values)
        if held is not values:
            axis = next(axis for axis in values if not same(values[axis], held[axis]))
            raise study.error(
                f"{title} has several runs in one entry, which differ in {axis}; add {axis} to {named[0]} or "
                f"{named[1]}, aggregate them with over, or select one value with where."
            )
    _check_scale(study, table, title, shown)
    for axis in table.baseline:
        if axis not in rows:
            raise study.error(f"{title} baseline {axis} must be an axis of the rows: {', '.join(rows)}.")
    check_values(study, f"{title} baseline", table.baseline, axes_of(shown))
    if table.baseline and all(matches(values, table.baseline) for values in shown):
        raise study.error(f"{title} baseline has every row, so none is left to be compared with it.")


def _check_primary(study: StudyFile) -> None:
    """Check that a table shows the primary metric."""
    if (wanted := study.primary) is None:
        return
    if wanted.statistic not in ALONE:
        raise study.error(f"[primary]: {unknown('statistic of a single run', wanted.statistic, ALONE)}")
    tables = study.tables or (Table(),)
    if not any(table.metric == wanted.metric and wanted.statistic in table.statistics for table in tables):
        raise study.error(
            f"[primary] names the {wanted.statistic} of {wanted.metric}, which no table shows; add a table with this "
            f"metric and statistic."
        )


def _check_scale(study: StudyFile, table: Table, title: str, shown: Sequence[Mapping[str, Any]]) -> None:
    if table.part == "tables" and "improvement" in table.statistics and not table.baseline:
        raise study.error(f"{title} statistic 'improvement' requires a baseline; set baseline.")
    if table.scale == "known":
        if table.metric != "score":
            raise study.error(f"{title} scale 'known' is for the score, not for {table.metric}; set raw or observed.")
        for values in shown:
            if not any(matches(values, level.where) for level in study.scales):
                raise study.error(
                    f"{title} scale 'known' requires [[scales]] for every run, but {labels(values)} has none."
                )
    if "solved" in table.statistics and table.scale != "known":
        raise study.error(f"{title} statistic 'solved' requires the best scores; set scale to known.")
    tasks = {tuple(key(values[axis]) for axis in table.over) for values in shown}
    if table.paired and (not table.baseline or len(tasks) > 1 or not set(table.statistics) <= set(ALONE)):
        raise study.error(f"{title} paired requires a baseline, single tasks, and as statistic {', '.join(ALONE)}.")
    if "optimality_gap" in table.statistics and (table.scale == "raw" or (table.scale is None and len(tasks) < 2)):
        raise study.error(
            f"{title} statistic 'optimality_gap' requires normalised scores; set scale to known or observed."
        )


def axes_of_table(table: Table, known: Mapping[str, list[Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes of a table's rows and columns.

    By default the environment is in columns unless the table aggregates over it, and all others are in rows.
    """
    several = [axis for axis in known if (axis == "algorithm" or len(known[axis]) > 1) and axis not in table.over]
    columns = table.columns
    if columns is None:
        columns = () if "environment" in table.over else ("environment",)
    if table.columns is None and table.rows is not None and "environment" in table.rows:
        columns = tuple(axis for axis in several if axis not in table.rows)
    fixed = [axis for axis, wanted in table.where.items() if not isinstance(wanted, tuple)]
    left = [axis for axis in several if axis not in columns and axis not in fixed]
    return table.rows if table.rows is not None else tuple(left) or ("algorithm",), columns


def _check_named(study: StudyFile, title: str, where: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> None:
    """Check that ``where`` has existing values and matches at least one run."""
    if not where:
        raise study.error(f"{title} selects no run; set the values of one or several axes.")
    check_values(study, title, where, axes_of(runs))
    if not any(matches(values, where) for values in runs):
        raise study.error(f"{title} matches no run: none has {_said(where)}.")


def _as_listed(wanted: Any, known: Sequence[Any]) -> Any:
    """A value, or several, of the command line as an axis has it: a number may be the text of a name, and a text TOML's
    for a value, such as ``[64, 64]``, or what messages show for it, such as ``64 64``."""
    if any(same(wanted, value) for value in known):
        return wanted
    if isinstance(wanted, tuple):
        return tuple(_as_listed(value, known) for value in wanted)
    read = _read(wanted) if isinstance(wanted, str) else wanted
    return next((value for value in known if same(value, read) or label(value) in (label(wanted), label(read))), wanted)


def _read(text: str) -> Any:
    """A TOML value; the text if it is none."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # not TOML, or a number of thousands of digits
        return text
    return tuple(value) if isinstance(value, list) else value


def as_listed(only: Mapping[str, Any], known: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Values of axes of the command line as the axes have them, if they do.

    Args:
        only: by axis a value, or a tuple of several.
        known: the values of each axis.
    """
    return {axis: _as_listed(wanted, known.get(axis, ())) for axis, wanted in only.items()}


def selected(study: StudyFile, runs: Sequence[Mapping[str, Any]], only: Mapping[str, Any]) -> list[int]:
    """Indices of the runs that have the values of ``only``.

    Raises:
        InputError: an axis or a value does not exist, or no run has all of them.
    """
    known = axes_of(runs)
    only = as_listed(only, known)
    check_values(study, "--only", only, known)
    chosen = [i for i, values in enumerate(runs) if matches(values, only)]
    if not chosen:
        raise InputError(f"{study.path}: --only matches no run: none has {_said(only)}.")
    return chosen
