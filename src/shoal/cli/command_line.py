"""The command line, for example ``shoal train mappo mpe/simple_spread``.

Importing JAX takes a second, so it is imported by the commands that need it, after their first words are checked.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from shoal.cli.commands import COMMANDS, help_text, version_text
from shoal.cli.flags import REQUIRED, Command, Flag, FlagValues, read_words
from shoal.cli.output import abandon_output, fill_closed_streams, leave, safe_streams
from shoal.errors import (
    FULL,
    BuildError,
    CallbackError,
    GameError,
    InputError,
    NonFiniteError,
    Terminated,
    shortened,
    unknown,
)
from shoal.security import isolation, user_modules
from shoal.system import notices
from shoal.system.shipped import docs

INDENT, COLUMN, GAP = 2, 26, 2
"""Spaces before a flag, where its description begins, and the least space between the two."""


def command_help(command: Command) -> str:
    """The output of a command's ``--help``: the flags of :attr:`Command.first`, and then the others by group."""
    width = shutil.get_terminal_size().columns
    positional = [flag for flags in command.groups.values() for flag in flags if flag.positional]
    names = *command.missing, *(flag.spelt for flag in positional)
    usage = " ".join([f"usage: {command.prog}", *names, "[OPTIONS]"])
    parts = [textwrap.fill(words, width, break_on_hyphens=False) for words in (usage, command.about)]
    for title, flags in {"arguments": positional, **_arranged(command)}.items():
        if flags:
            parts.append("\n".join([f"{title}:", *(line for flag in flags for line in _lines(flag, width))]))
    if any("docs/" in part for part in parts):
        parts.append(f"The pages of docs/ are in {docs()}.")
    return "\n\n".join(parts)


def _arranged(command: Command) -> dict[str, list[Flag]]:
    groups = {title: [flag for flag in flags if not flag.positional] for title, flags in command.groups.items()}
    named = {flag.name: flag for flags in groups.values() for flag in flags if not flag.prefix}
    first = [named[name] for name in command.first if name in named]
    shown = {"most-used options": first}
    for title, flags in groups.items():
        words = "options" if title == "flags" else f"{title.removesuffix('_options').replace('_', ' ')} options"
        shown[words] = [flag for flag in flags if flag not in first]
    last = next(reversed(shown.values()))
    last.append(Flag("help", bool, False, "Print this text."))
    return shown


def _lines(flag: Flag, width: int) -> Iterator[str]:
    """A flag with its description, which begins on the next line if the flag is too long."""
    name = " " * INDENT + _name(flag)
    room = max(width - COLUMN, 20)
    lines = textwrap.wrap(f"{flag.help} {_default(flag)}".strip(), room, break_on_hyphens=False) or [""]
    if len(name) + GAP <= COLUMN:
        yield name.ljust(COLUMN) + lines.pop(0)
    else:
        yield from textwrap.wrap(name, max(width, 20), subsequent_indent=" " * 2 * INDENT, drop_whitespace=True)
    yield from (" " * COLUMN + line for line in lines)


def _name(flag: Flag) -> str:
    if flag.name == "help":
        return "-h, --help"
    if flag.positional:
        return flag.spelt
    return ", ".join(flag.booleans) if flag.booleans else f"{flag.spelt} {flag.takes}"


def _default(flag: Flag) -> str:
    if flag.name == "help":
        return ""
    if flag.default is REQUIRED:
        return "(required)"
    return f"(default: {flag.default_text}{flag.within})"


BROKEN, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes; the last is the shells' code for Ctrl-C, 128 + SIGINT."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success. 1: training failed, since a metric became NaN or infinite, or the environment or a callback raised.
    2: invalid request, explained in one sentence on stderr. 130: stopped by Ctrl-C.
    """
    fill_closed_streams()
    code = _main(list(sys.argv[1:] if argv is None else argv))
    if argv is None and _busy():  # stopped during a compilation, which cannot be interrupted
        leave(code)
    return code


def _busy() -> bool:
    """Whether JAX still computes or compiles what was abandoned."""
    stopping = sys.modules.get("shoal.training.stopping")
    return stopping is not None and stopping.busy()


def _main(args: list[str]) -> int:
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        return _say("The working directory does not exist any more; change to one that does.", REFUSED)
    # package.module:factory is looked for in the working directory.
    with isolation.isolated(), safe_streams(), user_modules.found_in(here):
        return _guarded(args)


def _guarded(args: list[str]) -> int:
    """Run a command; every expected error becomes one sentence on stderr and an exit code."""
    try:
        code = _dispatch(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        if isinstance(error, BuildError):
            notices.warn(error.trace)
        return _say(str(error), REFUSED)
    except NonFiniteError as error:
        return _say(str(error), BROKEN)
    except (GameError, CallbackError) as error:
        if error.trace:
            notices.warn(error.trace)
        return _say(str(error), BROKEN)
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        abandon_output(sys.stdout)
        return BROKEN
    except OSError as error:
        if error.filename is not None:
            return _say(f"{error.filename} cannot be used: {error.strerror}.", REFUSED)
        if error.errno is None:
            raise
        abandon_output(sys.stdout)
        return _say(f"The operating system reports an error: {error.strerror}.", BROKEN)
    except MemoryError:
        return _say(FULL, BROKEN)
    except RuntimeError as error:  # jax.errors.JaxRuntimeError is one
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _say(FULL, BROKEN)
    except KeyboardInterrupt as stop:
        notices.warn(str(stop) or "Stopped.")
        return INTERRUPTED
    except Terminated as end:
        return int(end.code or 0)
    except SystemExit as end:  # of the user's own code, or of a library
        code = "" if end.code is None else shortened(end.code)
        return _say(f"The command was ended by sys.exit({code}), in {user_modules.place_of(end)}", BROKEN)


def _dispatch(args: list[str]) -> int:
    if any("\0" in word for word in args):
        raise InputError("A word of the command holds the character NUL, which no name and no value can hold.")
    if not args or args[0] in ("-h", "--help"):
        print(help_text())
        return 0
    if args[0] == "--version":
        print(version_text())
        return 0
    if args[0] not in COMMANDS:
        raise unknown("command", args[0], COMMANDS)
    command, args = COMMANDS[args[0]](args[1:])
    if not {"-h", "--help"}.isdisjoint(args):
        print(command_help(command))
        return 0
    values = parse_words(command, args)
    if command.compiles:
        from shoal.training import program_cache

        program_cache.use()
    return command.do(values)


def parse_words(command: Command, args: Sequence[str]) -> FlagValues:
    """The values that ``args`` give to flags, by group.

    Raises:
        InputError: ``args`` hold an unknown flag, or a value of the wrong type.
    """
    found = read_words(command.prog, [flag for flags in command.groups.values() for flag in flags], args)
    return {
        title: {flag.name: found[flag.spelt] for flag in flags if flag.spelt in found}
        for title, flags in command.groups.items()
    }


def _say(sentence: str, code: int) -> int:
    notices.warn(f"shoal: {sentence}" + ("" if sentence[-1] in ".?" else "."))
    return code
