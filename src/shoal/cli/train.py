"""Train a team, or continue a run."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shoal
from shoal import algorithms
from shoal.cli.flags import Command, Flag, Values, first_line, of_environment, of_fields
from shoal.cli.running import HOOK_FLAGS, chosen_hooks, watched
from shoal.environments import names
from shoal.errors import InputError, shortened
from shoal.storage import manifest
from shoal.storage.folders import in_new_folder

if TYPE_CHECKING:
    from shoal.config.resolve import Defaults

_FOLDER = Flag("folder", Path | None, None, "The run's folder; None for a new folder under runs/.")
_RESUME = Flag("resume", Path | None, None, "Continue the run in this folder from its newest intact checkpoint.")
_TRUST = Flag(
    "trust",
    bool,
    False,
    "With --resume or --config: import the environment and algorithm that the folder names, even if they are neither "
    "Shoal's nor an extra's and you did not train this run (docs/security.md).",
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
_OWN = (_FOLDER, _RESUME, _TRUST, _CONFIG, _PRESET, _PRINT, _PROGRESS, *HOOK_FLAGS)

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
    if len(typed) > 2:
        raise InputError(f"shoal train takes an algorithm and an environment; {shortened(typed[2])} is an extra word.")
    for check_name, word in zip((algorithms.check_name, names.check_name), typed, strict=False):
        check_name(word)
    if (folder := _value_of(rest, _RESUME.spelt)) is not None:
        return _resumed(folder, typed, rest), rest
    files = {flag.name: _value_of(rest, flag.spelt) for flag in (_CONFIG, _PRESET)}
    chosen: dict[str, Any] = {"trust": _TRUST.spelt in rest} | {name: file for name, file in files.items() if file}
    words, helps = _named(typed, files["config"]), not {"-h", "--help"}.isdisjoint(rest)
    if files["config"] and not chosen["trust"]:
        without = _imported(words, typed, files["config"])
        if _PRINT.spelt in rest and not helps and len(without) < len(words):
            raise InputError(
                f"{files['config']} names {words[len(without)]!r}, which --print-config would import: pass --trust if "
                f"you trust its author, or type the names."
            )
        words = without if helps else words
    if len(words) < 2 and not helps:
        needed = "an environment" if words else "an algorithm and an environment"
        raise InputError(f"shoal train needs {needed} first, for example: shoal train mappo mpe/simple_spread.")
    defaults = _defaults(words, typed, chosen)
    groups = _groups(words, defaults, rest)

    def do(values: Values) -> int:
        own = {flag.name: values["run"].pop(flag.name, flag.default) for flag in _OWN}
        if own["trust"] and own["config"] is None:
            raise InputError("--trust is only for --resume and --config; names that you type need no trust.")
        if own["continue_stopped"]:
            raise InputError("--continue-stopped is only for --resume.")
        env = values.pop("env", {})
        flags = {name: value for some in values.values() for name, value in some.items()}
        for_all = [flag.name for some in groups.values() for flag in some if flag.for_all]
        flags = {name: value for name, value in flags.items() if value is not None or name not in for_all}
        from shoal.config.resolve import as_toml, check_effect  # imports JAX
        from shoal.environments import registry
        from shoal.runs import api

        assert defaults is not None  # there are two words
        found = defaults.over(flags, env)
        build = partial(registry.make, found.environment, **found.env)
        check_effect(found.values.settings, found.values.config, flags, found.name, build)
        callbacks = chosen_hooks(own)
        if own["print_config"]:
            from shoal.runs.train import check, new_run

            text = as_toml(found)
            check(new_run(found, Path("runs")))
            print(text, end="")
            return 0

        def start(where: Path) -> int:
            train = partial(api.train_configured, found, where, callbacks=callbacks)
            return watched(where, train, own)

        return start(own["folder"]) if own["folder"] else in_new_folder(found.algorithm, found.name, start)

    return Command(" ".join(["shoal train", *words]), _about(words, None), groups, do, _FIRST), rest


def _both(typed: Sequence[str]) -> list[str | None]:
    """The algorithm and the environment, None where it is not typed."""
    return [*typed, None, None][:2]


def _named(typed: Sequence[str], config: str | None) -> list[str]:
    """The algorithm and the environment, as far as they are typed or named by a file."""
    if not config or len(typed) == 2:
        return list(typed)
    from shoal.config import config_files  # imports JAX

    file = config_files.read(config)
    words = [mine or theirs for mine, theirs in zip(_both(typed), (file.algorithm, file.environment), strict=True)]
    return [word for word in itertools.takewhile(bool, words) if word]


def _imported(words: Sequence[str], typed: Sequence[str], config: str) -> list[str]:
    """Those of ``words`` up to the first that a file, rather than the user, gives and that would import a module of the
    user's own: the help of another person's file does without its flags. Folders of runs have records of permission."""
    if Path(config).is_dir() or Path(config).name == manifest.FILE:
        return list(words)
    own = [bool(algorithms.own(word)) for word in words[:1]]
    own += [
        ":" in word and not names.built_in(word) and not word.startswith(tuple(names.FAMILIES)) for word in words[1:]
    ]
    theirs = [word not in typed and imports for word, imports in zip(words, own, strict=True)]
    return list(words[: theirs.index(True)] if any(theirs) else words)


def _resumed(folder: str, typed: list[str], rest: list[str]) -> Command:
    """The command that continues a run."""
    if folder == "":
        raise InputError("--resume needs the folder of a run; its value is empty.")
    run = shoal.open_run(folder, trust=_TRUST.spelt in rest)
    words, held = [*map(algorithms.canonical, typed[:1]), *typed[1:]], [run.algorithm, run.environment]
    if words != held[: len(words)]:
        raise InputError(f"{folder} is a run of {' in '.join(held)}, not of {' in '.join(words)}.")
    if option := next((word for word in rest if word.startswith("--env.")), None):
        name = option.partition("=")[0].removeprefix("--env.").replace("-", "_")
        raise InputError(f"{name} cannot change in a resumed run.")
    groups = of_fields(run.settings, "run") | of_fields(run.config, _title(run.algorithm))
    groups["run"] = [*_OWN, *groups["run"]]

    def do(values: Values) -> int:
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
        more = {"callbacks": chosen_hooks(own), "continue_stopped": own["continue_stopped"]}
        return watched(run.folder, partial(shoal.resume, run.folder, trust=own["trust"], **more, **flags), own)

    return Command(" ".join(["shoal train", *held]), _about(held, run), groups, do, _FIRST)


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
        groups["run"] = [_by_horizon(flag) if flag.name in defaults.values.sized else flag for flag in groups["run"]]
        groups["env"] = of_environment(words[1], defaults.env, args)
    return groups


def _by_horizon(flag: Flag) -> Flag:
    """The flag of a size whose default depends on the episode length, which is known once the environment is built."""
    help = f"{flag.help} None: derived from the length of an episode."
    return dataclasses.replace(flag, hint=flag.hint | None, default=None, help=help)


def _about(words: Sequence[str], run: "shoal.Run | None") -> str:
    if run is not None:
        return f"Continue the run of {words[0]} in {words[1]}, bit for bit as without an interruption."
    if not words:
        return (
            "Train a team, or continue a run: shoal train ALGORITHM ENVIRONMENT, or shoal train --resume RUN. "
            "Put the algorithm (shoal list algorithms) and the environment (shoal list environments) before --help "
            "to see their flags as well, with tuned defaults. Algorithms joined by + train one side of the environment "
            "each, for example mappo+ippo predators and prey."
        )
    about = first_line(algorithms.get(words[0]).__doc__)
    return about if len(words) == 2 else f"{about} Put an environment before --help to see its options as well."


def _value_of(args: Sequence[str], flag: str) -> str | None:
    """The word after a flag, before the flags are parsed."""
    for word, after in reversed([*zip(args, [*args, "--"][1:], strict=True)]):
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
        if word == flag and not after.startswith("--"):
            return after
    return None
