"""``EnvSpec.novel`` of SMAC, SMACv2 and SMAClite, and the unit types of agents.

An observation of all three is: the possible moves; four features of each enemy that depend on the observer (whether it
can be attacked, distance, two offsets), then its health, shield and type; the same of each ally, whose first feature is
whether it is visible; the agent's own health, shield, position and type. The state has health, shield, position and
type of every unit, and with SMAC's defaults all last actions. MAPPO's agent-specific state adds the same features
(Yu et al. 2022, section on the value function's input).
"""

from typing import Any

_SMAC = {"smac.env.starcraft2.starcraft2", "smacv2.env.starcraft2.starcraft2"}
_LITE = {"smaclite.env.smaclite"}
_RELATIVE = 4
"""Number of features at the start of another unit's that depend on the observer."""
_DEFAULTS = {
    "obs_timestep_number": False,
    "obs_starcraft": True,
    "conic_fov": False,
    "mask_enemies": False,
    "stochastic_attack": False,
    "stochastic_health": False,
    "prob_obs_enemy": 1.0,
}
"""Options that change observations; other values than these are not supported."""

_ARMIES = {
    "1c3s5z": (1, 3, 5),
    "2s3z": (2, 3),
    "3s5z": (3, 5),
    "3s5z_vs_3s6z": (3, 5),
    "MMM": (2, 7, 1),
    "MMM2": (2, 7, 1),
    "bane_vs_bane": (4, 20),
}
"""SMAC's maps with several ally types: the number of units of each type, in the order of the agents (colossi, stalkers,
zealots; marauders, marines, medivacs; banelings, zerglings)."""


def novel(core: Any, width: int) -> tuple[int, ...] | None:
    """The observation features that the state does not contain; None for other packages or unsupported options.

    Args:
        core: an object with SMAC's interface.
        width: width of an observation.
    """
    inner = _inner(core)
    if _is(inner, _LITE):
        moves, enemies, allies = 4, (inner.n_enemies, inner.enemy_feat_size), (inner.n_agents - 1, inner.ally_feat_size)
        own, acted = 1 + inner.map_info.ally_has_shields + inner.map_info.num_unit_types, 0
    elif _is(inner, _SMAC) and all(getattr(inner, name, value) == value for name, value in _DEFAULTS.items()):
        if inner.obs_instead_of_state:
            return ()
        moves, own = inner.get_obs_move_feats_size(), inner.get_obs_own_feats_size()
        enemies, allies = inner.get_obs_enemy_feats_size(), inner.get_obs_ally_feats_size()
        acted = inner.n_actions if inner.obs_last_action and not inner.state_last_action else 0
    else:
        return None
    found, at = list(range(moves)), moves
    for (count, size), last in ((enemies, 0), (allies, acted)):
        for _ in range(count):
            found += [*range(at, at + _RELATIVE), *range(at + size - last, at + size)]
            at += size
    return tuple(found) if at + own == width else None


def roles(core: Any, agents: int) -> tuple[int, ...]:
    """The role of each agent: its unit type if that is the same in every episode; otherwise 0 for all."""
    inner = _inner(core)
    names: list[Any] = []
    if _is(inner, _LITE):
        groups = [group.units for group in inner.map_info.groups if group.faction.name == "ALLY"]
        names = [unit for units in groups for unit, count in units for _ in range(count)]
    elif _is(inner, _SMAC) and not getattr(inner, "replace_teammates", False):
        names = [kind for kind, count in enumerate(_ARMIES.get(inner.map_name, ())) for _ in range(count)]
    if len(names) != agents:
        return (0,) * agents
    kinds = list(dict.fromkeys(names))
    return tuple(kinds.index(name) for name in names)


def _inner(core: Any) -> Any:
    """The environment inside SMACv2's wrapper for random armies."""
    return core.env if type(core).__module__ == "smacv2.env.starcraft2.wrapper" else core


def _is(made: Any, modules: set[str]) -> bool:
    """Whether an object's class, or a base class, is defined in one of these modules."""
    return any(kind.__module__ in modules for kind in type(made).__mro__)
