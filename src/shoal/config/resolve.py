"""What a run trains: flags take precedence over a configuration file, and that over preset files and defaults."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shoal import algorithms
from shoal.bounds import check
from shoal.config import config_files, preset_files
from shoal.config.config_files import ConfigFile, key_to_toml, to_toml
from shoal.config.merge import DEFAULT, Layer, Merged, merged
from shoal.environments import names, registry
from shoal.environments.names import hint_of
from shoal.errors import InputError, shortened, unknown
from shoal.options.convert import Anything, from_toml, mapping, takes, typed
from shoal.options.flags import Leaf, flags_of, leaves, options_from_json
from shoal.security import user_modules
from shoal.training.settings import Settings
from shoal.trust import permission
from shoal.trust.run_file import TRUST, described, entries_of, recorded, unrecorded
from shoal.types import AnyEnvironment, Environment


@dataclass(frozen=True)
class Configured:
    """What a run trains."""

    given: str
    """The algorithm as it was named."""
    environment: Any
    """The environment as :func:`shoal.environments.registry.make` takes it."""
    env: dict[str, Any]
    """Options of its factory."""
    values: Merged
    """Settings and hyper-parameters."""
    env_origins: Mapping[str, str]
    """Where each option comes from."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name in :data:`shoal.algorithms.NAMES`, or of the user's own."""
        return algorithms.canonical(self.given)

    @property
    def name(self) -> str:
        """The environment's name."""
        return registry.called(self.environment)


def configured(
    algorithm: str | None,
    environment: Any,
    *,
    env: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | Path | None = None,
    trust: bool = False,
) -> Configured:
    """What a run trains. No environment is built.

    ``algorithm`` and ``environment`` take precedence over those of ``config``, ``env`` over its options, and ``flags``
    over its flags, these over the flags of ``preset``, and these over Shoal's own preset.

    Args:
        algorithm: its name; None for that of ``config``.
        environment: as for :func:`shoal.environments.registry.make`; None for that of ``config``.
        env: options of the environment's factory.
        flags: fields of the settings and of the algorithm's ``Config``.
        config: see :func:`shoal.config.config_files.read`.
        preset: a preset file.
        trust: import what ``config`` names also if it is the ``run.json`` of somebody else's run.

    Raises:
        InputError: an argument is invalid, or a file names a module that is not imported without ``trust``. For values
            of a file the message names the file and the key.
    """
    env = mapping("env", env)
    file = ConfigFile("") if config is None else config_files.read(config)
    name = algorithm or file.algorithm
    if name is None or (environment is None and file.environment is None):
        what = "an environment" if name else "an algorithm and an environment"
        if file.run is not None:
            raise InputError(f"{file.name} describes a run in an Environment object; give the name of an environment.")
        raise InputError(f"{file.name} does not name {what}." if file.name else f"Training needs {what}.")
    _permit(file, algorithm, environment, trust)
    with _named(file.name if algorithm is None else ""):
        algorithms.check_name(name)
        algorithms.get(name)
    chosen = file.environment if environment is None else environment
    options = _options(file, chosen)
    layers = [Layer(flags or {})]
    if config is not None:
        about = _written_for(file.algorithm, name, algorithms.canonical(name))
        layers.insert(0, Layer(file.flags, file.name, True, about))
    if preset is not None:
        layers.insert(0, Layer(preset_files.read(preset, name), str(preset), named=True))
    values = merged(name, registry.called(chosen), layers)
    if file.run is not None and not trust:
        _permit_options(file, [layer.flags for layer in layers if layer.origin != file.name], values)
    if file.run is not None and not trust and _uses_cluster(file, values):
        raise InputError(
            f"{file.run} {unrecorded(file.run, entries_of(file.run))}, and would use a Ray cluster: {TRUST}, or give "
            f"workers and address yourself."
        )
    origins = dict.fromkeys(options, file.name) | dict.fromkeys(env, "flag")
    return Configured(name, chosen, options | env, values, origins)


