"""Completion of the command line by the shell: ``eval "$(shoal completion bash)"``.

The script that a shell runs asks ``shoal completion --words …`` for the words that may stand at the cursor, in place
of the last one. Files are completed by the shell. Nothing of the user's own is imported for it, and no run folder or
file is read.
"""

from collections.abc import Sequence
from pathlib import Path

from shoal import algorithms
from shoal.cli.flags import REQUIRED, Command, Flag, FlagValues
from shoal.environments import names
from shoal.errors import InputError, unknown
from shoal.storage import zoo
from shoal.system import shipped

SCRIPTS = {
    "bash": r"""_shoal() {
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$(shoal completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- \
        "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:}
complete -o bashdefault -o default -F _shoal shoal
""",
    "zsh": r"""_shoal() {
    local -a found
    found=(${(f)"$(shoal completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    compadd -a found || _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _shoal shoal
""",
    "fish": r"""complete -c shoal -a '(shoal completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
"""The script of each shell."""
_FIRST = {"train": 2, "check": 1}
"""The number of first words that determine a command's flags."""
_TAKE_RUNS = {
    "evaluate",
    "replay",
    "export",
    "crossplay",
    "report",
    "--opponents",
    "--init-from",
    "--config",
    "--against",
}
"""Commands and flags that take the folder of a run, or the name of a policy that comes with Shoal."""
_TAKE_STUDIES = {"study", "results", "report", "tune"}
"""Commands that take the file of a study, or the name of one that comes with Shoal."""
_METHODS = [*algorithms.NAMES, *algorithms.SCRIPTED, *algorithms.ALONE]


def completion(args: Sequence[str]) -> tuple[Command, list[str]]:
    """Print a script that makes a shell complete commands, names and flags.

    With ``--words`` first, prints the words that may stand in place of the last one, a line each.
    """
    if args[:1] == ["--words"]:
        words = list(args[1:])
        return Command(
            "shoal completion", "", {}, lambda _: _print(candidates(words[:-1], *words[-1:])), compiles=False
        ), []

    def do(values: FlagValues) -> int:
        shell = values["flags"]["shell"]
        if shell not in SCRIPTS:
            raise unknown("shell", shell, SCRIPTS)
        print(SCRIPTS[shell], end="")
        return 0

    flags = {"flags": [Flag("shell", str, REQUIRED, "bash, zsh or fish.", positional=True)]}
    about = 'Print a script that completes commands, names and flags: eval "$(shoal completion bash)"'
    return Command("shoal completion", about, flags, do, compiles=False), list(args)


def _print(words: Sequence[str]) -> int:
    print("\n".join(words))
    return 0


def candidates(words: Sequence[str], begun: str = "") -> list[str]:
    """The words that may follow ``words``, those after ``shoal``; empty where a file or a free value is expected.

    Flags follow a word that is begun with a hyphen, and the names of ``train`` and ``check``.
    """
    from shoal.cli.commands import COMMANDS

    if not words:
        return [*COMMANDS, "--help", "--version"]
    command, *rest = words
    if command not in COMMANDS:
        return []
    named = _named(command, rest)
    if rest == named and not begun.startswith("-") and (following := _names(command, len(rest), begun)) is not None:
        return following
    if not begun.startswith("-") and (following := _shipped(command, rest, begun)):
        return following
    flags = _flags(command, named)
    before = next((flag for flag in flags if rest and flag.spelt == rest[-1] and not flag.booleans), None)
    if before is not None and not begun.startswith("-"):
        return _values(before)
    if not begun.startswith("-") and not (command in _FIRST and rest):
        return []
    given = {word.partition("=")[0] for word in rest}
    free = [flag for flag in flags if given.isdisjoint({flag.spelt, *flag.booleans})]
    return [*(word for flag in free for word in (flag.booleans or (flag.spelt,))), "--help"]


def _named(command: str, rest: Sequence[str]) -> list[str]:
    """The first words of ``train`` and ``check``, which determine their flags."""
    count = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    return list(rest[: min(_FIRST.get(command, 0), count)])


def _names(command: str, place: int, begun: str) -> list[str] | None:
    """The names that may stand at a place among a command's first words; None where no name stands."""
    if (command, place) in (("train", 1), ("check", 0)):
        return names.completed(begun)
    found = {"train": _METHODS, "list": ["algorithms", "environments"], "completion": sorted(SCRIPTS)}
    return found.get(command) if place == 0 else None


def _shipped(command: str, rest: Sequence[str], begun: str) -> list[str]:
    """The policies and studies that come with Shoal and begin so, where a command takes one; none if a file of the
    working directory begins so too, which the shell would not complete beside them."""
    before = rest[-1] if rest and rest[-1].startswith("-") else command
    names = [f"{zoo.ZOO}/{name}" for name in zoo.names()] if before in _TAKE_RUNS else []
    names += sorted(path.stem for path in shipped.studies().glob("*.toml")) if before in _TAKE_STUDIES else []
    found = [name for name in names if begun and name.startswith(begun)]
    return found if not any(path.name.startswith(begun.partition("/")[0]) for path in Path().iterdir()) else []


def _flags(command: str, named: Sequence[str]) -> list[Flag]:
    """The flags of a command, as far as the words that determine them are Shoal's own names."""
    from shoal.cli.commands import COMMANDS

    known = [_METHODS, names.names()] if command == "train" else [names.names()]
    own = [word in those for word, those in zip(named, known, strict=False)]
    named = named[: [*own, False].index(False)]
    try:
        found, _ = COMMANDS[command]([*named, "--help"])
    except InputError:
        return []
    return [flag for flags in found.groups.values() for flag in flags if not flag.positional]


def _values(flag: Flag) -> list[str]:
    """The fixed values that a flag takes, for example ``shared``; no None beside a path or a text, for which the shell
    completes files."""
    words = (flag.takes or "").removesuffix("...").split("|")
    none = {"None"} if {"PATH", "TEXT"}.isdisjoint(words) else set()
    return [word for word in words if word in none or word == word.lower()]
