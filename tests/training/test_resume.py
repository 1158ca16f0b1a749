"""A run that was stopped, killed or damaged ends where the undisturbed one does, to the bit."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.runs.api import trainer_of
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from support import trained
from support.trained import Whole, damage

TIMING = ("seconds", "steps_per_second")


def arrays(folder: Path, step: int | None = None) -> dict[str, bytes]:
    """Every leaf of a checkpoint (by default the newest) as bytes."""
    template = trainer_of(shoal.open_run(folder), False).program.template()
    state, _, _ = Checkpoints(folder / "checkpoints").restore(template, step)
    leaves = jax.tree_util.tree_leaves_with_path(state)
    raw = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for _, x in leaves]
    return {jax.tree_util.keystr(path): np.asarray(x).tobytes() for (path, _), x in zip(leaves, raw, strict=True)}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMING} for row in log.read_log(folder)]


def assert_same_end(folder: Path, whole: Whole) -> None:
    here, there = arrays(folder), arrays(whole.folder)
    assert here.keys() == there.keys() and len(here) > 50
    assert [name for name in here if here[name] != there[name]] == []
    assert rows(folder) == rows(whole.folder)
    policies = [Checkpoints(at / "policy").latest() for at in (folder, whole.folder)]
    assert policies == [trained.UPDATES, trained.UPDATES]


def test_the_uninterrupted_run_learned_and_wrote_all_rows(whole: Whole) -> None:
    """What the others are compared with is a real run: it learned something and wrote all its rows."""
    assert Checkpoints(whole.folder / "checkpoints").latest() == trained.UPDATES
    assert [row["update"] for row in rows(whole.folder)] == [*range(13, 400, 13), 400]
    first, last = (np.frombuffer(b"".join(arrays(whole.folder, step).values()), np.uint8) for step in (0, 400))
    assert (first != last).mean() > 0.3
    assert all(np.isfinite(row["return"]).all() for row in rows(whole.folder) if None not in row["return"])


def test_every_row_has_the_metrics_of_its_episodes(whole: Whole) -> None:
    """Of all seeds and both devices: one metric of toys:busy counts the steps, as the rollout does by itself."""
    for row in rows(whole.folder):
        np.testing.assert_allclose(row["steps"], row["episode_length"], rtol=1e-6)
        assert all(0.0 <= share <= 1.0 for share in (*row["won"], *row["luck"]))
    assert len({share for row in rows(whole.folder) for share in row["won"]}) > 10


def test_every_learner_leaf_is_the_same_on_all_shards(whole: Whole) -> None:
    """Each device updates its own copy: one bit of difference would grow for the rest of the run."""
    state = whole.trainer.state
    assert state is not None and dict(whole.trainer.layout.mesh.shape) == {"seed_shards": 1, "devices": 2}
    for path, leaf in jax.tree_util.tree_leaves_with_path((state.learner, jax.random.key_data(state.key))):
        shards = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(shards) == 2 and shards[0].shape == leaf.shape
        assert shards[0].tobytes() == shards[1].tobytes(), jax.tree_util.keystr(path)
    luck = [np.asarray(shard.data) for shard in state.rollout.env.luck.addressable_shards]
    assert (luck[0] != luck[1]).any()  # while their environments differ


def test_seeds_trained_together_equal_each_alone(whole: Whole, tmp_path: Path) -> None:
    """To 1e-5 after four updates: products over several seeds are rounded otherwise than over one."""
    flags = trained.RECURRENT | {"seeds": 1, "seed": trained.RECURRENT["seed"] + 1}
    flags |= {"steps": 4 * 48, "schedule_steps": trained.RECURRENT["steps"]}
    shoal.train("mappo", "toys:busy", folder=tmp_path, progress=False, checkpoint_seconds=0.0, keep=100, **flags)
    states = []
    for folder in (whole.folder, tmp_path):
        template = trainer_of(shoal.open_run(folder), False).program.template()
        states.append(Checkpoints(folder / "checkpoints").restore(template, 4)[0])
    together, alone = (jax.tree.leaves(state._replace(key=jax.random.key_data(state.key))) for state in states)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(states[0])]
    for path, a, b in zip(paths, together, alone, strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a[1], b[0], rtol=1e-4, atol=1e-5, err_msg=jax.tree_util.keystr(path))


SCRIPT = """
import sys
import time
import shoal
from shoal.training import trainer
from shoal.training.progress import Progress
trainer.CALL_SECONDS = 0.0  # one update in a call, and slow enough to be caught at it
Progress.update = lambda *_: time.sleep(0.005)
what, folder, flags = sys.argv[1], sys.argv[2], eval(sys.argv[3])
if what == "train":
    run = shoal.train("mappo", "toys:busy", folder=folder, progress=False, checkpoint_seconds=0.1, **flags)
else:
    run = shoal.resume(folder, progress=False)
print("finished")
"""


def start(what: str, folder: Path) -> subprocess.Popen:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, what, str(folder), repr(trained.RECURRENT)],
        env=os.environ | trained.cache_environment() | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(happened: Callable[[], bool], process: subprocess.Popen) -> None:
    began = time.monotonic()
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() - began < 120, "the subprocess does nothing"
        time.sleep(0.01)
    time.sleep(random.uniform(0.0, 0.3))  # at any time: in a call, in a save, between two


def test_ctrl_c_then_kill_then_resume(whole: Whole, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    saved = Checkpoints(folder / "checkpoints")

    process = start("train", folder)
    wait_for(lambda: len(rows(folder)) >= 1, process)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and said == ""
    assert re.search(
        rf"KeyboardInterrupt: Stopped at step [\d,]+; shoal.resume\('{folder}'\) continues the run.$", complaints
    )
    stopped = saved.latest()
    assert stopped is not None and 13 <= stopped < trained.UPDATES
    assert rows(folder)[-1]["update"] == stopped - stopped % 13

    process = start("resume", folder)
    wait_for(lambda: (saved.latest() or 0) > stopped, process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert stopped < (saved.latest() or 0) < trained.UPDATES

    assert shoal.resume(folder, progress=False).finished
    assert_same_end(folder, whole)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    whole: Whole, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copy / "checkpoints" / str(trained.UPDATES))
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12')  # a line that a crash cut off
    assert shoal.resume(copy, progress=True).finished
    assert f"step {trained.UPDATES} is damaged" in capsys.readouterr().err
    assert_same_end(copy, whole)


def test_killed_before_the_first_checkpoint(whole: Whole, copy: Path) -> None:
    for name in ("checkpoints", "policy", "metrics.jsonl"):
        path = copy / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert shoal.resume(copy, progress=False).finished
    assert_same_end(copy, whole)


def test_killed_between_a_checkpoint_and_its_policy(whole: Whole, copy: Path) -> None:
    newest = Checkpoints(copy / "policy").latest()
    shutil.rmtree(copy / "policy" / str(newest))
    assert shoal.resume(copy, progress=False).finished
    assert_same_end(copy, whole)
