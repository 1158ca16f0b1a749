"""Validated contents of ``run.json``; the environment is neither built nor imported."""

import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.bounds import check_bounds
from shoal.environments.spec_rules import MAX_NAME, check_spec
from shoal.environments.wrappers import fits, unwrapped
from shoal.errors import InputError, shortened, unknown
from shoal.options.convert import convert_value
from shoal.options.flags import flags_of, override, spec_to_json
from shoal.security import user_modules
from shoal.spec import Part
from shoal.storage import manifest
from shoal.system import notices
from shoal.training.settings import Settings
from shoal.trust import provenance
from shoal.types import Box, Discrete, EnvSpec


@dataclass(frozen=True)
class Described:
    """The configuration of a run in ``run.json``."""

    algorithm: str
    environment: str
    env: dict[str, Any]
    """Options of the environment's factory, with lists for tuples."""
    by_name: bool
    """Whether ``environment`` is a name from which the environment can be built again."""
    settings: Settings
    config: Any
    """The algorithm's ``Config``."""
    spec: EnvSpec
    """Spec of the wrapped environment."""

    def as_json(self) -> dict[str, Any]:
        """The entry ``config`` of ``run.json``."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)}
        entries |= {"settings": flags_of(self.settings), "config": flags_of(self.config)}
        return entries | {"spec": spec_to_json(self.spec)}


TRUST = "use --trust (trust=True in Python) if you trust its author"


def described_run(folder: Path, trust: bool = False) -> Described:
    """Read and validate the ``run.json`` in ``folder``.

    An algorithm ``module:make`` is imported, because its ``Config`` defines the keys. A network ``module:function`` is
    imported only later, when the algorithm is made, but permission for it is asked here.

    Args:
        folder: a run folder.
        trust: import it even if the folder is not of the user's own training.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged: a key is missing or unknown, or a value is
            invalid. The message names the key. Or its algorithm or network is not imported for an untrusted
            folder.
    """
    entries = config_of_run(folder)
    algorithm, options = algorithms.own(entries["algorithm"]), (entries["config"], entries["settings"])
    if algorithm or user_modules.named_in(*options):
        record = own_record(folder, entries)
        if record is None and not trust:
            why = why_not_own(folder, entries)
            kind = "network" if user_modules.named_in(entries["config"]) else "opponents"
            what = f"algorithm {entries['algorithm']!r}" if algorithm else kind
            modules = " and ".join(map(repr, dict.fromkeys([*algorithm, *user_modules.named_in(*options)])))
            raise InputError(f"{folder} {why}, and its {what} would import the module {modules}: {TRUST}.")
        if record is not None and not trust:
            user_modules.instead(record.directory)
        algorithms.get(entries["algorithm"])
        user_modules.tell_of_changes(folder, made_of(folder), [*algorithm, *user_modules.named_in(*options)])
        if algorithm:
            _check_fields(folder, entries)
    with _damage(folder):
        return _described(entries)


_told: set[tuple[str, str]] = set()
"""Warnings of :func:`_check_fields` that were printed."""


def _check_fields(folder: Path, entries: dict[str, Any]) -> None:
    """Let a run of the user's own algorithm have the defaults of the fields that its ``Config`` has gained since.

    Raises:
        InputError: the ``Config`` has lost a field.
    """
    known = flags_of(algorithms.get(entries["algorithm"]).Config())
    given = manifest.with_later(entries["config"], known)
    whose = f"the Config of {entries['algorithm'].removesuffix(':make')}"
    if gone := next((key for key in given if key not in known), None):
        raise InputError(
            f"{folder} was trained with {shortened(gone)} {shortened(given[gone])}, but {whose} has no such field: "
            f"give it this field to use the run."
        )
    gained = {key: value for key, value in known.items() if key not in given}
    entries["config"] = gained | given
    said = f"{', '.join(gained)}, which {whose} has gained since {folder} was trained, has its default there."
    if gained and (str(folder), said) not in _told:
        _told.add((str(folder), said))
        notices.warn(said)


def made_of(folder: Path) -> Any:
    """The digests of the user's own modules in ``run.json``, which are not validated; None if it has none."""
    return manifest.read_run_json(folder)["made_with"].get("own_modules")


