"""Rollouts on a cluster mean what the device means; and what becomes of a run when a node or an environment breaks."""

import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
import shoal
from shoal.algorithms import iql
from shoal.errors import GameError, InputError
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.rollouts.host import Parallelism
from shoal.rollouts.ray import Chunk, Member, RayRollout, _blank, actors, connect, joined_chunks
from shoal.runs import api as training
from shoal.runs.api import trainer_of
from shoal.runs.run import Run
from shoal.training.feed import wanted
from shoal.training.settings import Settings
from shoal.training.stopping import Stop
from shoal.training.trainer import Trainer
from support import processes

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # to start Ray's own programs

E, T = 6, 9
FLAGS: dict[str, Any] = {
    "workers": "ray",
    "num_workers": 2,
    "num_envs": 4,
    "hidden": (8,),
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
    "rows": 1000,
}


@pytest.mark.parametrize("address", ["garbage", "::::", "ray://10.0.0.0.1:zero"])
def test_a_ray_that_cannot_start_is_one_sentence(address: str) -> None:
    with pytest.raises(InputError, match=r"^Ray cannot (start|reach a cluster) at") as caught:
        connect(address, 1)
    assert "\n" not in str(caught.value)


def test_a_ray_without_a_folder_to_work_in_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"^Ray cannot start on this machine: ") as caught:
        connect(None, 1)
    assert "\n" not in str(caught.value)


