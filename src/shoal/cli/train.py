"""Train a team, or continue a run.

The command, its pictures and summary, and how to continue.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shoal
from shoal import algorithms
from shoal.cli import hosts
from shoal.cli.flags import (
    Command,
    Flag,
    FlagValues,
    first_line,
    number_text,
    of_environment,
    of_fields,
    read_early,
)
from shoal.cli.output import attempted
from shoal.environments import names
from shoal.environments.names import path_words
from shoal.errors import CallbackError, GameError, InputError, Terminated, WriteError, shortened
from shoal.security import reading, user_modules
from shoal.storage import manifest
from shoal.storage.folders import in_new_folder, new_folder
from shoal.storage.zoo import check_trainable
from shoal.system import notices

if TYPE_CHECKING:
    from shoal.config.resolve import Defaults


# The flags of ``shoal train`` that name callbacks and loggers.


CALLBACK = Flag(
    "callback",
    tuple[str, ...],
    (),
    "Callback module:MyCallback to call during training: a class (created without arguments) or a function "
    "(context, metrics) in your own module (docs/hooks.md). It is not stored with the run.",
)
WANDB = Flag("wandb", str | None, None, "Also log to this Weights & Biases project, or entity/project.")
MLFLOW = Flag("mlflow", str | None, None, "Also log to MLflow: a tracking URI, or a folder for its database.")
CONTINUE = Flag("continue_stopped", bool, False, "With --resume: continue a run that a callback stopped.")
HOOK_FLAGS = (CALLBACK, WANDB, MLFLOW, CONTINUE)


def chosen_hooks(values: Mapping[str, Any]) -> list[Any]:
    """The callbacks that the values of :data:`HOOK_FLAGS` name.

    Raises:
        InputError: there is no such module or attribute, it cannot be made, or a name is empty.
    """
    import shoal  # its names import JAX

    found = [_user_callback(name) for name in values["callback"]]
    if values["wandb"] is not None:
        found.append(shoal.WandbLogger(values["wandb"]))
    if values["mlflow"] is not None:
        found.append(shoal.MLflowLogger(values["mlflow"]))
    return found


def hook_words(values: Mapping[str, Any]) -> str:
    """The flags that a command that continues the run needs, with a leading space; empty for none."""
    flags = [CALLBACK.spelt, *values["callback"]] if values["callback"] else []
    for flag in (WANDB, MLFLOW):
        flags += [flag.spelt, values[flag.name]] if values[flag.name] is not None else []
    return f" {shlex.join(flags)}" if flags else ""


def _user_callback(name: str) -> Any:
    if name.count(":") != 1:
        raise InputError(f"--callback takes module:MyCallback, a class or function in your own module, not {name!r}.")
    with user_modules.searching_working_directory():
        found = user_modules.import_user_object(name, "callback")
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"The callback {name!r} cannot be created without arguments: {error}.") from error


# A summary, pictures, and how to continue.

VIDEO_SECONDS = 5.0
"""Processor time that drawing a run's video takes at most, about; ``shoal replay`` has no bound."""


def resumed_by(folder: Path, own: dict[str, Any]) -> str:
    """The command that continues a run; ``own`` are values of flags of the command that trained it."""
    return f"{program()} train --resume {path_words(folder)}{hook_words(own)}{hosts.words_of(own)}"


def train_and_show(folder: Path, start: "Callable[..., shoal.Run]", own: dict[str, Any]) -> int:
    """Train, print a summary, and draw curves, a video and a report; after Ctrl-C print the command that resumes.

    Args:
        folder: the run's.
        start: trains, and returns the run; its argument ``progress`` is that of ``own``.
        own: values of flags of the command, of ``progress`` and of those in :data:`shoal.cli.train.HOOK_FLAGS`.
    """
    again = resumed_by(folder, own)
    try:
        run = start(progress=own["progress"])
        print(summary_text(run, again), flush=True)
        draw_pictures(run)
    except (GameError, CallbackError):
        if any((folder / "checkpoints").glob("*")):
            notices.warn(f"The run is saved; continue with\n{again}\n")
        raise
    except (KeyboardInterrupt, Terminated):
        if any((folder / "checkpoints").glob("*")):
            raise KeyboardInterrupt(f"Stopped; continue with\n{again}") from None
        if (folder / manifest.RUN_JSON).is_file():
            raise KeyboardInterrupt(f"Stopped before training began; start it with\n{again}") from None
        raise KeyboardInterrupt from None
    return 0


