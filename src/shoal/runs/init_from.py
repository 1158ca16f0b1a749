"""A new run that starts from what an earlier one learned (``init_from``).

Only numbers are read from the earlier run's folder: neither its algorithm nor its environment is imported. A layer
matches if all its arrays have the same names and shapes. If the earlier run has one policy and the new one has P, each
of the P starts as a copy of it. The optimiser, exploration and adaptive coefficients are not transferred. Target
networks start as copies of the networks that they follow, as in every new run.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.equations.normalise import Running
from shoal.errors import CheckpointError, InputError, shortened
from shoal.options.flags import override
from shoal.storage import checkpoint
from shoal.storage.checkpoint import StoredArrays
from shoal.storage.zoo import located, shown
from shoal.system.files import dumps, write_text
from shoal.training.program import TrainState
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.trust.run_file import config_of_run, spec_of
from shoal.types import EnvSpec, Learner, PyTree

Shape = tuple[int, ...]

EXPLORATION = ("epsilon", "noise")
"""Parts of a policy that are not transferred."""

FOLLOWED = {"actor": "policy{side}/actor", "critic": "critic{side}"}
"""The networks that target networks of these names follow; target networks without one follow the critic itself."""


class Transfer(NamedTuple):
    """The arrays that a new learner takes from an earlier one. Names are those of :func:`named`, shapes are without
    seeds."""

    taken: dict[str, str]
    """Transferred arrays: the name in the new learner, and the name in the earlier one."""
    left: dict[str, tuple[Shape, Shape | None]]
    """Networks' arrays and running statistics whose layer does not match: the new shape, and the earlier shape or
    None."""
    rescaled: tuple[str, ...]
    """Critics' arrays that match but are not transferred, since values have another kind of scale."""
    units: tuple[str, ...]
    """Running statistics that only one of the two learners has: units of inputs or rewards differ."""
    networks: int
    """Number of transferred arrays, without running statistics."""
    copies: dict[str, str]
    """Arrays of target networks and past selves, and the array of the new learner that each is a copy of."""
    unused: tuple[str, ...] = ()
    """The earlier learner's arrays that the new one lacks, of networks of which it takes others."""

    @property
    def complete(self) -> bool:
        """Whether all arrays match."""
        return not (self.left or self.rescaled or self.units or self.unused)


def arrays_by_name(learner: Learner) -> dict[str, jax.ShapeDtypeStruct | jax.Array]:
    """The arrays of a learner by names such as ``policy/actor/layers/0/kernel``, without those of its optimiser."""
    leaves = jax.tree_util.tree_leaves_with_path(learner._replace(optimiser=()))
    return {_name(path): leaf for path, leaf in leaves}


def words_of_array(name: str) -> str:
    """A name as users write it: ``actor.layers.0.kernel``, or ``side1.actor…`` if there are several sides."""
    part, *rest = name.split("/")
    side = f"side{int(rest.pop(0)) + 1}." if rest and rest[0].isdigit() else ""
    return side + ".".join(rest if part == "policy" else [part, *rest])


