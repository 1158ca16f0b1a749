"""The plan of a study: every run with its whole configuration and its name, checked before anything starts."""

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal import algorithms
from shoal.bounds import check_bounds
from shoal.config.resolve import SIZES, Layer, Merged, completed, merged
from shoal.environments import registry
from shoal.environments.names import check_name
from shoal.errors import InputError, unknown
from shoal.options.flags import check_names, flags_of, options_from_json, override
from shoal.storage import manifest
from shoal.studies.archive import CROSSPLAY_PREFIX, TUNING_PREFIX
from shoal.studies.combinations import Combination, combinations
from shoal.studies.keys import label, labels
from shoal.studies.study_file import Protocol, StudyFile
from shoal.studies.summaries import STATISTICS
from shoal.system.files import to_json
from shoal.system.shipped import page
from shoal.training.settings import Settings

# Names of runs: a readable text and a digest of the configuration, for folders and records.


_MAX_NAME = 80
_FIRST_IN_NAME = ("algorithm", "environment")


def readable_name(values: Mapping[str, Any]) -> str:
    """The values of a run's axes as a file name."""
    others = [f"{axis.removeprefix('env.')}-{label(x)}" for axis, x in values.items() if axis not in _FIRST_IN_NAME]
    text = "-".join([*(values[axis] for axis in _FIRST_IN_NAME), *others])
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:_MAX_NAME].strip("-.")
    return f"run-{name}" if name.startswith((CROSSPLAY_PREFIX, TUNING_PREFIX)) else name  # an own algorithm's file


