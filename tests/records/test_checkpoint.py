"""Checkpoints come back bit for bit, damage is seen, and a crash never leaves a run without one."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shoal.errors import CheckpointError, InputError
from shoal.records import manifest, step_folders
from shoal.records.checkpoint import Checkpoints
from shoal.records.log import Log


class Inner(NamedTuple):
    kernel: Any
    empty: Any


class State(NamedTuple):
    params: Any
    key: Any
    rest: Any


def make(seed: int) -> State:
    rng = np.random.default_rng(seed)
    odd = np.array([np.nan, -0.0, np.inf, 1e-42, np.float32(seed)], np.float32)
    inner = Inner(jnp.asarray(rng.normal(size=(3, 4)).astype(np.float32)), jnp.zeros((0, 3)))
    mixed = {
        "words": jnp.asarray(rng.integers(0, 2**32, 5, dtype=np.uint32)),
        "flags": jnp.asarray(rng.integers(0, 2, 4).astype(bool)),
        "counter": jnp.asarray(np.int32(seed)),
        "half": jnp.asarray(np.ones(3, ml_dtypes.bfloat16)),
        "wide": rng.normal(size=2),  # float64, which JAX would narrow
        "none": None,
        "plain": seed,
        "empty": (),
    }
    return State([inner, jnp.asarray(odd)], (jax.random.key(seed), jax.random.key(seed, impl="rbg")), mixed)


def words(leaf: Any) -> np.ndarray:
    typed = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)


def assert_same_bits(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert getattr(x, "dtype", type(x)) == getattr(y, "dtype", type(y)), path
        assert words(x).shape == words(y).shape, path
        assert words(x).tobytes() == words(y).tobytes(), path


def small(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(5, value, np.float32), "n": np.array(int(value), np.int32)}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with steps 10, 20 and 30."""
    folder = tmp_path_factory.mktemp("three")
    for step in (10, 20, 30):
        Checkpoints(folder).save(step, small(step), {"at": step})
    return folder


@pytest.fixture
def copy(three: Path, tmp_path: Path) -> Path:
    return shutil.copytree(three, tmp_path / "copy")


def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path: Path):
    state, checkpoints = make(3), Checkpoints(tmp_path)
    checkpoints.save(7, state, {"best": float("-inf"), "config": {"lr": 5e-4, "layers": (64, 64)}})
    back, meta, step = checkpoints.restore(make(4))
    assert_same_bits(state, back)
    assert step == 7
    assert meta == {"best": float("-inf"), "config": {"lr": 5e-4, "layers": [64, 64]}}
    assert isinstance(back.rest["wide"], np.ndarray)
    assert isinstance(back.rest["words"], jax.Array)
    np.testing.assert_array_equal(jax.random.bits(back.key[0], (3,)), jax.random.bits(state.key[0], (3,)))


def test_a_template_may_be_shapes_only(tmp_path: Path):
    state = make(5)
    state.rest.pop("plain"), state.rest.pop("wide")
    Checkpoints(tmp_path).save(1, state, {})
    template = jax.eval_shape(lambda: state)
    assert_same_bits(state, Checkpoints(tmp_path).restore(template)[0])


def test_arrays_sharded_over_two_devices_come_back_whole(tmp_path: Path):
    mesh = jax.make_mesh((2,), ("seeds",), axis_types=(jax.sharding.AxisType.Auto,))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("seeds"))
    whole = {"x": jnp.arange(12.0).reshape(4, 3), "keys": jax.random.split(jax.random.key(0), 4)}
    state = jax.device_put(whole, cut)
    assert len(state["x"].sharding.device_set) == 2
    Checkpoints(tmp_path).save(1, state, {})
    back = Checkpoints(tmp_path).restore(state)[0]
    assert_same_bits(whole, back)
    assert all(leaf.sharding.device_set == {jax.devices()[0]} for leaf in jax.tree.leaves(back))


def test_the_newest_are_kept_and_a_rewound_run_replaces_what_came_after(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path / "new" / "folder", keep=2)
    assert checkpoints.steps() == [] and checkpoints.latest() is None
    for step in (1, 2, 3):
        checkpoints.save(step, small(step), {"at": step})
    assert checkpoints.steps() == [2, 3] and checkpoints.latest() == 3
    assert checkpoints.load_meta() == {"at": 3} and checkpoints.load_meta(2) == {"at": 2}
    assert checkpoints.restore(small(0), step=2)[0]["n"] == 2
    checkpoints.save(2, small(20), {"at": "again"})
    assert checkpoints.steps() == [2]
    back, meta, _ = checkpoints.restore(small(0))
    assert back["n"] == 20 and meta == {"at": "again"}
    assert not list(checkpoints.folder.glob(".*"))