def test_a_run_on_a_ray_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that raises in an actor ends the run, saved; mended, it goes on. Nothing is left behind."""
    ours: set[int] = set()
    handlers: list[Any] = []
    collect, folder = RayRollout.collect, tmp_path / "run"

    def watched(*args: Any) -> list[Chunk]:
        ours.update(processes.descendants(os.getpid()))
        handlers.append(signal.getsignal(signal.SIGTERM))
        return collect(*args)

    monkeypatch.setattr(RayRollout, "collect", watched)
    flags: dict[str, Any] = FLAGS | {"rollout_length": 8, "steps": 8 * 32, "minibatches": 1, "seeds": 2}
    with pytest.raises(GameError) as error:
        shoal.train("ippo", counters.hosted(False, "raise later"), folder=folder, **flags)
    said = r"raised ValueError: the counter is stuck in step \d of an episode, at the action \[\d, \d\]\.$"
    assert error.match(f"^toys/counters {said}") and "counters.py" in error.value.trace
    assert trainer_of(shoal.open_run(folder, counters.hosted()), False).checkpoints.latest() == 5  # 40 steps of each

    run = shoal.resume(folder, environment=counters.hosted(), progress=False)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert run.finished and [row["update"] for row in rows] == list(range(1, 9))
    assert all(row["version_lag"] == [0, 0] for row in rows) and all(np.isfinite(rows[-1]["return"]))

    assert all(handler.__module__ == Stop.__module__ for handler in handlers)  # SIGTERM still ends the run, saved
    assert len(ours) > 10  # two times Ray's own, and two actors
    assert not processes.left(ours)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of a CPU each."""
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        own = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
        made = Cluster(initialize_head=True, head_node_args=own)
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
def test_chunks_are_the_devices_and_a_lost_node_takes_its_own(cluster: Any) -> None:
    """Rollouts of two seeds, each actor's part one device's; then a node goes, and the other one does its part."""
    remake, said = partial(counters.algorithm, recurrent=4, chunk_length=9), []
    algorithm, keys = remake(), jax.random.split(jax.random.key(5), 2)
    learner = jax.vmap(algorithm.init)(keys)
    parallelism = Parallelism(2, E, 2, 20.0)
    with closing(RayRollout(counters.hosted(), remake, parallelism, T, None, said.append)) as rollout:

        def collect(number: int) -> list[Chunk]:
            at = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
            return rollout.collect(jax.device_get(learner), number, at, True)

        rollout.init(keys)
        mine = [collect(0), collect(1)]
        assert said == []
        cluster.remove_node(next(node for node in cluster.list_all_nodes() if not node.head))
        after = [collect(2), collect(3)]
        remaining = {member.home for member in rollout.members}
    device = fused.make_rollout(counters.device(), E // 2, T)
    start, roll = jax.jit(device.init), jax.jit(partial(device.collect, algorithm.act))
    for seed, part in np.ndindex(2, 2):
        one = jax.tree.map(lambda x, seed=seed: x[seed], learner)
        state = start(jax.random.fold_in(keys[seed], part), algorithm.initial_carry(E // 2))
        for number in range(2):
            key = jax.random.fold_in(jax.random.fold_in(keys[seed], number), part)
            state, *theirs = roll(one, state, key)
            chunk = mine[number][part]
            ours = jax.tree.map(lambda x, seed=seed: x[seed], (chunk.trajectory, chunk.stats))
            assert jax.tree.structure(ours) == jax.tree.structure(tuple(theirs))
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    whole, stats = joined_chunks(mine[1])
    assert whole.action.shape == (2, T, E, 2) and (stats.episodes > 4).all()
    assert whole.carry[0].shape[:2] == (2, E) if isinstance(whole.carry, tuple) else whole.carry.shape[:2] == (2, E)

    assert said == ["A Ray actor is gone; its current rollout is lost, and a new actor is started."]
    assert len(remaining) == 1  # there is no CPU for another one
    for number, chunks in zip((2, 3), after, strict=True):  # complete, and all by the newest parameters
        assert [(chunk.slot, chunk.version) for chunk in chunks] == [(0, number), (1, number)]
        assert not np.array_equal(chunks[0].trajectory.step.obs, chunks[1].trajectory.step.obs)


@pytest.mark.slow
def test_a_slow_actor_does_not_delay_the_others_off_policy(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off-policy, a slow actor holds nobody up; and each actor's sequences stay its own."""
    if len(cluster.list_all_nodes()) < 2:
        cluster.add_node(num_cpus=1)
    trainers: list[Trainer] = []
    monkeypatch.setattr(training, "Trainer", lambda *args: trainers.append(Trainer(*args)) or trainers[-1])
    chunks: list[Chunk] = []
    collect = RayRollout.collect

    def noted(self: RayRollout, *args: Any) -> list[Chunk]:
        found = collect(self, *args)
        chunks.extend(found)
        return found

    monkeypatch.setattr(RayRollout, "collect", noted)
    flags: dict[str, Any] = FLAGS | {
        "rollout_length": 6,
        "steps": 40 * 24,
        "buffer_size": 24 * 200,
        "learning_starts": 24,
    }
    env = counters.hosted(False, "slow", str(tmp_path))
    run = shoal.train("iql", env, folder=tmp_path / "run", batch_size=8, **flags)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert run.finished and len(rows) == 40
    counts = np.bincount([chunk.slot for chunk in chunks], minlength=2)
    assert counts.sum() == 80 and counts.min() >= 1 and counts.max() > 3 * counts.min()
    slow = int(counts.argmin())
    lags = [row["version_lag"][0] for row in rows]
    assert max(lags) > 1 and min(lags) >= 0
    assert all(np.isfinite(row["td_loss"]) if "td_loss" in row else True for row in rows)
    state, trainer = trainers[0].state, trainers[0]
    assert state is not None
    one = wanted(trainer.algorithm.replay)[0]
    for slot in range(2):
        ring = state.feed[slot][0]
        kept = [
            one.keep(jax.tree.map(lambda x: jnp.asarray(x[0]), chunk.trajectory))
            for chunk in chunks
            if chunk.slot == slot
        ]  # leaves [T, E / W, ...]
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
        count = 6 * counts[slot]
        assert int(ring.current_index[0]) == count and (slot == slow or not bool(ring.is_full[0]))
        for a, b in zip(jax.tree.leaves(ring.experience), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(np.swapaxes(a[0][:, :count], 0, 1), b)


def test_impossible_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused in words, before there is a folder."""
    flags: dict[str, Any] = FLAGS | {"folder": tmp_path / "run", "rollout_length": 8, "steps": 64}
    indivisible: dict[str, Any] = flags | {"num_workers": 3}
    with pytest.raises(InputError, match="num_envs 4 is not divisible by the 3 Ray actors"):
        shoal.train("ippo", counters.hosted(), **indivisible)
    with pytest.raises(InputError, match="cannot use Ray workers"):
        shoal.train("ippo", counters.device(), **flags)
    with pytest.raises(InputError, match=r"There is no Ray cluster at 127\.0\.0\.1:9"):
        connect("127.0.0.1:9", 2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'ray>="):
        shoal.train("ippo", counters.hosted(), **flags)
    assert not (tmp_path / "run").exists()


def test_replay_buffers_of_other_actors_are_refused(tmp_path: Path) -> None:
    """By the options that made them, rather than by the shape of an array."""

    def made(**flags: Any) -> Trainer:
        small = {"num_envs": 4, "rollout_length": 8, "steps": 64.0, "tensorboard": False, "devices": 1}
        config = override(iql.Config(), {"hidden": (4,), "batch_size": 8, "buffer_size": 320, "learning_starts": 32})
        settings = override(Settings(), small | flags)
        return trainer_of(Run(tmp_path, "iql", "counters:hosted", {}, settings, config, counters.hosted()), False)

    first = made(workers="ray", num_workers=2)
    first.state = jax.tree.map(_blank, first.program.template())
    first.save()
    for other in ({"workers": "ray", "num_workers": 4}, {"num_workers": 0}):
        with pytest.raises(InputError, match="only with the --workers, and with Ray the --num-workers, that it was"):
            made(**other).restore()
    made(workers="ray", num_workers=2).restore()


def test_as_many_actors_as_divide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.rollouts.pool.os.sched_getaffinity", lambda _: range(6), raising=False)
    assert [actors(Parallelism(1, envs)) for envs in (4, 16, 7, 12)] == [4, 4, 1, 6]
    assert actors(Parallelism(1, 2, 8)) == 2


def test_every_error_of_an_actor_or_of_the_cluster_is_one_after_which_the_run_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray
    from ray import exceptions

    rollout = object.__new__(RayRollout)
    rollout.name, rollout.first = "toy", np.zeros(0)
    errors: list[Exception] = []

    def raising(*_: Any) -> None:
        raise errors[-1]

    monkeypatch.setattr(ray, "get", raising)
    monkeypatch.setattr(ray, "put", raising)
    member = Member(actor=None, home=0)
    for cause in (MemoryError("no room"), InputError("no board")):
        errors.append(exceptions.RayTaskError("collect", "its traceback", cause))
        with pytest.raises(GameError, match=rf"^toy: a Ray actor raised {type(cause).__name__}: no") as caught:
            rollout._chunk("promise", member, 0.0)
        assert "its traceback" in caught.value.trace
    own = GameError("toy raised", 1, "in step 3", "a trace")
    errors.append(exceptions.RayTaskError("collect", "its traceback", own))
    with pytest.raises(GameError, match=r"^toy raised in step 3\.$"):
        rollout._chunk("promise", member, 0.0)
    errors.append(exceptions.ObjectStoreFullError("full"))
    with pytest.raises(GameError, match="toy: the Ray cluster failed: ObjectStoreFullError: "):
        rollout.collect((), 0, jax.random.split(jax.random.key(0), 1), together=True)
