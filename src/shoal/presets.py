"""Tuned settings per algorithm and environment family, each with its source.

A preset is a flat dict of flags; what the user gives wins over it. The first pattern that matches is taken.
"""

from fnmatch import fnmatch
from typing import Any

Flags = dict[str, Any]

_PPO_SPREAD: Flags = {
    "gamma": 0.9,
    "learning_rate": 2e-3,
    "lr_final": 0.0,
    "epochs": 4,
    "minibatches": 4,
    "entropy_coef": 0.01,
    "num_envs": 16,
    "rollout_length": 128,
}

PRESETS: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [("mpe/simple_spread", _PPO_SPREAD)],
    "ippo": [("mpe/simple_spread", _PPO_SPREAD)],
}


def preset(algorithm: str, environment: str) -> Flags:
    """The flags to start from, or an empty dict."""
    for pattern, flags in PRESETS.get(algorithm, []):
        if fnmatch(environment, pattern):
            return dict(flags)
    return {}
