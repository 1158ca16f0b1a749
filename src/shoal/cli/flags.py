"""Command-line flags: made of dataclasses' fields and of environments' options, and read from a command's words."""

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import keyword
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.bounds import Bounds
from shoal.environments.names import hint_of
from shoal.environments.options import OPTION_DOCS
from shoal.errors import InputError, shortened
from shoal.options.convert import Anything, Words, alternatives, convert_value, is_boolean, is_flag, takes
from shoal.options.flags import leaves
from shoal.options.synonyms import meant

REQUIRED = dataclasses.MISSING


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag or positional argument of a command."""

    name: str
    """Python name, for example ``learning_rate``."""
    hint: Any
    """Type of the value."""
    default: Any = REQUIRED
    """Default value."""
    help: str = ""
    positional: bool = False
    prefix: str = ""
    """Prefix of the name on the command line, for example ``env.``."""
    bounds: Bounds | None = None
    """Bounds of the number, or of each item."""
    for_all: bool = False
    """Sets the flags of all sides; None leaves each as it is."""

    @property
    def spelt(self) -> str:
        """Name on the command line, for example ``--learning-rate``."""
        return self.name.upper() if self.positional else f"--{self.prefix}{self.name.replace('_', '-')}"

    @property
    def booleans(self) -> tuple[str, ...]:
        """For example ``--progress`` and ``--no-progress``; empty for a flag that is not boolean."""
        return (self.spelt, f"--{self.prefix}no-{self.name.replace('_', '-')}") if is_boolean(self.hint) else ()

    @property
    def takes(self) -> str | None:
        """The form of its value, for example ``INT|None``; None for a type that cannot be read from text."""
        return takes(self.hint)

    @property
    def default_text(self) -> str:
        """The default as it would be typed."""
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        return " ".join(number_text(x) if isinstance(x, float) else str(x) for x in values) or "nothing"

    @property
    def within(self) -> str:
        """The bounds as text that follows the default."""
        return "" if self.bounds is None else f"; {'each ' if self.several else ''}in {self.bounds.interval}"

    @property
    def several(self) -> bool:
        """Whether it takes several values."""
        return any(typing.get_origin(one) is tuple for one in alternatives(self.hint))


FlagValues = dict[str, dict[str, Any]]
"""The values of the flags that are given, by group and name."""


class Command(NamedTuple):
    """A command with the flags that it takes."""

    prog: str
    """The command with the arguments that determine its flags, for example ``shoal train mappo``."""
    about: str
    """The first lines of its help."""
    groups: dict[str, list[Flag]]
    """Flags by group."""
    do: Callable[[FlagValues], int]
    """Runs the command and returns the exit code."""
    first: Sequence[str] = ()
    """Names of the flags at the top of the help."""
    compiles: bool = True
    """Whether it runs JAX."""
    missing: Sequence[str] = ()
    """Names of arguments that would determine more flags and are not there yet."""


def of_fields(config: Any, title: str, positional: Iterable[str] = ()) -> dict[str, list[Flag]]:
    """The flags of a dataclass (its defaults) or of an instance (its values), by group.

    The first group is ``title``; a nested dataclass makes a group with its field's name. For several dataclasses of one
    kind (``prefix`` in :func:`shoal.options.flags.leaves`), the first group also has flags that set all of them.
    """
    groups: dict[str, list[Flag]] = {title: []}
    several: list[Flag] = []
    for leaf in leaves(config):
        help = attribute_docs(leaf.kind).get(leaf.plain, "")
        flag = Flag(leaf.name, leaf.hint, leaf.value, help, leaf.name in positional, bounds=leaf.bounds)
        groups.setdefault(leaf.group or title, []).append(flag)
        if leaf.plain != leaf.name:
            several.append(dataclasses.replace(flag, name=leaf.plain))
    groups[title] += _for_all(several)
    return groups


def _for_all(flags: Iterable[Flag]) -> list[Flag]:
    """A flag for all flags of the same name and type."""
    found: dict[str, list[Flag]] = {}
    for flag in flags:
        found.setdefault(flag.name, []).append(flag)
    each = "For every side that has it; None: each its own."
    return [
        Flag(name, one.hint | None, None, f"{one.help} {each}", bounds=one.bounds, for_all=True)
        for name, (one, *others) in found.items()
        if all(other.hint == one.hint for other in others)
    ]


def of_environment(name: str, given: dict[str, Any], args: Sequence[str] = ()) -> list[Flag]:
    """The options of an environment's factory as flags, with ``given`` in place of their defaults.

    Options of a type that cannot be read from text are left out. A factory that takes ``**options`` has a flag for each
    ``--env.NAME`` in ``args`` and for each item of ``given``.

    Raises:
        InputError: the environment is unknown, or an ``--env.NAME`` is not a valid name, or that of an option of a type
            that cannot be read from text.
    """
    from shoal.environments import registry  # imports JAX

    docs = OPTION_DOCS | argument_docs(inspect.getdoc(registry.factory_of(name)) or "")
    options = registry.options_of(name)
    flags = []
    for option in options.values():
        if option.kind not in (option.KEYWORD_ONLY, option.POSITIONAL_OR_KEYWORD):
            continue
        default = given.get(option.name, REQUIRED if option.default is option.empty else option.default)
        hint = hint_of(option, option.empty if default is REQUIRED else default)
        flag = Flag(option.name, hint, default, docs.get(option.name, ""), prefix="env.")
        if flag.takes is not None:
            flags.append(flag)
        elif option.name in _env_names(args):
            raise InputError(
                f"{flag.spelt} would be of the type {inspect.formatannotation(hint)}, which no flag has: give it in "
                f"Python, as env={{{option.name!r}: ...}}, or annotate it as a number, a text or a tuple of these."
            )
    if any(option.kind is option.VAR_KEYWORD for option in options.values()):
        known = {*options, *(x.partition(".")[2].replace("-", "_") for flag in flags for x in flag.booleans)}
        free = dict.fromkeys(x for x in [*given, *_env_names(args)] if x not in known)
        help = "An option that the environment's own code takes; read as a Python value, such as False, else as text."
        flags += [Flag(x, Anything, given.get(x, REQUIRED), help, prefix="env.") for x in free]
    return flags


def _env_names(args: Sequence[str]) -> list[str]:
    """The names of options in ``--env.NAME`` words."""
    words = [word.partition("=")[0].removeprefix("--env.") for word in args if word.startswith("--env.")]
    names = [word.replace("-", "_") for word in words]
    for word, name in zip(words, names, strict=True):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise InputError(f"--env.{word} cannot name an option.")
    return names


@functools.cache
def attribute_docs(kind: type) -> dict[str, str]:
    """The docstring after each field of a class and its bases, as plain text."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            source = inspect.getsource(base)
        except OSError:  # a class without source, made by dataclasses.make_dataclass
            continue
        body = ast.parse(textwrap.dedent(source)).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[field.target.id] = plain(str(after.value.value))
    return docs