def draw_pictures(run: "shoal.Run") -> None:
    """Draw curves, a video and a report, and print their paths as they are finished.

    The video has as many frames as can be drawn in :data:`VIDEO_SECONDS`, and a line says so if that is not all.
    """
    from shoal.reporting.replays import chosen_seeds, recorded_episodes  # imports JAX
    from shoal.training.episodes import SparsePictures
    from shoal.video.animation import affordable_frames

    recorded = {}  # the video's episodes and the report's, played once for both

    def replay() -> Path | str:
        path, best = reading.own_file(run.folder, "replay.gif"), run.best_seed()
        try:
            recorded.update(recorded_episodes(run, [best, *(seed for seed, _ in chosen_seeds(run))]))
        except Exception:  # such as of an algorithm's inspect, which a video does without and the report tells of
            return run.replay(seed=best)
        frames = [episode.frames for episode in recorded[best] if episode.frames]
        if not frames:
            return run.draw(recorded[best], path)
        most = affordable_frames(frames[0], VIDEO_SECONDS / len(frames))
        most = min(most, max(len(one.pictures) if isinstance(one, SparsePictures) else len(one) for one in frames))
        drawn = run.draw(recorded[best], path, most)
        if max(map(len, frames)) <= most:
            return drawn
        return f"{drawn} (at most {most} frames an episode; {program()} replay {path_words(run.folder)} draws all)"

    pictures = {"curves.png": lambda: _unless_empty(run.curves), "replay.gif": replay}
    pictures["report.html"] = lambda: shoal.report(run, recorded=recorded)
    for name, make in pictures.items():
        print(f"{Path(name).stem:<12}  ", end="", flush=True)
        print(attempted(partial(_drawn, run, name, make)), flush=True)


def _drawn(run: "shoal.Run", name: str, make: Callable[[], Any]) -> Any:
    """Draw a picture, unless the run had finished before and its picture is up to date."""
    path, made_from = run.folder / name, (run.folder / "policy").glob("*/index.json")
    newest = max((index.stat().st_mtime for index in made_from), default=0.0)
    return path if run.untouched and path.is_file() and path.stat().st_mtime >= newest else make()


def _unless_empty(look: Callable[[], Any]) -> Any:
    """The result of ``look``, or "no episode ended" for a run shorter than an episode."""
    try:
        return look()
    except WriteError:
        raise
    except InputError:
        return "no episode ended"


def summary_text(run: "shoal.Run", again: str) -> str:
    """The printed summary: results, the next commands, and the folder."""
    from shoal.training import ending, evaluation  # imports JAX

    folder = path_words(run.folder)
    lines = [f"\n{run.algorithm} in {run.environment}", ""]
    if run.final_score is not None:
        score = re.sub(r"(?<!\w)-(?=\d)", "−", run.final_score)  # not the hyphens of metrics' names
        lines.append(f"{evaluation.mode_name(run.acts_greedily)} score  {score}")
    lines += [*_unless_empty(run.summary).splitlines(), ""]
    lines += [f"{program()} evaluate {folder} --episodes 1000", f"{program()} replay {folder} --episodes 4"]
    more = ending.more(run.settings, run.at).items()
    texts = {name: "" if x is True else f" {'None' if x is None else number_text(x)}" for name, x in more}
    flags = " ".join(f"--{name.replace('_', '-')}{text}" for name, text in texts.items())
    lines += [f"{again} {flags}", "", f"{'folder':<12}  {run.folder}"]
    return "\n".join(lines)


def program() -> str:
    """The command that calls this program."""
    called = Path(sys.argv[0])
    if called.name != "shoal":
        return "shoal"
    found = shutil.which("shoal")
    return "shoal" if found and called.exists() and Path(found).samefile(called) else shlex.quote(sys.argv[0])


