"""Killed where the ring of a replay buffer wraps, an off-policy run continues to the bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.runs.api import trainer_of
from shoal.storage import log, step_folders
from shoal.storage.checkpoint import Checkpoints
from support import trained

UPDATES, RING = 10, 4
"""The buffer holds four rollouts: after update 4 the next one overwrites the first, and after update 8 again."""
FLAGS: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 6,
    "steps": UPDATES * 24,
    "rows": 5,  # a row is the mean of two updates, so that one is under way at every other kill
    "hidden": (6,),
    "batch_size": 8,
    "buffer_size": RING * 24,
    "learning_starts": 40,
    "eval_episodes": 0,
    "tensorboard": False,
    "checkpoint_seconds": 0.0,
    "keep": 100,
    "devices": 1,
}

SCRIPT = """
import os, signal, sys
import shoal
from shoal.training import trainer

trainer.CAPACITY = 1  # a checkpoint after every update
folder, flags, update, save = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3]), trainer.Trainer.save

def saving(self):
    if self.update == update:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self)

trainer.Trainer.save = saving
shoal.train("vdn", "toys:busy", folder=folder, progress=False, **flags)
"""


class Killed(BaseException):
    """Ends training without anything being tidied up."""


def states(folder: Path, step: int) -> Any:
    template = trainer_of(shoal.open_run(folder), False).program.template()
    return Checkpoints(folder / "checkpoints").restore(template, step)[0]


def raw(state: Any) -> dict[str, bytes]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    arrays = [
        (path, jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for path, x in leaves
    ]
    return {jax.tree_util.keystr(path): np.asarray(x).tobytes() for path, x in arrays}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.training.trainer.CAPACITY", 1)
        assert shoal.train("vdn", "toys:busy", folder=folder, progress=False, **FLAGS).finished
    return folder


def test_the_ring_wraps_where_the_kills_are(whole: Path) -> None:
    """At the checkpoint of update 6 the ring is full and its end is its beginning."""
    rings = {step: states(whole, step).feed[0] for step in (RING - 1, RING, RING + 1)}
    assert [int(ring.current_index[0]) for ring in rings.values()] == [3 * 6, 0, 6]
    assert [bool(ring.is_full[0]) for ring in rings.values()] == [False, True, True]


def test_killed_where_it_wraps(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First with a ring that has just become full, then while such a ring is written to the disk."""
    folder = tmp_path / "run"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), repr(FLAGS), str(RING + 1)],
        env=os.environ | trained.cache_environment() | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    checkpoints, sync_tree = Checkpoints(folder / "checkpoints"), step_folders.sync_tree
    assert checkpoints.latest() == RING

    def syncing(work: Path) -> None:
        if work.parent == checkpoints.folder and f"-{2 * RING}-" in work.name:
            raise Killed
        sync_tree(work)

    monkeypatch.setattr("shoal.training.trainer.CAPACITY", 1)
    with monkeypatch.context() as patch:
        patch.setattr(step_folders, "sync_tree", syncing)
        with pytest.raises(Killed):
            shoal.resume(folder, progress=False)
    assert checkpoints.latest() == 2 * RING - 1
    assert list(checkpoints.folder.glob(".unfinished*")), "what was being written is left behind"
    assert shoal.resume(folder, progress=False).finished
    here, there = raw(states(folder, UPDATES)), raw(states(whole, UPDATES))
    assert here.keys() == there.keys() and len(here) > 20
    assert [name for name in here if here[name] != there[name]] == []
    timing = ("seconds", "steps_per_second")
    rows = [[{k: v for k, v in row.items() if k not in timing} for row in log.read_log(at)] for at in (folder, whole)]
    assert rows[0] == rows[1] and [row["update"] for row in rows[0]] == [2, 4, 6, 8, 10]
