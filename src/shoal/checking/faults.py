"""Faults of an environment: it raised, ended its process, or did not return. Does not import JAX."""

import sys
import traceback
from pathlib import Path


class PlayError(Exception):
    """A call of an environment did not return normally.

    ``what`` is the predicate of a sentence, for example ``raised ValueError: …``; ``trace`` is the environment's own
    traceback; ``gone`` is True if its process has ended.
    """

    def __init__(self, what: str, trace: str = "", gone: bool = False):
        super().__init__(what)
        self.what, self.trace, self.gone = what, trace, gone


def fault_of(error: BaseException) -> PlayError:
    """An exception as a :class:`PlayError`."""
    described = traceback.TracebackException(type(error), error, None)
    described.__notes__ = None  # JAX adds notes about its tracebacks, which would be the last line
    what = " ".join(list(described.format_exception_only())[-1].split()).rstrip(".")
    return PlayError(f"raised {what}", "" if _of_adapter(error) else own_traceback(error))


def _of_adapter(error: BaseException) -> bool:
    """Whether an adapter refuses a value that the environment returned, which its own frames do not explain."""
    frames = traceback.extract_tb(error.__traceback__)
    adapters = str(Path(__file__).parents[1] / "environments" / "adapters")
    return isinstance(error, ValueError) and bool(frames) and frames[-1].filename.startswith(adapters)


def own_traceback(error: BaseException, *, package: bool = True) -> str:
    """The traceback of an exception without the frames of the check and of JAX.

    Args:
        error: the exception.
        package: with the frames of the package Shoal; the last of them is also kept where there are no others.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_ours(frame.filename)]
    if not package:
        home = str(Path(__file__).parents[1])
        own = [frame for frame in own if not frame.filename.startswith(home)] or own[-1:]
    return "".join(traceback.format_list(own or list(frames)[-1:])).rstrip()


def is_ours(file: str) -> bool:
    """Whether a file belongs to the check, the registry or JAX, or is not a file."""
    jax = sys.modules.get("jax")
    home = Path(__file__).parents[1]
    ours = [str(home / "checking"), str(home / "environments" / "registry.py")]
    ours += [str(Path(jax.__file__ or "").parent)] if jax else []
    return file.startswith((*ours, "<frozen", "<string>"))
