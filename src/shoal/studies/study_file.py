"""Study files: TOML that describes a grid of runs, and what to compare. Does not import JAX and executes nothing."""

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from shoal.bounds import LARGEST_INT
from shoal.environments.names import path_words
from shoal.errors import InputError, unknown
from shoal.plots.charts import Vertical
from shoal.security import reading
from shoal.studies.keys import Keys, key
from shoal.studies.tuning.file import Tuning, tuning
from shoal.system.shipped import installed, studies

# What the pages of a study show: the parts ``[[tables]]``, ``[[figures]]``, ``[[scales]]`` and ``[[references]]``.


Scaling = Literal["raw", "known", "observed"]
Kind = Literal["curves", "profiles", "estimates", "improvement"]
TRAINING = "train/"
"""Prefix of a metric of training, whose curve the records keep (``[record] metrics``)."""
ALONE = ("mean", "area", "drop")
"""The statistics that are numbers of a single run."""


@dataclass(frozen=True)
class Table:
    """A table of the results page: one value for each combination of rows and columns."""

    number: int = 1
    """Counted from 1, for messages."""
    title: str = ""
    rows: tuple[str, ...] | None = None
    """Axes; None for all that are not columns."""
    columns: tuple[str, ...] | None = None
    """Axes; None for the environment, unless it is in ``over``."""
    over: tuple[str, ...] = ()
    """Axes whose runs are tasks: an entry is an aggregate over them."""
    where: dict[str, Any] = field(default_factory=dict)
    """Values of axes; other runs are left out."""
    metric: str = "score"
    """``score``, ``length``, a metric of the environment, ``return/`` and a role (:meth:`EnvSpec.role_returns`), or
    ``train/`` and a metric of training."""
    statistics: tuple[str, ...] = ("mean",)
    """Keys of :data:`shoal.studies.summaries.STATISTICS`; several are columns."""
    scale: Scaling | None = None
    """``raw`` scores, normalised by the ``known`` worst and best of ``[[scales]]``, or by the lowest and highest score
    ``observed`` in the table. None: raw for one task, else known where all tasks have such scores, else observed."""
    baseline: dict[str, Any] = field(default_factory=dict)
    """Values of row axes; if given, a second table compares each row with this one."""
    paired: bool = False
    """Whether the second table compares each seed with the same seed of the baseline, rather than all seeds of one with
    all of the other; if both have one seed, each of its episodes with the same one. They are the same episodes if both
    act in the same mode, and seeds are trained together in both or separately in both."""

    part = "tables"


@dataclass(frozen=True)
class Figure(Table):
    """A figure of the results page: a line or a row of dots for each combination of ``rows``."""

    kind: Kind = "curves"
    """Sample-efficiency ``curves``, performance ``profiles``, point ``estimates`` with intervals, or the probability of
    ``improvement`` of each pair of lines. Each combination of ``columns`` has a picture of its own."""
    vertical: Vertical = "linear"
    """The scale of the vertical axis of curves."""

    part = "figures"


@dataclass(frozen=True)
class Primary:
    """The metric on which a study's conclusions are based, chosen before its results are known."""

    metric: str
    """As :attr:`Table.metric`."""
    statistic: str = "mean"
    """A key of :data:`shoal.studies.summaries.STATISTICS` that is a number of a single run."""
    floor: float | None = None
    """The value of doing nothing, in every task. None: the worst score of ``[[scales]]``, or 0 for a share."""
    ceiling: float | None = None
    """The largest possible value, in every task. None: the best score of ``[[scales]]``, or 1 for a share."""


@dataclass(frozen=True)
class ScoreRange:
    """The known worst and best score of one or several tasks: they become 0 and 1."""

    number: int
    where: dict[str, Any]
    """Values of axes."""
    worst: float
    best: float
    source: str


@dataclass(frozen=True)
class Reference:
    """A published value for one or several runs."""

    number: int
    """Counted from 1, for messages."""
    where: dict[str, Any]
    """Values of axes."""
    metric: str
    value: float
    low: float | None
    high: float | None
    source: str


CROSSPLAY = "[crossplay]"
"""The table of the file, in messages."""


