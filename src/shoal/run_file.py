"""What ``run.json`` says of a run, every part of it checked; its environment is neither built nor imported."""

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.bounds import check
from shoal.configs import flags_of, override, spec_to_json, typed
from shoal.environments.spec_rules import LONGEST, check_spec
from shoal.errors import InputError, shortened, unknown
from shoal.records import manifest
from shoal.records.configuration import migrated
from shoal.training.settings import Settings
from shoal.types import Box, Discrete, EnvSpec


@dataclass(frozen=True)
class Described:
    """What ``run.json`` says of a run."""

    algorithm: str
    environment: str
    env: dict[str, Any]
    """The options that its environment was given, with lists for tuples."""
    by_name: bool
    """Whether ``environment`` is a name from which the environment can be built again."""
    settings: Settings
    config: Any
    """The algorithm's ``Config``."""
    spec: EnvSpec
    """Of the wrapped environment."""

    def as_json(self) -> dict[str, Any]:
        """What ``run.json`` holds under ``config``."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        said |= {"settings": flags_of(self.settings), "config": flags_of(self.config)}
        return said | {"spec": spec_to_json(self.spec)}


def described(folder: Path) -> Described:
    """What ``run.json`` says of the run in ``folder``.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged: a key is missing, unknown or of the wrong
            type, or a value means nothing. The message names the key.
    """
    read = manifest.read(folder)
    try:
        return _described(migrated(read["config"], read["format"]))
    except InputError as error:
        raise InputError(f"{manifest.FILE} in {str(folder)!r} does not describe a run: {error}") from None


def _described(said: dict[str, Any]) -> Described:
    _check_keys("config", said, [field.name for field in fields(Described)])
    for key in ("env", "settings", "config", "spec"):
        if not isinstance(said[key], dict):
            raise InputError(f"{key!r} must be an object, not {shortened(said[key])}.")
    for key in ("algorithm", "environment"):
        _check_text(repr(key), said[key])
    if type(said["by_name"]) is not bool:
        raise InputError(f"'by_name' must be true or false, not {shortened(said['by_name'])}.")
    for option in said["env"]:
        _check_text("a key in 'env'", option)
    settings, config = Settings(), algorithms.get(said["algorithm"]).Config()
    _check_keys("settings", said["settings"], flags_of(settings))
    _check_keys("config", said["config"], flags_of(config))
    settings = override(settings, said["settings"])
    settings.check()
    config, spec = override(config, said["config"]), spec_of(said["spec"])
    check(config)
    wrapping = settings.wrapping
    rest = [width - wrapping.agent_ids * spec.num_agents for width in spec.obs_dims]
    if any(width < 0 or width % wrapping.frame_stack for width in rest):
        raise InputError(f"frame_stack {wrapping.frame_stack} and agent_ids do not fit the widths of 'obs_dims'.")
    return Described(said["algorithm"], said["environment"], said["env"], said["by_name"], settings, config, spec)


def spec_of(said: Mapping[str, Any]) -> EnvSpec:
    """The inverse of :func:`shoal.configs.spec_to_json`.

    Raises:
        InputError: it is no sound description of an environment.
    """
    _check_keys("spec", said, [field.name for field in fields(EnvSpec)])
    hints = typing.get_type_hints(EnvSpec)
    given: dict[str, Any] = {
        key: _space(value) if key == "action" else typed(key, value, hints[key]) for key, value in said.items()
    }
    spec = EnvSpec(**given)
    check_spec(spec)
    return spec


def _space(said: Any) -> Discrete | Box:
    kinds = {"discrete": Discrete, "box": Box}
    if not isinstance(said, dict) or said.get("kind") not in list(kinds):  # which may be a list as well
        raise InputError(f"'action' must be an object whose 'kind' is 'discrete' or 'box', not {shortened(said)}.")
    kind = kinds[said["kind"]]
    _check_keys("action", said, ["kind", *(field.name for field in fields(kind))])
    hints = typing.get_type_hints(kind)
    return kind(**{key: typed(key, value, hints[key]) for key, value in said.items() if key != "kind"})


def _check_keys(part: str, said: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key that is not known, and one that is missing."""
    known = list(known)
    for key in said:
        if key not in known:
            raise unknown(f"key in {part!r} named", key[:LONGEST], known)
    if missing := [repr(key) for key in known if key not in said]:
        raise InputError(f"{part!r} lacks {', '.join(missing)}.")


def _check_text(what: str, value: Any) -> None:
    """Text that a terminal can show: control characters could rewrite what stands on it."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST:
        raise InputError(f"{what} must be short printable text, not {shortened(value)}.")
