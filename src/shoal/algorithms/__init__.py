"""One file per paper; :func:`get` finds an algorithm by name without importing the others."""

import importlib
from typing import Any

from shoal.errors import unknown

NAMES = (
    "coma",
    "happo",
    "hatrpo",
    "ia2c",
    "iddpg",
    "ippo",
    "iql",
    "lica",
    "maa2c",
    "maddpg",
    "mapg",
    "mappo",
    "mat",
    "mat_dec",
    "matd3",
    "qmix",
    "qplex",
    "qtran",
    "seps",
    "vdn",
)

ONE_REWARD = ("coma", "lica", "mapg", "mat", "qmix", "qplex", "qtran", "vdn")
"""Those that by default learn from the mean over the team where agents earn different rewards."""


def get(name: str) -> Any:
    """The algorithm's module, which has a ``Config`` and a ``make(spec, config, scale)``.

    Names joined by ``+`` train one side of the environment each (:mod:`shoal.algorithms.sides`).

    Raises:
        InputError: there is no such algorithm; the message names the nearest.
    """
    if "+" in name:
        return importlib.import_module("shoal.algorithms.sides").join(tuple(name.split("+")))
    if name not in NAMES:
        raise unknown("algorithm", name, NAMES)
    return importlib.import_module(f"shoal.algorithms.{name}")
