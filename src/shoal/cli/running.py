"""What a command that trains prints and draws: a summary, pictures, and how to continue."""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import shoal
from shoal.cli.flags import Flag, number
from shoal.cli.output import attempted
from shoal.environments.names import path_words
from shoal.errors import CallbackError, GameError, InputError, Terminated, WriteError
from shoal.security import links, user_modules
from shoal.storage import manifest
from shoal.system import notices

# The flags of ``shoal train`` that name callbacks and loggers.


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
HOOK_FLAGS = (CALLBACK, WANDB, MLFLOW, CONTINUE)


def chosen_hooks(values: Mapping[str, Any]) -> list[Any]:
    """The callbacks that the values of :data:`HOOK_FLAGS` name.

    Raises:
        InputError: there is no such module or attribute, it cannot be made, or a name is empty.
    """
    import shoal  # its names import JAX

    found = [_user_callback(name) for name in values["callback"]]
    if values["wandb"] is not None:
        found.append(shoal.WandbLogger(values["wandb"]))
    if values["mlflow"] is not None:
        found.append(shoal.MLflowLogger(values["mlflow"]))
    return found


def hook_words(values: Mapping[str, Any]) -> str:
    """The flags that a command that continues the run needs, with a leading space; empty for none."""
    flags = [CALLBACK.spelt, *values["callback"]] if values["callback"] else []
    for flag in (WANDB, MLFLOW):
        flags += [flag.spelt, values[flag.name]] if values[flag.name] is not None else []
    return f" {shlex.join(flags)}" if flags else ""


def _user_callback(name: str) -> Any:
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


# A summary, pictures, and how to continue.


def watched(folder: Path, start: "Callable[..., shoal.Run]", own: dict[str, Any]) -> int:
    """Train, print a summary, and draw curves, a video and a report; after Ctrl-C print the command that resumes.

    Args:
        folder: the run's.
        start: trains, and returns the run; its argument ``progress`` is that of ``own``.
        own: values of flags of the command, of ``progress`` and of those in :data:`shoal.cli.running.HOOK_FLAGS`.
    """
    again = f"{program()} train --resume {path_words(folder)}{hook_words(own)}"
    try:
        run = start(progress=own["progress"])
        print(summary(run, again), flush=True)
        draw_pictures(run)
    except (GameError, CallbackError):
        if any((folder / "checkpoints").glob("*")):
            notices.warn(f"The run is saved; continue with\n{again}\n")
        raise
    except (KeyboardInterrupt, Terminated):
        if any((folder / "checkpoints").glob("*")):
            raise KeyboardInterrupt(f"Stopped; continue with\n{again}") from None
        if (folder / manifest.FILE).is_file():
            raise KeyboardInterrupt(f"Stopped before training began; start it with\n{again}") from None
        raise KeyboardInterrupt from None
    return 0


def draw_pictures(run: "shoal.Run") -> None:
    """Draw curves, a video and a report, and print their paths as they are finished: long episodes take a minute."""
    from shoal.reporting.replays import chosen_seeds, recorded_episodes  # imports JAX

    recorded = {}  # the video's episodes and the report's, played once for both

    def replay() -> Path:
        path, best = links.own_file(run.folder, "replay.gif"), run.best_seed()
        try:
            recorded.update(recorded_episodes(run, [best, *(seed for seed, _ in chosen_seeds(run))]))
        except Exception:  # such as of an algorithm's inspect, which a video does without and the report tells of
            return run.replay(seed=best)
        return run.draw(recorded[best], path)

    pictures = {"curves.png": lambda: _unless_empty(run.curves), "replay.gif": replay}
    pictures["report.html"] = lambda: shoal.report(run, recorded=recorded)
    for name, make in pictures.items():
        print(f"{Path(name).stem:<12}  ", end="", flush=True)
        print(attempted(partial(_drawn, run, name, make)), flush=True)


def _drawn(run: "shoal.Run", name: str, make: Callable[[], Any]) -> Any:
    """Draw a picture, unless the run had finished before and its picture is up to date."""
    path, made_from = run.folder / name, (run.folder / "policy").glob("*/index.json")
    newest = max((index.stat().st_mtime for index in made_from), default=0.0)
    return path if run.untouched and path.is_file() and path.stat().st_mtime >= newest else make()


def _unless_empty(look: Callable[[], Any]) -> Any:
    """The result of ``look``, or "no episode ended" for a run shorter than an episode."""
    try:
        return look()
    except WriteError:
        raise
    except InputError:
        return "no episode ended"


def summary(run: "shoal.Run", again: str) -> str:
    """The printed summary: results, the next commands, and the folder."""
    folder = path_words(run.folder)
    lines = [f"\n{run.algorithm} in {run.environment}", ""]
    if run.final_score is not None:
        lines.append(f"greedy score  {run.final_score.replace('-', '−')}")
    lines += [*_unless_empty(run.summary).splitlines(), ""]
    lines += [f"{program()} evaluate {folder} --episodes 1000", f"{program()} replay {folder} --episodes 4"]
    from shoal.training import ending  # imports JAX

    more = ending.more(run.settings, run.at).items()
    texts = {name: "" if x is True else f" {'None' if x is None else number(x)}" for name, x in more}
    flags = " ".join(f"--{name.replace('_', '-')}{text}" for name, text in texts.items())
    lines += [f"{again} {flags}", "", f"{'folder':<12}  {run.folder}"]
    return "\n".join(lines)


def program() -> str:
    """The command that calls this program."""
    called = Path(sys.argv[0])
    if called.name != "shoal":
        return "shoal"
    found = shutil.which("shoal")
    return "shoal" if found and called.exists() and Path(found).samefile(called) else shlex.quote(sys.argv[0])
