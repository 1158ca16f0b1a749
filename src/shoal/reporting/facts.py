"""What a run's files say: configuration, scores, log, and the commands that train it again.

Missing and damaged files are noted. The folder is untrusted: nothing in it is imported or executed, except that opening
a run imports an algorithm ``module:make`` under the rules of :func:`shoal.open_run`.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from shoal import algorithms
from shoal.config.resolve import merged, without_effect
from shoal.environments.names import commands_with, path_words
from shoal.errors import InputError
from shoal.options.convert import Anything
from shoal.options.flags import flags_of
from shoal.plots.texts import number_text
from shoal.presets import sizes_for
from shoal.reporting import references
from shoal.runs.open import open_run
from shoal.runs.run import Run
from shoal.statistics.intervals import Estimate
from shoal.storage import folders, log, manifest
from shoal.storage.zoo import is_policy_folder, name_of
from shoal.training import ending
from shoal.training.settings import Settings
from shoal.trust import permission
from shoal.trust.run_file import config_of_run


@dataclass(frozen=True)
class Scores:
    """One evaluation of all seeds."""

    estimate: Estimate
    """Mean and interval."""
    per_seed: tuple[float, ...]
    """NaN where unknown."""
    metrics: Mapping[str, tuple[Estimate, tuple[float, ...]]]
    """The environment's metrics by name: the mean with its interval, and the values of single seeds."""


@dataclass(frozen=True)
class Facts:
    """A run as its folder describes it."""

    folder: Path
    entries: dict[str, Any]
    """The configuration in ``run.json``, with its names and keys checked."""
    made: dict[str, Any]
    """Versions, commit, platform and hardware; unchecked."""
    rows: list[dict[str, Any]]
    """The columns of the log."""
    evaluation: dict[str, Any]
    """Contents of ``evaluation.json``, unchecked; empty if there is none."""
    last: Scores | None
    """The final evaluation of the last policies."""
    best: Scores | None
    """The final evaluation of the best policies."""
    references: Mapping[str, Scores]
    """Scores of teams that do not learn, by their names (:mod:`shoal.reporting.references`)."""
    run: Run | None
    """The opened run; None if it cannot be opened."""
    notes: list[str] = field(default_factory=list)
    """What is missing or damaged, in one sentence each."""
    other: Scores | None = None
    """The final evaluation of the last policies in the mode in which they do not act by default, if it was made."""
    passed: int | None = None
    """The step of the final evaluation if the run has trained on since: it is not that of the last policies then."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """Algorithm and environment."""
        return f"{self.entries['algorithm']} on {self.entries['environment']}"

    @property
    def seeds(self) -> range:
        """The run's seeds, if ``run.json`` has them."""
        first, count = (self.entries["settings"].get(key) for key in ("seed", "seeds"))
        sound = type(first) is int and type(count) is int and 1 <= count <= 65_536
        return range(first, first + count) if sound else range(1)

    @property
    def metrics(self) -> list[str]:
        """Names of the environment's metrics."""
        found = self.entries["spec"].get("metrics")
        return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []

    @property
    def evaluated(self) -> tuple[str, str]:
        """What :attr:`last` and :attr:`best` are the scores of."""
        if self.passed is None:
            return "last policies", "best policies"
        step = number_text(self.passed)
        return f"policies after step {step}", f"best policies up to step {step}"

    @property
    def ended(self) -> str:
        """How the run ended, as a sentence."""
        if self.run is None:
            steps = max((row["step"] for row in self.rows), default=0)
            return f"The log reaches step {number_text(steps)}."
        settings, at = self.run.settings, self.run.at
        if at.update == 0 and is_policy_folder(self.folder):
            return "A policy without its training."
        if at.update == 0:
            return "No checkpoint of the run is intact, so its progress is unknown."
        if ending.ended(settings, at):
            early = ending.reason(settings, at)
            return f"Ended {early}." if early else f"Finished after {number_text(settings.last_step)} steps per seed."
        return f"Unfinished: at step {number_text(self.run.last_step)} of {number_text(settings.last_step)} per seed."


MAX_REFERENCES = 4
"""Largest number of teams that do not learn."""