def config_digest(
    algorithm: str,
    environment: str,
    env: Mapping[str, Any],
    values: Merged,
    known: Mapping[str, Any],
) -> str:
    """A digest of everything that determines the training.

    Values that equal their defaults are left out, so that a version with another option has the same digests.

    Args:
        algorithm: its name.
        environment: its name.
        env: options of the environment.
        values: settings and hyper-parameters. The sizes that do not depend on the length of an episode always count.
        known: the environment's options as parameters, which have defaults.
    """
    parts: dict[str, Any] = {"algorithm": algorithms.canonical(algorithm), "environment": environment}
    parts["env"] = {name: x for name, x in env.items() if name not in known or known[name].default != x}
    for part, now in (("settings", values.settings), ("config", values.config)):
        defaults = flags_of(type(now)())
        parts[part] = {flag: value for flag, value in flags_of(now).items() if value != defaults[flag]}
    parts["settings"].pop("eval_episodes", None)
    parts["settings"] |= {size: getattr(values.settings, size) for size in SIZES if size not in values.sized}
    text = json.dumps(to_json(parts), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def existing_path(path: Path) -> Path:
    """``path``, or a folder or file next to it with the same digest: the readable part may have changed."""
    if path.exists():
        return path
    pattern = f"*-{path.name.rpartition('-')[2]}"
    return next(iter(sorted(path.parent.glob(pattern))), path)


# The plan.


_FIRST = ("algorithm", "environment")
_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NOT_HERE = {
    "eval_episodes": "is set in [evaluation] as episodes",
    "folder": "is set by the study; use --out for the folder of all runs",
    "resume": "is not needed: a study resumes its runs automatically",
    "progress": "is a flag of shoal study",
}
"""Flags of ``shoal train`` that are not set in a study's runs, and the reason."""
_NOT_SEARCHED = "unsearched"  # at the end of a name, so that no record of other values fits
TUNED = "tuned"
"""The flag of runs that take the values that ``shoal tune`` found."""


@dataclass(frozen=True)
class Cell:
    """One run of a study. It can be pickled, so that another process can run it."""

    study: str
    """Name of the study."""
    values: dict[str, Any]
    """The value of each axis."""
    algorithm: str
    environment: str
    env: dict[str, Any]
    """Options of the environment's factory."""
    flags: dict[str, Any]
    """Fields of the settings and of the algorithm's ``Config`` that the file sets."""
    evaluation: Protocol
    name: str
    """A readable text and a digest of the configuration, for file names."""
    folder: Path
    """The run's folder."""
    curves: tuple[str, ...] = ()
    """Metrics of training whose curves the record keeps in addition to the score's."""

    @property
    def title(self) -> str:
        """For example ``mappo in matrix/climbing, gamma 0.9``."""
        return labels(self.values)

    @property
    def digest(self) -> str:
        """The end of :attr:`name`: a digest of everything that determines the training."""
        return self.name.rpartition("-")[2]

    @property
    def searched(self) -> bool:
        """Whether its values are known: not those of a run with the flag ``tuned`` before its search."""
        return self.digest != _NOT_SEARCHED

    def merged(self) -> Merged:
        """The settings and the algorithm's ``Config``, with the preset's values.

        Without a preset or a flag, the number of environments and the rollout length are those for the length of an
        episode (:attr:`shoal.config.resolve.Merged.sized`); they are known once the environment is built.
        """
        return merged(self.algorithm, self.environment, [Layer(self.flags)])

    def resolved(self) -> tuple[Settings, Any]:
        """The settings and the ``Config`` of :meth:`merged`."""
        found = self.merged()
        return found.settings, found.config

    def difference(self, run: Mapping[str, Any]) -> str | None:
        """The first difference between a run's configuration and this cell's, as text; None if they are equal.

        Args:
            run: the entry ``config`` of ``run.json``. Keys that it lacks or that are unknown here are not compared.
        """
        found = self.merged()
        here = {"algorithm": algorithms.canonical(self.algorithm), "environment": self.environment}
        known = registry.options_of(self.environment)
        here |= _set_options(self.env, known)
        there = {key: run.get(key) for key in ("algorithm", "environment")}
        there |= _set_options(run.get("env", {}), known)
        for part, now in (("settings", flags_of(found.settings)), ("config", flags_of(found.config))):
            left_out = {*found.sized, "eval_episodes"} if part == "settings" else _decided(self.algorithm, now)
            before = run.get(part, {})
            both = [name for name in now if name in before and name not in left_out]
            here |= {name: now[name] for name in both}
            there |= {name: before[name] for name in both}
        if _same_run(here.get("init_from"), there.get("init_from")):
            there["init_from"] = here["init_from"]
        if isinstance(script := here.get("opponents"), str):
            here["opponents"] = completed({"opponents": script})["opponents"]
        for name in here | there:
            if (now := to_json(here.get(name, "not set"))) != (was := to_json(there.get(name, "not set"))):
                return f"{name} is {label(was)} there and {label(now)} in the study"
        return None


def _set_options(env: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an environment that are not at their defaults, as flags."""
    own = {name: x for name, x in env.items() if name not in known or to_json(known[name].default) != to_json(x)}
    return {f"env.{name}": x for name, x in own.items()}


def _same_run(given: Any, kept: Any) -> bool:
    """Whether a run that keeps ``kept``, a whole path, as its ``init_from`` may have been given the path ``given``,
    also in another working directory."""
    if not isinstance(given, str) or not isinstance(kept, str):
        return False
    path = Path(given).expanduser()
    inside = path.parent if path.name in (manifest.RUN_JSON, "checkpoints", "policy") else path
    return any(one.parts and Path(kept).parts[-len(one.parts) :] == one.parts for one in (path, inside))


def _decided(algorithm: str, flags: Iterable[str]) -> frozenset[str]:
    """The flags of a run's configuration that hold what its algorithm decided before training."""
    module = algorithms.get(algorithm)
    return frozenset(getattr(module, "DECIDED", flags)) if hasattr(module, "prepare") else frozenset()


def plan(
    study: StudyFile, out: Path, winner: Callable[[Combination], Mapping[str, Any] | None] | None = None
) -> list[Cell]:
    """The runs of a study in a stable order, each with its whole configuration. No environment is built.

    The user's own modules are imported if algorithms or environments are defined in them.

    Args:
        study: the study.
        out: folder in which the study has a folder with its runs' folders.
        winner: gives the flags that tuning found for a combination with the flag ``tuned``, or None if its search is
            not recorded; the cell is then not :attr:`Cell.searched`.

    Raises:
        InputError: a combination is invalid: an algorithm, an environment, a flag or an option is unknown or has a
            value of the wrong type or out of bounds, or two runs are the same. The message names the file and the key.
    """
    for part in (*study.tables, *study.figures):
        for statistic in part.statistics:
            if statistic not in STATISTICS:
                title = f"[[{part.part}]] {part.number}"
                raise study.error(f"{title}: {unknown('statistic', statistic, STATISTICS)}")
    cells, seen = [], dict[str, Cell]()
    checked: set[tuple] = set()
    for one in combinations(study):
        tuned = is_tuned(study, one)
        found = winner(one) if tuned and winner else {}
        cell = cell_of(study, one, out, checked, found)
        # Searches may find the same, or the default: such runs share a record.
        if not tuned and (other := seen.setdefault(cell.digest, cell)) is not cell:
            raise study.error(f"{other.title} and {cell.title} are the same run; remove one of them.")
        cells.append(cell if found is not None else replace(cell, name=f"{cell.name}-{_NOT_SEARCHED}"))
    return cells


def is_tuned(study: StudyFile, one: Combination) -> bool:
    """Whether a run takes the values that tuning finds.

    Raises:
        InputError: ``tuned`` is neither true nor false, or the study has no tuning.
    """
    found = one.flags.get(TUNED, False)
    if not isinstance(found, bool):
        raise study.error(f"{one.origins[TUNED]} must be true or false, not {found!r}.")
    if found and study.tuning is None:
        where = page("docs/tuning.md")
        raise study.error(f"{one.origins[TUNED]} requires the table [tuning] with the flags to tune ({where}).")
    return found


def cell_of(
    study: StudyFile, one: Combination, out: Path, checked: set[tuple], found: Mapping[str, Any] | None = None
) -> Cell:
    """The cell of a combination.

    Args:
        study: the study.
        one: the combination.
        out: folder in which the study has a folder with its runs' folders.
        checked: flags that were found valid, which this function adds to: most recur in many runs.
        found: flags from tuning, which replace the file's.

    Raises:
        InputError: see :func:`plan`.
    """
    algorithm, environment = one.values["algorithm"], one.values["environment"]
    try:
        algorithms.check_name(algorithm)
        module = algorithms.get(algorithm)
    except InputError as error:
        raise study.error(f"{one.origins['algorithm']}: {error}") from None
    try:
        check_name(environment)
        known = registry.options_of(environment)
    except InputError as error:
        raise study.error(f"{one.origins['environment']}: {error}") from None
    env, flags = {}, {}
    for flag, value in one.flags.items():
        if flag.startswith("env."):
            option = flag.removeprefix("env.")
            env[option] = _option(study, one, option, value, known)
        elif flag not in (*_FIRST, TUNED):
            flags[flag] = checked_flag(study, one, flag, value, module, checked)
    flags |= found or {}
    missing = [p.name for p in known.values() if p.default is p.empty and p.kind in _NAMED and p.name not in env]
    if missing:
        raise study.error(f"{environment} requires the option env.{missing[0]}.")
    cell = Cell(study.name, one.values, algorithm, environment, env, flags, study.evaluation, "", out)
    try:
        values = cell.merged()
        values.settings.check()
        check_bounds(values.config)
    except InputError as error:
        raise study.error(f"{cell.title}: {error}") from None
    name = f"{readable_name(one.values)}-{config_digest(algorithm, environment, env, values, known)}"
    folder = out / study.name / name
    cell = Cell(
        study.name, one.values, algorithm, environment, env, flags, study.evaluation, name, existing_path(folder)
    )
    return replace(cell, curves=study.curves)


def _option(study: StudyFile, one: Combination, option: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The value of an environment's option; its factory checks it when the environment is built."""
    flexible = any(p.kind is p.VAR_KEYWORD for p in known.values())
    if option not in known and not flexible:
        environment, origin = one.values["environment"], one.origins[f"env.{option}"]
        raise study.error(f"{origin}: {unknown(f'option of {environment} named', option, known)}")
    if value == "None" and option in known and known[option].default is None:
        return None
    return options_from_json({option: list(value) if isinstance(value, tuple) else value}, known)[option]


def checked_flag(study: StudyFile, one: Combination, flag: str, value: Any, module: Any, checked: set[tuple]) -> Any:
    """The checked value of a flag; ``"None"`` is None where the flag may be None, since TOML has no such value."""
    configs = (Settings(), module.Config())
    given = None if value == "None" and _takes_none(flag, configs) else value
    origin, algorithm = one.origins[flag], one.values["algorithm"]
    if (algorithm, flag, repr(given)) in checked:
        return given
    if flag in _NOT_HERE:
        raise study.error(f"{origin} {_NOT_HERE[flag]}.")
    try:
        check_names([flag], *configs)
        for config in configs:
            check_bounds(override(config, {flag: given}))
    except InputError as error:
        named = (*study.grid.get("algorithm", ()), *(part.get("algorithm") for part in study.variants.values()))
        has = [] if flag in flags_of(module.Config()) else _with(flag, named)
        sentence = f"{algorithm} has no such flag; set it in [[overrides]] for {has[0]}." if has else str(error)
        raise study.error(f"{origin}, for {algorithm}: {sentence}") from None
    checked.add((algorithm, flag, repr(given)))
    return given


def _with(flag: str, named: Iterable[Any]) -> list[str]:
    """The algorithms among ``named`` that have a flag."""
    names = (name for name in named if isinstance(name, str) and algorithms.known(name))
    return [name for name in names if flag in flags_of(algorithms.get(name).Config())]


def _takes_none(flag: str, configs: tuple) -> bool:
    try:
        return bool([override(config, {flag: None}) for config in configs])
    except InputError:
        return False
