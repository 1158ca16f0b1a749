"""The help of a command: what it takes, in two columns that fit the terminal."""

import shutil
import textwrap
from collections.abc import Iterator

from shoal.cli.flags import REQUIRED, Command, Flag

INDENT, COLUMN, GAP = 2, 26, 2
"""Spaces before a flag, where its description begins, and the least space between the two."""


def command_help(command: Command) -> str:
    """The output of a command's ``--help``: the flags of :attr:`Command.first`, and then the others by group."""
    width = shutil.get_terminal_size().columns
    positional = [flag for flags in command.groups.values() for flag in flags if flag.positional]
    usage = " ".join([f"usage: {command.prog}", *(flag.spelt for flag in positional), "[OPTIONS]"])
    parts = [textwrap.fill(words, width, break_on_hyphens=False) for words in (usage, command.about)]
    for title, flags in {"arguments": positional, **_arranged(command)}.items():
        if flags:
            parts.append("\n".join([f"{title}:", *(line for flag in flags for line in _lines(flag, width))]))
    return "\n\n".join(parts)


def _arranged(command: Command) -> dict[str, list[Flag]]:
    groups = {title: [flag for flag in flags if not flag.positional] for title, flags in command.groups.items()}
    named = {flag.name: flag for flags in groups.values() for flag in flags if not flag.prefix}
    first = [named[name] for name in command.first if name in named]
    shown = {"most-used options": first}
    for title, flags in groups.items():
        words = "options" if title == "flags" else f"{title.replace('_', ' ')} options"
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
