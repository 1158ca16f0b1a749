"""What a command that trains prints and draws: a summary, pictures, and how to continue."""

import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import shoal
from shoal.cli import hooks
from shoal.cli.flags import number
from shoal.cli.output import attempted
from shoal.environments.names import path_words
from shoal.errors import CallbackError, GameError, InputError, Terminated, WriteError
from shoal.security import links
from shoal.storage import manifest
from shoal.system import notices


def watched(folder: Path, start: "Callable[..., shoal.Run]", own: dict[str, Any], flags: dict[str, Any]) -> int:
    """Train, print a summary, and draw curves, a video and a report; after Ctrl-C print the command that resumes.

    Args:
        folder: the run's.
        start: trains, and returns the run.
        own: values of flags of the command, of ``progress`` and of those in :data:`shoal.cli.hooks.FLAGS`.
        flags: keyword arguments of ``start`` besides ``progress``.
    """
    again = f"{program()} train --resume {path_words(folder)}{hooks.words(own)}"
    try:
        run = start(progress=own["progress"], **flags)
        print(summary(run, again), flush=True)
        draw(run)
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


def draw(run: "shoal.Run") -> None:
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
    for name, draw in pictures.items():
        print(f"{Path(name).stem:<12}  ", end="", flush=True)
        print(attempted(partial(_drawn, run, name, draw)), flush=True)


def _drawn(run: "shoal.Run", name: str, draw: Callable[[], Any]) -> Any:
    """Draw a picture, unless the run had finished before and its picture is up to date."""
    path, made_from = run.folder / name, (run.folder / "policy").glob("*/index.json")
    newest = max((index.stat().st_mtime for index in made_from), default=0.0)
    return path if run.untouched and path.is_file() and path.stat().st_mtime >= newest else draw()


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
