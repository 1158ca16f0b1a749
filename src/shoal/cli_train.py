"""Train a team, or continue a run."""

import dataclasses
import itertools
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import shoal
from shoal import algorithms, cli_hooks, notices
from shoal.cli_flags import Command, Flag, Values, first_line, number, of_environment, of_fields
from shoal.cli_output import attempted
from shoal.environments import names
from shoal.environments.spelling import path_words
from shoal.errors import CallbackError, GameError, InputError, WriteError
from shoal.presets import preset
from shoal.presets.sizes import sizes_for
from shoal.records import links
from shoal.records.folders import in_new_folder

_FOLDER = Flag("folder", Path | None, None, "The run's folder; None for a new folder under runs/.")
_RESUME = Flag("resume", Path | None, None, "Continue the run in this folder from its newest intact checkpoint.")
_TRUST = Flag(
    "trust",
    bool,
    False,
    "With --resume: import the environment and algorithm that the folder names even if they are neither Shoal's nor an "
    "extra's and the folder is not of your own training (docs/security.md).",
)
_PRESET = Flag("preset", Path | None, None, "Take values from this preset file (docs/tuning.md); flags override them.")
_PROGRESS = Flag("progress", bool, True, "Show the progress line and notes; warnings are always shown.")
_OWN = (_FOLDER, _RESUME, _TRUST, _PRESET, _PROGRESS, *cli_hooks.FLAGS)

_FIRST = ("steps", "seeds", "num_envs", "rollout_length", "learning_rate", "gamma", "hidden", "recurrent", "sharing")
_FIRST += ("critic_input", "entropy_coef", "batch_size", "buffer_size", "time_limit", "folder", "resume")
"""Flags at the top of the help, as far as they exist."""


_SIZES = sizes_for(1).keys()


def train(args: Sequence[str]) -> tuple[Command, list[str]]:
    """``shoal train ALGORITHM ENVIRONMENT [flags]`` or ``shoal train --resume RUN [flags]``.

    The first two words determine the flags; the preset, or the resumed run, determines their defaults.

    Raises:
        InputError: a word is missing or unknown, or differs from the resumed run.
    """
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), args))
    rest = list(args[len(words) :])
    if len(words) > 2:
        raise InputError(f"shoal train takes an algorithm and an environment; {words[2]!r} is one word too many.")
    folder = _value_of(rest, _RESUME.spelt)
    if folder == "":
        raise InputError("--resume is followed by an empty name; it takes the folder of a run.")
    for check_name, word in zip((algorithms.check_name, names.check_name), words, strict=False):
        check_name(word)
    run = shoal.open_run(folder, trust=_TRUST.spelt in rest) if folder else None
    if run is not None:
        held = [run.algorithm, run.environment]
        words[:1] = map(algorithms.canonical, words[:1])
        if words != held[: len(words)]:
            raise InputError(f"{folder} holds a run of {' in '.join(held)}, not of {' in '.join(words)}.")
        words = held
        if option := next((word for word in rest if word.startswith("--env.")), None):
            name = option.partition("=")[0].removeprefix("--env.").replace("-", "_")
            raise InputError(f"{name} cannot change in a resumed run.")
    elif len(words) < 2 and not {"-h", "--help"} & set(rest):
        needed = "an environment" if words else "an algorithm and an environment"
        raise InputError(f"shoal train needs {needed} first, for example: shoal train mappo mpe/simple_spread.")
    groups = _groups(words, run, rest)

    def do(values: Values) -> int:
        own = {flag.name: values["run"].pop(flag.name) for flag in _OWN}
        given = [(flag, values[title][flag.name]) for title in groups for flag in groups[title] if flag not in _OWN]
        # A side's flag wins over a flag for all sides, even if its value is the side's default.
        spelt = {word.partition("=")[0].replace("_", "-") for word in rest} if run is None else set()
        changed = [
            (flag, value)
            for flag, value in given
            if value != flag.default or (flag.spelt in spelt and not flag.for_all)
        ]
        flags = {
            flag.name: value
            for flag, value in changed
            if not flag.prefix and not (flag.name in _SIZES and value is None)
        }
        env = {flag.name: value for flag, value in changed if flag.prefix}
        callbacks = cli_hooks.chosen(own)
        if run is None:
            if own["trust"]:
                raise InputError("--trust is for --resume; what you name yourself needs no trust.")
            if own["continue_stopped"]:
                raise InputError("--continue-stopped is for --resume.")

            def start(where: Path) -> int:
                train = partial(shoal.train, *words, env=env, folder=where, preset=own["preset"], callbacks=callbacks)
                return _watched(where, train, own, flags)

            return (
                start(own["folder"])
                if own["folder"]
                else in_new_folder(algorithms.canonical(words[0]), words[1], start)
            )
        if own["preset"] is not None:
            raise InputError("A resumed run keeps its values, so --preset and --resume exclude each other.")
        if own["folder"] is not None:
            raise InputError("A resumed run stays in its folder, so --folder and --resume exclude each other.")
        more = {"callbacks": callbacks, "continue_stopped": own["continue_stopped"]}
        return _watched(run.folder, partial(shoal.resume, run.folder, trust=own["trust"], **more), own, flags)

    return Command(" ".join(["shoal train", *words]), _about(words, run), groups, do, _FIRST), rest