@dataclass(frozen=True)
class Crossplay:
    """The games of every run with every run that the records of an environment's runs are followed by."""

    episodes: int = 128
    """Whole episodes of each pair of seeds."""
    seed: int = 0
    """Seed of the episodes."""
    side: tuple[str, ...] = ()
    """The agents of side 1, by name or number; all others are side 2. Empty: as :func:`shoal.crossplay` chooses."""
    greedy: bool | None = None
    """Act by the mode of the policy rather than by sampling; None: each run in the mode of its final evaluation."""
    baseline: dict[str, Any] = field(default_factory=dict)
    """Values of axes that name one run of each environment, with which the others are compared."""


def parsed_table(number: int, part: Keys) -> Table:
    """Read one of ``[[tables]]``."""
    rows, columns, common = part.texts("rows"), part.texts("columns"), _common_keys(part)
    baseline, paired = part.table("baseline").flags(), part.take("paired", "true or false", (bool,), False)
    part.end(("rows", "columns", "over", "title", "where", "metric", "statistic", "scale", "baseline", "paired"))
    return Table(number=number, rows=rows, columns=columns, baseline=baseline, paired=paired, **common)


def parsed_figure(number: int, part: Keys) -> Figure:
    """Read one of ``[[figures]]``, whose rows are called ``lines`` and whose columns ``panels``."""
    lines, panels, common = part.texts("lines"), part.texts("panels"), _common_keys(part)
    kind = _among(part, "kind", get_args(Kind), "curves")
    vertical = _among(part, "vertical", get_args(Vertical), "linear")
    part.end(("kind", "lines", "panels", "over", "title", "where", "metric", "statistic", "scale", "vertical"))
    if kind != "curves" and vertical != "linear":
        part.refuse("vertical", f"applies only to curves, so it cannot be {vertical!r} if kind is {kind!r}.")
    if kind != "curves" and common["metric"].startswith(TRAINING):
        part.refuse("metric", f"is a metric of training, so kind must be 'curves', not {kind!r}.")
    if kind == "curves" and (len(common["statistics"]) > 1 or common["statistics"][0] not in ("mean", "median", "iqm")):
        part.refuse("statistic", "must be mean, median or iqm for curves.")
    if kind == "estimates" and "improvement" in common["statistics"]:
        part.refuse("statistic", "'improvement' compares lines, so kind must be 'improvement', not 'estimates'.")
    given: dict[str, Any] = {"kind": kind, "vertical": vertical}
    return Figure(number=number, rows=lines, columns=panels, **given, **common)


def parsed_primary(part: Keys) -> Primary:
    """Read ``[primary]``."""
    floor, ceiling = part.number("floor", None), part.number("ceiling", None)
    found = Primary(part.text("metric"), part.text("statistic", Primary.statistic), floor, ceiling)
    part.end(("metric", "statistic", "floor", "ceiling"))
    if floor is not None and ceiling is not None and math.isclose(floor, ceiling):
        part.refuse("ceiling", f"must differ from floor, but both are {floor:g}.")
    return found


def parsed_crossplay(part: Keys) -> Crossplay:
    """Read ``[crossplay]``."""
    episodes = part.count("episodes", Crossplay.episodes, 1, 1_000_000)
    seed = part.count("seed", Crossplay.seed, 0, LARGEST_INT)
    side, greedy = part.texts("side", "the name of an agent") or (), _mode(part, None)
    baseline = part.table("baseline").flags()
    part.end(("episodes", "seed", "side", "greedy", "baseline"))
    return Crossplay(episodes, seed, side, greedy, baseline)


def parsed_range(number: int, part: Keys) -> ScoreRange:
    """Read one of ``[[scales]]``."""
    source, worst, best = part.text("source"), part.number("worst"), part.number("best")
    assert worst is not None and best is not None
    if math.isclose(worst, best):
        part.refuse("best", f"must differ from worst, but both are {best:g}.")
    return ScoreRange(number, part.flags(), worst, best, source)


