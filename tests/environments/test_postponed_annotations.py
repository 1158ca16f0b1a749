"""Options of an environment whose module has ``from __future__ import annotations``: their types are text there."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.environments.registry import options_of
from shoal.errors import InputError

OWN = '''
from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from test_common_options import Script

if TYPE_CHECKING:
    from logging import Logger

    Level = Literal["easy", "3"]


class Typed(Script):
    """Takes options of many types.

    Args:
        names: names of things.
    """

    def __init__(
        self,
        friction: float = 1,
        names: tuple[str, ...] = (),
        logger: Logger | None = None,
        level: Level = "easy",
        other: "Missing.part" = 3,
        render: bool = False,
    ):
        super().__init__()
        assert isinstance(friction, float | int) and isinstance(names, tuple) and isinstance(level, str)
'''


@pytest.fixture(autouse=True)
def typed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed_later.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "typed_later", raising=False)


def test_flags_have_the_types_of_the_annotations(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.append(found.env)
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    words = ["--env.friction", "0.5", "--env.names", "a", "b", "--env.level", "3", "--env.logger", "None"]
    assert shoal("train", "ippo", "typed_later:Typed", *words)[0] == 2
    assert asked == [{"friction": 0.5, "names": ("a", "b"), "level": "3", "logger": None}]
    _, _, said = shoal("train", "ippo", "typed_later:Typed", "--env.friction", "high")
    assert "friction cannot be 'high'; it takes NUMBER" in said


def test_an_annotation_that_cannot_be_read_leaves_the_others() -> None:
    options = options_of("typed_later:Typed")
    assert options["friction"].annotation is float and options["other"].default == 3


def test_a_file_and_a_run_give_the_values_back(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('environment = "typed_later:Typed"\n[env]\nfriction = 2\nnames = ["a"]\n')
    folder = tmp_path / "run"
    sizes: dict[str, Any] = {
        "steps": 8,
        "num_envs": 2,
        "rollout_length": 4,
        "num_workers": 0,
        "hidden": (4,),
        "eval_episodes": 0,
    }
    quiet: dict[str, Any] = {"progress": False, "tensorboard": False, "folder": folder}
    shoal.train("ippo", config=tmp_path / "run.toml", **quiet, **sizes)
    run = shoal.open_run(folder)
    assert run.env.spec.name == "script"
    assert run.env_options == {"friction": 2.0, "names": ("a",)} and isinstance(run.env_options["friction"], float)
    assert shoal.resume(folder, steps=16, progress=False).finished
