"""``smac/…``: battles of small armies, in any package with SMAC's interface.

Does not import JAX.

Samvelyan et al. 2019, "The StarCraft Multi-Agent Challenge"; Ellis et al. 2023, "SMACv2"; Michalski et al. 2023,
"SMAClite: A Lightweight Environment for Multi-Agent Reinforcement Learning", which needs no StarCraft II.

An observation of all three is: the possible moves; four features of each enemy that depend on the observer (whether it
can be attacked, distance, two offsets), then its health, shield and type; the same of each ally, whose first feature is
whether it is visible; the agent's own health, shield, position and type. The state has health, shield, position and
type of every unit, and with SMAC's defaults all last actions. MAPPO's agent-specific state adds the same features
(Yu et al. 2022, section on the value function's input).
"""

import contextlib
import functools
import importlib.util
import inspect
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shoal.environments.adapters.teams import checked_number, flag, metric_of
from shoal.environments.options import check_steps
from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import Discrete, EnvSpec
from shoal.system.extras import install

# SMAC, SMACv2 and SMAClite: installation, task names, and construction.


LIMITS = {
    "10m_vs_11m": 150,
    "1c3s5z": 180,
    "25m": 150,
    "27m_vs_30m": 180,
    "2c_vs_64zg": 400,
    "2m_vs_1z": 150,
    "2s3z": 120,
    "2s_vs_1sc": 300,
    "3m": 60,
    "3s5z": 150,
    "3s5z_vs_3s6z": 170,
    "3s_vs_3z": 150,
    "3s_vs_4z": 200,
    "3s_vs_5z": 250,
    "5m_vs_6m": 70,
    "6h_vs_8z": 150,
    "8m": 120,
    "8m_vs_9m": 120,
    "MMM": 150,
    "MMM2": 180,
    "bane_vs_bane": 200,
    "corridor": 400,
    "so_many_baneling": 100,
}
"""SMAC's time limits in steps, by map (``smac/env/starcraft2/maps/smac_maps.py``)."""

DRAWN = tuple(
    f"{race}_{armies}"
    for race in ("protoss", "terran", "zerg")
    for armies in ("5_vs_5", "10_vs_10", "10_vs_11", "20_vs_20", "20_vs_23")
)
"""SMACv2's published maps; any other numbers of units up to 4 digits are names too."""

INSTALL = {
    "smac": "SMAC (StarCraft II, and pip install git+https://github.com/oxwhirl/smac)",
    "smacv2": "SMACv2 (StarCraft II, and pip install git+https://github.com/oxwhirl/smacv2)",
    "smaclite": f"SMAClite ({install('smac')}, and pip install --no-deps "
    "git+https://github.com/uoe-agents/smaclite, whose own requirements are out of date)",
}
"""Name and installation of each package."""

_DRAWN = re.compile(r"(protoss|terran|zerg)_([1-9]\d{0,3})_vs_([1-9]\d{0,3})", re.ASCII)
# Unit types, their probabilities, and types that cannot form an army alone, from SMACv2's published configurations.
_RACES = {
    "protoss": (("stalker", "zealot", "colossus"), (0.45, 0.45, 0.1), ()),
    "terran": (("marine", "marauder", "medivac"), (0.45, 0.45, 0.1), ("medivac",)),
    "zerg": (("zergling", "baneling", "hydralisk"), (0.45, 0.1, 0.45), ("baneling",)),
}


def choose(task: str, package: str | None) -> str:
    """The package for ``task``: the requested one, or the first that is installed.

    Raises:
        InputError: the package is unknown or not installed.
    """
    if package is not None and package not in INSTALL:
        raise unknown("package", package, INSTALL)
    wanted = [package] if package else ["smacv2"] if _DRAWN.fullmatch(task) else list(INSTALL)
    for candidate in wanted:
        if installed_package(candidate):
            return candidate
    ways = ", or ".join(INSTALL[candidate] for candidate in reversed(wanted))
    other = _folder("smac") is not None and not installed_package("smac")
    device = f" skirmish/{task} is the same map on Shoal's own engine." if task in LIMITS else ""
    note = " (The installed smac is a hyper-parameter optimiser of the same name.)" if other else ""
    raise InputError(f"smac/{task} needs {ways}.{note}{device}")


def installed_package(package: str) -> bool:
    """Whether a package is installed; a hyper-parameter optimiser is also called ``smac``."""
    folder = _folder(package)
    return folder is not None and (package == "smaclite" or (folder / "env" / "starcraft2").is_dir())


def _folder(package: str) -> Path | None:
    """The folder of a package, found without importing it."""
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))) if places else None


