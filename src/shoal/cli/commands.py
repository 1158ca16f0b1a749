"""The commands of ``shoal`` with their flags; ``train`` and the commands of studies are in modules of their own."""

import ast
import dataclasses
import importlib.util
import itertools
import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import shoal
from shoal import algorithms
from shoal.bounds import LARGEST_INT, Bounds, check_bounds
from shoal.cli import completion, study, train
from shoal.cli.flags import Command, Flag, FlagValues, first_line, of_environment, of_fields
from shoal.environments.names import FAMILIES, check_name, completed
from shoal.errors import InputError, shortened, unknown
from shoal.storage import zoo
from shoal.system import notices, shipped
from shoal.system.files import dumps, write_text
from shoal.system.shipped import page

# Comparison of trained runs.


Level = Annotated[float, Bounds(least=-1e15, most=1e15)]


@dataclasses.dataclass
class Compare:
    """Compare methods by the final scores of their runs: means, medians and IQMs with intervals, and pairs."""

    runs: tuple[Path, ...]
    """The runs' folders, records *.json or *.jsonl.xz of studies, or files *.json in marl-eval's format. Runs of one
    algorithm with the same settings and hyper-parameters are one method, as are all runs of one algorithm in a file."""
    metric: str = "return"
    """The score, or a metric of the environment, for example won."""
    statistic: Literal["iqm", "mean", "median"] = "iqm"
    """Statistic of the curves and of the area under them."""
    normalise: tuple[Level, Level] | None = None
    """Worst and best score, which become 0 and 1; also shows the optimality gap."""
    output: Path | None = None
    """Also draw curves, performance profiles and probabilities of improvement: a .png, .pdf or .svg."""
    file_metric: str | None = None
    """Name of the metric in files of marl-eval's format; by default the same, and for return also mean_episode_return
    or episode_return."""
    tasks: tuple[str, ...] = ()
    """Environments of the tasks in such files, if the names differ, for example smax/3m=jaxmarl/smax/3m."""

    def __call__(self) -> int:
        """Print the tables, and the figure's path."""
        chosen = {"metric": self.metric, "statistic": self.statistic, "normalise": self.normalise}
        names = {"file_metric": self.file_metric, "tasks": _environments_of_tasks(self.tasks)}
        print(shoal.compare(self.runs, output=self.output, **chosen, **names))
        if self.output is not None:
            print(f"\nfigure: {self.output}")
        return 0


def _environments_of_tasks(words: tuple[str, ...]) -> dict[str, str]:
    """The environments in words such as ``smax/3m=jaxmarl/smax/3m``, by the name of the task."""
    names = {}
    for word in words:
        task, _, environment = word.partition("=")
        if not task or not environment:
            raise InputError(f"--tasks takes the name of a task and its environment, TASK=ENVIRONMENT, not {word!r}.")
        names[task] = environment
    return names


# Trained policies that play on two sides.


Episodes = Annotated[int, Bounds(least=1, most=1_000_000)]
Seed = Annotated[int, Bounds(least=0, most=LARGEST_INT)]


@dataclasses.dataclass
class Crossplay:
    """Play the policies of several runs against each other and print returns: rows play side 1, columns side 2."""

    runs: tuple[Path, ...]
    """The runs' folders, or zoo/NAME, all trained in the same environment."""
    side: tuple[str, ...] = ()
    """The agents of side 1, by name or index; all others are side 2. By default role 0 (in mpe/simple_tag the
    predators), or the first half of the agents if all have one role."""
    episodes: Episodes = 128
    """Episodes for each pair of a seed of one run and a seed of another."""
    sampled: bool | None = None
    """Draw actions from all policies; with --no-sampled take the most probable ones. None: each run acts as its final
    evaluation found better."""
    draw: Seed = 0
    """Seed of the episodes, the same for every entry."""
    past: bool = False
    """Also play the past policies of runs with --opponents past; they are listed before their run, the oldest first."""
    ratings: bool = False
    """Also print the share of episodes that each row wins, and Elo ratings. The side with the higher return wins an
    episode."""
    output: Path | None = None
    """Also write the numbers to this .json file."""
    trust: bool = False
    """Import the environment and algorithm that the folder names, even if they are neither Shoal's nor an extra's and
    you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Print a table for each side."""
        if not self.runs:
            raise InputError("shoal crossplay needs at least one run's folder.")
        if self.output is not None:
            into = self.output.parent
            if self.output.suffix != ".json" or not into.is_dir() or not os.access(into, os.W_OK):
                raise InputError(f"{self.output} is not a .json file in a folder that exists and can be written.")
        result = shoal.crossplay(
            self.runs,
            side=self.side,
            episodes=self.episodes,
            greedy=_greedy(self.sampled),
            seed=self.draw,
            trust=self.trust,
            past=self.past,
        )
        print(result)
        if self.ratings:
            print(f"\n{result.rating_table()}")
        if self.output is not None:
            numbers = result.as_json() | {"episodes": self.episodes, "draw": self.draw}
            if self.ratings:
                numbers["ratings"], numbers["advantage"] = result.ratings
            write_text(self.output, dumps(numbers, "cross-play", indent=1) + "\n")
        return 0