def match_arrays(there: Mapping[str, Shape], learner: Learner) -> Transfer:
    """Find the arrays of an earlier learner that match a new one.

    Args:
        there: the shapes [S', ...] of the earlier learner's arrays by name.
        learner: the new learner, of arrays or ``ShapeDtypeStruct`` [S, ...].
    """
    leaves = arrays_by_name(learner)
    here = {name: x.shape[1:] for name, x in leaves.items() if jax.numpy.issubdtype(x.dtype, np.number)}
    origin = {_plain(name): name for name in there}
    shapes = {name: there[origin[name]][1:] for name in origin}
    scales = _scales(learner)
    inside = {f"{scale}/{field}" for scale in scales.values() for field in Running._fields}
    copies = {name: followed for name in here if (followed := _followed(name, here))}
    nets = [name for name in here if name not in inside and _is_net(name)]
    # Twin critics that start as copies of one have the same targets and gradients, and stay equal for ever.
    targets = any("/target/" in name for name in here)
    single = {name for name in nets if targets and name.startswith("critic/")}
    wrong = {_layer(name) for name in nets if not _fits(here[name], shapes.get(name), copied=name not in single)}
    fits = {name for name in nets if _layer(name) not in wrong}
    kept = {
        plain
        for plain, scale in scales.items()
        if all(
            _fits(here[f"{scale}/{field}"], shapes.get(f"{plain}/{field}"), plain.endswith("/value"), _of_inputs(plain))
            for field in Running._fields
        )
    }
    before = {name.removesuffix("/mean") for name in origin if name.endswith("/mean")}
    before = {x for x in before if "pool" not in x.split("/")}
    before = {scale for scale in before if all(f"{scale}/{field}" in origin for field in Running._fields)}

    # The last layer of a critic and the scale of its values belong together.
    rescaled: set[str] = set()
    for scale in [name for name in scales.keys() | before if name.endswith("/value")]:
        heads = _value_heads(nets, scale)
        if scale not in kept or not heads <= fits:
            kept.discard(scale)
            rescaled |= heads & fits
    fits -= rescaled
    left: dict[str, tuple[Shape, Shape | None]] = {
        name: (here[name], shapes.get(name)) for name in nets if name not in fits | rescaled
    }
    for plain in scales.keys() & before - kept:
        left[scales[plain]] = here[f"{scales[plain]}/mean"], shapes[f"{plain}/mean"]
    taken = {name: origin[name] for name in nets if name in fits}
    for plain, scale in scales.items():
        taken |= {f"{scale}/{x}": origin[f"{plain}/{x}"] for x in Running._fields if plain in kept}
    apart = {name for name in scales.keys() ^ before if not name.endswith("/value")}
    if not any(name.startswith("statistics/") for name in origin):  # only policies, without critics and statistics
        apart = {name for name in apart if name.startswith("policy/")}
    begun = {_part(words_of_array(name)) for name in fits}
    unused = [
        name
        for name in origin.keys() - here.keys()
        if name.startswith(("policy/", "critic/")) and _is_net(name) and _layer(name) not in before
        if _part(words_of_array(name)) in begun
    ]
    return Transfer(
        taken, left, tuple(sorted(rescaled)), tuple(sorted(apart)), len(fits), copies, tuple(sorted(unused))
    )


def with_arrays_of(learner: Learner, transfer: Transfer, values: Mapping[str, np.ndarray]) -> Learner:
    """The new learner with the transferred arrays, on the same devices. Seed i takes those of seed i mod S'.

    Args:
        learner: newly initialised [S, ...].
        transfer: the result of :func:`match`.
        values: the earlier learner's arrays [S', ...] by their names.
    """
    here = arrays_by_name(learner)

    def of(name: str, leaf: jax.ShapeDtypeStruct | jax.Array) -> np.ndarray | None:
        if name in transfer.copies:
            followed = of(transfer.copies[name], here[transfer.copies[name]])
            if followed is None or followed.ndim == leaf.ndim:
                return followed
            return np.broadcast_to(followed[:, None], leaf.shape)  # a pool of K policies
        if name not in transfer.taken:
            return None
        given = values[transfer.taken[name]]
        chosen = given[np.arange(leaf.shape[0]) % given.shape[0]]
        chosen = chosen[..., None, :] if chosen.ndim < leaf.ndim else chosen  # of all agents, for each of them
        return np.broadcast_to(chosen, leaf.shape).astype(leaf.dtype)

    def put(path: tuple, leaf: jax.Array) -> jax.Array:
        name = _name(path)
        found = of(name, leaf) if name in here else None
        return leaf if found is None else jax.device_put(found, leaf.sharding)

    filled = jax.tree_util.tree_map_with_path(put, learner._replace(optimiser=()))
    return filled._replace(optimiser=learner.optimiser)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _plain(name: str) -> str:
    """A name without the parts by which rewards, past selves and inferred policies wrap an algorithm's statistics."""
    return re.sub(r"^statistics(?:/statistics)*(/\d+)?(?:/maddpg)?/", r"statistics\1/", name)


