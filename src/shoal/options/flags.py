"""Conversion between flat flags, nested frozen dataclasses and JSON. Does not import JAX."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from shoal.bounds import Bounds, bounds_of
from shoal.errors import InputError, unknown
from shoal.options.convert import alternatives, convert_value
from shoal.options.synonyms import meant
from shoal.spec import EnvSpec

T = TypeVar("T")


class Leaf(NamedTuple):
    """A leaf field of a nested dataclass."""

    name: str
    """Its flag, for example ``side1_learning_rate``."""
    plain: str
    """The flag without its prefix, which sets it too, for example ``learning_rate``."""
    value: Any
    hint: Any
    """Type of the value."""
    bounds: Bounds | None
    group: str
    """Name of the field that holds its dataclass, with a prefix; empty for a field of the outermost one."""
    kind: type
    """The dataclass that has the field."""


def leaves(config: Any, group: str = "", prefix: str = "") -> Iterator[Leaf]:
    """The leaf fields of a nested dataclass, in order. ``config`` may also be the class, for its defaults.

    Fields that hold dataclasses of the same kind have a ``prefix`` in their metadata, which is prepended to names.
    """
    kind = config if isinstance(config, type) else type(config)
    hints, bounds = _hints(kind), bounds_of(kind)
    for field in dataclasses.fields(config):
        name, value = field.name, field.default if config is kind else getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            added = field.metadata.get("prefix", "")
            yield from leaves(value, name if added else prefix + name, prefix + added)
        else:
            yield Leaf(prefix + name, name, value, hints[name], bounds.get(name), group, kind)


_hints = functools.cache(typing.get_type_hints)


def flags_of(config: Any) -> dict[str, Any]:
    """The leaf fields of a nested dataclass, from name to value; see :func:`leaves`."""
    return {leaf.name: leaf.value for leaf in leaves(config)}


def override(config: T, flags: Mapping[str, Any], lone: bool = True) -> T:
    """``config`` with leaf fields replaced by name, also in nested dataclasses; unknown names are ignored.

    A name without a prefix applies to all nested dataclasses; one with a prefix to a single one, and takes precedence.
    ``lone`` is as in :func:`shoal.options.convert.convert_value`.

    Raises:
        InputError: a value has the wrong type.
    """
    hints = _hints(type(config))
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            prefix = field.metadata.get("prefix", "")
            own = {name.removeprefix(prefix): x for name, x in flags.items() if prefix and name.startswith(prefix)}
            changes[field.name] = override(value, {**flags, **own}, lone)
        elif field.name in flags:
            changes[field.name] = convert_value(field.name, flags[field.name], hints[field.name], lone)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def check_names(flags: Iterable[str], *configs: Any, of: str = "") -> None:
    """Check that every flag is a field of one of the configurations; ``of`` says in a message whose flags they are.

    Raises:
        InputError: one is not; the message names the most similar flag.
    """
    known = {name for config in configs for leaf in leaves(config) for name in (leaf.name, leaf.plain)}
    for name in flags:
        if name not in known:
            if name in ONE_CALL:
                raise InputError(
                    f"{name} is no setting of a run, but a flag of shoal train or an argument of a function."
                )
            kind = "setting" + f" (in {of}) named" * bool(of)
            if found := meant(name, known):
                raise InputError(f"There is no {kind} {name!r}; did you mean {found!r}?")
            raise unknown(kind, name, known)


ONE_CALL = ("folder", "resume", "trust", "config", "preset", "print_config", "progress")
ONE_CALL += ("callback", "callbacks", "wandb", "mlflow", "continue_stopped")
ONE_CALL += ("hosts", "host_count", "host_index", "host_timeout")
"""Flags and arguments that no file holds."""


def check_fields(algorithm: str, config: Any, settings: Any) -> None:
    """Check that each field of a ``Config`` has a flag and an argument of its own.

    Raises:
        InputError: one has the name of a setting, or of a flag or an argument that belongs to one call.
    """
    fields = {leaf.plain for leaf in leaves(config)}
    if twice := sorted({leaf.name for leaf in leaves(settings)} & fields):
        raise InputError(
            f"The Config of {algorithm} has the field {twice[0]!r}, which every run has as a setting, so that one flag "
            f"would set both: give the field another name."
        )
    if taken := sorted({"algorithm", "environment", "env", "help", *ONE_CALL} & fields):
        raise InputError(
            f"The Config of {algorithm} has the field {taken[0]!r}, but the flag and the argument of this name belong "
            f"to a call and would not set it: give the field another name."
        )


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """An environment's spec as JSON values, for ``run.json``."""
    fields = _listed(vars(spec))
    if spec.parts is not None:
        fields["parts"] = [[_listed(part._asdict()) for part in own] for own in spec.parts]
    for name in ("turns", "targets"):
        if not fields[name]:
            del fields[name]  # as in files from before there was this field
    if spec.targets:
        fields["targets"] = [list(target) for target in spec.targets]
    return fields | {"action": {"kind": type(spec.action).__name__.lower(), **vars(spec.action)}}


SPEC_WORDS = {
    "agents": "the agents",
    "obs_dims": "the widths of observations",
    "action_dims": "the numbers of actions",
    "state_dim": "the widths of the state",
    "horizon": "the time limits",
    "roles": "the agents' roles",
    "parts": "the shapes of observations",
}
"""Fields of specs in messages."""


def games_to_json(*specs: EnvSpec) -> list[dict[str, Any]]:
    """Specs as JSON values without what may differ in the same game, to be compared.

    That is ``novel`` (read by a run's own critic), metrics (only reported), the interface (for deployed policies), the
    rivals (read in training), the scored agents, turns (which change no result), targets (read by one kind of network),
    and ``parts`` where one spec does not describe them, unless observations are bytes or ``blind`` has replaced them;
    then their widths are compared.
    """
    free = {"novel", "metrics", "interface", "rivals", "scored", "turns", "targets"}
    if any(spec.parts is None for spec in specs) and not any(spec.packed or _is_blind(spec) for spec in specs):
        free |= {"parts"}
    return [{key: value for key, value in spec_to_json(spec).items() if key not in free} for spec in specs]


def _is_blind(spec: EnvSpec) -> bool:
    """Whether observations are the time alone (:func:`shoal.environments.changes.blind`)."""
    return any(part.shape == (0,) and part.source is not None for own in spec.parts or () for part in own)


def _listed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with lists in place of tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def options_from_json(options: Mapping[str, Any], known: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """A factory's options from JSON, which has lists in place of tuples.

    ``known`` holds the factory's parameters; a list becomes a tuple if the parameter's annotation has one, or else its
    default is one. Lists inside it become tuples unless the annotation says otherwise.
    """
    hints = {name: _tuples_among(alternatives(parameter.annotation)) for name, parameter in known.items()}
    for name, parameter in known.items():
        hints[name] = hints[name] or [tuple] * isinstance(parameter.default, tuple)
    return {name: _tupled(value, hints.get(name, ())) for name, value in options.items()}


def _tuples_among(hints: Iterable[Any]) -> list[Any]:
    return [hint for hint in hints if hint is tuple or typing.get_origin(hint) is tuple]


def _tupled(value: Any, tuples: Sequence[Any]) -> Any:
    """A JSON value as one of the types ``tuples``, as far as it has lists; unchanged where there are none."""
    if not isinstance(value, list) or not tuples:
        return value
    kinds = [leaf for hint in tuples for kind in typing.get_args(hint) or (tuple,) for leaf in alternatives(kind)]
    return tuple(_tupled(item, _tuples_among(kinds)) for item in value)