# A run or a study as a web page.


ReportEpisodes = Annotated[int, Bounds(least=1, most=1000)]


@dataclasses.dataclass
class Report:
    """Write a run or a study as one HTML file: scores, curves, configuration, commands, and episodes to replay. Of a
    folder of studies: all comparisons, with filters."""

    what: str
    """A run's folder, a study file *.toml, the name of a study in studies/, or a folder of study files."""
    out: Path | None = None
    """File to write: a .html; None for report.html in the folder of the run, of the study's runs, or of all of them."""
    against: Path | None = None
    """Another run in the same environment, shown next to the run: scores, curves, and episodes from the same initial
    states."""
    episodes: ReportEpisodes = 2
    """Played episodes of each policy."""
    replays: bool = True
    """Play episodes."""
    runs: Path = Path("runs/studies")
    """For a study: folder that contains the study's folder of runs, of which at most four are played."""
    records: Path | None = None
    """For a study: folder that contains the study's folder of records; None for records/ next to the study file."""
    trust: bool = False
    """Import the environment and algorithm that the folder or the study file names, even if they are neither Shoal's
    nor an extra's and you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Write the file and print its path."""
        print(shoal.report(**vars(self)))
        return 0


# Other commands, and the list of all.


def _greedy(sampled: bool | None) -> bool | None:
    return None if sampled is None else not sampled


@dataclasses.dataclass
class Evaluate:
    """Play whole episodes with a trained team and print its score."""

    run: Path
    """The run's folder, or zoo/NAME (docs/zoo.md)."""
    episodes: Episodes = 256
    """Episodes per seed."""
    sampled: bool | None = None
    """Draw actions from the policy; with --no-sampled take the most probable. None: both, where they differ, and
    first the one in which the run's policies act by default, or without a final evaluation the better one
    (docs/evaluation.md)."""
    draw: Seed = 0
    """Seed of the episodes."""
    best: bool = False
    """Play each seed's best policy instead of its last (needs training with --eval-every)."""
    trust: bool = False
    """Import the environment and algorithm that the folder names, even if they are neither Shoal's nor an extra's and
    you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Print the score."""
        run = shoal.open_run(self.run, trust=self.trust)
        step, steps = run.policies_step, run.settings.num_updates * run.settings.steps_per_update
        result = run.evaluate(self.episodes, greedy=_greedy(self.sampled), seed=self.draw, best=self.best)
        print(f"{result.mode} actions {result}" if result.other else result)
        if run.settings.seeds > 1:
            from shoal.plots.texts import decimals

            digits = decimals(result.mean, *result.interval)
            print("  ".join(f"seed {run.settings.seed + i}: {x:.{digits}f}" for i, x in enumerate(result.per_seed)))
        if step is not None and step < steps and not run.ended:
            whose = "the best policies up to" if self.best else "the policies of"
            print(f"{whose} step {step:,} of {steps:,}: the run has not finished")
        return 0


