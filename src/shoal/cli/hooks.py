"""The flags of ``shoal train`` that name callbacks and loggers."""

import shlex
from collections.abc import Mapping
from typing import Any

from shoal.cli.flags import Flag
from shoal.errors import InputError
from shoal.security import user_modules

CALLBACK = Flag(
    "callback",
    tuple[str, ...],
    (),
    "Callback module:MyCallback to call during training: a class (created without arguments) or a function "
    "(context, metrics) in your own module (docs/hooks.md). It is not stored with the run.",
)
WANDB = Flag("wandb", str | None, None, "Also log to this Weights & Biases project, or entity/project.")
MLFLOW = Flag("mlflow", str | None, None, "Also log to MLflow: a tracking URI, or a folder for its database.")
CONTINUE = Flag("continue_stopped", bool, False, "With --resume: continue a run that a callback stopped.")
FLAGS = (CALLBACK, WANDB, MLFLOW, CONTINUE)


def chosen(values: Mapping[str, Any]) -> list[Any]:
    """The callbacks that the values of :data:`FLAGS` name.

    Raises:
        InputError: there is no such module or attribute, it cannot be made, or a name is empty.
    """
    import shoal  # its names import JAX

    found = [_own(name) for name in values["callback"]]
    if values["wandb"] is not None:
        found.append(shoal.WandbLogger(values["wandb"]))
    if values["mlflow"] is not None:
        found.append(shoal.MLflowLogger(values["mlflow"]))
    return found


def words(values: Mapping[str, Any]) -> str:
    """The flags that a command that continues the run needs, with a leading space; empty for none."""
    flags = [CALLBACK.spelt, *values["callback"]] if values["callback"] else []
    for flag in (WANDB, MLFLOW):
        flags += [flag.spelt, values[flag.name]] if values[flag.name] is not None else []
    return f" {shlex.join(flags)}" if flags else ""


def _own(name: str) -> Any:
    if name.count(":") != 1:
        raise InputError(f"--callback takes module:MyCallback, a class or function in your own module, not {name!r}.")
    with user_modules.typed():
        found = user_modules.found(name, "callback")
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"The callback {name!r} cannot be created without arguments: {error}.") from error
