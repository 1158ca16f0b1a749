"""Callbacks and loggers as flags of the command line."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal as library
from shoal.cli import train
from shoal.security import user_modules
from support import trained

Shoal = Callable[..., tuple[int, str, str]]
SIZES = trained.SMALL | {"steps": 96, "rows": 4, "eval_episodes": 3, "hidden": 4}
WORDS = (f"--no-{name}" if x is False else f"--{name}={x}" for name, x in SIZES.items() if name != "curve_episodes")
SMALL = ["toys:busy", *WORDS]
MODULE = """
import shoal

class StopAt(shoal.Callback):
    def on_metrics(self, context, metrics):
        print("row", metrics["step"])
        if context.step == 48:
            context.stop("half is enough")

class Broken(shoal.Callback):
    def on_metrics(self, context, metrics):
        if context.step == 48:
            raise ValueError("no network")

class Needy(shoal.Callback):
    def __init__(self, url):
        pass

def told(context, metrics):
    print("told", metrics["step"])
"""


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of callbacks."""
    (tmp_path / "watching_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("shoal.cli.train.draw_pictures", lambda run: None)
    yield tmp_path
    sys.modules.pop("watching_mine", None)


def test_a_callback_stops_a_run_and_resuming_says_so(here: Path, shoal: Shoal) -> None:
    names = "watching_mine:StopAt", "watching_mine:told"
    code, out, err = shoal("train", "mappo", *SMALL, "--folder", "run", "--callback", *names)
    assert code == 0, err
    assert out.startswith("row 24\ntold 24\nrow 48\ntold 48\n")
    again = "train --resume run --callback watching_mine:StopAt watching_mine:told --continue-stopped\n"
    assert re.search(r"\nended +at step 48 of 96: half is enough\n", out) and again in out
    code, out, err = shoal("train", "--resume", "run")
    assert (
        code == 0
        and "half is enough; continue_stopped (--continue-stopped) would continue it." in err
        and "row 24" not in out
    )
    code, out, err = shoal("train", "--resume", "run", "--continue-stopped", "--callback", names[1])
    assert code == 0 and out.startswith("told 72\ntold 96\n") and "ended" not in out, err


def test_a_broken_callback_is_shown_with_the_command_that_continues(here: Path, shoal: Shoal) -> None:
    code, _, err = shoal("train", "mappo", *SMALL, "--folder", "run", "--callback", "watching_mine:Broken")
    assert code == 1
    assert "shoal: The callback Broken raised ValueError: no network, in on_metrics at step 48.\n" in err
    assert "train --resume run --callback watching_mine:Broken\n" in err and "Traceback" in err
    assert library.open_run("run").last_step == 48


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--callback", "watching_mine"], "--callback takes module:MyCallback"),
        (["--callback", "watching_mine:Nobody"], "has no attribute 'Nobody'"),
        (["--callback", "nowhere_mine:A"], "the callback 'nowhere_mine:A' needs: neither in"),
        (["--callback", "os:getcwd"], "leads to the module 'os' of Python's standard library"),
        (["--callback", "watching_mine:__name__"], "is not callable, so it cannot build a callback"),
        (["--callback", "watching_mine:Needy"], "cannot be created without arguments"),
        (["--wandb", ""], "W&B needs the name of a project"),
        (["--wandb", "a/b/c"], "is not of the form project or entity/project"),
        (["--continue-stopped"], "--continue-stopped is only for --resume"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    words: list[str], complaint: str, here: Path, shoal: Shoal
) -> None:
    code, _, err = shoal("train", "mappo", *SMALL, "--folder", "run", *words)
    assert code == 2 and complaint in err
    assert not (here / "run").exists()


def test_loggers_are_named_by_flags(tmp_path: Path) -> None:
    values = {"callback": (), "wandb": "team/project", "mlflow": str(tmp_path)}
    wandb, mlflow = train.chosen_hooks(values)
    assert isinstance(wandb, library.WandbLogger) and (wandb.project, wandb.entity) == ("project", "team")
    assert isinstance(mlflow, library.MLflowLogger) and mlflow.where == str(tmp_path)
    assert train.hook_words(values | {"wandb": "a b"}) == f" --wandb 'a b' --mlflow {tmp_path}"
    assert train.hook_words({"callback": (), "wandb": None, "mlflow": None}) == ""


def test_only_modules_that_are_typed_are_imported_from_the_working_directory(here: Path) -> None:
    """A folder of somebody else has been opened, whose environment must not import from the working directory."""
    values: dict[str, Any] = {"callback": ["watching_mine:told"], "wandb": None, "mlflow": None}
    with user_modules.found_in(str(here)):
        user_modules.instead(None)
        assert train.chosen_hooks(values)[0].__name__ == "told"
        user_modules.reachable()
        assert str(here) not in sys.path