_FOLDER = Flag("folder", Path | None, None, "The run's folder; None for a new folder under runs/.")
_RESUME = Flag("resume", Path | None, None, "Continue the run in this folder from its newest intact checkpoint.")
_TRUST = Flag(
    "trust",
    bool,
    False,
    "With --resume, --config or --opponents: import the environment and algorithm that the folder names, even if they "
    "are neither Shoal's nor an extra's and you did not train this run. With --print-config or --help also those that "
    "a TOML file names, even if it is yours (docs/security.md).",
)
_CONFIG = Flag(
    "config",
    Path | None,
    None,
    "Take algorithm, environment and values from this file: TOML, or the run.json or folder of another run "
    "(docs/configuration.md); flags override them.",
)
_PRESET = Flag(
    "preset", Path | None, None, "Take values from this preset file (docs/tuning.md); --config and flags override them."
)
_PRINT = Flag(
    "print_config", bool, False, "Print the whole configuration, in the form that --config reads, instead of training."
)
_PROGRESS = Flag("progress", bool, True, "Show the progress line and notes; warnings are always shown.")
_EARLY = (_RESUME, _TRUST, _CONFIG, _PRESET, _PRINT, hosts.HOSTS)
"""Flags that decide what is read and imported before the other flags are known."""
_OWN = (_FOLDER, _RESUME, _TRUST, _CONFIG, _PRESET, _PRINT, _PROGRESS, *HOOK_FLAGS, *hosts.FLAGS)

_FIRST = ("steps", "seeds", "num_envs", "rollout_length", "learning_rate", "gamma", "hidden", "recurrent", "sharing")
_FIRST += ("critic_input", "entropy_coef", "batch_size", "buffer_size", "time_limit", "folder", "resume")
"""Flags at the top of the help, as far as they exist."""


def train(args: Sequence[str]) -> tuple[Command, list[str]]:
    """``shoal train ALGORITHM ENVIRONMENT [flags]``, ``shoal train --config FILE`` or ``shoal train --resume RUN``.

    The first two words, or the file, determine the flags; the file and presets, or the resumed run, their defaults.

    Raises:
        InputError: a word is missing or unknown, or differs from the resumed run; or the file is invalid.
    """
    typed = list(itertools.takewhile(lambda word: not word.startswith("-"), args))
    rest = list(args[len(typed) :])
    helps = not {"-h", "--help"}.isdisjoint(rest)
    try:
        early = read_early("shoal train", _EARLY, rest)
    except InputError:
        if not helps:
            raise
        early = {flag.name: flag.default for flag in _EARLY}
    if early["hosts"] and hosts.inside is None:
        _without_accelerators()
    if len(typed) > 2:
        raise InputError(f"shoal train takes an algorithm and an environment; {shortened(typed[2])} is an extra word.")
    for check_name, word in zip((algorithms.check_name, names.check_name), typed, strict=False):
        check_name(word)
    if early["resume"] is not None:
        return _resume_command(early["resume"], early["trust"], typed, rest), rest
    config, chosen = early["config"], {name: early[name] for name in ("trust", "config", "preset")}
    # What the user's modules and environment print is no part of a configuration.
    shown, prints = sys.stdout, early["print_config"] and not helps
    aside = contextlib.redirect_stdout(sys.stderr) if prints else contextlib.nullcontext()
    words = _named(typed, config)
    if config and not early["trust"]:
        without = _imported(words, typed, config)
        if early["print_config"] and not helps and len(without) < len(words):
            raise InputError(
                f"{config} names {words[len(without)]!r}, which --print-config would import: pass --trust if "
                f"the file is yours or you trust its author, or type the names."
            )
        words = without if helps else words
    if len(words) < 2 and not helps:
        needed = "an environment" if words else "an algorithm and an environment"
        raise InputError(f"shoal train needs {needed} first, for example: shoal train mappo mpe/simple_spread.")
    with aside:
        defaults = _defaults(words, typed, chosen)
        groups = _groups(words, defaults, rest)

    def do(values: FlagValues) -> int:
        with aside:
            return train_or_print(values)

    def train_or_print(values: FlagValues) -> int:
        own = {flag.name: values["run"].pop(flag.name, flag.default) for flag in _OWN}
        if own["continue_stopped"]:
            raise InputError("--continue-stopped is only for --resume.")
        hosts.check(own)
        env = values.pop("env", {})
        flags = {name: value for some in values.values() for name, value in some.items()}
        for_all = [flag.name for some in groups.values() for flag in some if flag.for_all]
        flags = {name: value for name, value in flags.items() if value is not None or name not in for_all}
        from shoal.config.resolve import as_toml, check_effect  # imports JAX
        from shoal.runs import api

        assert defaults is not None  # there are two words
        found = defaults.over(flags, env)
        if own["trust"] and own["config"] is None and found.values.settings.opponent_options.opponents is None:
            raise InputError(
                "--trust is only for --resume, --config and --opponents; names that you type need no trust."
            )
        build = partial(api.environment_of, found)
        check_effect(found.values.settings, found.values.config, flags, found.name, build)
        if own["hosts"] is not None and hosts.inside is None and not own["print_config"]:
            api.check_new_on_hosts(found)
            which, folder = hosts.places(own, found.values.settings.devices), own["folder"]
            if folder is None and which[0].index == 0:
                folder = new_folder(found.algorithm, found.name)
                which = [dataclasses.replace(place, folder=str(folder)) for place in which]
            return hosts.supervise(which, ["train", *args], folder, resumed_by(folder or Path("RUN"), own))
        if own["hosts"] is not None and _follows():
            api.follow_new(found)
            return 0
        callbacks = chosen_hooks(own)
        if own["print_config"]:
            from shoal.runs.api import check_new_run, new_run

            text = as_toml(found)
            check_new_run(new_run(found, Path(os.devnull)))
            print(text, end="", file=shown)
            return 0

        def start(where: Path) -> int:
            train = partial(api.train_configured, found, where, callbacks=callbacks)
            return train_and_show(where, train, own)

        folder = own["folder"] or hosts.chosen_folder()
        return start(folder) if folder else in_new_folder(found.algorithm, found.name, start)

    missing = ("ALGORITHM", "ENVIRONMENT")[len(words) :]
    return Command(" ".join(["shoal train", *words]), _about(words, None), groups, do, _FIRST, missing=missing), rest


