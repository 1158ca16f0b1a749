"""What an environment did instead of returning: it raised, ended its process, or did not answer. No JAX."""

import sys
import traceback
from pathlib import Path


class PlayError(Exception):
    """An environment did not return.

    ``what`` continues a sentence, for example ``raised ValueError: …``; ``trace`` is the environment's own traceback;
    ``gone`` says whether the process that it was played in has ended.
    """

    def __init__(self, what: str, trace: str = "", gone: bool = False):
        super().__init__(what)
        self.what, self.trace, self.gone = what, trace, gone


def fault_of(error: BaseException) -> PlayError:
    """What to say of an exception."""
    what = " ".join(traceback.format_exception_only(error)[-1].split()).rstrip(".")
    return PlayError(f"raised {what}", own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """The frames of an exception that are neither of the check nor of JAX, as Python prints them."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not is_ours(frame.filename)]
    return "".join(traceback.format_list(theirs or list(frames)[-1:])).rstrip()


def is_ours(file: str) -> bool:
    """Whether a file is the check's, the registry's or JAX's, or none at all."""
    jax = sys.modules.get("jax")
    home = Path(__file__).parents[1]
    ours = [str(home / "checking"), str(home / "environments" / "registry.py")]
    ours += [str(Path(jax.__file__ or "").parent)] if jax else []
    return file.startswith((*ours, "<frozen", "<string>"))