def _scales(learner: PyTree) -> dict[str, str]:
    """The running statistics of a learner: plain names, and names."""
    leaves = jax.tree_util.tree_leaves_with_path(learner, is_leaf=lambda node: isinstance(node, Running))
    found = [_name(path) for path, leaf in leaves if isinstance(leaf, Running)]
    return {_plain(name): name for name in found if "pool" not in name.split("/")}


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def _is_net(name: str) -> bool:
    part, *rest = name.split("/")
    models = part == "statistics" and "models" in rest
    return models or part == "critic" or (part == "policy" and rest[-1] not in EXPLORATION)


def _of_inputs(scale: str) -> bool:
    return scale.endswith("inputs/obs")


def _fits(here: Shape, there: Shape | None, copied: bool = True, spread: bool = False) -> bool:
    """Whether the shapes are equal, or there was one policy; ``copied`` for arrays with an axis of policies, ``spread``
    for statistics of all agents that may become those of each."""
    if there is None or here == there or (spread and here[1:] == there):
        return there is not None
    return copied and len(here) == len(there) > 0 and there[0] == 1 and here[1:] == there[1:]


def _value_heads(nets: list[str], scale: str) -> set[str]:
    """The last layers whose outputs are on this scale of values; MAT's are in its encoder, as those of MAGPO's guider,
    whose decoder's are of its actions."""
    side = scale.removeprefix("statistics").removesuffix("/value")
    critic = [name for name in nets if name.startswith(f"critic{side}/")]
    encoder = [name for name in nets if name.startswith(f"policy{side}/actor/encoder/")]
    return {name for name in critic or encoder if "head" in (parts := name.split("/")) and "decoder" not in parts}


def _followed(name: str, here: Mapping[str, Shape]) -> str | None:
    """The array that an array of a target network, or of the pool of past selves, follows; None for others."""
    if found := re.fullmatch(r"statistics(?:/\w+)*?/pool/(.+)", name):
        policy = f"policy/{found[1]}"
        return policy if here.get(policy) == here[name][1:] else None
    found = re.fullmatch(r"(statistics(?:/\w+)*?)/target/(.+)", name)
    if not found:
        return None
    side = "".join(re.findall(r"/\d+", found[1]))
    first, _, rest = found[2].partition("/")
    followed = [f"{found[1]}/models/{found[2]}", f"critic{side}/{found[2]}"]
    if first in FOLLOWED:
        followed.insert(0, f"{FOLLOWED[first].format(side=side)}/{rest}")
    return next((other for other in followed if here.get(other) == here[name]), None)


INIT_FROM_FILE = "init_from.json"
"""The account in the new run's folder."""

LINES = 12
"""Largest number of arrays that a part of the account names."""

ABSENT = "There is no such array there"
UNUSED = "There is no such array here, so that a network of which others are taken computes something else"
SHAPES = "The shapes differ"
LAYER = "The shapes are equal, but those of another array of the same layer are not"
SCALE = "The critic's last layer and the statistics of its values (value_norm) are taken only together"
"""Reasons why an array is not taken."""