def _written_for(theirs: str | None, *ours: str) -> str:
    """What messages about a file's values say of the file, if it names another algorithm or environment."""
    return f" (written for {theirs})" if theirs is not None and theirs not in ours else ""


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Begin the message of an InputError with the file, if there is one."""
    try:
        yield
    except InputError as error:
        if not file:
            raise
        raise InputError(f"{file}: {error}") from None


def named_options(found: Configured) -> AbstractContextManager[None]:
    """Begin the message of an InputError with the file that gave options of the environment, if one did."""
    files = [origin for origin in found.env_origins.values() if origin != "flag"]
    return _named(files[0] if files else "")


def _permit(file: ConfigFile, algorithm: str | None, environment: Any, trust: bool) -> None:
    """Check that what a file names, rather than the user, may be imported (``docs/security.md``)."""
    if file.run is None:
        if environment is None:  # the user's own file, or one that the user trusts
            with _named(file.name):
                names.check_name(str(file.environment))
                permission.check_factory(str(file.environment))
        return
    if algorithm is None or algorithms.canonical(algorithm) == file.algorithm:
        described(file.run, trust or algorithm is not None)  # also checks that no key is missing
    if environment is None or file.env:
        named = None if environment is None else registry.called(environment)
        permission.permit(file.run, entries_of(file.run), trust, named)


def _permit_options(file: ConfigFile, others: Sequence[Mapping[str, Any]], values: Merged) -> None:
    """Check that networks and opponents that a run's folder names, rather than the user, may be imported.

    Raises:
        InputError: the folder is not of the user's own training.
    """
    assert file.run is not None
    given = user_modules.named_in(*others)
    options = flags_of(values.config), flags_of(values.settings)
    theirs = [module for module in user_modules.named_in(*options) if module not in given]
    if not theirs:
        return
    if (record := recorded(file.run, entries_of(file.run))) is None:
        raise InputError(
            f"{file.run} {unrecorded(file.run, entries_of(file.run))}, and its options would import the module "
            f"{' and '.join(map(repr, theirs))}: {TRUST}, or name networks and opponents yourself."
        )
    user_modules.instead(record.directory)


def _uses_cluster(file: ConfigFile, values: Merged) -> bool:
    """Whether a folder that is not of the user's own training chooses a Ray cluster."""
    assert file.run is not None
    chosen = {name for name in ("workers", "address") if values.origins[name] == file.name and file.flags[name]}
    if values.settings.workers != "ray" or not chosen:
        return False
    return recorded(file.run, entries_of(file.run)) is None


def _options(file: ConfigFile, environment: Any) -> dict[str, Any]:
    """A file's options of the environment, converted to the types of its factory's parameters.

    Raises:
        InputError: one is unknown or has the wrong type.
    """
    if not file.env or not (isinstance(environment, str) or callable(environment)):
        return dict(file.env)
    with _named(file.name + _written_for(file.environment, registry.called(environment))):
        known = registry.options_of(environment)
        if not any(option.kind is option.VAR_KEYWORD for option in known.values()):
            for option in file.env:
                if option not in known:
                    raise unknown(f"option of {registry.called(environment)} named", option, known)
        if file.run is not None:  # such a run has trained with them
            return options_from_json(file.env, known)
        return {name: _option(name, value, known.get(name)) for name, value in file.env.items()}


def _option(name: str, value: Any, parameter: inspect.Parameter | None) -> Any:
    hint = Anything if parameter is None else hint_of(parameter, parameter.default)
    plain = value if hint is str else from_toml(value)
    annotated = parameter is not None and parameter.annotation is not parameter.empty
    return typed(name, plain, hint) if annotated and takes(hint) is not None else plain


class _Need(NamedTuple):
    """What an option needs to have an effect."""

    option: str
    """The other option, of the settings or of the same algorithm."""
    unused: Any
    """The value of the other option with which there is no effect; None also stands for False."""
    sentence: str
    """What the message says after the option's name."""


