"""Command-line flags, with their help, from the fields of dataclasses and the options of environments."""

import ast
import dataclasses
import functools
import inspect
import keyword
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from shoal.bounds import Bounds
from shoal.environments.names import hint_of
from shoal.environments.options import OPTION_DOCS
from shoal.errors import InputError
from shoal.options.convert import Anything, alternatives, is_boolean, takes
from shoal.options.flags import leaves

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
        return " ".join(number(x) if isinstance(x, float) else str(x) for x in values) or "nothing"

    @property
    def within(self) -> str:
        """The bounds as text that follows the default."""
        return "" if self.bounds is None else f"; {'each ' if self.several else ''}in {self.bounds.interval}"

    @property
    def several(self) -> bool:
        """Whether it takes several values."""
        return any(typing.get_origin(one) is tuple for one in alternatives(self.hint))


Values = dict[str, dict[str, Any]]
"""The values of the flags that are given, by group and name."""


class Command(NamedTuple):
    """A command with the flags that it takes."""

    prog: str
    """The command with the arguments that determine its flags, for example ``shoal train mappo``."""
    about: str
    """The first lines of its help."""
    groups: dict[str, list[Flag]]
    """Flags by group."""
    do: Callable[[Values], int]
    """Runs the command and returns the exit code."""
    first: Sequence[str] = ()
    """Names of the flags at the top of the help."""
    compiles: bool = True
    """Whether it runs JAX."""


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
        InputError: the environment is unknown, or an ``--env.NAME`` is not a valid name.
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
    if any(option.kind is option.VAR_KEYWORD for option in options.values()):
        known = {*options, *(x.partition(".")[2].replace("-", "_") for flag in flags for x in flag.booleans)}
        free = dict.fromkeys(x for x in [*given, *_env_names(args)] if x not in known)
        help = "An option that the environment's own code takes; read as a Python value, else as text."
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


def number(value: float) -> str:
    """A number as text with a short exponent: 1e7 rather than 1e+07."""
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", f"{value:g}")
