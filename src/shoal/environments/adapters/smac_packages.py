"""SMAC, SMACv2 and SMAClite: installation, task names, and construction."""

import contextlib
import importlib.util
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.errors import InputError, unknown
from shoal.extras import install

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

INSTALL = {
    "smac": "SMAC (StarCraft II, and pip install git+https://github.com/oxwhirl/smac)",
    "smacv2": "SMACv2 (StarCraft II, and pip install git+https://github.com/oxwhirl/smacv2)",
    "smaclite": f"SMAClite ({install('smac')}, and pip install --no-deps "
    "git+https://github.com/uoe-agents/smaclite, whose own requirements are out of date)",
}
"""Name and installation of each package."""

_DRAWN = re.compile(r"(protoss|terran|zerg)_([1-9]\d{0,3})_vs_([1-9]\d{0,3})", re.ASCII)
# Unit types, their probabilities, and types that cannot form an army alone, from SMACv2's published configurations.
_ARMIES = {
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
        if installed(candidate):
            return candidate
    ways = ", or ".join(INSTALL[candidate] for candidate in reversed(wanted))
    other = _folder("smac") is not None and not installed("smac")
    device = f" skirmish/{task} is the same map on Shoal's own engine." if task in LIMITS else ""
    note = " (The installed smac is a hyper-parameter optimiser of the same name.)" if other else ""
    raise InputError(f"smac/{task} needs {ways}.{note}{device}")


def installed(package: str) -> bool:
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
    units, weights, never_alone = _ARMIES[race]
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
