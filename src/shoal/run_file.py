"""What ``run.json`` says of a run, read without building or importing its environment."""

from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.configs import override
from shoal.errors import InputError
from shoal.records import manifest
from shoal.training.settings import Settings


def read_configuration(folder: Path) -> tuple[dict[str, Any], Settings, Any]:
    """What ``run.json`` says of a run: all of it, the settings, and the algorithm's ``Config``.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` lacks something.
    """
    said = manifest.read(folder)["config"]
    missing = [key for key in ("algorithm", "environment", "env", "settings", "config", "spec") if key not in said]
    if missing:
        raise InputError(f"{folder / 'run.json'} does not describe a run: it lacks {', '.join(missing)}.")
    config = override(algorithms.get(said["algorithm"]).Config(), said["config"])
    return said, override(Settings(), said["settings"]), config