def argument_docs(doc: str) -> dict[str, str]:
    """The ``Args:`` section of a docstring by argument, as plain text."""
    _, found, section = doc.partition("\nArgs:\n")
    if not found:
        return {}
    section = re.split(r"\n(?=\S)", section, maxsplit=1)[0]
    entries = re.findall(r"^    (\w+):((?:.*\n?)(?:^ {5,}.*\n?)*)", section + "\n", re.MULTILINE)
    return {name: plain(text) for name, text in entries}


def first_line(doc: str | None) -> str:
    """The first paragraph of a docstring, as plain text."""
    return plain(inspect.cleandoc(doc or "").split("\n\n")[0])


def plain(text: str) -> str:
    """A docstring as one line without its markup."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    return " ".join(re.sub(r"\*(\w+)\*", r"\1", text).split())


def number_text(value: float) -> str:
    """A number as text, exactly, with a short exponent: 1e7 rather than 1e+07."""
    text = f"{value:g}"
    text = text if float(text) == value else str(value).removesuffix(".0")
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", text)


# Words of a command line as values of flags, and error messages of one sentence each.


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
    behind: dict[int, Flag] = {}  # a boolean flag without value, by the number of loose words before the one behind it
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
            if flag.booleans and not words and left and not is_flag(left[0]):
                behind[len(loose)] = flag
    count = len(loose)
    for flag in (flag for flag in flags if flag.positional):
        taken = len(loose) if flag.several else 1
        if loose or (flag.several and flag.default is REQUIRED):
            found[flag.spelt] = _typed(flag, loose[:taken])
        loose = loose[taken:]
    if loose and (boolean := behind.get(count - len(loose))):
        raise InputError(
            f"{boolean.spelt} takes True or False, not {shortened(loose[0])}; or write {boolean.booleans[1]}."
        )
    if loose:
        raise InputError(stranger(prog, flags, loose[0]))
    if missing := [flag for flag in flags if flag.default is REQUIRED and flag.spelt not in found]:
        names = " and ".join(flag.spelt for flag in missing if flag.positional)
        raise InputError(f"{prog} needs {names}; see {prog} --help." if names else _needs_value(missing[0]))
    return found


def read_early(prog: str, flags: Sequence[Flag], args: Sequence[str]) -> dict[str, Any]:
    """The values of some of a command's flags by name, read by :func:`read_words` before the other flags are known.

    Raises:
        InputError: one of them is repeated, or its value is missing or of the wrong type.
    """
    known = {word for flag in flags for word in (flag.spelt, *flag.booleans)}
    words, own = [], False
    for word in itertools.takewhile(lambda word: word != "--", args):
        own = word.partition("=")[0].replace("_", "-") in known if is_flag(word) else own
        words += [word] * own
    loose = Flag("loose", tuple[str, ...], (), positional=True)
    found = read_words(prog, [*flags, loose], words)
    return {flag.name: found.get(flag.spelt, flag.default) for flag in flags}


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
    return convert_value(flag.spelt, Words(words), flag.hint)


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
    name, example = flag.name.removeprefix("no_"), ""
    if flag.hint is Anything:
        example = f", such as --{flag.prefix}{name.replace('_', '-')} {name == flag.name}"
    return f"{flag.spelt} needs a value: {flag.takes}{example}"


def stranger(prog: str, flags: Sequence[Flag], word: str) -> str:
    """The message for a word that is neither a flag nor a value."""
    if not is_flag(word):
        return f"{prog} has no argument for {shortened(word)}; see {prog} --help."
    name = word.partition("=")[0]
    known = {flag.name: flag.spelt for flag in flags if not flag.prefix}
    near = [known[found]] if (found := meant(name.removeprefix("--"), known)) else []
    plain = difflib.get_close_matches(name.removeprefix("--"), [flag.spelt[2:] for flag in flags], n=1, cutoff=0.6)
    near = near or [f"--{word}" for word in plain]
    hint = f"did you mean {near[0]}?" if near else f"{prog} --help lists all flags."
    return f"{prog} has no flag {name}; {hint}"