def own_record(folder: Path, entries: Mapping[str, Any]) -> provenance.OwnRecord | None:
    """The record of the user's own training in ``folder``; None if there is none, or ``entries`` or a module have
    changed since."""
    record = provenance.marked_record(folder, decides(entries))
    return None if record is None or _changed(record) else record


def why_not_own(folder: Path, entries: Mapping[str, Any]) -> str:
    """Why :func:`own_record` gives None, as the part of a sentence that follows the folder's name."""
    record = provenance.marked_record(folder, decides(entries))
    if record is not None and (module := _changed(record)):
        return f"was trained with another version of the module {module!r}"
    return "is not recorded as your own run"


def _changed(record: provenance.OwnRecord) -> str | None:
    """A module of the run of which another file would be imported than the one that was recorded."""
    found = (name for name, digest in record.modules if user_modules.differs(name, digest, record.directory))
    return next(found, None)


def decides(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that determine which modules are imported, what is called, and which machines are connected to."""
    names = {key: entries[key] for key in ("environment", "env", "by_name")}
    own: dict[str, Any] = {"algorithm": entries["algorithm"]} if algorithms.own(entries["algorithm"]) else {}
    if user_modules.named_in(entries["config"]):
        own["networks"] = user_modules.naming(entries["config"])
    if user_modules.named_in(entries["settings"]):
        own["opponents"] = entries["settings"]["opponents"]
    return names | own | {key: entries["settings"][key] for key in ("workers", "address")}


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """Name the file in the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{manifest.RUN_JSON} in {str(folder)!r} does not describe a run: {error}") from None


def config_of_run(folder: Path) -> dict[str, Any]:
    """The entry ``config`` of ``run.json``, validated as far as is possible without its algorithm.

    Raises:
        InputError: see :func:`described_run`.
    """
    entries = manifest.read_run_json(folder)["config"]
    with _damage(folder):
        _check_parts(entries)
        return entries


def _check_parts(entries: dict[str, Any]) -> None:
    _check_keys("config", entries, [field.name for field in fields(Described)])
    for key in ("env", "settings", "config", "spec"):
        if not isinstance(entries[key], dict):
            raise InputError(f"{key!r} must be an object, not {shortened(entries[key])}.")
    for key in ("algorithm", "environment"):
        _check_text(repr(key), entries[key])
    algorithms.check_written(entries["algorithm"])
    if type(entries["by_name"]) is not bool:
        raise InputError(f"'by_name' must be true or false, not {shortened(entries['by_name'])}.")
    for option in entries["env"]:
        _check_text("a key in 'env'", option)
    known = flags_of(Settings())
    entries["settings"] = manifest.with_later(entries["settings"], known)
    _check_keys("settings", entries["settings"], known)


def _described(entries: dict[str, Any]) -> Described:
    settings, config = Settings(), algorithms.get(entries["algorithm"]).Config()
    known = flags_of(config)
    entries["config"] = manifest.with_later(entries["config"], known)
    _check_keys("config", entries["config"], known)
    settings = override(settings, entries["settings"], lone=False)
    settings.check()
    config, spec = override(config, entries["config"], lone=False), spec_of(entries["spec"])
    check_bounds(config)
    wrapping = settings.wrapping
    if not fits(spec, wrapping):
        raise InputError(
            f"blind, crop, greyscale, resize, frame_stack {wrapping.frame_stack}, last_action and agent_ids do not fit "
            f"the widths of 'obs_dims' and the shapes in 'parts'."
        )
    check_spec(unwrapped(spec, wrapping))
    if not wrapping.action_mask and not isinstance(spec.action, Discrete):
        raise InputError("action_mask is false, and 'action' is continuous.")
    return Described(**(entries | {"settings": settings, "config": config, "spec": spec}))


def spec_of(entries: Mapping[str, Any]) -> EnvSpec:
    """The inverse of :func:`shoal.options.flags.spec_to_json`.

    Raises:
        InputError: it is no valid spec of an environment.
    """
    entries = {"turns": False, "targets": []} | dict(entries)
    _check_keys("spec", entries, [field.name for field in fields(EnvSpec)])
    given = _typed(EnvSpec, {key: value for key, value in entries.items() if key not in ("action", "parts")})
    given |= {"action": _space(entries["action"]), "parts": _parts(entries["parts"])}
    spec = EnvSpec(**given)
    check_spec(spec)
    return spec


def _space(space: Any) -> Discrete | Box:
    kinds = {"discrete": Discrete, "box": Box}
    if not isinstance(space, dict) or space.get("kind") not in list(kinds):  # a list, since the kind may be unhashable
        raise InputError(f"'action' must be an object whose 'kind' is 'discrete' or 'box', not {shortened(space)}.")
    kind = kinds[space["kind"]]
    _check_keys("action", space, ["kind", *(field.name for field in fields(kind))])
    return kind(**_typed(kind, {key: value for key, value in space.items() if key != "kind"}))


def _typed(kind: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries converted to the types of the fields of ``kind``."""
    hints = typing.get_type_hints(kind)
    return {key: convert_value(key, value, hints[key], lone=False) for key, value in entries.items()}


def _parts(value: Any) -> tuple[tuple[Part, ...], ...] | None:
    if value is None:
        return None
    known = {*Part._fields}
    lists = isinstance(value, list) and all(isinstance(own, list) for own in value)
    if not lists or not all(isinstance(part, dict) and set(part) == known for own in value for part in own):
        raise InputError(
            f"'parts' must be a list of lists of objects with a shape, dtype, name and source, not {shortened(value)}."
        )
    read = [[Part(**_typed(Part, part)) for part in own] for own in value]
    return tuple(map(tuple, read))


def check_same_spec(here: EnvSpec, there: EnvSpec, pruned: bool, what: str) -> None:
    """Compare an environment's spec with the one that ``run.json`` holds.

    Args:
        here: the environment's.
        there: of ``run.json``.
        pruned: whether the algorithm reads ``EnvSpec.novel``.
        what: what is compared, ending in "was trained", for the message.

    Raises:
        InputError: they differ.
    """
    # Metrics are only reported, and the interface is only for deployed policies: both may have changed.
    # Earlier runs against opponents were scored by all agents.
    # Earlier versions did not describe rivals, and trained their runs as one team.
    rivals = here.rivals if there.rivals is None else there.rivals
    there = replace(there, metrics=here.metrics, interface=here.interface, scored=here.scored, rivals=rivals)
    there = replace(there, turns=here.turns)  # changes no result
    # Earlier versions did not describe targets, and had no network that reads them.
    there = there if there.targets else replace(there, targets=here.targets)
    # Earlier versions did not describe the arrays, and stacked the frames of whole rows instead of each array's.
    stacked_apart = any(sum(part.source is not None for part in own) > 1 for own in here.parts or ())
    if there.parts is None and not here.packed and not stacked_apart:
        there = replace(there, parts=here.parts)
    if not pruned:
        there = replace(there, novel=here.novel)  # not used, and possibly unknown to older versions
    if here == there:
        return
    one, other = spec_to_json(here), spec_to_json(there)
    name = next(name for name in one if one[name] != other[name])
    raise InputError(f"{what}: its {name} is {shortened(one[name])} and was {shortened(other[name])}.")


def _check_keys(part: str, entries: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check that no key is unknown or missing."""
    known = list(known)
    for key in entries:
        if key not in known:
            raise unknown(f"key in {part!r} named", key[:MAX_NAME], known)
    if missing := [repr(key) for key in known if key not in entries]:
        raise InputError(f"{part!r} lacks {', '.join(missing)}.")


def _check_text(what: str, value: Any) -> None:
    """Check that text is short and printable: control characters could change the terminal."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_NAME:
        raise InputError(f"{what} must be short printable text, not {shortened(value)}.")