def parsed_reference(number: int, part: Keys) -> Reference:
    """Read one of ``[[references]]``."""
    source, metric, value = part.text("source"), part.text("metric", "score"), part.number("value")
    low, high = part.number("low", None), part.number("high", None)
    assert value is not None
    if low is None and high is not None:
        part.refuse("low", "is missing; an interval has both low and high.")
    if low is not None and high is None:
        part.refuse("high", "is missing; an interval has both low and high.")
    if low is not None and high is not None and not low <= value <= high:
        part.refuse("value", f"must be in the interval [{low:g}, {high:g}] from low to high, not {value:g}.")
    return Reference(number, part.flags(), metric, value, low, high, source)


def _common_keys(part: Keys) -> dict[str, Any]:
    return {
        "title": part.text("title", ""),
        "over": part.texts("over") or (),
        "where": part.table("where").flags(),
        "metric": part.text("metric", "score"),
        "statistics": part.texts("statistic", "a statistic") or ("mean",),
        "scale": _among(part, "scale", get_args(Scaling), None),
    }


def _among(part: Keys, key: str, known: tuple[str, ...], default: str | None) -> str | None:
    found = part.text(key, "") or default
    if found is not default and found not in known:
        part.refuse(key, f"must be one of {', '.join(known)}, not {found!r}.")
    return found


# The file.


MAX_FILE_BYTES = 2**20
"""Largest size of a study file in bytes."""
SEED = 1_000_000
"""Default seed of the final episodes, which differs from all usual seeds of training."""
_KEYS = ("title", "question", "notes", "defaults", "grid", "variants", "overrides", "exclude")
_KEYS += ("evaluation", "primary", "record", "tables", "figures", "levels", "scales", "references", "tuning")
_KEYS += ("crossplay",)
_OF_STUDIES = {"question", "defaults", "grid", "variants"}
"""Keys by which a study is told apart from other TOML files."""


@dataclass(frozen=True)
class Protocol:
    """The final evaluation of every run."""

    episodes: int = 256
    """Whole episodes of each seed."""
    greedy: bool | None = True
    """Act by the mode of the policy rather than by sampling; None: each run in the better of both
    (:func:`shoal.training.evaluation.preferred`)."""
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
    scales: tuple[ScoreRange, ...]
    references: tuple[Reference, ...]
    tuning: Tuning | None = None
    primary: Primary | None = None
    """The metric on which conclusions are based; None if the file names none."""
    levels: tuple[str, ...] = ()
    """The studies whose records are levels (:mod:`shoal.studies.levels`): names, or files in this one's folder."""
    crossplay: Crossplay | None = None
    """The games of every run with every run (:mod:`shoal.studies.crossplay`); None if the file asks for none."""
    notes: tuple[str, ...] = ()
    """What a reader of the tables has to know."""

    def error(self, sentence: str) -> InputError:
        """An error whose message names the file."""
        return InputError(f"{self.path}: {sentence}")


HERE = Path("studies")
"""The folder of studies in the working directory."""


def study_path(name: str | Path) -> Path:
    """The path of a study: a file ``*.toml``, or the name of one in :func:`shipped`.

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


def path_of_levels(path: Path, name: str) -> Path:
    """The file of a study that the file ``path`` names as its ``levels``.

    Raises:
        InputError: there is none, or it may be elsewhere.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(f"{path}: levels must be names of studies, or files in the folder of this one, not {name!r}.")
    try:
        return study_path(path.parent / name if Path(name).suffix == ".toml" else name)
    except InputError as error:
        if (path.parent / f"{name}.toml").is_file():
            raise InputError(f"{path}: levels: the file beside this one is '{name}.toml', not {name!r}.") from None
        raise InputError(f"{path}: levels: {error}") from None


