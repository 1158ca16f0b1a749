"""Tuned settings per algorithm and environment family, each with its source.

A preset is a flat dict of flags, which the user's flags override. The first matching pattern is used. A module of the
user's own has its presets in ``PRESETS``, a dict from patterns to flags.
"""

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from shoal import algorithms
from shoal.errors import InputError, shortened
from shoal.presets.adapters import ADAPTERS
from shoal.presets.off_policy import OFF_POLICY
from shoal.presets.on_policy import ON_POLICY, Flags
from shoal.presets.skirmish import SKIRMISH

_NATIVE = ON_POLICY | OFF_POLICY

PRESETS: dict[str, list[tuple[str, Flags]]] = {
    name: SKIRMISH.get(name, []) + ADAPTERS.get(name, []) + _NATIVE.get(name, []) for name in (*_NATIVE, *SKIRMISH)
}

SIZES = ("steps", "num_envs", "rollout_length", "eval_episodes")
"""Flags of a preset that belong to the run rather than to the algorithm."""


def preset(algorithm: str, environment: str) -> Flags:
    """The preset's flags, or an empty dict.

    With several sides, each has its own algorithm's preset, and the first determines the sizes of the run. A module of
    the user's own is imported.

    Raises:
        InputError: the ``PRESETS`` of a module of the user's own are not a dict from texts to dicts of flags.
    """
    if "+" in algorithm:
        sides = [preset(name, environment) for name in algorithm.split("+")]
        size = {name: value for name, value in sides[0].items() if name in SIZES}
        own = [{f"side{i}_{k}": v for k, v in side.items() if k not in SIZES} for i, side in enumerate(sides, 1)]
        return size | {name: value for side in own for name, value in side.items()}
    own = algorithms.own(algorithm)
    for pattern, flags in own_presets(algorithm) if own else PRESETS.get(algorithm, []):
        if fnmatch(environment, pattern):
            return dict(flags)
    return {}


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