def _groups(words: Sequence[str], run: "shoal.Run | None", args: Sequence[str]) -> dict[str, list[Flag]]:
    """The flags of settings, algorithm and environment, as far as ``words`` name them."""
    from shoal.configs import override  # imports JAX
    from shoal.training.settings import Settings

    tuned = preset(algorithms.canonical(words[0]), words[1]) if len(words) == 2 else {}
    groups = of_fields(run.settings if run else override(Settings(), tuned), "run")
    groups["run"] = [*_OWN, *groups["run"]]
    if len(words) == 2 and run is None:
        groups["run"] = [_by_horizon(flag) if flag.name in _SIZES - tuned.keys() else flag for flag in groups["run"]]
    if words:
        config = run.config if run else override(algorithms.get(words[0]).Config(), tuned)
        groups |= of_fields(config, re.sub(r"[^\w+]", "_", algorithms.canonical(words[0])).replace("+", "_and_"))
    if len(words) == 2 and run is None:
        groups["env"] = of_environment(words[1], {}, args)
    return groups


def _by_horizon(flag: Flag) -> Flag:
    """The flag of a size whose default depends on the episode length, which is known once the environment is built."""
    help = f"{flag.help} None: by the length of an episode."
    return dataclasses.replace(flag, hint=flag.hint | None, default=None, help=help)


def _about(words: Sequence[str], run: "shoal.Run | None") -> str:
    if run is not None:
        return f"Continue the run of {words[0]} in {words[1]}, bit for bit as if it had never stopped."
    if not words:
        return (
            "Train a team, or continue a run: shoal train ALGORITHM ENVIRONMENT, or shoal train --resume RUN. "
            "Name the algorithm (shoal list algorithms) and the environment (shoal list environments) before --help "
            "to see their flags as well, with the defaults that are tuned for them. Algorithms joined by + train one "
            "side of the environment each, for example mappo+ippo predators and prey."
        )
    about = first_line(algorithms.get(words[0]).__doc__)
    return about if len(words) == 2 else f"{about} Name an environment before --help to see its options as well."


def _watched(folder: Path, start: "Callable[..., shoal.Run]", own: dict[str, Any], flags: dict[str, Any]) -> int:
    """Train, print a summary, and draw curves, a video and a report; after Ctrl-C print the command that resumes."""
    again = f"{_program()} train --resume {path_words(folder)}{cli_hooks.words(own)}"
    try:
        run = start(progress=own["progress"], **flags)
        if not run.finished:
            raise KeyboardInterrupt
        print(_summary(run, again), flush=True)
        _draw(run)
    except (GameError, CallbackError):
        if any((folder / "checkpoints").glob("*")):
            notices.warn(f"What was learned is kept; continue with\n{again}\n")
        raise
    except KeyboardInterrupt:
        if not any((folder / "checkpoints").glob("*")):
            raise
        raise KeyboardInterrupt(f"Stopped; continue with\n{again}") from None
    return 0


def _draw(run: "shoal.Run") -> None:
    """Draw curves, a video and a report, and print their paths as they are finished: long episodes take a minute."""
    from shoal.reporting.recording import chosen_seeds, recorded_episodes  # imports JAX

    recorded = {}  # the video's episodes and the report's, played once for both

    def replay() -> Path:
        path, best = links.own_file(run.folder, "replay.gif"), run.best_seed()
        try:
            recorded.update(recorded_episodes(run, [best, *(seed for seed, _ in chosen_seeds(run))]))
        except Exception:  # such as of an algorithm's inspect, which a video does without and the report tells of
            return run.replay(seed=best)
        return run.draw(recorded[best], path)

    pictures = {"curves.png": lambda: _unless_empty(run.curves), "replay.gif": replay}
    pictures["report.html"] = lambda: attempted(lambda: shoal.report(run, recorded=recorded))
    for name, draw in pictures.items():
        print(f"{Path(name).stem:<12}  ", end="", flush=True)
        print(_drawn(run, name, draw), flush=True)


def _drawn(run: "shoal.Run", name: str, draw: Callable[[], Any]) -> Any:
    """Draw a picture, unless the run had finished before and its picture is up to date."""
    path, made_from = run.folder / name, (run.folder / "policy").glob("*/index.json")
    newest = max((index.stat().st_mtime for index in made_from), default=0.0)
    return path if run.untouched and path.is_file() and path.stat().st_mtime >= newest else draw()


def _unless_empty(look: Callable[[], Any]) -> Any:
    """The result of ``look``, or "no episode ended" for a run shorter than an episode."""
    try:
        return look()
    except WriteError:
        raise
    except InputError:
        return "no episode ended"


def _summary(run: "shoal.Run", again: str) -> str:
    """The printed summary: results, the next commands, and the folder."""
    folder = path_words(run.folder)
    lines = [f"\n{run.algorithm} in {run.environment}", ""]
    if run.judged is not None:
        lines.append(f"greedy score  {run.judged.replace('-', '−')}")
    lines += [*_unless_empty(run.summary).splitlines(), ""]
    lines += [f"{_program()} evaluate {folder} --episodes 1000", f"{_program()} replay {folder} --episodes 4"]
    from shoal.training import ending  # imports JAX

    more = ending.more(run.settings, run.at).items()
    texts = {name: "" if x is True else f" {'None' if x is None else number(x)}" for name, x in more}
    flags = " ".join(f"--{name.replace('_', '-')}{text}" for name, text in texts.items())
    lines += [f"{again} {flags}", "", f"{'folder':<12}  {run.folder}"]
    return "\n".join(lines)


def _program() -> str:
    """The command that calls this program."""
    called = Path(sys.argv[0])
    if called.name != "shoal":
        return "shoal"
    found = shutil.which("shoal")
    return "shoal" if found and called.exists() and Path(found).samefile(called) else shlex.quote(sys.argv[0])


def _value_of(args: Sequence[str], flag: str) -> str | None:
    """The word after a flag, before the flags are parsed."""
    for i, word in enumerate(args):
        if word == flag and i + 1 < len(args):
            return args[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
