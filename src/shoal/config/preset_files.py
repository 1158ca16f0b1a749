"""Preset files: tuned flags of one algorithm as TOML, with their source, for ``shoal train --preset FILE``.

    algorithm = "qmix"
    environments = ["mpe/simple_reference"]
    source = "shoal tune: the best of 27 trials …"

    [flags]
    learning_rate = 0.001

They are configuration files (:mod:`shoal.config.config_files`) without an environment. Reading one executes nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.config import config_files
from shoal.config.config_files import to_toml
from shoal.errors import InputError, shortened
from shoal.system.files import make_folder, write_text


def read(path: Path | str, algorithm: str) -> dict[str, Any]:
    """The flags of a preset file for ``algorithm``.

    Raises:
        InputError: there is no such file, it is damaged, or it is of another algorithm.
    """
    found = config_files.read(path)
    if found.run is not None or found.environment is not None or found.env:
        raise InputError(f"{found.name} is a configuration file, not a preset; pass it with --config (config=…).")
    if not found.flags:
        raise InputError(f"{path} needs a table [flags], for example with gamma = 0.99.")
    if found.algorithm != algorithms.canonical(algorithm):
        raise InputError(f"{path} is a preset of {shortened(found.algorithm)}, not of {algorithm}.")
    return dict(found.flags)


def write(path: Path, algorithm: str, environments: Sequence[str], flags: Mapping[str, Any], source: str) -> None:
    """Write a preset file atomically; its folder is created if needed.

    Raises:
        WriteError: it cannot be written.
    """
    head = {"algorithm": algorithms.canonical(algorithm), "environments": list(environments), "source": source}
    lines = [f"{key} = {to_toml(value)}" for key, value in head.items()]
    lines += ["", "[flags]", *(f"{flag} = {to_toml(value)}" for flag, value in flags.items())]
    make_folder(path.parent)
    write_text(path, "\n".join(lines) + "\n")