@dataclasses.dataclass
class Video:
    """Write an animation of a trained team's episodes."""

    run: Path
    """The run's folder, or zoo/NAME (docs/zoo.md)."""
    output: Path | None = None
    """File to write: a .gif, .mp4 (needs ffmpeg) or .png; None for replay.gif in the run's folder."""
    episodes: Episodes = 2
    """Number of episodes to show."""
    seed: Seed | None = None
    """The run's seed to show; None for the best."""
    sampled: bool | None = None
    """Draw actions from the policy; with --no-sampled take the most probable. None: the one that the run's final
    evaluation found better (docs/evaluation.md)."""
    trust: bool = False
    """Import the environment and algorithm that the folder names, even if they are neither Shoal's nor an extra's and
    you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Write the picture and print its path."""
        run = shoal.open_run(self.run, trust=self.trust)
        print(run.replay(self.output, episodes=self.episodes, greedy=_greedy(self.sampled), seed=self.seed))
        return 0


@dataclasses.dataclass
class Export:
    """Write a trained team's policies as an ONNX model, which runs without Shoal and JAX, or as StableHLO."""

    run: Path
    """The run's folder, or zoo/NAME (docs/zoo.md)."""
    output: Path | None = None
    """File to write, a .onnx or .stablehlo; None for policy.onnx or policy.stablehlo in the run's folder. A description
    of inputs, outputs, agents and actions is written beside it as .json."""
    format: Literal["onnx", "stablehlo"] = "onnx"
    """onnx, or stablehlo as jax.export reads it (docs/export.md)."""
    agent: str | None = None
    """Write the policy of this agent alone, by name or index; None for the whole team in one model."""
    best: bool = False
    """Export the best policy (--eval-every) instead of the last one."""
    seed: Seed | None = None
    """The run's seed to export; None for the first."""
    trust: bool = False
    """Import the algorithm that the folder names, even if it is not Shoal's and you did not train this run
    (docs/security.md)."""

    def __call__(self) -> int:
        """Write the model and print its path."""
        run = shoal.open_run(self.run, trust=self.trust)
        print(run.export(self.output, format=self.format, best=self.best, seed=self.seed, agent=self.agent))
        first, seeds = run.settings.seed, run.settings.seeds
        if self.seed is None and seeds > 1:
            notices.warn(f"This is seed {first}, the first of {seeds}; --seed chooses another.")
        return 0


@dataclasses.dataclass
class Curves:
    """Draw the learning curves of one run, or of several in one picture."""

    runs: tuple[Path, ...]
    """The runs' folders."""
    output: Path | None = None
    """File to write: a .png, .pdf or .svg; None for curves.png in the run's folder, or compare.png for several."""
    metrics: tuple[str, ...] = ("return",)
    """Columns of metrics.jsonl, one panel for each."""
    trust: bool = False
    """Import the algorithm that the folder names, even if it is not Shoal's and you did not train this run
    (docs/security.md)."""

    def __call__(self) -> int:
        """Draw them and print the picture's path."""
        if not self.runs:
            raise InputError("shoal curves needs at least one run's folder.")
        if len(self.runs) == 1:
            print(shoal.open_run(self.runs[0], trust=self.trust).curves(self.output, self.metrics))
        else:
            print(shoal.curves(self.runs, self.output, self.metrics))
        return 0


@dataclasses.dataclass
class List:
    """List the algorithms, the environments, or the tasks of a family of environments, one on each line."""

    what: str
    """Either algorithms or environments, or the beginning of environments' names, for example skirmish/."""

    def __call__(self) -> int:
        """Print the lines."""
        if self.what == "algorithms":
            lines = {name: _first_line_of(f"shoal.algorithms.{name}") for name in algorithms.NAMES}
            lines |= {name: _first_line_of(module) for name, module in algorithms.SCRIPTED.items()}
            lines |= {name: f"{same}, in an environment of one agent." for name, same in algorithms.ALONE.items()}
        elif self.what == "environments":
            from shoal.environments import registry  # imports JAX

            lines = {name: first_line(registry.factory_of(name).__doc__) for name in registry.names()} | _families()
        elif self.what and (tasks := completed(self.what)):
            described = _families()
            lines = {f"{task}…" if task in FAMILIES else task: described.get(f"{task}…", "") for task in tasks}
        else:
            raise unknown("list of", self.what, ("algorithms", "environments"))
        width = max(map(len, lines))
        for name, text in lines.items():
            print(f"{name:<{width}}  {text}".rstrip())
        return 0


