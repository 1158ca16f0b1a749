"""Exceptions. A message is one sentence that tells the user what to change."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.system.notices import escaped

FULL = (
    "There is not enough memory; reduce seeds, num_envs, rollout_length, the widths of networks, batch_size or block."
)
"""What is said when the operating system or XLA refuses memory."""


class _PrintableError(Exception):
    """An exception whose text has no control characters, since it names what files of other people hold."""

    def __str__(self) -> str:
        return escaped(super().__str__())


class InputError(_PrintableError, ValueError):
    """Invalid input. The message is one sentence for the user; the command line exits with code 2."""


class BuildError(InputError):
    """An environment raised an exception while it was built; ``trace`` is the traceback, from the user's code on."""

    def __init__(self, message: str, trace: str = ""):
        super().__init__(message)
        self.trace = trace


class IndivisibleError(InputError):
    """A rollout does not divide into minibatches on this number of devices."""


class CheckpointError(InputError):
    """A checkpoint is missing, damaged, or belongs to another run."""


class DamagedError(CheckpointError):
    """A checkpoint is missing or damaged."""


class WriteError(InputError):
    """A file cannot be written, for example because the disk is full."""


class FolderError(InputError):
    """A run's folder was deleted, moved or replaced."""


class FolderTakenError(FolderError):
    """Another process is training in ``folder``, or it already contains a run."""

    def __init__(self, message: str, folder: Path | None = None):
        super().__init__(message)
        self.folder = folder


class GameError(_PrintableError, RuntimeError):
    """An environment raised an exception or returned NaN or infinity; training stops, and the run is saved.

    The message names the environment, the step and the action; ``trace`` is the environment's own traceback.
    """

    def __init__(self, what: str, game: int | None, doing: str, trace: str):
        super().__init__(f"{what}{' ' if doing else ''}{doing}.")
        self.what, self.game, self.doing, self.trace = what, game, doing, trace

    def __reduce__(self) -> tuple:  # Ray actors pickle exceptions
        return GameError, (self.what, self.game, self.doing, self.trace)


class CallbackError(_PrintableError, RuntimeError):
    """A callback raised an exception or returned something that is no metric; training stops, and the run is saved.

    The message names the callback, its method and the step; ``trace`` is the callback's own traceback, empty if it
    raised nothing.
    """

    def __init__(self, message: str, trace: str = ""):
        super().__init__(message)
        self.trace = trace


class NonFiniteError(_PrintableError, RuntimeError):
    """A metric or parameter is NaN or infinite. The message names it and the last good checkpoint."""


class Terminated(SystemExit):
    """SIGTERM or SIGHUP ended a run, which is saved. Its code is that of shells, 128 + the signal's number."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error that suggests the most similar known name, for example ``unknown("algorithm", "mapo", ["mappo"])``."""
    known = sorted(known)
    alike = [one for one in known if one.casefold() == name.casefold()]
    near = alike or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"known: {', '.join(known)}."
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif len(hint) > 300:
        some = ", ".join(difflib.get_close_matches(name, known, n=8, cutoff=0.0))
        hint = f"the most similar of {len(known)} names are {some}."
    return InputError(f"There is no {kind} {shortened(name)}; {hint}")


def told(error: BaseException) -> str:
    """What an exception says, on one line with a full stop; the name of its class if that is not clear without it."""
    said = " ".join(str(error).split()).rstrip(".")
    plain = isinstance(error, TypeError | ValueError | AssertionError | OSError) or type(error).__name__ == "Error"
    return with_full_stop(said if said and plain else f"{type(error).__name__}{f': {said}' if said else ''}")


def with_full_stop(text: str) -> str:
    """A text that ends with a full stop, or with its own question or exclamation mark."""
    return text if text.endswith(("?", "!", ".")) else f"{text}."


def shortened(value: Any) -> str:
    """``repr(value)`` on one line, truncated to 80 characters, for messages."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no integer that is so long
        text = f"<{type(value).__name__} of thousands of digits>"
    return text if len(text) <= 80 else f"{text[:77]}..."