def _smac(task: str, time_limit: int | None) -> Any:
    from smac.env import StarCraft2Env  # pyright: ignore[reportMissingImports]
    from smac.env.starcraft2.maps import get_map_params  # pyright: ignore[reportMissingImports]

    _check_map("SMAC", task, get_map_params)
    _check_starcraft(task)
    return _limited(StarCraft2Env(map_name=task), time_limit)


def _smacv2(task: str, time_limit: int | None) -> Any:
    from smacv2.env import StarCraft2Env  # pyright: ignore[reportMissingImports]
    from smacv2.env.starcraft2.maps import get_map_params  # pyright: ignore[reportMissingImports]

    drawn = _DRAWN.fullmatch(task)
    if drawn is None:
        _check_map("SMACv2", task, get_map_params)
        _check_starcraft(task)
        return _limited(StarCraft2Env(map_name=task), time_limit)
    from smacv2.env import StarCraftCapabilityEnvWrapper  # pyright: ignore[reportMissingImports]

    _check_starcraft(task)
    race, allies, enemies = drawn[1], int(drawn[2]), int(drawn[3])
    units, weights, never_alone = _RACES[race]
    made = StarCraftCapabilityEnvWrapper(
        map_name=f"10gen_{race}",
        capability_config={
            "n_units": allies,
            "n_enemies": enemies,
            "team_gen": {
                "dist_type": "weighted_teams",
                "unit_types": list(units),
                "weights": list(weights),
                "exception_unit_types": list(never_alone),
                "observe": True,
            },
            "start_positions": {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32},
        },
        conic_fov=False,
        use_unit_ranges=True,
        min_attack_range=2,
        obs_own_pos=True,
    )
    _limited(made.env, time_limit)
    return made


def _smaclite(task: str, time_limit: int | None) -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        from smaclite.env import SMACliteEnv  # pyright: ignore[reportMissingImports]
        from smaclite.env.maps.map import MapPreset  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise InputError(f"smac/{task}: {error.name} is missing for {INSTALL['smaclite']}.") from error
    maps = {preset.value.name: preset.value for preset in MapPreset}
    if task not in maps:
        raise unknown("SMAClite map", task, maps)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints which collision library it uses
        return SMACliteEnv(map_info=maps[task], render_mode="rgb_array")


BUILDERS: dict[str, Callable[[str, int | None], Any]] = {"smac": _smac, "smacv2": _smacv2, "smaclite": _smaclite}
"""Package -> function: (task, time limit) -> an object with SMAC's interface."""


def seed_launch(made: Any, seed: int) -> None:
    """Set StarCraft II's seed unless it has one; possible only before the first reset, which starts it."""
    core = getattr(made, "env", made)  # SMACv2 has a wrapper for random armies
    if getattr(core, "_seed", seed) is None:
        core._seed = seed


def _limited(made: Any, time_limit: int | None) -> Any:
    if time_limit is not None:
        made.episode_limit = time_limit
    return made


def _check_map(package: str, task: str, params: Callable[[str], Any]) -> None:
    try:
        params(task)
    except KeyError as error:
        raise unknown(f"{package} map", task, LIMITS) from error


def _check_starcraft(task: str) -> None:
    from pysc2 import run_configs  # pyright: ignore[reportMissingImports]

    try:
        run_configs.get()
    except OSError as error:
        raise InputError(f"smac/{task} needs StarCraft II; set SC2PATH to where it is ({error}).") from error


# ``EnvSpec.novel`` of SMAC, SMACv2 and SMAClite, and the unit types of agents.


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


# Metrics of a battle from objects with SMAC's interface.


def names(core: Any) -> tuple[str, ...]:
    """The names of the metrics; SMAC and SMACv2 count dead enemies in ``info``, SMAClite lists living ones."""
    counted = hasattr(core, "death_tracker_enemy") or isinstance(getattr(core, "enemies", None), dict | list)
    return ("won", "dead_allies", "dead_enemies") if counted else ("won", "dead_allies")


def write_smac_metrics(metrics: Sequence[str], core: Any, info: Mapping[str, Any], out: HostTimestep) -> None:
    """Write the metrics after a step; ``out.alive`` must be written before.

    Without ``battle_won`` in ``info``, as after a crash of StarCraft II, the battle's metrics are unknown.
    """
    if "battle_won" in info:
        known = {
            "won": metric_of(info, "battle_won"),
            "dead_allies": float(np.sum(~out.alive)),
            "dead_enemies": _dead_enemies(core, info),
        }
    else:
        known = {}
    for i, name in enumerate(metrics):
        out.metrics[i] = known[name] if name in known else metric_of(info, name)


