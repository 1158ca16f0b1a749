"""Plays the cross-play of a study: whether the runs of a group can play together, whether their folders hold the
policies of their records, and the games."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from shoal.environments import registry
from shoal.errors import InputError, NonFiniteError
from shoal.options.flags import SPEC_WORDS, flags_of, games_to_json
from shoal.runs import api
from shoal.runs.build import wrapped_environment
from shoal.storage import log, manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.studies.crossplay import CrossplayRecord, Group, about_games, about_run
from shoal.studies.execution import learning_curve, requested
from shoal.studies.plan import Cell
from shoal.studies.record import Record, rounded_numbers
from shoal.studies.study_file import CROSSPLAY, StudyFile
from shoal.training.crossplay import CrossPlay, first_side
from shoal.training.evaluation import known_mean
from shoal.types import EnvSpec

# Before anything is trained: whether the runs of a group will be able to play together.


def check_together(study: StudyFile, groups: Sequence[Group]) -> None:
    """Check that the runs of each group can play together; their environment is built, and nothing is compiled.

    Raises:
        InputError: the environment cannot be built or has only one agent, an agent of side 1 is none of it, or the
            wrappers of two runs show them different games. The message names the file.
    """
    for group in groups:
        try:
            _check_group(group)
        except InputError as error:
            raise study.error(f"{CROSSPLAY} in {group.title}: {error}") from None


def _check_group(group: Group) -> None:
    first = group.cells[0]
    built = registry.make(first.environment, **first.env)
    specs = [wrapped_environment(built, cell.merged().settings).spec for cell in group.cells]
    first_side(specs[0], group.protocol.side)
    for cell, spec in zip(group.cells[1:], specs[1:], strict=True):
        here, there = (one.merged().settings.wrapping for one in (cell, first))
        api.check_same_observing(cell.title, here, first.title, there)
        _check_same_game((cell.title, spec), (first.title, specs[0]))


def _check_same_game(one: tuple[str, EnvSpec], other: tuple[str, EnvSpec]) -> None:
    here, there = games_to_json(one[1], other[1])
    for name in here:
        if here[name] != there.get(name):
            raise InputError(
                f"{one[0]} and {other[0]} cannot play together: {SPEC_WORDS.get(name, name)} would be {here[name]!r} "
                f"in the one and {there.get(name)!r} in the other."
            )


# Before games: whether the policies of the records are there.


def without_policies(group: Group, records: Mapping[str, Record]) -> list[Cell]:
    """The runs of a group whose folders do not hold the policies of their records.

    Args:
        group: the group.
        records: the records of its runs by the cells' names.
    """
    return [cell for cell in group.cells if not _holds_policies(cell, records[cell.name])]


def _holds_policies(cell: Cell, record: Record) -> bool:
    """Whether a run's folder was trained by the commit of its record, with its configuration and its learning curve."""
    try:
        found = manifest.read_run_json(cell.folder)
        if cell.difference(found["config"]) or Checkpoints(cell.folder / "policy").latest() is None:
            return False
        rows = log.read_log(cell.folder)
        curve = learning_curve(rows, {"score": "return"}, record.seeds)
    except (InputError, OSError, KeyError, TypeError, ValueError):  # the folder is damaged
        return False
    commit = f"{record.commit}{'+' * record.changed}" if record.commit else None
    return found["made_with"].get("commit") == commit and all(record.curve[name] == curve[name] for name in curve)


def folders_there(group: Group) -> bool:
    """Whether all runs of a group have folders."""
    return all((cell.folder / manifest.RUN_JSON).is_file() for cell in group.cells)


# The games.


def seeds_text(seeds: Sequence[int]) -> str:
    """The number of seeds of runs, for example ``6 seeds``."""
    least, most = min(seeds), max(seeds)
    return f"{least} to {most} seeds" if least < most else f"{most} seed{'s' * (most != 1)}"


def play_group(group: Group, records: Mapping[str, Record]) -> CrossplayRecord:
    """Play the games of a group: every run with every run, and every seed with every seed.

    Args:
        group: the group, whose runs' folders hold the policies.
        records: the records of its runs by the cells' names.

    Raises:
        InputError: a run cannot be opened, or runs cannot play together.
        CheckpointError: a run has no intact policy.
        GameError: the environment raised.
        NonFiniteError: a return is not finite.
    """
    began, protocol = time.monotonic(), group.protocol
    runs = [api.open_run(cell.folder, cell.environment, trust=_requested(cell)) for cell in group.cells]
    own = [bool(records[cell.name].evaluation["greedy"]) for cell in group.cells]
    modes = own if protocol.greedy is None else [protocol.greedy] * len(own)
    found = api.crossplay_opened(runs, side=protocol.side, episodes=protocol.episodes, greedy=modes, seed=protocol.seed)
    return _record_of(group, records, found, time.monotonic() - began)


def _requested(cell: Cell) -> bool:
    merged = cell.merged()
    return requested(cell, flags_of(merged.settings) | flags_of(merged.config), cell.folder)


def _record_of(group: Group, records: Mapping[str, Record], found: CrossPlay, seconds: float) -> CrossplayRecord:
    pairs = [[each.mean(2) for each in row] for row in found.returns]
    if not all(np.isfinite(each).all() for row in pairs for each in row):
        raise NonFiniteError(f"cross-play in {group.title}: a return is NaN or infinite.")
    made = manifest.describe_machine(group.cells[0].environment)
    commit: str | None = made["commit"]
    return CrossplayRecord(
        **about_games(group),
        runs=[
            about_run(cell, records[cell.name], greedy) for cell, greedy in zip(group.cells, found.greedy, strict=True)
        ],
        sides=[list(side) for side in found.sides],
        pairs=rounded_numbers(pairs),
        metrics={
            name: rounded_numbers([[known_mean(each, axis=2) for each in row] for row in rows])
            for name, rows in found.metrics.items()
        },
        wins=rounded_numbers(found.scores),
        versions=made["versions"],
        commit=commit.removesuffix("+") if commit else None,
        changed=bool(commit) and commit.endswith("+"),
        platform=made["platform"],
        hardware=made["hardware"] | {"product_gflops": rounded_numbers(manifest.product_rate() / 1e9)},
        seconds=rounded_numbers(seconds),
    )
