"""Checkpoints come back bit for bit, damage is seen, and a crash never leaves a run without one."""

import logging
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import absl.logging
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint
import pytest

from shoal.errors import CheckpointError, InputError
from shoal.storage.checkpoint import Checkpoints, restore_part


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
    wide = state.rest.pop("wide")
    state.rest.pop("plain")
    template = jax.eval_shape(lambda: state)
    state.rest["wide"], template.rest["wide"] = wide, jax.ShapeDtypeStruct(wide.shape, wide.dtype)
    Checkpoints(tmp_path).save(1, state, {})
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


def test_some_rows_of_every_array_come_back(tmp_path: Path):
    rng = np.random.default_rng(0)
    whole = {
        "x": rng.normal(size=(4, 3)).astype(np.float32),
        "wide": rng.normal(size=4),
        "keys": jax.random.split(jax.random.key(0), 4),
        "empty": np.zeros((4, 0), np.float32),
    }
    Checkpoints(tmp_path).save(1, whole, {})
    rows = np.array([3, 0, 3])
    chosen = {name: x[rows] for name, x in whole.items()}
    assert_same_bits(chosen, Checkpoints(tmp_path).restore(chosen, rows=rows)[0])
    with pytest.raises(CheckpointError, match="does not match this run"):
        Checkpoints(tmp_path).restore(chosen, rows=rows[:2])


def test_the_newest_are_kept_and_a_rewound_run_replaces_what_came_after(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path / "new", keep=2)
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


MISFITS = {
    "shape": (
        {"x": np.zeros(6, np.float32), "n": np.int32(0)},
        r"'x' is float32\[5\] in the checkpoint and float32\[6\]",
    ),
    "dtype": ({"x": np.zeros(5, np.float32), "n": np.uint32(0)}, r"'n' is int32\[\] in the checkpoint and uint32\[\]"),
    "missing": (small(0) | {"z": {"deep": np.zeros(2, np.float32)}}, r"it lacks 'z/deep' \(float32\[2\]\)"),
    "too many": ({"x": np.zeros(5, np.float32)}, r"it contains 'n' \(int32\[\]\), which this run does not have"),
}


@pytest.mark.parametrize(("template", "sentence"), MISFITS.values(), ids=MISFITS.keys())
def test_a_tree_that_does_not_fit_is_named(three: Path, template: Any, sentence: str):
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoints(three).restore(template)


def test_a_key_is_not_mistaken_for_its_words_or_another_kind(tmp_path: Path):
    Checkpoints(tmp_path).save(1, {"key": jax.random.key(0)}, {})
    for other in (jax.random.key_data(jax.random.key(0)), jax.random.key(0, impl="rbg")):
        with pytest.raises(CheckpointError, match=r"'key' is key<fry>\[\] in the checkpoint"):
            Checkpoints(tmp_path).restore({"key": other})


def test_bad_requests_are_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="at least 1, not 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(InputError, match=r"checkpoint\.meta\.f is a function"):
        Checkpoints(tmp_path).save(1, small(1), {"f": lambda: None})
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="step 1 cannot be written: File exists"):
        Checkpoints(tmp_path / "file").save(1, small(1), {})


def test_no_thread_stays_and_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    before = set(threading.enumerate())
    Checkpoints(tmp_path).save(1, small(1), {})
    Checkpoints(tmp_path).restore(small(1))
    deadline = time.monotonic() + 2
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left
    assert capfd.readouterr() == ("", "")


class Named(NamedTuple):
    actor: Any
    critic: Any


def test_a_position_that_has_become_a_field_is_the_same_leaf(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    old = {"optimiser": (np.arange(2.0), (np.arange(3.0), np.arange(1.0)))}
    checkpoints.save(1, old, {})
    state, _, _ = checkpoints.restore({"optimiser": Named(np.zeros(2), (np.zeros(3), np.zeros(1)))})
    np.testing.assert_array_equal(state["optimiser"].critic[0], np.arange(3.0))
    for other in ({"optimiser": Named(np.zeros(3), (np.zeros(2), np.zeros(1)))}, {"state": (np.zeros(2),)}):
        with pytest.raises(CheckpointError, match="does not match this run"):
            checkpoints.restore(other)
    checkpoints.save(2, {"optimiser": Named(np.zeros(2), ())}, {})
    with pytest.raises(CheckpointError, match="does not match this run"):
        checkpoints.restore({"optimiser": (np.zeros(2), ())})


def test_a_renamed_field_and_a_position_that_is_gone_are_the_same_leaves(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"critic": ({"kernel": np.arange(2.0)}, ()), "policy": {"floor": np.float32(0.5)}}, {})
    template = {"critic": {"kernel": np.zeros(2)}, "policy": {"epsilon": np.float32(0)}}
    state, _, _ = checkpoints.restore(template)
    np.testing.assert_array_equal(state["critic"]["kernel"], np.arange(2.0))
    assert state["policy"]["epsilon"] == 0.5
    with pytest.raises(CheckpointError, match="does not match this run"):
        checkpoints.restore({"critic": {"bias": np.zeros(2)}, "policy": {"epsilon": np.float32(0)}})