def _dead_enemies(core: Any, info: Mapping[str, Any]) -> float:
    living = getattr(core, "enemies", None)
    if "dead_enemies" in info or not isinstance(living, dict | list):
        return metric_of(info, "dead_enemies")
    return float(core.n_enemies - len(living)) if hasattr(core, "n_enemies") else math.nan


# Environments with SMAC's interface.


def make(
    task: str,
    *,
    package: Literal["smac", "smacv2", "smaclite"] | None = None,
    time_limit: int | None = None,
) -> HostEnvironment:
    """A battle of the team's units against the computer's.

    Tasks are SMAC's maps, for example ``smac/2s3z`` or ``smac/corridor`` (SMAClite has twelve of them), and SMACv2's
    armies drawn at random for every episode, for example ``smac/terran_5_vs_5`` or ``smac/protoss_10_vs_11``.

    Actions are no-op (legal for dead agents only), stop, four moves, and attacking or healing each unit. All agents
    receive the team's reward, whose sum in a quickly won episode is about 20. Victory and defeat are terminations, the
    time limit is not. The state is the package's. Dead agents observe zeros and have the no-op as their only legal
    action, while the team's reward goes on. The metrics of an episode are ``won`` (the package's ``battle_won``),
    ``dead_allies`` and ``dead_enemies``; they are unknown if StarCraft II crashed.

    In SMAClite an episode depends only on its seed. StarCraft II takes a seed only at its start, for the first episode;
    SMACv2 draws its armies without a seed.

    Args:
        task: the name without ``smac/``.
        package: ``smac``, ``smacv2`` or ``smaclite``; None: the first of them that is installed (for random armies
            SMACv2). Their scores are not comparable, so name the package in published results.
        time_limit: steps after which an episode is truncated; None: SMAC's limit of the map, also with SMAClite, which
            has none of its own.

    Raises:
        InputError: the map or package is unknown, an option is invalid, or the package (or StarCraft II) is missing.
    """
    if time_limit is not None:
        check_steps("time_limit", time_limit)
    maker = functools.partial(_build, task, choose(task, package), time_limit)
    built = maker()
    built.close()
    return HostEnvironment(built.spec, maker)


def _build(task: str, package: str, time_limit: int | None, render: bool = False) -> "Battle":
    """``render`` is ignored: pictures are drawn on demand."""
    return Battle(BUILDERS[package](task, time_limit), f"smac/{task}", time_limit)


def understands(made: Any) -> bool:
    """Whether an object has SMAC's interface, also inside Gymnasium's wrappers."""
    core = getattr(made, "unwrapped", made)
    return all(hasattr(core, word) for word in ("get_avail_actions", "get_state", "get_obs"))


def has_casualties(made: Any) -> bool:
    """Whether agents die, told by SMAC's ``death_tracker_ally``, or by SMACv2's and SMAClite's classes; also inside
    wrappers that have the object as ``env``."""
    while made is not None and not (hasattr(made, "death_tracker_ally") or _is(made, _SMAC | _LITE)):
        made = getattr(made, "env", None)
    return made is not None


def wrap(made: Any, name: str, metrics: Sequence[str] = ()) -> "Battle":
    """Wrap an object with SMAC's interface; ``metrics`` are keys of its ``info`` that are reported as well.

    Raises:
        InputError: its time limit is unknown, or a part of the interface is missing.
    """
    return Battle(made, name, metrics=metrics)


