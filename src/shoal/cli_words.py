"""Error messages of the command line, one sentence each."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from shoal.cli_flags import REQUIRED, Flag
from shoal.synonyms import meant


def empty(flags: Sequence[Flag], args: Sequence[str]) -> str | None:
    """The message for a flag that needs values or a path and is given none or an empty one; None if there is none.

    The parser would read the first as an empty tuple (for ``--hidden`` a network without hidden layers) and the second
    as the working directory.
    """
    for flag in flags:
        if Path in (flag.hint, *get_args(flag.hint)) and _given(args, flag.spelt)[:1] == [""]:
            return f"{flag.spelt} needs a name, and is given an empty one."
        if flag.several and not flag.positional:
            names = [word.partition("=")[0].replace("_", "-") for word in args]
            if flag.spelt in names and not any(_given(args, flag.spelt)):
                return f"{flag.spelt} needs a value: {flag.takes}"
    return None


def complaint(prog: str, flags: Sequence[Flag], args: Sequence[str], printed: str) -> str:
    """One sentence in place of the parser's printed errors."""
    names = {flag.spelt: flag for flag in flags}
    for word in re.findall(r"--[\w.-]*\w", printed):
        if word not in names:
            continue
        given = _given(args, word)
        if not given:
            return f"{word} needs a value: {names[word].takes}"
        return f"{word} cannot be {' '.join(given)!r}; it takes {names[word].takes}"
    missing = [flag.spelt for flag in flags if flag.positional and flag.default is REQUIRED]
    if missing:
        return f"{prog} needs {' and '.join(missing)}; {prog} --help says more."
    return " ".join(re.sub(r"[─-╿]", " ", printed).split())


def _given(args: Sequence[str], name: str) -> list[str]:
    """The values given to a flag."""
    words = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--") else [arg])]
    spelt = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    if name not in spelt:
        return []
    after = words[spelt.index(name) + 1 :]
    return after[: next((i for i, word in enumerate(after) if word.startswith("--")), len(after))]


def stranger(prog: str, flags: Sequence[Flag], word: str) -> str:
    """The message for a word that is neither a flag nor a value."""
    if not word.startswith("-"):
        return f"{prog} cannot place {word!r}; {prog} --help says what it takes."
    name = word.partition("=")[0]
    known = {flag.name: flag.spelt for flag in flags if not flag.prefix}
    near = [known[found]] if (found := meant(name.removeprefix("--"), known)) else []
    near = near or difflib.get_close_matches(name, [flag.spelt for flag in flags], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"{prog} --help lists them all."
    return f"{prog} has no flag {name}; {hint}"