def _both(typed: Sequence[str]) -> list[str | None]:
    """The algorithm and the environment, None where it is not typed."""
    return [*typed, None, None][:2]


def _named(typed: Sequence[str], config: Path | None) -> list[str]:
    """The algorithm and the environment, as far as they are typed or named by a file."""
    if not config or len(typed) == 2:
        return list(typed)
    from shoal.config import config_files  # imports JAX

    file = config_files.read_config(config)
    words = [mine or theirs for mine, theirs in zip(_both(typed), (file.algorithm, file.environment), strict=True)]
    return [word for word in itertools.takewhile(bool, words) if word]


def _imported(words: Sequence[str], typed: Sequence[str], config: Path) -> list[str]:
    """Those of ``words`` up to the first that a file, rather than the user, gives and that would import a module of the
    user's own: the help of another person's file does without its flags. Folders of runs have records of permission."""
    if config.is_dir() or config.name == manifest.RUN_JSON:
        return list(words)
    own = [bool(algorithms.own(word)) for word in words[:1]]
    own += [
        ":" in word and not names.built_in(word) and not word.startswith(tuple(names.FAMILIES)) for word in words[1:]
    ]
    theirs = [word not in typed and imports for word, imports in zip(words, own, strict=True)]
    return list(words[: theirs.index(True)] if any(theirs) else words)