class Source(NamedTuple):
    """An earlier run."""

    folder: Path
    title: str
    """For example ``mappo in mpe/simple_spread, step 1,000,000``."""
    spec: EnvSpec
    stored: StoredArrays
    names: dict[str, str]
    """The learner's arrays: names in the learner, and in ``stored``."""
    config: Mapping[str, Any] = {}
    """The flags of its algorithm's ``Config``."""

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes [S', ...] by name in the learner."""
        return {name: tuple(self.stored.leaves[inside].shape) for name, inside in self.names.items()}


def source_of(folder: Path, warn: Callable[[str], None]) -> Source:
    """The run in ``folder``: of its newest intact checkpoint or, if there is none, of its policies alone.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged.
        CheckpointError: nothing that it has learned is intact.
    """
    folder = located(folder)
    entries = config_of_run(folder)
    settings = override(Settings(), entries["settings"], lone=False)
    settings.check()
    prefix = "learner/"
    try:
        stored = checkpoint.newest(folder / "checkpoints", warn)
    except CheckpointError:
        if not (folder / "policy").is_dir():
            raise CheckpointError(f"{folder} has no checkpoint or policy yet.") from None
        stored, prefix = checkpoint.newest(folder / "policy", warn), ""
    names = {}
    for inside, leaf in stored.leaves.items():
        numeric = leaf.dtype.startswith(("float", "bfloat", "int", "uint"))
        if inside.startswith(prefix) and leaf.shape[:1] == [settings.seeds] and numeric:
            names[inside.removeprefix(prefix) if prefix else f"policy/{inside}"] = inside
    title = f"{entries['algorithm']} in {entries['environment']}, step {stored.step * settings.steps_per_update:,}"
    return Source(folder, title, spec_of(entries["spec"]), stored, names, entries["config"])


def check_source(settings: Settings) -> None:
    """Check that there is a run that a new one would start from, before its algorithm collects experience.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged.
    """
    if settings.init_from:
        config_of_run(located(Path(settings.init_from)))


def start_from(trainer: Trainer, folder: Path) -> None:
    """Let a new run start from what the run in ``folder`` has learned; nothing is compiled yet.

    The account is added to the trainer's notes, or to its warnings if something does not fit.

    Raises:
        InputError: the folder holds no run, or no array of its networks fits.
        CheckpointError: nothing that it has learned is intact.
    """
    source = source_of(folder, trainer.progress.warn)
    transfer = match_arrays(source.shapes, trainer.program.template().learner)
    assert trainer.checkpoints.run is not None
    here = trainer.checkpoints.run["config"]["config"]
    others = [
        f"The {name.replace('_', ' ')} is {shortened(here[name])} here and {shortened(source.config[name])} there, so "
        f"that networks compute something else."
        for name in here.keys() & source.config.keys()
        if name.endswith("activation") and here[name] != source.config[name]
    ]
    lines = account(source, transfer, trainer.env.spec) + sorted(others)
    if not transfer.networks:
        raise InputError(
            f"Nothing that {shown(source.folder)} has learned ({source.title}) fits this run. {' '.join(lines[1:])}"
        )
    (trainer.notes if transfer.complete and not others else trainer.warnings).append("\n".join(lines))
    report = {"folder": str(source.folder), "run": source.title, "account": lines, **parts_of_account(transfer)}
    init = trainer.program.init

    def started(*arguments: Any) -> TrainState:
        state = init(*arguments)
        return state._replace(learner=_begun(trainer, source, transfer, state.learner, report))

    trainer.program = trainer.program._replace(init=started)


def _begun(trainer: Trainer, source: Source, transfer: Transfer, learner: Learner, report: dict[str, Any]) -> Learner:
    """The newly initialised learner with what it takes; writes the report to the run's folder."""
    inside = {name: source.names[name] for name in transfer.taken.values()}
    arrays = checkpoint.read_named_arrays(source.stored, set(inside.values()))
    trainer.guard()
    write_text(trainer.log.folder / INIT_FROM_FILE, dumps(report, "account", indent=1) + "\n")
    return with_arrays_of(learner, transfer, {name: arrays[x] for name, x in inside.items()})


def parts_of_account(transfer: Transfer) -> dict[str, Any]:
    """What is taken and what not, for the file: every array that :func:`account` counts, and each with its reason."""
    missing = {}
    for name, (here, there) in transfer.left.items():
        if there is None:
            reason = ABSENT
        elif here != there:
            reason = SHAPES
        elif name.endswith("/value"):
            reason = SCALE
        else:
            reason = LAYER
        missing[words_of_array(name)] = {"here": here, "there": there, "reason": reason}
    missing |= {words_of_array(name): {"reason": SCALE} for name in transfer.rescaled}
    missing |= {words_of_array(name): {"reason": UNUSED} for name in transfer.unused}
    return {"taken": [*map(words_of_array, _joined(transfer.taken))], "not_taken": missing}


def account(source: Source, transfer: Transfer, spec: EnvSpec) -> list[str]:
    """What is taken and what not, and why, as lines of text.

    Args:
        source: the earlier run.
        transfer: what fits.
        spec: the new run's environment.
    """
    parts, left = parts_of_account(transfer), transfer.left
    taken, missing = parts["taken"], parts["not_taken"]
    every = sorted([*taken, *missing])
    begin = f"Starts from {shown(source.folder)} ({source.title}): "
    if transfer.complete:
        return [f"{begin}{_listed(taken, every)}."]
    lines = [f"{begin}{len(taken)} of {len(every)} arrays are taken ({_listed(taken, every) or 'none'})."]
    other = {name: (here, there) for name, (here, there) in left.items() if there not in (None, here)}
    for name, (here, there) in list(other.items())[:LINES]:
        first = name.endswith("actor/layers/0/kernel") and here[-2] != there[-2]
        why = _widths(source.spec, spec) if first else ""
        if name.endswith("actor/head/kernel") and source.spec.action.width != spec.action.width:
            why = f": there are {spec.action.width} actions here and {source.spec.action.width} there"
            why += ", and only network 'universal' has no output of its own for each" if spec.targets else ""
        lines.append(f"{words_of_array(name)} is {_text(here)} here and {_text(there)} there{why}.")
    if len(other) > LINES:
        lines.append(f"{len(other) - LINES} further arrays have other shapes.")
    for reason in (ABSENT, UNUSED, LAYER, SCALE):
        if names := [name for name, why in missing.items() if why["reason"] == reason]:
            lines.append(f"{reason}: {', '.join(names[:LINES])}{', …' if len(names) > LINES else ''}.")
    for what in sorted({"inputs" if "inputs" in name.split("/") else "rewards" for name in transfer.units}):
        lines.append(f"Only one of the two runs normalises its {what}, so that networks read or give other numbers.")
    return lines


def _joined(names: Collection[str]) -> list[str]:
    """The names with one for each group of running statistics."""
    found = {}
    for name in names:
        scale, _, field = name.rpartition("/")
        whole = field in Running._fields and all(f"{scale}/{other}" in names for other in Running._fields)
        found[scale if whole else name] = True
    return list(found)


def _listed(taken: Sequence[str], every: Sequence[str]) -> str:
    """The parts that are taken, such as ``actor``, with counts where a part is taken only partly."""
    found = []
    for part in dict.fromkeys(map(_part, every)):
        own = [name for name in every if _part(name) == part]
        count = sum(name in taken for name in own)
        found += [part if count == len(own) else f"{count} of {len(own)} of {part}"] if count else []
    return ", ".join(found)


def _part(name: str) -> str:
    """The first word of a readable name, with its side."""
    words = name.split(".")
    return ".".join(words[: 2 if words[0].startswith("side") else 1])


def _text(shape: Shape) -> str:
    return " × ".join(map(str, shape)) or "one number"


def _widths(there: EnvSpec, here: EnvSpec) -> str:
    """Why actors read inputs of another width."""
    if there.feature_dim != here.feature_dim:
        return f": observations have {here.feature_dim} features here and {there.feature_dim} there"
    return ": observations are equally wide, but agent_id appends a one-hot id of each agent (agent_id=False in both)"
