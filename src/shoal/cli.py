"""The command line, for example ``shoal train mappo mpe/simple_spread``. The only file that imports tyro.

Importing JAX takes a second, so it is imported by the commands that need it, after their first words are checked.
"""

import contextlib
import dataclasses
import io
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from shoal import notices, own_modules
from shoal.cli_commands import COMMANDS, help_text, version_text
from shoal.cli_flags import REQUIRED, Anything, Command, Flag, Values
from shoal.cli_output import abandon_output, fill_closed_streams, leave, lenient_errors
from shoal.cli_words import complaint, empty, stranger
from shoal.errors import FULL, CallbackError, GameError, InputError, NonFiniteError, unknown

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
    # package.module:factory is looked for in the working directory.
    with lenient_errors(), own_modules.found_in(str(Path.cwd())):
        return _guarded(args)


def _guarded(args: list[str]) -> int:
    """Run a command; every expected error becomes one sentence on stderr and an exit code."""
    try:
        code = _dispatch(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _say(str(error), REFUSED)
    except NonFiniteError as error:
        return _say(str(error), BROKEN)
    except (GameError, CallbackError) as error:
        if error.trace:
            notices.warn(error.trace)
        return _say(str(error), BROKEN)
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        abandon_output()
        return BROKEN
    except OSError as error:
        if error.filename is not None:
            return _say(f"{error.filename} cannot be used: {error.strerror}.", REFUSED)
        if error.errno is None:
            raise
        abandon_output()
        return _say(f"The operating system refuses to go on: {error.strerror}.", BROKEN)
    except MemoryError:
        return _say(FULL, BROKEN)
    except RuntimeError as error:  # jax.errors.JaxRuntimeError is one
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _say(FULL, BROKEN)
    except KeyboardInterrupt as stop:
        notices.warn(str(stop) or "Stopped.")
        return INTERRUPTED
    except SystemExit as end:  # after printing help
        return int(end.code or 0)


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(help_text())
        return 0
    if args[0] == "--version":
        print(version_text())
        return 0
    if args[0] not in COMMANDS:
        raise unknown("command", args[0], COMMANDS)
    command, args = COMMANDS[args[0]](args[1:])
    values = parse(command, args)
    if command.compiles:
        from shoal.training import program_cache

        program_cache.use()
    return command.do(values)


def parse(command: Command, args: Sequence[str]) -> Values:
    """The values of all flags by group. If ``args`` request help, prints it and exits.

    Raises:
        InputError: ``args`` hold an unknown flag, or a value of the wrong type.
    """
    prog, groups = command.prog, command.groups
    flags = [flag for group in groups.values() for flag in group]
    if sentence := empty(flags, args):
        raise InputError(sentence)
    shown, fields = _arranged(command), []
    for title, some in shown.items():
        kind = dataclasses.make_dataclass(title, [_field(flag) for _, flag in some])
        fields.append((title, Annotated[kind, tyro.conf.OmitArgPrefixes]))
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found, rest = tyro.cli(
                dataclasses.make_dataclass("Flags", fields),
                prog=prog,
                description=_wrapped(command.about),
                args=_booleans(flags, args),
                return_unknown_args=True,
                registry=_REGISTRY,
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise InputError(complaint(prog, flags, args, errors.getvalue())) from None
    if rest:
        raise InputError(stranger(prog, flags, rest[0]))
    values: Values = {title: {} for title in groups}
    for title, some in shown.items():
        for group, flag in some:
            values[group][flag.name] = getattr(getattr(found, title), flag.name)
    return values


def _arranged(command: Command) -> dict[str, list[tuple[str, Flag]]]:
    """The flags in the order of the help text, each with its group: ``command.first``, then the others by group."""
    every = [(title, flag) for title, flags in command.groups.items() for flag in flags]
    named = {flag.name: (title, flag) for title, flag in every if not flag.prefix}
    first = [named[name] for name in command.first if name in named]
    shown = {"most_used": first} | {title: [] for title in command.groups}
    for title, flag in every:
        if (title, flag) not in first:
            shown[title].append((title, flag))
    return {title: flags for title, flags in shown.items() if flags}


def _wrapped(text: str) -> str:
    """A paragraph wrapped to the terminal's width; the parser joins lines that are not indented."""
    return textwrap.fill(text, shutil.get_terminal_size().columns, subsequent_indent="  ")


def _booleans(flags: Sequence[Flag], args: Sequence[str]) -> list[str]:
    """``args`` with every boolean flag in the parser's form, from ``--x``, ``--no-x``, ``--x True`` or ``--x=False``.

    In that form a flag that may be None takes a value; other boolean flags take none.
    """
    spellings = {spelt: (flag, spelt == flag.spelt) for flag in flags for spelt in flag.booleans}
    words, left = [], list(args)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        flag, yes = spellings.get(name.replace("_", "-"), (None, True))
        if flag is None:
            words.append(word)
            continue
        if not equals and yes and left and left[0].capitalize() in ("True", "False", "None"):
            equals, value = "=", left.pop(0)
        value = value.capitalize() if equals else str(yes)
        if flag.hint is not bool:
            words += [flag.spelt, value]
        elif value in ("True", "False") and yes | (not equals):
            words.append(flag.booleans[value == "False"])
        else:
            words.append(f"{name}={value}")
    return words


def _field(flag: Flag) -> tuple[str, Any, Any]:
    options: dict[str, Any] = {"help": flag.help, "name": flag.prefix + flag.name}
    if flag.hint is not bool:
        options["metavar"] = flag.spelt if flag.positional else flag.takes
    if flag.default is not REQUIRED:
        options["help_behavior_hint"] = f"(default: {flag.default_text}{flag.within})"
    marks = [tyro.conf.arg(**options)] + [tyro.conf.Positional] * flag.positional
    return flag.name, Annotated[(flag.hint, *marks)], dataclasses.field(default=flag.default, kw_only=True)


def _whole_number(text: str) -> int:
    """An integer from text such as ``100`` or ``1e2``."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _int_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: _whole_number(words[0]),
        is_instance=lambda x: isinstance(x, int) and not isinstance(x, bool),
        str_from_instance=lambda x: [str(x)],
    )


@_REGISTRY.primitive_rule
def _anything_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type is not Anything:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="VALUE",
        instance_from_str=lambda words: Anything.read(words[0]),
        is_instance=lambda _: True,
        str_from_instance=lambda x: [str(x)],
    )


def _say(sentence: str, code: int) -> int:
    notices.warn(f"shoal: {sentence}" + ("" if sentence[-1] in ".?" else "."))
    return code


if __name__ == "__main__":
    sys.exit(main())
