"""Which runs are one method: runs of one algorithm with one configuration, on one or several environments."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from shoal.errors import InputError
from shoal.studies.compare.sources import Source, printable
from shoal.studies.entries import label
from shoal.system.files import to_json

MAX_NAMED = 3
"""If methods of one algorithm differ in more flags, they are named by their folders."""
Methods = dict[str, dict[str, list[Source]]]
"""``methods[method][environment]``: the runs, whose seeds are put together."""


def methods_of(sources: Sequence[Source]) -> Methods:
    """Group runs by algorithm; where runs in one environment have different flags, by algorithm and these flags.

    If more than :data:`MAX_NAMED` flags differ, a study's records are named by the study's axes, and other runs by
    their folders. So are runs with the same seeds of the same configuration, for example of two versions.

    Raises:
        InputError: as :func:`check_methods`.
    """
    found: Methods = {}
    for algorithm in dict.fromkeys(one.algorithm for one in sources):
        group = [one for one in sources if one.algorithm == algorithm]
        flags = sorted({flag for pair in _pairs(group) for flag in _different(*pair)})
        axes = sorted(
            {axis for a, b in _pairs(group) for axis in a.axes | b.axes if a.axes.get(axis) != b.axes.get(axis)}
        )
        told = all(bool(_different(a, b)) == (a.axes != b.axes) for a, b in _pairs(group))
        again = any(not _different(*pair) and set(pair[0].seeds) & set(pair[1].seeds) for pair in _pairs(group))
        for one in group:
            if not again and len(flags) <= MAX_NAMED:
                differ = [f"{flag} {label(one.flags.get(flag, '–'))[:40]}" for flag in flags]
            elif not again and told:
                differ = [label(one.axes.get(axis, "–"))[:40] for axis in axes]
            else:
                differ = []
            alone = one.name if sum(one.name == other.name for other in sources) == 1 else str(one.path)
            name = printable(", ".join([algorithm, *differ]) if differ or not (flags or again) else alone)
            found.setdefault(name, {}).setdefault(one.environment, []).append(one)
    check_methods(found)
    return found


def named(groups: Mapping[str, Iterable[Source]]) -> Methods:
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
    sampled, greedy = ([one for one in every if one.greedy is kind] for kind in (False, True))
    if sampled and greedy:
        raise InputError(
            f"The final evaluation of {sampled[0].path} is sampled and that of {greedy[0].path} is greedy."
        )


def _pairs(group: Sequence[Source]) -> list[tuple[Source, Source]]:
    """Pairs of runs in the same environment."""
    return [pair for pair in combinations(group, 2) if pair[0].environment == pair[1].environment]


def _different(one: Source, other: Source) -> set[str]:
    """The flags in which two runs differ."""
    return {flag for flag in one.flags.keys() | other.flags.keys() if _text(one, flag) != _text(other, flag)}


def _text(source: Source, flag: str) -> str:
    return json.dumps(to_json(source.flags[flag]), sort_keys=True) if flag in source.flags else ""