def _families() -> dict[str, str]:
    """The prefix of each family of environments, with the first line of its adapter's docstring."""
    modules = {prefix: path.partition(":")[0] for prefix, path in FAMILIES.items()}
    lines = {f"{prefix}…": _own_words(prefix, _first_line_of(module)) for prefix, module in modules.items()}
    return lines | {"package.module:factory": "Your own: a function or class of an importable module."}


def _first_line_of(module: str) -> str:
    """The first line of the docstring of a module of Shoal, which is not imported."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return first_line(ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))))


def _own_words(prefix: str, text: str) -> str:
    """The description of a family, without the prefix that it may start with."""
    text = text.removeprefix(f"{prefix}…:").lstrip()
    return text[:1].upper() + text[1:] or "Environments of another package."


@dataclasses.dataclass
class Zoo:
    """List the trained policies that come with Shoal: scores, sizes, and the commands that trained them."""

    def __call__(self) -> int:
        """Print a few lines for each."""
        print("\n\n".join(zoo.described(shipped.zoo() / name) for name in zoo.names()))
        return 0


@dataclasses.dataclass
class Push:
    """Upload a finished run's policies to a repository of the Hugging Face Hub."""

    run: Path
    """The run's folder."""
    repository: str
    """USER/NAME; created if it does not exist."""
    private: bool = False
    """Create a private repository."""
    licence: str = "Apache-2.0"
    """SPDX identifier of the licence under which you give the policies to others."""
    episodes: Episodes = 1024
    """Episodes per seed of the score on the repository's page, in each mode of a stochastic policy."""
    trust: bool = False
    """Import the environment and algorithm that the folder names, even if they are neither Shoal's nor an extra's and
    you did not train this run (docs/security.md)."""

    def __call__(self) -> int:
        """Upload them and print the repository's address."""
        from shoal.sharing import hub

        run = shoal.open_run(self.run, trust=self.trust)
        chosen = {"private": self.private, "licence": self.licence, "episodes": self.episodes}
        print(hub.push(run, self.repository, **chosen))
        return 0


@dataclasses.dataclass
class Pull:
    """Download policies that shoal push has uploaded, as a folder that commands on trained policies take."""

    repository: str
    """USER/NAME."""
    folder: Path
    """Folder to create. It is another person's (docs/security.md)."""
    revision: str | None = None
    """A branch, tag or commit; None for the newest."""

    def __call__(self) -> int:
        """Download them and print what they are."""
        from shoal.sharing import hub

        print(zoo.described(hub.pull(self.repository, self.folder, revision=self.revision)))
        return 0


_CHECK_FLAGS = [
    Flag("episodes", int, 5, "Number of episodes, each with its own seed."),
    Flag("steps", int, 5000, "Maximum total number of steps."),
    Flag("seed", int, 0, "Seed of the first episode and of the actions."),
    Flag("timeout", float, 60.0, "Seconds after which a reset or a step counts as hanging."),
    Flag("isolate", bool, True, "Play in a separate process, so that a crash or a hang is detected and reported."),
]


def check_command(args: Sequence[str]) -> tuple[Command, list[str]]:
    """Test an environment with random actions, or an algorithm on random data, and report errors.

    ``shoal check ENVIRONMENT [flags]`` or ``shoal check ALGORITHM [flags]``; the exit code is 1 if there is an error.

    Raises:
        InputError: the environment or algorithm is missing or unknown.
    """
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), args))
    rest = list(args[len(words) :])
    if len(words) > 1:
        raise InputError(f"shoal check takes one environment or algorithm; {shortened(words[1])} is an extra word.")
    if not words and not {"-h", "--help"} & set(rest):
        raise InputError(
            "shoal check needs an environment or an algorithm first, for example: shoal check mpe/simple_spread."
        )
    if words and algorithms.alone(words[0]):
        return _check_algorithm(words[0]), rest
    if words:
        try:
            check_name(words[0])
        except InputError as error:
            near = algorithms.near_module(words[0])
            meant = f"; did you mean your module {near!r}?" if near else "."
            raise InputError(
                f"{error} There is no algorithm, and no module in the working directory, of this name either{meant}"
            ) from None
    groups = {"check": _CHECK_FLAGS}
    if words:
        groups["env"] = of_environment(words[0], {}, rest)

    def do(values: FlagValues) -> int:
        chosen = {flag.name: flag.default for flag in _CHECK_FLAGS} | values["check"]
        report = shoal.check(words[0], env=values["env"], **chosen)
        print(report)
        return 0 if report.ok else 1

    about = (
        "Play random legal actions in an environment and report its speed and its errors: values that are "
        "not finite, masks without a legal action, agents that disappear, time limits reported as terminations, "
        "randomness that does not depend on the seed. The exit code is 1 if there is an error. To test an algorithm "
        "instead, give its name, for example my_idea for your file my_idea.py (docs/your-algorithm.md)."
    )
    return Command(" ".join(["shoal check", *words]), about, groups, do), rest