def shipped() -> dict[str, Path]:
    """The studies that come with Shoal, by name; those in ``studies/`` of the working directory come before them."""
    files = [*studies().glob("*.toml"), *HERE.glob("*.toml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def home(path: Path) -> Path:
    """The folder that contains a study's records and results by default: the file's own, or ``studies/`` of the working
    directory for a file of the installed package."""
    return HERE if installed(path) else path.parent


def command_word(study: StudyFile, on_page: bool = False) -> str:
    """The study as a word of a shell command: its name if commands find the file by it, otherwise the file's path,
    relative to the working directory if it is below that; of another absolute path on a page the name alone, since its
    folders may name a user."""
    here, path = Path().resolve(), study.path.resolve()
    if found_by_name(study):
        return path_words(study.name)
    if path.is_relative_to(here):
        return path_words(path.relative_to(here))
    return path_words(study.path.name if on_page and study.path.is_absolute() else study.path)


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


def link_text(study: StudyFile) -> str:
    """The study's file as a page in ``results/`` names it: a link if it is in the folder above."""
    name = f"{study.name}.toml"
    return f"{name}, which comes with Shoal" if installed(study.path) else f"[{name}](../{name})"


def is_study(path: Path) -> bool:
    """Whether a file ``*.toml`` is to be a study: it has a question, a grid, variants or defaults.

    Raises:
        InputError: it is not TOML.
    """
    return bool(_OF_STUDIES & reading.read_toml(path, "study file", MAX_FILE_BYTES).keys())


def read_study(path: Path) -> StudyFile:
    """Read a study file and check its structure.

    Raises:
        InputError: it is not TOML, or a key is missing, unknown or of the wrong type. The message names file and key.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}", path.stem):
        raise InputError(
            f"{path}: the name of a study file, without .toml, must have at most 80 of the characters a-z A-Z 0-9 _ . "
            f"- and start with none of . -."
        )
    whole = Keys(path, "", reading.read_toml(path, "study file", MAX_FILE_BYTES))
    title, question, notes = whole.text("title"), whole.text("question"), whole.lines("notes")
    defaults, grid = whole.table("defaults").flags(), _grid(whole.table("grid"))
    variants = _variants(whole.tables("variants"))
    overrides, exclude = whole.tables("overrides"), whole.tables("exclude")
    evaluation, kept = whole.table("evaluation"), whole.table("record")
    tables, figures = whole.tables("tables"), whole.tables("figures")
    scales, references = whole.tables("scales"), whole.tables("references")
    protocol = _protocol(evaluation)
    searched = replace(tuning(whole.table("tuning")), greedy=protocol.greedy) if "tuning" in whole.left else None
    primary = parsed_primary(whole.table("primary")) if "primary" in whole.left else None
    played = parsed_crossplay(whole.table("crossplay")) if "crossplay" in whole.left else None
    levels = whole.texts("levels", "the name of a study") or ()
    for name in levels:
        path_of_levels(path, name)
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
        protocol,
        _curves(kept),
        tuple(parsed_table(i, one) for i, one in enumerate(tables, 1)),
        tuple(parsed_figure(i, one) for i, one in enumerate(figures, 1)),
        tuple(parsed_range(i, one) for i, one in enumerate(scales, 1)),
        tuple(parsed_reference(i, one) for i, one in enumerate(references, 1)),
        searched,
        primary,
        levels,
        played,
        notes,
    )


def _grid(part: Keys) -> dict[str, tuple]:
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


def _variants(parts: list[Keys]) -> dict[str, dict[str, Any]]:
    variants: dict[str, dict[str, Any]] = {}
    for part in parts:
        name = part.text("name")
        if name in variants:
            part.refuse("name", f"is {name!r} in two variants; their names must differ.")
        variants[name] = part.flags()
    return variants


def _mode(part: Keys, default: bool | None) -> bool | None:
    """Take ``greedy``: true, false, or "better" for each run's better mode of acting, which is None."""
    what = 'true, false or "better"'
    found = part.take("greedy", what, (bool, str), default)
    if isinstance(found, str) and found != "better":
        part.refuse("greedy", f"must be {what}, not {found!r}.")
    return None if found == "better" else found


def _protocol(part: Keys) -> Protocol:
    episodes = part.count("episodes", Protocol.episodes, 1, 1_000_000)
    greedy = _mode(part, Protocol.greedy)
    seed = part.count("seed", Protocol.seed, 0, LARGEST_INT)
    part.end(("episodes", "greedy", "seed"))
    return Protocol(episodes, greedy, seed)


def _curves(part: Keys) -> tuple[str, ...]:
    metrics = part.texts("metrics", "a metric") or ()
    part.end(("metrics",))
    return metrics
