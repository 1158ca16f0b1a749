"""Names of a study's runs: a readable text and a digest of the configuration, for folders and records."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.config.merge import SIZES, Merged
from shoal.options.flags import flags_of
from shoal.studies.entries import label
from shoal.system.files import to_json

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
    values: Merged,
    known: Mapping[str, Any],
) -> str:
    """A digest of everything that determines the training.

    Values that equal their defaults are left out, so that a version with another option has the same digests.

    Args:
        algorithm: its name.
        environment: its name.
        env: options of the environment.
        values: settings and hyper-parameters. The sizes that do not depend on the length of an episode always count.
        known: the environment's options as parameters, which have defaults.
    """
    parts: dict[str, Any] = {"algorithm": algorithms.canonical(algorithm), "environment": environment}
    parts["env"] = {name: x for name, x in env.items() if name not in known or known[name].default != x}
    for part, now in (("settings", values.settings), ("config", values.config)):
        defaults = flags_of(type(now)())
        parts[part] = {flag: value for flag, value in flags_of(now).items() if value != defaults[flag]}
    parts["settings"].pop("eval_episodes", None)
    parts["settings"] |= {size: getattr(values.settings, size) for size in SIZES if size not in values.sized}
    text = json.dumps(to_json(parts), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def existing(path: Path) -> Path:
    """``path``, or a folder or file next to it with the same digest: the readable part may have changed."""
    if path.exists():
        return path
    pattern = f"*-{path.name.rpartition('-')[2]}"
    return next(iter(sorted(path.parent.glob(pattern))), path)
