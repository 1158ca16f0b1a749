"""Restoring a run removes nothing that its training may still need: by a trainer that computes nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import CheckpointError
from shoal.storage.checkpoint import Checkpoints
from support import run_folders
from support.trained import Idle

SETTINGS: dict[str, Any] = {"checkpoint_seconds": 0.0, "rows": 3, "tensorboard": False}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("run")
    assert Idle(folder, 3, **SETTINGS).run()
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def steps(folder: Path, name: str) -> list[int]:
    return Checkpoints(folder / name).steps()


@pytest.mark.parametrize("kept", ["policy", "best", "metrics.jsonl"])
def test_a_run_that_lost_its_checkpoints_is_not_trained_again(kept: str, copy: Path) -> None:
    """Training would begin at step 0 and remove the policies."""
    (copy / "policy").rename(copy / kept) if kept == "best" else None
    for path in list(copy.iterdir()):
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(copy.rglob("*"))
    with pytest.raises(CheckpointError) as error:
        Idle(copy, 6, **SETTINGS).restore()
    found = "rows of metrics" if kept == "metrics.jsonl" else f"policies in {kept}"
    assert f"{copy} has {found}, but no checkpoint to resume from" in str(error.value)
    assert (f"--init-from {copy}" in str(error.value)) == (kept == "policy")
    assert sorted(copy.rglob("*")) == before


def test_nor_is_it_by_an_agent(tmp_path: Path) -> None:
    folder = run_folders.run(tmp_path / "run", [1.0])
    with pytest.raises(CheckpointError, match="has rows of metrics, but no checkpoint to resume from"):
        shoal.agent(folder=folder, progress=False, trust=True).train(8)
    assert not (folder / "policy").exists()