class Battle:
    """An object with SMAC's interface as a game.

    ``step`` may return SMAC's (reward, terminated, info) or Gymnasium's five values. In battles
    (:func:`has_casualties`) an agent is dead if the no-op, action 0, is its only legal action; in other objects, where
    action 0 may be any action, all agents are alive. SMAC reports time limits as ``terminated``, and in ``info`` only
    optionally; they are detected by its counter of time-outs. Its counter of restarts identifies episodes lost by a
    crash of StarCraft II, which are truncated as well. For an object with neither, an end at the limit is a termination
    if all allies are dead or ``info`` reports a victory.
    """

    def __init__(self, made: Any, name: str, time_limit: int | None = None, metrics: Sequence[str] = ()) -> None:
        """``time_limit``: steps; None: the object's ``episode_limit``, or SMAC's limit of its map. ``metrics``: keys of
        its ``info`` beside the metrics of every battle."""
        self._env = made
        self._core = core = getattr(made, "unwrapped", made)
        try:
            info = core.get_env_info() if hasattr(core, "get_env_info") else _attributes(core)
            n, actions = int(info["n_agents"]), int(info["n_actions"])
            width, state = (int(np.prod(info[key])) for key in ("obs_shape", "state_shape"))
        except (AttributeError, KeyError) as error:
            raise InputError(f"{name} has SMAC's get_avail_actions, but something is missing: {error}.") from error
        limit = time_limit or info.get("episode_limit") or LIMITS.get(_map_of(core))
        if not limit:
            raise InputError(f"{name} has no time limit; give the object an attribute episode_limit, in steps.")
        self.spec = EnvSpec(
            name=name,
            agents=tuple(f"ally_{i}" for i in range(n)),
            obs_dims=(width,) * n,
            state_dim=state,
            action=Discrete(actions),
            action_dims=(actions,) * n,
            roles=roles(core, n),
            horizon=int(limit),
            shared_reward=True,
            score="mean",
            metrics=tuple(dict.fromkeys((*names(core), *metrics))),
            novel=novel(core, width) if made is core else None,  # a wrapper may change observations
        )
        self._seeded_reset = "seed" in inspect.signature(made.reset).parameters
        self._seed = getattr(core, "seed", None)
        self._seedable = callable(self._seed) and bool(inspect.signature(self._seed).parameters)
        self._drawn_as, self._casualties = _drawing(core), has_casualties(core)
        self._steps = 0
        self._cuts: int | None = None

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        if self._seeded_reset:
            result = self._env.reset(seed=seed)
        else:
            if self._seedable:
                self._core.seed(seed)
            else:
                seed_launch(self._env, seed)
            result = self._env.reset()
        self._steps = 0
        self._cuts = self._interruptions()
        self._write_observations(self._core.get_obs() if self._env is self._core else result[0], out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N]."""
        result = self._env.step(action.tolist())  # SMAClite accepts only Python integers
        self._steps += 1
        if len(result) == 3:
            reward, over, info = result
            self._write_observations(self._core.get_obs(), out)
            cut = over and self._was_cut(info, out.alive)
            over = over and not cut
        elif len(result) == 5:
            obs, reward, over, cut, info = result
            self._write_observations(obs, out)
        else:
            raise InputError(f"{self.spec.name}: step gives {len(result)} values, but SMAC returns 3 and Gymnasium 5.")
        out.reward[...] = checked_number(reward, "the reward")
        write_smac_metrics(self.spec.metrics, self._core, info, out)
        if flag(over, "terminated"):
            out.last[...] = True
            out.discount[...] = 0.0
        elif flag(cut, "truncated") or self._steps >= self.spec.horizon:
            out.last[...] = True

    def _write_observations(self, obs: Any, out: HostTimestep) -> None:
        out.obs[...] = obs
        out.state[...] = self._core.get_state()
        out.legal[...] = self._core.get_avail_actions()
        if self._casualties:
            np.any(out.legal[:, 1:], axis=1, out=out.alive)
            out.obs[~out.alive] = 0.0
        else:
            out.legal[~out.legal.any(1), 0] = True  # as a no-op

    def _was_cut(self, info: dict[str, Any], alive: np.ndarray) -> bool:
        """Whether the reported end is a truncation."""
        if "episode_limit" in info:
            return flag(info["episode_limit"], "episode_limit")
        if self._cuts is not None:
            return self._interruptions() != self._cuts
        return self._steps >= self.spec.horizon and not info.get("battle_won", False) and bool(alive.any())

    def _interruptions(self) -> int | None:
        """Number of time-outs and crashes so far; None if the object does not count them."""
        timeouts = getattr(self._core, "timeouts", None)
        return None if timeouts is None else timeouts + getattr(self._core, "force_restarts", 0)

    def render(self) -> np.ndarray | None:
        """A picture; None if the object cannot draw without a window."""
        picture = None if self._drawn_as is None else self._core.render(**self._drawn_as)
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        """Stop the game's process."""
        self._env.close()


def _attributes(core: Any) -> dict[str, Any]:
    """The values of SMAC's ``get_env_info`` from the attributes of an object such as SMAClite's."""
    info = {"n_agents": core.n_agents, "n_actions": core.n_actions}
    info |= {"obs_shape": core.obs_size, "state_shape": core.state_size}
    return info | {"episode_limit": getattr(core, "episode_limit", None)}


def _drawing(core: Any) -> dict[str, str] | None:
    """The arguments of ``render`` for a picture; None if it would open a window."""
    if not hasattr(core, "render"):
        return None
    if "mode" in inspect.signature(core.render).parameters:
        return {"mode": "rgb_array"}
    return {} if getattr(core, "render_mode", None) == "rgb_array" else None


def _map_of(core: Any) -> str:
    return getattr(core, "map_name", None) or getattr(getattr(core, "map_info", None), "name", "")
