"""The run that nothing disturbed, which the tests of resuming compare with and take copies of."""

from pathlib import Path

import pytest

import shoal
from shoal.runs import api as training
from shoal.training.trainer import Trainer
from support import trained
from support.trained import Whole


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The run that nothing disturbed; it keeps a checkpoint after every call."""
    made, folder = [], tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Trainer", lambda *args: made.append(Trainer(*args)) or made[-1])
        run = shoal.train(
            "mappo",
            "toys:busy",
            folder=folder,
            progress=False,
            checkpoint_seconds=0.0,
            keep=100,
            **trained.RECURRENT,
        )
    assert run.finished
    return Whole(folder, made[0])


@pytest.fixture
def copy(whole: Whole, tmp_path: Path) -> Path:
    """A copy of its folder, to damage."""
    return trained.copied(whole.folder, tmp_path / "run")