def _check_algorithm(name: str) -> Command:
    def do(values: FlagValues) -> int:
        from shoal.checking.contract import check_algorithm  # imports JAX

        report = check_algorithm(name, {flag: value for some in values.values() for flag, value in some.items()})
        print(report)
        return 0 if report.ok else 1

    about = (
        "Let an algorithm act and update on random data and report violations of the rules for algorithms: masks, "
        "dead agents, padding, seeds in parallel, exact resumption, finite numbers, acting without the critic. Sizes "
        "that are not given are small. It takes about a minute on two cores. The exit code is 1 if there is an error."
    )
    return Command(f"shoal check {name}", about, of_fields(algorithms.get(name).Config(), "flags"), do)


def _simple(prog: str, kind: type, positional: str, args: Sequence[str]) -> tuple[Command, list[str]]:
    def do(values: FlagValues) -> int:
        command = kind(**values["flags"])
        check_bounds(command)
        return command()

    flags = of_fields(kind, "flags", positional.split())
    compiles = kind not in (List, Compare, Zoo, Pull)
    return Command(prog, first_line(kind.__doc__), flags, do, compiles=compiles), list(args)


_SIMPLE = {
    "evaluate": (Evaluate, "run"),
    "replay": (Video, "run"),
    "export": (Export, "run"),
    "curves": (Curves, "runs"),
    "compare": (Compare, "runs"),
    "crossplay": (Crossplay, "runs"),
    "report": (Report, "what"),
    "study": (study.Study, "file"),
    "results": (study.Results, "files"),
    "tune": (study.Tune, "file"),
    "list": (List, "what"),
    "zoo": (Zoo, ""),
    "push": (Push, "run repository"),
    "pull": (Pull, "repository folder"),
}

COMMAND_OPTIONS = tuple(kind for kind, _ in _SIMPLE.values())
"""Dataclasses of the commands' options."""

COMMANDS: dict[str, Callable[[Sequence[str]], tuple[Command, list[str]]]] = {
    "train": train.train,
    "check": check_command,
    **{name: partial(_simple, f"shoal {name}", *kind) for name, kind in _SIMPLE.items()},
    "completion": completion.completion,
}
"""Command name -> function: (words after the command) -> (command, the words that are flags)."""


def help_text() -> str:
    """The output of ``shoal --help``."""
    about = {"train": first_line(train.__doc__), "check": first_line(check_command.__doc__)} | {
        name: first_line(kind.__doc__) for name, (kind, _) in _SIMPLE.items()
    }
    about["completion"] = first_line(completion.completion.__doc__)
    lines = [f"  {name:<10} {text}" for name, text in about.items()]
    return "\n".join(
        [
            "usage: shoal COMMAND ...",
            "",
            first_line(shoal.__doc__),
            "",
            *lines,
            "",
            "For example: shoal train mappo mpe/simple_spread --steps 3e6 --seeds 4",
            "Every command has --help, for example: shoal train mappo mpe/simple_spread --help",
            f"The documentation begins with {page('docs/index.md')}",
        ]
    )


def version_text() -> str:
    """The output of ``shoal --version``."""
    return f"shoal {shoal.__version__} (jax {metadata.version('jax')}, python {platform.python_version()})"