class Battle(NamedTuple):
    x: Any
    speed: Any = ()


def test_statistics_of_all_agents_stand_for_those_of_each(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    mean = np.arange(6, dtype=np.float32).reshape(2, 3)  # seeds, features
    checkpoints.save(1, {"policy": {"inputs": {"obs": {"mean": mean}, "state": mean}}}, {})
    wanted = {"obs": {"mean": np.zeros((2, 4, 3), np.float32)}, "state": mean}
    found = checkpoints.restore({"policy": {"inputs": wanted}})[0]["policy"]["inputs"]
    np.testing.assert_array_equal(found["obs"]["mean"], np.stack([mean] * 4, 1))
    with pytest.raises(CheckpointError, match=r"'policy/inputs/state' is float32\[2,3\] in the checkpoint"):
        checkpoints.restore({"policy": {"inputs": wanted | {"state": np.zeros((2, 4, 3), np.float32)}}})
    apart = {"obs": [{"mean": np.zeros((2, 1, 3), np.float32)}], "state": mean}
    with pytest.raises(CheckpointError, match="counts the entities of a set together: train again"):
        checkpoints.restore({"policy": {"inputs": apart}})


def test_metrics_that_an_earlier_checkpoint_lacks_begin_at_zero(tmp_path: Path):
    checkpoints, stored = Checkpoints(tmp_path), {"learner": {"a": np.ones(2), "z": np.full(3, 7.0)}}
    checkpoints.save(1, stored, {})
    noted = {"noted": {"policy_loss": np.ones(2, np.float32)}}
    found = checkpoints.restore({"learner": stored["learner"] | noted})[0]["learner"]
    part = restore_part(checkpoints, "learner", {"z": stored["learner"]["z"]} | noted, 1)
    for one in (found, part):
        np.testing.assert_array_equal(one["noted"]["policy_loss"], np.zeros(2))
        np.testing.assert_array_equal(one["z"], stored["learner"]["z"])
    np.testing.assert_array_equal(found["a"], stored["learner"]["a"])


@pytest.mark.parametrize("nested", [False, True])
def test_a_changed_state_of_the_environment_is_named_as_such(nested: bool, tmp_path: Path):
    checkpoints, place = Checkpoints(tmp_path), "environment has changed since the checkpoint of step 7"
    one, two = Battle(np.zeros(2)), Battle(np.zeros(2), np.zeros(3))
    for old, new in ((one, two), (two, one)):
        old, new = ({"rollout": {"env": (env,) if nested else env}} for env in (old, new))
        checkpoints.save(7, old, {})
        with pytest.raises(CheckpointError, match=place) as error:
            checkpoints.restore(new)
        assert "speed" in str(error.value) and "Train again" in str(error.value)
    with pytest.raises(CheckpointError, match=place):
        checkpoints.restore({"rollout": {"env": np.zeros(2)}})


class Old(NamedTuple):
    utilities: Any
    mixer: Any


class New(NamedTuple):
    actor: Any
    critic: Any


def test_a_branch_is_read_by_todays_names_of_its_fields(tmp_path: Path):
    """Target networks of Q-learning were ``utilities`` and ``mixer`` before they were ``actor`` and ``critic``."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, {"learner": {"target": Old(np.arange(2.0), np.arange(3.0)), "z": np.ones(1)}}, {})
    found = restore_part(checkpoints, "learner", {"target": New(np.zeros(2), np.zeros(3))}, 4)
    np.testing.assert_array_equal(found["target"].actor, np.arange(2.0))
    np.testing.assert_array_equal(found["target"].critic, np.arange(3.0))


def test_the_root_logger_stays_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has no handler, absl would give it one, and a later call of logging.basicConfig would do nothing."""
    monkeypatch.setattr(logging.root, "handlers", [])
    for name in ("save", "restore"):
        real = getattr(orbax.checkpoint.Checkpointer, name)

        def telling(*given: Any, real: Any = real, **named: Any) -> Any:
            absl.logging.info("hello")
            return real(*given, **named)

        monkeypatch.setattr(orbax.checkpoint.Checkpointer, name, telling)
    Checkpoints(tmp_path).save(1, {"x": np.ones(3)}, {})
    Checkpoints(tmp_path).restore({"x": np.ones(3)})
    assert logging.root.handlers == []
