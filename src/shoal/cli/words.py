"""Reading of a command line's words as values of flags, and its error messages, one sentence each."""

import difflib
import itertools
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.cli.flags import REQUIRED, Flag
from shoal.errors import InputError, shortened
from shoal.options.convert import Words, alternatives, is_flag, typed
from shoal.options.synonyms import meant


def read_words(prog: str, flags: Sequence[Flag], args: Sequence[str]) -> dict[str, Any]:
    """The values that words give to flags and positional arguments, by :attr:`Flag.spelt`.

    A value follows its flag as the next word, as several words for a tuple, or after ``=``. A flag is given once. Words
    after ``--`` are positional.

    Args:
        prog: the command, for messages.
        flags: the command's.
        args: the words.

    Raises:
        InputError: a flag is unknown or repeated, its value is missing or of the wrong type, or an argument is missing.
    """
    known = {word: flag for flag in flags if not flag.positional for word in (flag.spelt, *flag.booleans)}
    found: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    left, loose = list(args), []
    while left:
        word = left.pop(0)
        if word == "--":
            loose, left = [*loose, *left], []
        elif not is_flag(word):
            loose.append(word)
        else:
            name, equals, text = word.partition("=")
            flag = known.get(name.replace("_", "-"))
            if flag is None:
                raise InputError(stranger(prog, flags, word))
            if flag.spelt in spelt:
                raise InputError(_twice(flag, spelt[flag.spelt], name.replace("_", "-")))
            spelt[flag.spelt] = name.replace("_", "-")
            if name.replace("_", "-") != flag.spelt:  # --no-x
                if equals:
                    raise InputError(f"{name} takes no value; use {flag.spelt}={text}.")
                found[flag.spelt] = False
                continue
            words = _values(flag, [text] if equals else [], left)
            del left[: len(words) - bool(equals)]
            found[flag.spelt] = _typed(flag, words)
    for flag in (flag for flag in flags if flag.positional):
        taken = len(loose) if flag.several else 1
        if loose or (flag.several and flag.default is REQUIRED):
            found[flag.spelt] = _typed(flag, loose[:taken])
        loose = loose[taken:]
    if loose:
        raise InputError(stranger(prog, flags, loose[0]))
    if missing := [flag for flag in flags if flag.default is REQUIRED and flag.spelt not in found]:
        names = " and ".join(flag.spelt for flag in missing if flag.positional)
        raise InputError(f"{prog} needs {names}; see {prog} --help." if names else _needs_value(missing[0]))
    return found


def _values(flag: Flag, given: list[str], left: Sequence[str]) -> list[str]:
    """The words of a flag's value: ``given`` after ``=``, and those that follow."""
    if flag.booleans:
        ahead = not given and left and left[0].capitalize() in ("True", "False", "None")
        return [word.capitalize() for word in given or left[:1]] if given or ahead else []
    following = list(itertools.takewhile(lambda word: not is_flag(word), left))
    if not flag.several:
        return given or following[:1]
    tuples = [typing.get_args(option) for option in alternatives(flag.hint) if typing.get_origin(option) is tuple]
    fixed = None if any(Ellipsis in items for items in tuples) else max(map(len, tuples)) - len(given)
    return [*given, *following[:fixed]]


def _typed(flag: Flag, words: Sequence[str]) -> Any:
    """The value of a flag. No words are True for a boolean flag, and else an error.

    Otherwise no words would be an empty tuple, for ``--hidden`` a network without hidden layers, and an empty path the
    working directory.
    """
    if flag.booleans and not words:
        return True
    if not any(words) and not flag.positional and (flag.several or not words):
        raise InputError(_needs_value(flag))
    if flag.several and not flag.positional and _named(flag) and len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise InputError(f"{flag.spelt} has {shortened(twice)} twice; give it once.")
    if Path in alternatives(flag.hint) and "" in words:
        raise InputError(f"{flag.spelt} needs a name; its value is empty.")
    return typed(flag.spelt, Words(words), flag.hint)


def _named(flag: Flag) -> bool:
    """Whether a flag takes names, of which none is meant twice, rather than numbers or an environment's own words."""
    return not flag.spelt.startswith("--env.") and any(
        typing.get_args(option)[:1] in ((str,), (Path,)) for option in alternatives(flag.hint)
    )


def _twice(flag: Flag, before: str, now: str) -> str:
    """The message for a flag that is given a second time."""
    if before != now:
        return f"{before} and {now} contradict each other; give one of them."
    return f"{now} is given twice; {'give all its values after one of them' if flag.several else 'give it once'}."


def _needs_value(flag: Flag) -> str:
    return f"{flag.spelt} needs a value: {flag.takes}"


def stranger(prog: str, flags: Sequence[Flag], word: str) -> str:
    """The message for a word that is neither a flag nor a value."""
    if not is_flag(word):
        return f"{prog} has no argument for {shortened(word)}; see {prog} --help."
    name = word.partition("=")[0]
    known = {flag.name: flag.spelt for flag in flags if not flag.prefix}
    near = [known[found]] if (found := meant(name.removeprefix("--"), known)) else []
    near = near or difflib.get_close_matches(name, [flag.spelt for flag in flags], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"{prog} --help lists all flags."
    return f"{prog} has no flag {name}; {hint}"
