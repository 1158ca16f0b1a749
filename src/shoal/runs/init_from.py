"""A new run that starts from what an earlier one learned (``init_from``).

Only numbers are read from the earlier run's folder: neither its algorithm nor its environment is imported.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.equations.normalise import Running
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import override
from shoal.storage import checkpoint
from shoal.storage.checkpoint import StoredArrays
from shoal.system.files import dumps, write_text
from shoal.training.program import TrainState
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.training.transfer import Shape, Transfer, match, merged, readable
from shoal.trust.run_file import entries_of, spec_of
from shoal.types import EnvSpec, Learner

FILE = "init_from.json"
"""The account in the new run's folder."""

LINES = 12
"""Largest number of arrays that a part of the account names."""

ABSENT = "There is no such array there"
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
    entries = entries_of(folder)
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
    return Source(folder, title, spec_of(entries["spec"]), stored, names)


def start_from(trainer: Trainer, folder: Path) -> None:
    """Let a new run start from what the run in ``folder`` has learned; nothing is compiled yet.

    The account is added to the trainer's notes, or to its warnings if something does not fit.

    Raises:
        InputError: the folder holds no run, or no array of its networks fits.
        CheckpointError: nothing that it has learned is intact.
    """
    source = source_of(folder, trainer.progress.warn)
    transfer = match(source.shapes, trainer.program.template().learner)
    lines = account(source, transfer, trainer.env.spec)
    if not transfer.networks:
        raise InputError(f"Nothing that {folder} has learned ({source.title}) fits this run. {' '.join(lines[1:])}")
    (trainer.notes if transfer.complete else trainer.warnings).append("\n".join(lines))
    report = {"folder": str(source.folder), "run": source.title, "account": lines, **parts_of(transfer)}
    init = trainer.program.init

    def started(*arguments: Any) -> TrainState:
        state = init(*arguments)
        return state._replace(learner=_begun(trainer, source, transfer, state.learner, report))

    trainer.program = trainer.program._replace(init=started)


def _begun(trainer: Trainer, source: Source, transfer: Transfer, learner: Learner, report: dict[str, Any]) -> Learner:
    """The newly initialised learner with what it takes; writes the report to the run's folder."""
    inside = {name: source.names[name] for name in transfer.taken.values()}
    arrays = checkpoint.read(source.stored, set(inside.values()))
    trainer.guard()
    write_text(trainer.log.folder / FILE, dumps(report, "account", indent=1) + "\n")
    return merged(learner, transfer, {name: arrays[x] for name, x in inside.items()})


def parts_of(transfer: Transfer) -> dict[str, Any]:
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
        missing[readable(name)] = {"here": here, "there": there, "reason": reason}
    missing |= {readable(name): {"reason": SCALE} for name in transfer.rescaled}
    return {"taken": [*map(readable, _joined(transfer.taken))], "not_taken": missing}


def account(source: Source, transfer: Transfer, spec: EnvSpec) -> list[str]:
    """What is taken and what not, and why, as lines of text.

    Args:
        source: the earlier run.
        transfer: what fits.
        spec: the new run's environment.
    """
    parts, left = parts_of(transfer), transfer.left
    taken, missing = parts["taken"], parts["not_taken"]
    every = sorted([*taken, *missing])
    begin = f"Starts from {source.folder} ({source.title}): "
    if transfer.complete:
        return [f"{begin}{_listed(taken, every)}."]
    lines = [f"{begin}{len(taken)} of {len(every)} arrays are taken ({_listed(taken, every) or 'none'})."]
    other = {name: (here, there) for name, (here, there) in left.items() if there not in (None, here)}
    for name, (here, there) in list(other.items())[:LINES]:
        why = _widths(source.spec, spec) if name.endswith("actor/layers/0/kernel") else ""
        lines.append(f"{readable(name)} is {_text(here)} here and {_text(there)} there{why}.")
    if len(other) > LINES:
        lines.append(f"{len(other) - LINES} further arrays have other shapes.")
    for reason in (ABSENT, LAYER, SCALE):
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