def facts_of(
    folder: Path, run: Run | None = None, *, environment: Any = None, trust: bool = False, plays: bool = False
) -> Facts:
    """Read a run's folder.

    Args:
        folder: the run's.
        run: the run, if it is open already.
        environment: see :func:`shoal.open_run`.
        trust: see :func:`shoal.open_run`.
        plays: measure the scores of teams that do not learn, unless the folder has them.

    Raises:
        InputError: the folder holds no run, or its ``run.json`` is damaged.
    """
    found = manifest.read_run_json(folder)
    entries, notes = config_of_run(folder), []
    if run is None:
        try:
            run = open_run(folder, environment, trust=trust)
        except InputError as error:
            notes.append(sentence_without_folders(f"The run cannot be opened: {error}"))
            entries = found["config"]
    rows = log.read_log(folder, notes.append)
    if not rows and not is_policy_folder(folder):  # a policy has no log
        notes.append("The log (metrics.jsonl) is missing, so there are no curves.")
    evaluation = folders.read_evaluation(folder) or {}
    last = _scores(evaluation)
    damaged = (folder / folders.EVALUATION_FILE).exists()
    if last is None and (damaged or entries["settings"].get("eval_episodes") != 0):
        notes.append(
            "The final evaluation (evaluation.json) is damaged, so there is no final score."
            if damaged
            else "The final evaluation (evaluation.json) is missing, so there is no final score."
        )
    best, other = (
        _scores(part) if isinstance(part := evaluation.get(key), dict) else None for key in ("best", "other")
    )
    if (passed := _passed(folder, entries["settings"], evaluation)) is not None and last is not None:
        notes.append(
            f"The run has trained on since its final evaluation, whose scores are those of step {number_text(passed)}."
        )
    teams = references.read_references(folder)
    if teams is None:
        teams = references.measured(run) if plays and run is not None else {}
    known = {name: _scores(one) for name, one in teams.items()}
    levels = {name: one for name, one in list(known.items())[:MAX_REFERENCES] if one is not None}
    return Facts(folder, entries, found["made_with"], rows, evaluation, last, best, levels, run, notes, other, passed)


def _passed(folder: Path, settings: Any, evaluation: Mapping[str, Any]) -> int | None:
    """The step of the final evaluation, if a checkpoint or policies of a later one are there."""
    step, per_update = evaluation.get("step"), folders.steps_per_update(settings)
    if type(step) is not int or per_update is None:
        return None
    return step if folders.newest_step(folder, per_update) > step else None


def _scores(found: Mapping[str, Any]) -> Scores | None:
    """The numbers of an evaluation; None if they are malformed."""
    main = _estimated(found)
    if main is None:
        return None
    metrics = found.get("metrics")
    named = metrics.items() if isinstance(metrics, dict) else ()
    known = {name: _estimated(values) for name, values in named if isinstance(values, dict)}
    return Scores(*main, {name: values for name, values in known.items() if values is not None})


def _estimated(found: Mapping[str, Any]) -> tuple[Estimate, tuple[float, ...]] | None:
    each = found.get("per_seed")
    if not isinstance(each, list) or not each or not _is_number(found.get("mean")):
        return None
    mean, low, high = (json_number(found.get(key)) for key in ("mean", "low", "high"))
    return (mean, low, high), tuple(map(json_number, each))


def json_number(value: Any) -> float:
    """A number from JSON; NaN if it is none."""
    return float(value) if _is_number(value) else math.nan


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 10**15)


# The configuration of a run as tables, and the command that trains it again.


_LOCAL = ("devices", "workers", "num_workers", "worker_timeout", "address")
"""Settings that depend on the machine of the run."""


def without_folders(value: Any) -> Any:
    """A value, in which a text that is an absolute path is only its last part: the folders may name a user."""
    if isinstance(value, Mapping):
        return {name: without_folders(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_folders, value))
    local = isinstance(value, str) and (PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute())
    return PureWindowsPath(value).name or value if local else value


_FOLDERS = re.compile(
    r"""(?<=')/[^'\n]*/(?=[^'/\n]+')|(?<=')/[^'\n]*/(?=[^'/\n]*\.\.\.)|(?<![\w./:'~-])/(?:[^\s/'"]+/)+(?=[^\s/'"])"""
)
"""The folders of absolute paths: of quoted ones, of quoted ones that were cut short (``...``), and of others."""


def sentence_without_folders(text: str) -> str:
    """A message with only the last parts of absolute paths."""
    return _FOLDERS.sub("", text)


