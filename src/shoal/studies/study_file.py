"""Study files: TOML that describes a grid of runs, and what to compare. Does not import JAX and executes nothing."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.bounds import LARGEST_INT
from shoal.environments.names import path_words
from shoal.errors import InputError, unknown
from shoal.security import reading
from shoal.studies import presented
from shoal.studies.entries import Entries, key
from shoal.studies.presented import Figure, Level, Primary, Reference, Table
from shoal.studies.tuning.file import Tuning, tuning

LARGEST = 2**20
"""Largest size of a study file in bytes."""
SEED = 1_000_000
"""Default seed of the final episodes, which differs from all usual seeds of training."""
_KEYS = ("title", "question", "defaults", "grid", "variants", "overrides", "exclude")
_KEYS += ("evaluation", "primary", "record", "tables", "figures", "scales", "references", "tuning")


@dataclass(frozen=True)
class Protocol:
    """The final evaluation of every run."""

    episodes: int = 256
    """Whole episodes of each seed."""
    greedy: bool = True
    """Act by the mode of the policy rather than by sampling."""
    seed: int = SEED
    """Seed of the episodes."""


@dataclass(frozen=True)
class Choice:
    """A table of the file for some runs: ``[[overrides]]`` or ``[[exclude]]``."""

    number: int
    where: dict[str, Any]
    flags: dict[str, Any]


@dataclass(frozen=True)
class StudyFile:
    """A study as its file describes it; flags are checked by :func:`shoal.studies.plan.plan`."""

    path: Path
    name: str
    title: str
    question: str
    defaults: dict[str, Any]
    grid: dict[str, tuple]
    variants: dict[str, dict[str, Any]]
    overrides: tuple[Choice, ...]
    exclude: tuple[Choice, ...]
    evaluation: Protocol
    curves: tuple[str, ...]
    """Metrics of training whose curves the records keep in addition to the score's."""
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    scales: tuple[Level, ...]
    references: tuple[Reference, ...]
    tuning: Tuning | None = None
    primary: Primary | None = None
    """The metric on which conclusions are based; None if the file names none."""

    def error(self, sentence: str) -> InputError:
        """An error whose message names the file."""
        return InputError(f"{self.path}: {sentence}")


def found(name: str | Path) -> Path:
    """The path of a study: a file ``*.toml``, or a name in ``studies/`` of the working directory or the checkout.

    Raises:
        InputError: there is none; the message names the most similar.
    """
    if Path(name).suffix == ".toml":
        if not Path(name).is_file():
            raise InputError(f"There is no study file {str(name)!r}.")
        return Path(name)
    known = shipped()
    if str(name) not in known:
        if not known:
            raise InputError(f"There is no study {str(name)!r}, and no folder 'studies'; pass a file *.toml.")
        raise unknown("study", str(name), known)
    return known[str(name)]


def shipped() -> dict[str, Path]:
    """The studies in ``studies/`` of the working directory and of the checkout, by name."""
    checkout = Path(__file__).resolve().parents[3] / "studies"
    files = [*checkout.glob("*.toml"), *Path("studies").glob("*.toml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def command_word(study: StudyFile) -> str:
    """The study as a word of a shell command: its name if commands find the file by it, otherwise the file's path,
    relative to the working directory if it is below that."""
    here, path = Path().resolve(), study.path.resolve()
    if found_by_name(study):
        return path_words(study.name)
    return path_words(path.relative_to(here) if path.is_relative_to(here) else study.path)


def found_by_name(study: StudyFile) -> bool:
    """Whether commands find the study's file by its name, since it is in ``studies/``."""
    known = shipped().get(study.name)
    return known is not None and known.resolve() == study.path.resolve()


def command_in_folder(study: StudyFile) -> tuple[str, str]:
    """The beginning of a sentence that names commands, and the study as a word in them. They work wherever the study's
    folder is, so a page with them can be moved."""
    if found_by_name(study):
        return "", path_words(study.name)
    return f"In the folder of {study.name}.toml, ", path_words(f"{study.name}.toml")


def read(path: Path) -> StudyFile:
    """Read a study file and check its structure.

    Raises:
        InputError: it is not TOML, or a key is missing, unknown or of the wrong type. The message names file and key.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}", path.stem):
        raise InputError(f"{path}: the name of a study file may contain only letters, digits and _ . -.")
    whole = Entries(path, "", reading.read_toml(path, "study file", LARGEST))
    title, question = whole.text("title"), whole.text("question")
    defaults, grid = whole.table("defaults").flags(), _grid(whole.table("grid"))
    variants = _variants(whole.tables("variants"))
    overrides, exclude = whole.tables("overrides"), whole.tables("exclude")
    evaluation, kept = whole.table("evaluation"), whole.table("record")
    tables, figures = whole.tables("tables"), whole.tables("figures")
    scales, references = whole.tables("scales"), whole.tables("references")
    searched = tuning(whole.table("tuning")) if "tuning" in whole.left else None
    primary = presented.primary(whole.table("primary")) if "primary" in whole.left else None
    whole.end(_KEYS)
    return StudyFile(
        path,
        path.stem,
        title,
        question,
        defaults,
        grid,
        variants,
        tuple(Choice(i, one.table("where").flags(), one.flags()) for i, one in enumerate(overrides, 1)),
        tuple(Choice(i, one.flags(), {}) for i, one in enumerate(exclude, 1)),
        _protocol(evaluation),
        _curves(kept),
        tuple(presented.table(i, one) for i, one in enumerate(tables, 1)),
        tuple(presented.figure(i, one) for i, one in enumerate(figures, 1)),
        tuple(presented.level(i, one) for i, one in enumerate(scales, 1)),
        tuple(presented.reference(i, one) for i, one in enumerate(references, 1)),
        searched,
        primary,
    )


def _grid(part: Entries) -> dict[str, tuple]:
    grid = part.flags()
    for axis, values in grid.items():
        if not isinstance(values, tuple):
            part.refuse(axis, f"must be a list of values, not {values!r}; set a single value in [defaults].")
        if not values:
            part.refuse(axis, "is an empty list; remove it, or add at least one value.")
        seen = set()
        for value in values:
            if key(value) in seen:
                part.refuse(axis, f"has the value {value!r} twice.")
            seen.add(key(value))
    return grid


def _variants(parts: list[Entries]) -> dict[str, dict[str, Any]]:
    variants: dict[str, dict[str, Any]] = {}
    for part in parts:
        name = part.text("name")
        if name in variants:
            part.refuse("name", f"is {name!r} in two variants; their names must differ.")
        variants[name] = part.flags()
    return variants


def _protocol(part: Entries) -> Protocol:
    episodes = part.count("episodes", Protocol.episodes, 1, 1_000_000)
    greedy = part.take("greedy", "true or false", (bool,), Protocol.greedy)
    seed = part.count("seed", Protocol.seed, 0, LARGEST_INT)
    part.end(("episodes", "greedy", "seed"))
    return Protocol(episodes, greedy, seed)


def _curves(part: Entries) -> tuple[str, ...]:
    metrics = part.texts("metrics") or ()
    part.end(("metrics",))
    return metrics