_NEEDS = {
    "address": _Need("workers", "processes", "is that of a Ray cluster: add --workers ray"),
    "curve_episodes": _Need("eval_every", None, "is that of evaluations during training: add --eval-every"),
    "chunk_length": _Need("recurrent", None, "is that of recurrent nets: set their width with --recurrent H"),
    "reward_clip": _Need("normalise_rewards", None, "clips normalised rewards: add --normalise-rewards"),
    "target_entropy_rate": _Need("target_entropy", None, "is a step towards --target-entropy: set it"),
    "value_norm_beta": _Need("value_norm", "none", "is that of the statistics of --value-norm: choose running"),
}


_OF_WORKERS = ("num_workers", "worker_timeout")
"""Options that have an effect in host environments only."""


def check_effect(
    settings: Settings, config: Any, given: Collection[str], environment: str, build: Callable[[], AnyEnvironment]
) -> None:
    """Refuse options that a command names and that have no effect in its run.

    Those that files, presets and programs give may be unused, so that they suit several runs. Whether workers step an
    environment of the user's own is known only when training has built it, which then prints a note
    (:func:`shoal.training.checks.workers`).

    Args:
        settings: the run's.
        config: its algorithm's.
        given: names of the options that the command names.
        environment: the environment's name.
        build: builds it; called for options of workers only.

    Raises:
        InputError: one has no effect.
    """
    for name in (name for name in _OF_WORKERS if name in given):
        if name == "worker_timeout" and settings.workers == "processes" and settings.num_workers == 0:
            raise InputError(f"{name} is that of worker processes, and num_workers 0 starts none: leave out {name}.")
        shipped = names.built_in(environment) or environment.startswith(tuple(names.FAMILIES))
        if shipped and isinstance(build(), Environment):
            raise InputError(
                f"{name} is that of worker processes, and {environment} is compiled with the update: leave out {name}."
            )
    values = flags_of(settings) | flags_of(config)
    for name in given:
        side = match[0] if (match := re.match("side[0-9]+_", name)) else ""
        need = _NEEDS.get(name.removeprefix(side))
        if need is None:
            continue
        others = [x for flag, x in values.items() if re.fullmatch(f"{side or '(side[0-9]+_)?'}{need.option}", flag)]
        if others and all(x in (None, False, need.unused) for x in others):
            raise InputError(f"{name} {need.sentence}, or leave out {name}.")


def as_toml(found: Configured) -> str:
    """The whole configuration as a file that :func:`configured` reads, with the origin of each value as a comment.

    The environment is built if its spec decides sizes of the run; nothing is compiled.

    Raises:
        InputError: a setting is out of range, the environment cannot be built, or a value has no form in TOML.
    """
    from shoal.training import checks  # imports all that trains

    settings, config = found.values.settings, found.values.config
    checks.rewards(settings, config)
    if found.values.sized:
        spec = registry.make(found.environment, **found.env).spec
        algorithms.check_alone(found.given, spec)
        settings = found.values.sized_for(spec)
    settings.check()
    check(config)
    lines = ["# shoal train --config FILE trains with these values. Each comment says where a value comes from."]
    lines += [f"algorithm = {to_toml(found.algorithm)}", f"environment = {to_toml(found.name)}", "", "[env]"]
    lines += [_line(name, value, found.env_origins[name]) for name, value in found.env.items()]
    for name, parameter in registry.options_of(found.environment).items():
        default = parameter.default
        if name not in found.env and isinstance(default, str | int | float | None):
            lines.append(f"# {_line(name, default, DEFAULT)}")
    lines += ["", "[flags]"]
    for title, part in (("run", settings), (found.algorithm, config)):
        groups: dict[str, list[Leaf]] = {title: []}
        for leaf in leaves(part):
            groups.setdefault(leaf.group or title, []).append(leaf)
        for group, inside in groups.items():
            lines += [f"# {group}"] * bool(inside)
            lines += [_line(leaf.name, leaf.value, found.values.origins[leaf.name]) for leaf in inside]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any, origin: str) -> str:
    plain = origin if origin.isprintable() else shortened(origin)
    return f"{key_to_toml(name)} = {to_toml(value)}  # {plain}"
