"""A run's configuration as ``run.json`` and checkpoints keep it: migrated from earlier formats, and compared."""

from collections.abc import Collection, Mapping
from typing import Any

from shoal.errors import CheckpointError
from shoal.records.files import dumps, to_json
from shoal.records.manifest import FORMAT

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
    }
}
"""Keys that files of an earlier format may lack, by the format that demands them, with what they meant before.

A key belongs here if, and only if, one value says exactly what such a run did. A file that lacks another is refused.
"""

DROPPED: dict[int, tuple[str, ...]] = {2: ("spec.success",)}
"""Keys that files of an earlier format have, by the format that has them no longer: they change nothing of a run."""


def migrated(said: dict[str, Any], version: int) -> dict[str, Any]:
    """What a file of an earlier format says, as one of today's would say it."""
    said = {key: dict(value) if isinstance(value, dict) else value for key, value in said.items()}
    for since, added in ADDED.items():
        for path, value in added.items() if version < since else ():
            part, _, key = path.rpartition(".")
            held = said.get(part) if part else said
            if isinstance(held, dict):
                held.setdefault(key, value)
    for since, dropped in DROPPED.items():
        for path in dropped if version < since else ():
            part, _, key = path.rpartition(".")
            if isinstance(held := said.get(part) if part else said, dict):
                held.pop(key, None)
    return said


def identity(config: Mapping[str, Any], but: Collection[str]) -> dict[str, Any]:
    """What a checkpoint records of the run that it belongs to, as JSON.

    Args:
        config: what ``run.json`` holds under ``config``.
        but: names of settings that may change when the run is resumed.
    """
    # An environment may come to report other metrics, or to say more of what its state holds and of what it hands over.
    free = ["by_name", "spec.metrics", "spec.novel", "spec.interface", *sorted(f"settings.{name}" for name in but)]
    return {"format": FORMAT, "config": to_json(config, "run"), "free": free}


def check_same(recorded: Any, here: Mapping[str, Any], step: int) -> None:
    """Compare what a checkpoint recorded with what its run says now, both made by :func:`identity`.

    Args:
        recorded: what the checkpoint of ``step`` recorded; None where an earlier Shoal, which recorded none, saved it.
        here: what the run says now.
        step: the checkpoint's.

    Raises:
        CheckpointError: they differ; the first key that does is named.
    """
    if recorded is None:
        return
    config = recorded.get("config") if isinstance(recorded, dict) else None
    if not isinstance(config, dict) or type(recorded.get("format")) is not int:
        raise CheckpointError(f"The checkpoint of step {step} does not say which configuration it belongs to.")
    before, now = _flat(migrated(config, recorded["format"])), _flat(here["config"])
    for key in before | now:
        if key in here["free"]:
            continue
        was, stands = (dumps(found[key]) if key in found else "missing" for found in (before, now))
        if was != stands:
            raise CheckpointError(
                f"run.json is not what it was when the checkpoint of step {step} was saved: {key} is {stands[:80]} and "
                f"was {was[:80]}."
            )


def _flat(said: Any, prefix: str = "") -> dict[str, Any]:
    """Every value of objects within objects, by its path, for example ``settings.seeds``."""
    if not isinstance(said, dict):
        return {prefix: said}
    found = {}
    for key, value in said.items():
        found |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found
