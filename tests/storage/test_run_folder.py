"""What holds for a run's folder as a whole, and for importing the room."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.storage import folders, manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.log import Log

MACHINE = "the-name-of-this-machine"


def test_a_run_folder_holds_no_pickle_and_nothing_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was pickled")

    for name in ("dump", "dumps"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    for name in ("socket.gethostname", "platform.node"):
        monkeypatch.setattr(name, lambda: MACHINE)
    Checkpoints(tmp_path / "checkpoints").save(
        1, {"x": jnp.ones((3, 4)), "key": jax.random.key(0), "n": np.array(1)}, {}
    )
    manifest.write_run_json(tmp_path, {"algorithm": "mappo"})
    with Log(tmp_path) as log:
        log.write({"step": 1, "return": [1.0, 2.0]})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for file in files:
        data = file.read_bytes()
        assert file.suffix not in (".pkl", ".pickle", ".npy", ".npz", ".pt")
        for protocol in (2, 3, 4, 5):  # a pickle starts with its protocol, and from 4 on with a frame
            assert not data.startswith(bytes([0x80, protocol])) and bytes([0x80, protocol, 0x95]) not in data
        assert MACHINE not in file.name and MACHINE.encode() not in data, file
        assert str(tmp_path).encode() not in data, file


def test_the_steps_of_an_update_are_those_of_sound_settings_alone():
    assert folders.steps_per_update({"num_envs": 3, "rollout_length": 5}) == 15
    for settings in (None, [], {}, {"num_envs": 3}, {"num_envs": True, "rollout_length": 5}, {"num_envs": 3.0}):
        assert folders.steps_per_update(settings) is None


def test_heavy_libraries_are_imported_late():
    names = "storage.checkpoint plots.curves video.animation storage.log storage.manifest plots.texts video.encode"
    code = f"import sys, importlib; [importlib.import_module('shoal.' + n) for n in {names.split()!r}];"
    code += (
        "print([n for n in ('orbax', 'tensorstore', 'matplotlib', 'tensorboardX', 'scipy.stats') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
