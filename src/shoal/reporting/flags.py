"""The configuration of a run as tables, and the command that trains it again."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from shoal import algorithms
from shoal.config.merge import merged
from shoal.environments.names import commands_with, path_words
from shoal.options.flags import flags_of
from shoal.presets.sizes import sizes_for
from shoal.reporting.facts import Facts
from shoal.runs.run import Run
from shoal.training.settings import Settings
from shoal.trust import permission

_LOCAL = ("devices", "workers", "num_workers", "worker_timeout", "address")
"""Settings that depend on the machine of the run."""


def value_text(value: Any) -> str:
    """The value of a flag, for example ``64 64``."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, tuple | list) and all(isinstance(x, bool | int | float | str) for x in value):
        return " ".join(map(value_text, value)) or "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:199]}…"


def all_flags(run: Run) -> dict[str, Any]:
    """All settings and hyper-parameters of a run."""
    return flags_of(run.settings) | flags_of(run.config)


def plain_flags(run: Run) -> dict[str, Any]:
    """The defaults of the code, with the sizes that suit the length of an episode."""
    config = algorithms.get(run.algorithm).Config()
    return flags_of(Settings()) | flags_of(config) | sizes_for(run.spec.horizon)


def standard_flags(run: Run) -> dict[str, Any]:
    """The flags that ``shoal train ALGORITHM ENVIRONMENT`` uses by default: the preset's values, and otherwise the
    defaults of the code."""
    found = merged(run.algorithm, run.environment)
    return flags_of(found.sized_for(run.spec)) | flags_of(found.config)


def changed_rows(run: Run) -> list[dict[str, str]]:
    """The flags whose values are not the defaults of the code, and where they come from."""
    plain, standard = plain_flags(run), standard_flags(run)
    rows = [
        {
            "flag": _spelt(name),
            "value": value_text(value),
            "default": value_text(plain[name]) if name in plain else "–",
            "from": "preset" if name in standard and standard[name] == value else "given",
        }
        for name, value in all_flags(run).items()
        if name not in plain or value != plain[name]
    ]
    options = ((_spelt(f"env.{name}"), value_text(value)) for name, value in run.env_options.items())
    return [*rows, *({"flag": name, "value": value, "default": "–", "from": "given"} for name, value in options)]


def every_row(facts: Facts) -> list[dict[str, str]]:
    """All flags with their values, also of a run that cannot be opened."""
    entries = facts.entries
    found = all_flags(facts.run) if facts.run else {**entries["settings"], **entries["config"]}
    options = {f"env.{name}": value for name, value in entries["env"].items()}
    return [{"flag": _spelt(str(name)), "value": value_text(value)} for name, value in {**found, **options}.items()]


def train_command(run: Run) -> str:
    """The shell command that trains this run again, or the call in Python if a command cannot express it."""
    standard = standard_flags(run)
    changed = {
        name: value
        for name, value in all_flags(run).items()
        if name not in _LOCAL and (name not in standard or value != standard[name])
    }
    start, flags = _start(run), [_flag_words(name, value) for name, value in changed.items()]
    if start is not None and None not in flags:
        return shlex.join([*start, *(word for words in flags for word in words or ())])
    keywords = "".join(f", {name}={value!r}" for name, value in changed.items())
    env = f", env={run.env_options!r}" if run.env_options else ""
    environment = repr(run.environment) if run.by_name else "environment"
    return f"shoal.train({run.algorithm!r}, {environment}{env}{keywords})"


def _start(run: Run) -> list[str] | None:
    """The words of the command up to the environment's options; None if they cannot be written, or if writing them
    would import an untrusted module."""
    names = ["shoal", "train", run.algorithm, run.environment]
    if not run.by_name or any(name.startswith("-") for name in names):
        return None
    if not run.env_options:
        return names
    if permission.beyond(run.environment, run.env_options):
        return None
    command, _ = commands_with(run.environment, run.env_options)
    found = shlex.split(command) if command.startswith("shoal train mappo ") else None
    return None if found is None else [*names[:3], *found[3:]]


def _flag_words(name: str, value: Any) -> list[str] | None:
    """A flag as words; None if it cannot be written so."""
    if isinstance(value, bool):
        return [_spelt(name if value else f"no_{name}")]
    texts = [_word(x) for x in value] if isinstance(value, tuple | list) else [_word(value)]
    if not texts or any(text[:1] in ("", "-") for text in texts[1:]):
        return None
    if texts[0][:1] in ("", "-"):  # it could be mistaken for a flag
        return [f"{_spelt(name)}={texts[0]}", *texts[1:]]
    return [_spelt(name), *texts]


def _word(value: Any) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number(value: float) -> str:
    """A number as short as it can be without changing it, with a short exponent: 1e7 rather than 1e+07."""
    text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", text)


def other_commands(facts: Facts) -> Mapping[str, str]:
    """Commands on the run's folder, by their purpose."""
    folder = path_words(shown_folder(facts))
    best = {"Evaluate the best policies": f"shoal evaluate {folder} --episodes 1000 --best"} if facts.best else {}
    return {
        "Continue it": f"shoal train --resume {folder}",
        "Evaluate the last policies": f"shoal evaluate {folder} --episodes 1000",
        **best,
        "Write a video": f"shoal replay {folder} --episodes 4",
        "Write this page": f"shoal report {folder}",
    }


def shown_folder(facts: Facts) -> str:
    """The folder as the user gave it, or its last part if the path is absolute."""
    return facts.name if facts.folder.is_absolute() else str(facts.folder)