def largest(step: Path) -> Path:
    return max((p for p in step.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def truncate(step: Path) -> None:
    with largest(step).open("r+b") as file:
        file.truncate(largest(step).stat().st_size // 2)


def flip(step: Path) -> None:
    file = largest(step / "arrays")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def half_written(step: Path) -> None:
    for path in step.iterdir():
        if path.name != "arrays":
            path.unlink()


def emptied(step: Path) -> None:
    shutil.rmtree(step)
    step.mkdir()


DAMAGE = {
    "truncated": truncate,
    "one bit": flip,
    "arrays deleted": lambda step: shutil.rmtree(step / "arrays"),
    "one file deleted": lambda step: largest(step / "arrays").unlink(),
    "index deleted": lambda step: (step / "index.json").unlink(),
    "digests deleted": lambda step: (step / "sha256.json").unlink(),
    "digests are no JSON": lambda step: (step / "sha256.json").write_text("{"),
    "a file too many": lambda step: (step / "arrays" / "more").write_text("x"),
    "half-written": half_written,
    "emptied": emptied,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_passed_over_and_said_so(copy: Path, damage: Any):
    damage(copy / "30")
    said: list[str] = []
    back, meta, step = Checkpoints(copy).restore(small(0), say=said.append)
    assert step == 20 and meta == {"at": 20} and back["n"] == 20
    assert said == ["The checkpoint of step 30 is damaged and is passed over."]
    with pytest.raises(CheckpointError, match="no checkpoint of step 30 that is not damaged"):
        Checkpoints(copy).restore(small(0), step=30, say=said.append)
    Checkpoints(copy).save(30, small(31), {"at": 31})  # and it can be replaced
    assert Checkpoints(copy).load_meta() == {"at": 31}


def test_a_flipped_bit_is_found_in_any_file(copy: Path):
    files = [path for path in (copy / "30").rglob("*") if path.is_file()]
    assert len(files) > 5
    for file in files:
        sound = file.read_bytes()
        for place in (0, len(sound) // 2, len(sound) - 1):
            data = bytearray(sound)
            data[place] ^= 4
            file.write_bytes(data)
            assert Checkpoints(copy).load_meta() == {"at": 20}, (file, place)
        file.write_bytes(sound)
    assert Checkpoints(copy).load_meta() == {"at": 30}


def test_damage_is_reported_on_standard_error_unless_told_otherwise(copy: Path, capfd: pytest.CaptureFixture[str]):
    flip(copy / "30")
    Checkpoints(copy).restore(small(0))
    out, err = capfd.readouterr()
    assert out == "" and err == "The checkpoint of step 30 is damaged and is passed over.\n"


def test_none_sound_is_an_error(copy: Path, tmp_path: Path):
    said: list[str] = []
    for step in ("10", "20", "30"):
        emptied(copy / step)
    with pytest.raises(CheckpointError, match="no checkpoint that is not damaged"):
        Checkpoints(copy).restore(small(0), say=said.append)
    assert len(said) == 3
    with pytest.raises(CheckpointError, match="There is no checkpoint in the folder 'nowhere'"):
        Checkpoints(tmp_path / "nowhere").restore(small(0))
    with pytest.raises(CheckpointError, match="no checkpoint of step 15"):
        Checkpoints(copy).load_meta(15)


MISFITS = {
    "shape": ({"x": np.zeros(6, np.float32), "n": np.int32(0)}, r"'x' is float32\[5\] in it and float32\[6\] in this"),
    "dtype": ({"x": np.zeros(5, np.float32), "n": np.uint32(0)}, r"'n' is int32\[\] in it and uint32\[\] in this run"),
    "missing": (small(0) | {"z": {"deep": np.zeros(2, np.float32)}}, r"it lacks 'z/deep' \(float32\[2\]\)"),
    "too many": ({"x": np.zeros(5, np.float32)}, r"it holds 'n' \(int32\[\]\), which this run does not have"),
}


@pytest.mark.parametrize(("template", "sentence"), MISFITS.values(), ids=MISFITS.keys())
def test_a_tree_that_does_not_fit_is_named(three: Path, template: Any, sentence: str):
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoints(three).restore(template)


def test_a_key_is_not_mistaken_for_its_words_or_another_kind(tmp_path: Path):
    Checkpoints(tmp_path).save(1, {"key": jax.random.key(0)}, {})
    for other in (jax.random.key_data(jax.random.key(0)), jax.random.key(0, impl="rbg")):
        with pytest.raises(CheckpointError, match=r"'key' is key<fry>\[\] in it"):
            Checkpoints(tmp_path).restore({"key": other})


def test_bad_requests_are_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="at least 1, not 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(InputError, match=r"checkpoint\.meta\.f is a function"):
        Checkpoints(tmp_path).save(1, small(1), {"f": lambda: None})
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="step 1 cannot be written: File exists"):
        Checkpoints(tmp_path / "file").save(1, small(1), {})


def test_a_full_disk_leaves_the_old_checkpoints(copy: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(step_folders, "sync_tree", full)
        with pytest.raises(CheckpointError, match="step 40 cannot be written: No space left"):
            Checkpoints(copy).save(40, small(40), {})
    assert Checkpoints(copy).steps() == [10, 20, 30]
    Checkpoints(copy).save(40, small(40), {})
    assert Checkpoints(copy).steps() == [20, 30, 40] and not list(copy.glob(".*"))


class Crash(BaseException):
    """Not an Exception, so that nothing tidies up after it."""


@pytest.mark.parametrize("step", [30, 40])
def test_a_crash_before_any_step_of_a_save_leaves_the_old_or_the_new(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
):
    calls = {"count": 0, "crash_at": -1}

    def counted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls["count"] += 1
            if calls["count"] == calls["crash_at"]:
                raise Crash
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr("shoal.records.checkpoint._write_arrays", counted(_write_arrays_quickly))
    for name in ("sync", "sync_tree", "digests"):
        monkeypatch.setattr(step_folders, name, counted(getattr(step_folders, name)))
    monkeypatch.setattr(step_folders.shutil, "rmtree", counted(shutil.rmtree))
    for name in ("write_text", "rename", "mkdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    found = []
    for crash_at in range(1, 100):
        folder = tmp_path / str(crash_at)
        calls["crash_at"] = -1
        shutil.copytree(three, folder)
        calls.update(count=0, crash_at=crash_at)
        try:
            Checkpoints(folder).save(step, small(99), {"at": 99})
        except Crash:
            calls["crash_at"] = -1
            found.append(Checkpoints(folder).load_meta(say=pytest.fail)["at"])
            Checkpoints(folder).save(step + 1, small(step), {"at": "next"})
            assert Checkpoints(folder).load_meta() == {"at": "next"} and not list(folder.glob(".*"))
        else:
            break
    assert found == sorted(found) and set(found) == {30, 99}
    assert len(found) > 10


def _write_arrays_quickly(folder: Path, arrays: list[np.ndarray]) -> None:
    folder.mkdir()
    for i, array in enumerate(arrays):
        (folder / str(i)).write_bytes(array.tobytes())


SAVES_FOREVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from shoal.records.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), keep=2)
for i in itertools.count():
    state = {"x": np.full((40, 50), i, np.float32), "n": np.array(i, np.int32)}
    checkpoints.save(i // 2, state, {"i": i})  # every step twice
    print(i, flush=True)
"""


def test_killed_in_a_tight_loop_of_saves_it_restores(tmp_path: Path):
    rng = random.Random(0)
    folders = [tmp_path / str(i) for i in range(3)]
    runs = [
        subprocess.Popen([sys.executable, "-c", SAVES_FOREVER, str(f)], stdout=subprocess.PIPE, text=True)
        for f in folders
    ]
    for folder, run in zip(folders, runs, strict=True):
        assert run.stdout
        for _ in range(4):
            run.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        os.kill(run.pid, signal.SIGKILL)
        printed = run.communicate()[0].split("\n")[:-1]
        said: list[str] = []
        template = {"x": np.zeros((40, 50), np.float32), "n": np.array(0, np.int32)}
        back, meta, step = Checkpoints(folder).restore(template, say=said.append)
        assert said == []
        assert meta["i"] >= int([3, *printed][-1]) and step == meta["i"] // 2
        assert back["n"] == meta["i"] and (back["x"] == meta["i"]).all()


def test_no_thread_stays_and_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    before = set(threading.enumerate())
    Checkpoints(tmp_path).save(1, small(1), {})
    Checkpoints(tmp_path).restore(small(1))
    deadline = time.monotonic() + 2
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left
    assert capfd.readouterr() == ("", "")


def test_a_run_folder_holds_no_pickle_and_nothing_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was pickled")

    for name in ("dump", "dumps"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    Checkpoints(tmp_path / "checkpoints").save(1, make(0), {})
    manifest.write(tmp_path, {"algorithm": "mappo"})
    with Log(tmp_path) as log:
        log.write({"step": 1, "return": [1.0, 2.0]})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for file in files:
        data = file.read_bytes()
        assert file.suffix not in (".pkl", ".pickle", ".npy", ".npz", ".pt")
        for protocol in (2, 3, 4, 5):  # a pickle starts with its protocol, and from 4 on with a frame
            assert not data.startswith(bytes([0x80, protocol])) and bytes([0x80, protocol, 0x95]) not in data
        assert socket.gethostname() not in file.name and socket.gethostname().encode() not in data, file
        assert str(tmp_path).encode() not in data, file


def test_heavy_libraries_are_imported_late():
    names = "checkpoint curves film log manifest replay report"
    code = f"import sys, importlib; [importlib.import_module('shoal.records.' + n) for n in {names.split()!r}];"
    code += (
        "print([n for n in ('orbax', 'tensorstore', 'matplotlib', 'tensorboardX', 'scipy.stats') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