def flag_text(value: Any) -> str:
    """The value of a flag, for example ``64 64``; see :func:`without_folders`."""
    value = without_folders(value)
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return _short_number(value)
    if isinstance(value, tuple | list) and all(isinstance(x, bool | int | float | str) for x in value):
        return " ".join(map(flag_text, value)) or "nothing"
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
            "value": flag_text(value),
            "default": flag_text(plain[name]) if name in plain else "–",
            "from": "preset" if name in standard and standard[name] == value else "given",
        }
        for name, value in all_flags(run).items()
        if name not in plain or value != plain[name]
    ]
    options = ((_spelt(f"env.{name}"), flag_text(value)) for name, value in run.env_options.items())
    return [*rows, *({"flag": name, "value": value, "default": "–", "from": "given"} for name, value in options)]


def every_row(facts: Facts) -> list[dict[str, str]]:
    """All flags with their values, also of a run that cannot be opened."""
    entries = facts.entries
    found = all_flags(facts.run) if facts.run else {**entries["settings"], **entries["config"]}
    options = {f"env.{name}": value for name, value in entries["env"].items()}
    return [{"flag": _spelt(str(name)), "value": flag_text(value)} for name, value in {**found, **options}.items()]


def train_command(run: Run) -> str:
    """The shell command that trains this run again, or the call in Python if a command cannot express it; see
    :func:`without_folders`. The command lacks flags without effect, which it would refuse."""
    standard = standard_flags(run)
    changed = {
        name: without_folders(value)
        for name, value in all_flags(run).items()
        if name not in _LOCAL and (name not in standard or value != standard[name])
    }
    unused = without_effect(run.settings, run.config, changed, run.environment, lambda: run.spec)
    start = _first_words(run)
    flags = [_flag_words(name, value) for name, value in changed.items() if name not in unused]
    if start is not None and None not in flags:
        return shlex.join([*start, *(word for words in flags for word in words or ())])
    keywords = "".join(f", {name}={value!r}" for name, value in changed.items())
    env = f", env={without_folders(run.env_options)!r}" if run.env_options else ""
    environment = repr(run.environment) if run.by_name else "environment"
    return f"shoal.train({run.algorithm!r}, {environment}{env}{keywords})"


def _first_words(run: Run) -> list[str] | None:
    """The words of the command up to the environment's options; None if they cannot be written without importing an
    untrusted module."""
    names = ["shoal", "train", run.algorithm, run.environment]
    if not run.by_name or any(name.startswith("-") for name in names):
        return None
    if not run.env_options:
        return names
    given = without_folders(run.env_options)
    if permission.beyond(run.environment, run.env_options):
        options = [_plain_words(name, value) for name, value in given.items()]
        return None if None in options else [*names, *(word for words in options for word in words or ())]
    command, _ = commands_with(run.environment, given)
    found = shlex.split(command) if command.startswith("shoal train mappo ") else None
    return None if found is None else [*names[:3], *found[3:]]


def _plain_words(name: str, value: Any) -> list[str] | None:
    """An option of an environment as words, if they are the same whatever its type is in a module that is not read."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = isinstance(value, str) and Anything.read(value) == value
    return _flag_words(f"env.{name}", value) if name.isidentifier() and (number or text) else None


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
    return _short_number(value) if isinstance(value, float) else str(value)


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _short_number(value: float) -> str:
    """A number as short as it can be without changing it, with a short exponent: 1e7 rather than 1e+07."""
    text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", text)


def other_commands(facts: Facts, against: Facts | None = None) -> Mapping[str, str]:
    """Commands on the run's folder, by their purpose; ``against`` is the run with which the page compares it."""
    folder = path_words(shown_folder(facts))
    onward = {"Continue it": f"shoal train --resume {folder}"}
    if is_policy_folder(facts.folder):  # its training cannot be resumed
        start = None if facts.run is None else _first_words(facts.run)
        onward = {} if start is None else {"Train on from it": f"{shlex.join(start)} --init-from {folder}"}
    other = "" if against is None else f" --against {path_words(shown_folder(against))}"
    best = {"Evaluate the best policies": f"shoal evaluate {folder} --episodes 1000 --best"} if facts.best else {}
    return {
        **onward,
        "Evaluate the last policies": f"shoal evaluate {folder} --episodes 1000",
        **best,
        "Write a video": f"shoal replay {folder} --episodes 4",
        "Write this page": f"shoal report {folder}{other}",
    }


def shown_folder(facts: Facts) -> str:
    """The folder as the user gave it, or its name if the path is absolute."""
    return name_of(facts.folder) if facts.folder.is_absolute() else str(facts.folder)
