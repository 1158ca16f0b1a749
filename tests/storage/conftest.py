"""A folder of checkpoints that every test may copy and spoil."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from shoal.storage.checkpoint import Checkpoints


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 10, 20 and 30, each with its number in ``x`` and ``n``; not to be written to."""
    folder = tmp_path_factory.mktemp("three")
    for step in (10, 20, 30):
        state = {"x": np.full(5, step, np.float32), "n": np.array(step, np.int32)}
        Checkpoints(folder).save(step, state, {"at": step})
    return folder


@pytest.fixture
def copy(three: Path, tmp_path: Path) -> Path:
    """Like ``three``, for one test alone."""
    return shutil.copytree(three, tmp_path / "copy")
