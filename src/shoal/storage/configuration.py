"""A run's configuration as stored in ``run.json`` and checkpoints: migration from earlier formats, and comparison."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from shoal.errors import CheckpointError
from shoal.storage.manifest import FORMAT
from shoal.system.files import dumps, to_json

ADDED: dict[int, dict[str, Any]] = {
    2: {
        "by_name": True,
        "settings.workers": "processes",
        "settings.num_workers": None,
        "settings.worker_timeout": 60.0,
        "settings.address": None,
        "settings.normalise_rewards": False,
        "settings.reward_clip": 10.0,
        "settings.time_limit": None,
        "settings.frame_stack": 1,
        "settings.agent_ids": False,
        "settings.reward_scale": 1.0,
        "spec.metrics": [],
        "spec.interface": "",
    },
    3: {
        "settings.eval_every": None,
        "settings.curve_episodes": None,
        "settings.stop_at": None,
        "settings.time_budget": None,
    },
    4: {"settings.last_action": False},
    5: {"settings.action_mask": True},
    6: {
        "spec.parts": None,
        "spec.sides": None,
        "settings.crop": None,
        "settings.greyscale": False,
        "settings.resize": None,
        "settings.init_from": None,
        "settings.schedule_steps": None,
        "settings.opponents": None,
        "settings.side": [],
        "settings.past_window": 8,
        "settings.past_every": None,
        "settings.past_share": 0.5,
    },
    7: {"spec.scored": None},
    8: {"spec.rivals": None, "settings.separate_sides": False},
    9: {"settings.blind": False},
}
"""Default values of keys that files of earlier formats lack, by the format that introduced them.

A key belongs here if and only if the value describes exactly what such a run did. Other missing keys are errors.
"""

ADDED_OPTIONS: dict[int, dict[str, tuple[str, Any]]] = {
    5: {"dead_value": ("recompute_advantages", "team")},
    6: {
        "freeze": ("lr_final", []),
        "network": ("hidden", "mlp"),
        "cell": ("hidden", "gru"),
        "channels": ("hidden", [16, 32, 32]),
        "entity_blocks": ("hidden", 1),
        "entity_heads": ("hidden", 4),
        "critic_network": ("critic_learning_rate", None),
        "critic_hidden": ("critic_learning_rate", None),
    },
    8: {"kl_stop": ("kl_target", None)},
}
"""The same for options of algorithms: (another option of the same ``Config`` that earlier formats have, the value)."""

DROPPED: dict[int, tuple[str, ...]] = {2: ("spec.success",)}
"""Keys without effect in files of earlier formats, by the format that removed them."""


def migrated(config: dict[str, Any], version: int) -> dict[str, Any]:
    """A configuration of format ``version`` in the current format."""
    config = {key: dict(value) if isinstance(value, dict) else value for key, value in config.items()}
    for since, added in ADDED.items():
        for path, value in added.items() if version < since else ():
            part, _, key = path.rpartition(".")
            held = config.get(part) if part else config
            if isinstance(held, dict):
                held.setdefault(key, value)
    options = config.get("config")
    options = options if isinstance(options, dict) else {}
    for since, by_name in ADDED_OPTIONS.items():
        for name, (beside, value) in by_name.items() if version < since else ():
            for side in [match[1] for key in options if (match := re.fullmatch(rf"((?:side\d+_)?){beside}", key))]:
                options.setdefault(side + name, value)
    for since, dropped in DROPPED.items():
        for path in dropped if version < since else ():
            part, _, key = path.rpartition(".")
            if isinstance(held := config.get(part) if part else config, dict):
                held.pop(key, None)
    return config


def identity(config: Mapping[str, Any], but: Collection[str]) -> dict[str, Any]:
    """The configuration that a checkpoint records, as JSON.

    Args:
        config: the entry ``config`` of ``run.json``.
        but: names of settings that may change when the run is resumed.
    """
    # A newer version of an environment may have other metrics, or a more complete description.
    free = [
        "by_name",
        "spec.metrics",
        "spec.novel",
        "spec.interface",
        "spec.scored",
        "spec.rivals",
        *sorted(f"settings.{name}" for name in but),
    ]
    return {"format": FORMAT, "config": to_json(config, "run"), "free": free}


def check_same(recorded: Any, here: Mapping[str, Any], step: int) -> None:
    """Compare a checkpoint's configuration with its run's, both made by :func:`identity`.

    Args:
        recorded: the checkpoint's configuration; None (from an earlier version of Shoal) is not compared.
        here: the run's configuration.
        step: the checkpoint's.

    Raises:
        CheckpointError: they differ; the message names the first key that does.
    """
    if recorded is None:
        return
    config = recorded.get("config") if isinstance(recorded, dict) else None
    if not isinstance(config, dict) or type(recorded.get("format")) is not int:
        raise CheckpointError(f"The checkpoint of step {step} does not contain the run's configuration.")
    before, now = _flat(migrated(config, recorded["format"])), _flat(here["config"])
    undescribed = set() if before.get("spec.parts") else {"spec.parts"}  # widths are compared
    for key in before | now:
        if key in here["free"] or key in undescribed:
            continue
        old, new = (dumps(found[key]) if key in found else "missing" for found in (before, now))
        if old != new:
            raise CheckpointError(
                f"run.json has changed since the checkpoint of step {step} was saved: {key} is {new[:80]} and "
                f"was {old[:80]}."
            )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of nested objects by path, for example ``settings.seeds``."""
    if not isinstance(value, dict):
        return {prefix: value}
    found = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return found
