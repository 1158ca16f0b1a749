"""Names of a study's runs: a readable text and a digest of the configuration, for folders and records."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.configs import flags_of
from shoal.presets.sizes import sizes_for
from shoal.records.files import to_json
from shoal.studies.entries import label
from shoal.training.settings import Settings

SIZES = tuple(sizes_for(1))
"""Settings that without a flag or a preset depend on the length of an episode."""
_LONGEST = 80
_FIRST = ("algorithm", "environment")


def readable(values: Mapping[str, Any]) -> str:
    """The values of a run's axes as a file name."""
    others = [f"{axis.removeprefix('env.')}-{label(x)}" for axis, x in values.items() if axis not in _FIRST]
    text = "-".join([*(values[axis] for axis in _FIRST), *others])
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:_LONGEST].strip("-.")


def digest(
    algorithm: str,
    environment: str,
    env: Mapping[str, Any],
    settings: Settings,
    config: Any,
    known: Mapping[str, Any],
    sized: Collection[str],
) -> str:
    """A digest of everything that determines the training.

    Values that equal their defaults are left out, so that a version with another option has the same digests.

    Args:
        algorithm: its name.
        environment: its name.
        env: options of the environment.
        settings: the run's settings.
        config: the algorithm's ``Config``.
        known: the environment's options as parameters, which have defaults.
        sized: those of :data:`SIZES` that depend on the length of an episode. The others always count.
    """
    parts: dict[str, Any] = {"algorithm": algorithms.canonical(algorithm), "environment": environment}
    parts["env"] = {name: x for name, x in env.items() if name not in known or known[name].default != x}
    for part, now in (("settings", settings), ("config", config)):
        defaults = flags_of(type(now)())
        parts[part] = {flag: value for flag, value in flags_of(now).items() if value != defaults[flag]}
    parts["settings"].pop("eval_episodes", None)
    parts["settings"] |= {size: getattr(settings, size) for size in SIZES if size not in sized}
    text = json.dumps(to_json(parts), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def beside(path: Path) -> Path:
    """``path``, or a folder or file beside it with the same digest: the readable part may have changed."""
    if path.exists():
        return path
    pattern = f"*-{path.name.rpartition('-')[2]}"
    return next(iter(sorted(path.parent.glob(pattern))), path)
