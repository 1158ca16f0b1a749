"""A state too large to be held twice goes to the disk and comes back in parts."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.storage import checkpoint
from shoal.storage.checkpoint import Checkpoints
from shoal.system.files import file_digests

STATE = {
    "a": jnp.arange(6.0),
    "b": jnp.zeros((0, 3)),
    "buffer": jnp.arange(100, dtype=jnp.int32),
    "key": jax.random.key(1),
    "z": np.float64(2.5),
}


def restored(folder: Path) -> dict:
    state, meta, step = Checkpoints(folder).restore(STATE)
    assert (meta, step) == ({"m": 1}, 3)
    return state


def assert_same(state: dict) -> None:
    for name, x in STATE.items():
        raw = [jax.random.key_data(y) if name == "key" else np.asarray(y) for y in (x, state[name])]
        assert raw[0].dtype == raw[1].dtype, name
        np.testing.assert_array_equal(raw[0], raw[1], err_msg=name)


def test_leaves_are_written_and_read_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PART", 100)
    most: list[int] = []
    write, read = checkpoint._write_arrays, checkpoint.read_arrays
    monkeypatch.setattr(checkpoint, "_write_arrays", lambda f, a: (most.append(sum(x.nbytes for x in a)), write(f, a)))
    Checkpoints(tmp_path).save(3, STATE, {"m": 1})
    assert most == [24, 400, 16]  # the buffer alone: beside it at most 100 bytes
    folders = {path.name for path in (tmp_path / "3").iterdir() if path.is_dir()}
    assert folders == {"arrays", "arrays-1", "arrays-2"}
    counts: list[int] = []
    monkeypatch.setattr(checkpoint, "read_arrays", lambda f, a: (counts.append(len(a)), read(f, a))[1])
    monkeypatch.setattr(checkpoint, "PART", 10**9)  # what was written decides, not what would be written now
    assert_same(restored(tmp_path))
    assert counts == [2, 1, 2]


def test_a_checkpoint_from_before_there_were_parts_is_read(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(3, STATE, {"m": 1})
    folder = tmp_path / "3"
    index = json.loads((folder / "index.json").read_text())
    assert index.pop("parts") == {"arrays": [0, 5]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "sha256.json").write_text(json.dumps(file_digests(folder, but="sha256.json")))
    assert_same(restored(tmp_path))