def _resume_command(folder: Path, trust: bool, typed: list[str], rest: list[str]) -> Command:
    """The command that continues a run."""
    check_trainable(folder)
    run = shoal.open_run(folder, trust=trust)
    words, held = [*map(algorithms.canonical, typed[:1]), *typed[1:]], [run.algorithm, run.environment]
    if words != held[: len(words)]:
        raise InputError(f"{folder} is a run of {' in '.join(held)}, not of {' in '.join(words)}.")
    if option := next((word for word in rest if word.startswith("--env.")), None):
        name = option.partition("=")[0].removeprefix("--env.").replace("-", "_")
        raise InputError(f"{name} cannot change in a resumed run.")
    groups = of_fields(run.settings, "run") | of_fields(run.config, _title(run.algorithm))
    groups["run"] = [*_OWN, *groups["run"]]

    def do(values: FlagValues) -> int:
        own = {flag.name: values["run"].pop(flag.name, flag.default) for flag in _OWN}
        before = {flag.name: flag.default for some in groups.values() for flag in some}
        flags = {name: x for some in values.values() for name, x in some.items() if x != before[name]}
        for flag in (_CONFIG, _PRESET, _PRINT):
            if own[flag.name]:
                raise InputError(f"A resumed run keeps its values, so {flag.spelt} cannot be combined with --resume.")
        if own["folder"] is not None:
            raise InputError("A resumed run stays in its folder, so --folder cannot be combined with --resume.")
        from shoal.config.resolve import check_effect
        from shoal.options.flags import override
        from shoal.training.settings import CHANGEABLE

        changed = CHANGEABLE.intersection(flags)
        check_effect(override(run.settings, flags), run.config, changed, run.environment, lambda: run.env)
        hosts.check(own)
        if own["hosts"] is not None and hosts.inside is None:
            from shoal.runs import api
            from shoal.runs.load import trained_on

            settings = override(run.settings, flags)
            api.check_resumed_on_hosts(run, settings)
            which = hosts.places(own, settings.devices or trained_on(run.folder))
            return hosts.supervise(which, ["train", *typed, *rest], run.folder, resumed_by(run.folder, own))
        if own["hosts"] is not None and _follows():
            from shoal.runs import api

            api.follow_resumed(run.folder, own["trust"], flags)
            return 0
        more = {"callbacks": chosen_hooks(own), "continue_stopped": own["continue_stopped"]}
        return train_and_show(run.folder, partial(shoal.resume, run.folder, trust=own["trust"], **more, **flags), own)

    return Command(" ".join(["shoal train", *held]), _about(held, run), groups, do, _FIRST)


def _without_accelerators() -> None:
    """Leave accelerators to the processes that this one starts."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _follows() -> bool:
    from shoal.training import hosts  # imports JAX

    return hosts.follows()


def _title(algorithm: str) -> str:
    """The title of an algorithm's flags, which is an identifier."""
    return re.sub(r"[^\w+]", "_", algorithm).replace("+", "_and_")


def _defaults(words: Sequence[str], typed: Sequence[str], chosen: dict[str, Any]) -> "Defaults | None":
    """What trains without flags; None unless ``words`` name an algorithm and an environment."""
    if len(words) < 2:
        return None
    from shoal.config.resolve import Defaults  # imports JAX

    return Defaults(*_both(typed), **chosen)


def _groups(words: Sequence[str], defaults: "Defaults | None", args: Sequence[str]) -> dict[str, list[Flag]]:
    """The flags of settings, algorithm and environment, as far as ``words`` name them."""
    from shoal.training.settings import Settings  # imports JAX

    settings, config = Settings(), None
    if defaults:
        settings, config = defaults.values.settings, defaults.values.config
    elif words:
        config = algorithms.get(words[0]).Config()
    groups = of_fields(settings, "run")
    groups["run"] = [*_OWN, *groups["run"]]
    if words:
        groups |= of_fields(config, _title(algorithms.canonical(words[0])))
    if defaults:
        from shoal.config.resolve import SIZES

        sized = defaults.values.sized
        groups["run"] = [_size(flag, flag.name in sized) if flag.name in SIZES else flag for flag in groups["run"]]
        groups["env"] = of_environment(words[1], defaults.env, args)
    return groups


def _size(flag: Flag, derived: bool) -> Flag:
    """The flag of a size that may depend on the episode length, which is known once the environment is built.

    By default it does where ``derived``.
    """
    help = f"{flag.help} None: derived from the length of an episode."
    return dataclasses.replace(flag, hint=flag.hint | None, default=None if derived else flag.default, help=help)


def _about(words: Sequence[str], run: "shoal.Run | None") -> str:
    if run is not None:
        return f"Continue the run of {words[0]} in {words[1]} from its newest intact checkpoint."
    if not words:
        return (
            "Train a team, or continue a run: shoal train ALGORITHM ENVIRONMENT, or shoal train --resume RUN. "
            "Put the algorithm (shoal list algorithms) and the environment (shoal list environments) before --help "
            "to see their flags as well, with tuned defaults. Algorithms joined by + train one side of the environment "
            "each, for example mappo+ippo predators and prey."
        )
    about = first_line(algorithms.get(words[0]).__doc__)
    return about if len(words) == 2 else f"{about} Put an environment before --help to see its options as well."
