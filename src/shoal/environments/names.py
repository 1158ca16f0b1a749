"""The names of environments, and where their factories are. Does not import JAX or any environment."""

import difflib

from shoal.errors import InputError, unknown

_MPE = "shoal.environments.mpe"
_MATRIX = "shoal.environments.matrix"

# Factories as text, so that nothing is imported before it is needed.
FACTORIES: dict[str, str] = {
    "grid/pursuit": "shoal.environments.grid.pursuit:pursuit",
    "grid/stag_hunt": "shoal.environments.grid.stag_hunt:stag_hunt",
    "bps/spread": f"{_MPE}.blind_spread:blind_spread",
    **{f"bps/{task}": f"{_MPE}.blind_spread:bps_{task}" for task in ("1", "2", "3", "4", "h1", "h2", "h3")},
    **{
        f"mpe/{scenario}": f"{_MPE}.{scenario.removeprefix('simple_')}:{scenario}"
        for scenario in (
            "simple",
            "simple_adversary",
            "simple_crypto",
            "simple_push",
            "simple_reference",
            "simple_speaker_listener",
            "simple_spread",
            "simple_tag",
            "simple_world_comm",
        )
    },
    **{
        f"matrix/{game}": f"{_MATRIX}:{game}"
        for game in (
            "all_ones",
            "climbing",
            "coordination",
            "loud_agent",
            "monotonicity",
            "penalty",
            "proposition1",
            "traffic_junction",
            "two_state",
            "two_step",
        )
    },
}

_ADAPTERS = "shoal.environments.adapters"

FAMILIES: dict[str, str] = {
    "football/": f"{_ADAPTERS}.football:make",
    "gymnasium:": f"{_ADAPTERS}.gymnasium:make",
    "hanabi/": f"{_ADAPTERS}.hanabi:make",
    "jaxmarl/": f"{_ADAPTERS}.jaxmarl:make",
    "lbf/": f"{_ADAPTERS}.lbf:make",
    "mamujoco/": f"{_ADAPTERS}.mamujoco:make",
    "pettingzoo:": f"{_ADAPTERS}.pettingzoo:make",
    "rware/": f"{_ADAPTERS}.rware:make",
    "skirmish/": "shoal.environments.skirmish.tasks:make",
    "smac/": f"{_ADAPTERS}.smac:make",
}
"""Prefix of a family's names -> the function that builds its environments from the rest of the name and options."""


def names() -> tuple[str, ...]:
    """The names of all built-in device environments, sorted."""
    return tuple(sorted(FACTORIES))


def built_in(name: str) -> bool:
    """Whether a name is one of :func:`names`, or the path of one of their factories."""
    return name in FACTORIES or name in FACTORIES.values()


def check_name(name: str) -> None:
    """Refuse a name that is neither built in, nor of a family, nor ``package.module:factory``.

    Raises:
        InputError: naming the nearest.
    """
    if built_in(name) or ":" in name or name.startswith(tuple(FAMILIES)):
        return
    if difflib.get_close_matches(name, FACTORIES, cutoff=0.5):
        raise unknown("environment", name, FACTORIES)
    raise InputError(
        f"There is no environment {name!r}; 'shoal list environments' lists them all; the name of your own is "
        f"'module:name'."
    )
