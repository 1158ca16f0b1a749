"""A run's configuration as stored in ``run.json`` and checkpoints, and their comparison."""

from collections.abc import Collection, Mapping
from typing import Any

from shoal.errors import CheckpointError
from shoal.storage.manifest import RUN_FORMAT
from shoal.system.files import dumps, to_json


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
    return {"format": RUN_FORMAT, "config": to_json(config, "run"), "free": free}


def check_same(recorded: Any, here: Mapping[str, Any], step: int) -> None:
    """Compare a checkpoint's configuration with its run's, both made by :func:`identity`.

    Args:
        recorded: the checkpoint's configuration.
        here: the run's configuration.
        step: the checkpoint's.

    Raises:
        CheckpointError: they differ; the message names the first key that does.
    """
    config = recorded.get("config") if isinstance(recorded, dict) else None
    if not isinstance(config, dict) or recorded.get("format") != RUN_FORMAT:
        raise CheckpointError(f"The checkpoint of step {step} does not contain the run's configuration.")
    before, now = _flat(config), _flat(here["config"])
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
