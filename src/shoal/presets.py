"""Tuned settings per algorithm and environment family, each with its source.

A preset is a flat dict of flags; what the user gives wins over it. The first pattern that matches is taken.
"""

from fnmatch import fnmatch
from typing import Any

Flags = dict[str, Any]

# Tuned for Shoal on two cores (docs/algorithms/mappo.md has the runs). MPE's episodes last 25 steps and pay at once, so
# a short horizon learns several times faster than the paper's γ = 0.99; small batches with a large, annealed step beat
# the paper's 128 × 25 with 10 epochs in steps and in time.
_MPE: Flags = {
    "gamma": 0.95,
    "learning_rate": 2e-3,
    "lr_final": 0.0,
    "epochs": 8,
    "minibatches": 4,
    "num_envs": 16,
    "rollout_length": 128,
    "activation": "relu",  # messages need it; the paper's choice outside spread
}
_SPREAD: Flags = _MPE | {"gamma": 0.9, "epochs": 4, "activation": "tanh", "learning_rate": 3e-3, "steps": 1e7}
_SPEAKER: Flags = _MPE | {"sharing": "independent", "steps": 2e6}  # a speaker and a listener have nothing to share
_REFERENCE: Flags = _MPE | {"steps": 3e6}

_PPO: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _SPREAD),
    ("mpe/simple_speaker_listener", _SPEAKER),
    ("mpe/simple_reference", _REFERENCE),
    # Rivals' returns lie on different scales, and hunters and hunted have nothing to share.
    ("mpe/simple_adversary", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_push", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_crypto", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_tag", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_world_comm", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/*", _MPE),
]

PRESETS: dict[str, list[tuple[str, Flags]]] = {"mappo": _PPO, "ippo": _PPO}


def preset(algorithm: str, environment: str) -> Flags:
    """The flags to start from, or an empty dict."""
    for pattern, flags in PRESETS.get(algorithm, []):
        if fnmatch(environment, pattern):
            return dict(flags)
    return {}
