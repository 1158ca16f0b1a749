"""Tuned settings per algorithm and environment family, each with its source.

Other packages call :func:`preset`, :func:`preset_note`, and :func:`sizes_for` for a run without one.

A preset is a flat dict of flags, which the user's flags override. The first matching pattern is used. A module of the
user's own has its presets in ``PRESETS``, a dict from patterns to flags; where none of these matches, it has the preset
of the algorithm whose ``Config`` its own one inherits.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from fnmatch import fnmatch
from typing import Any

from shoal import algorithms
from shoal.errors import InputError, shortened
from shoal.options.flags import flags_of, leaves
from shoal.presets.tuned import ADAPTERS, OFF_POLICY, ON_POLICY, SKIRMISH, Flags

_NATIVE = ON_POLICY | OFF_POLICY

PRESETS: dict[str, list[tuple[str, Flags]]] = {
    name: SKIRMISH.get(name, []) + ADAPTERS.get(name, []) + _NATIVE.get(name, []) for name in (*_NATIVE, *SKIRMISH)
}


def preset(algorithm: str, environment: str) -> Flags:
    """The preset's flags, or an empty dict.

    With several sides, each has its own algorithm's preset, of which the first determines what belongs to the run, such
    as its sizes and wrappers. A module of the user's own is imported.

    Raises:
        InputError: the ``PRESETS`` of a module of the user's own are not a dict from texts to dicts of flags.
    """
    if "+" in algorithm:
        found: Flags = {}
        for i, name in enumerate(algorithm.split("+"), 1):
            flags, own = preset(name, environment), flags_of(algorithms.get(name).Config())
            found |= {key: value for key, value in flags.items() if i == 1 and key not in own}
            found |= {f"side{i}_{key}": value for key, value in flags.items() if key in own}
        return found
    return _found(algorithm, environment)[1]


def preset_note(algorithm: str, environment: str) -> str:
    """What is said of the preset when a run begins: ``preset: mappo``, ``preset: from mappo`` or ``preset: none``.

    ``from`` says that a module of the user's own inherits it. With several sides there is one word for each.

    Raises:
        InputError: as :func:`preset`.
    """
    names = algorithm.split("+")
    sources = [_found(name, environment)[0] for name in names]
    words = [
        "none" if source is None else source if source == name else f"from {source}"
        for name, source in zip(names, sources, strict=True)
    ]
    return f"preset: {' + '.join(words)}"


def _found(algorithm: str, environment: str) -> tuple[str | None, Flags]:
    """The algorithm whose preset for ``environment`` one algorithm has, and its flags; None and an empty dict."""
    tables = {algorithm: PRESETS.get(algorithm, [])}
    if algorithms.own(algorithm):
        tables = {algorithm: own_presets(algorithm)}
        if (inherited := algorithms.inherited(algorithm)) is not None:
            theirs, mine = (algorithms.get(name).Config() for name in (inherited, algorithm))
            own = flags_of(mine)
            changed = {flag for flag, value in flags_of(theirs).items() if own.get(flag) != value}
            changed |= _restated(mine, type(theirs))
            tables[inherited] = [
                (pattern, {flag: x for flag, x in flags.items() if flag not in changed})
                for pattern, flags in PRESETS.get(inherited, [])
            ]
    for name, table in tables.items():
        for pattern, flags in table:
            if fnmatch(environment, pattern):
                return name if flags else None, dict(flags)
    return None, {}


def _restated(config: Any, parent: type) -> set[str]:
    """The fields to which the class of ``config``, or one between it and ``parent``, gives a default, also the same.

    A field that holds a dataclass is none of them: which of its values the class states is not known.
    """
    between = type(config).__mro__[: type(config).__mro__.index(parent)]
    inherited, plain = set(fields(parent)), {leaf.name for leaf in leaves(config) if leaf.kind is type(config)}
    return {
        field.name
        for field in fields(config)
        if field.name in plain
        and field not in inherited
        # An annotation alone is a new field with the old default.
        and (field.default_factory is not MISSING or any(field.name in vars(kind) for kind in between))
    }


def own_presets(algorithm: str) -> list[tuple[str, Flags]]:
    """The presets of a module of the user's own, by patterns of environments.

    Raises:
        InputError: see :func:`preset`.
    """
    found: Any = getattr(algorithms.get(algorithm), "PRESETS", {})
    if not isinstance(found, Mapping):
        raise InputError(f"PRESETS of {algorithm} must be a dict from environments to flags, not {shortened(found)}.")
    for pattern, flags in found.items():
        if not isinstance(pattern, str) or not isinstance(flags, Mapping) or not all(isinstance(x, str) for x in flags):
            raise InputError(
                f"PRESETS of {algorithm} must give each environment, for example 'mpe/simple_spread' or 'mpe/*', a "
                f"dict of flags, not {shortened({pattern: flags})}."
            )
    return list(found.items())


# Sizes without a preset. They depend only on the episode length, so that a command gives the same run on every machine.


STEPS = 5e6
"""Environment steps of a run."""
NUM_ENVS = 8
"""Parallel environments, as in CleanRL's PPO for Atari."""
SHORTEST, LONGEST = 16, 128
"""Smallest and largest rollout length. 16 is the default ``chunk_length`` of recurrent nets; 8 × 128 steps are
CleanRL's update for Atari, and 28,000 steps hold 27 of them."""


def sizes_for(horizon: int) -> Flags:
    """``num_envs`` and ``rollout_length`` for episodes of at most ``horizon`` steps.

    The rollout length is the smallest power of two that holds an episode, within :data:`SHORTEST` and :data:`LONGEST`:
    short episodes give small and frequent updates (25 steps: 8 × 32), long ones span several rollouts.
    """
    length = SHORTEST
    while length < min(horizon, LONGEST):
        length *= 2
    return {"num_envs": NUM_ENVS, "rollout_length": length}
