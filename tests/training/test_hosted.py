"""Runs whose environments worker processes step: the same as the device's, and what becomes of them when they break."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import counters
import shoal
from shoal import algorithms
from shoal.algorithms import ippo
from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.options.flags import flags_of
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout, Parallelism, Workers
from shoal.runs import api
from shoal.runs import api as training
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.training import crossplay, evaluation, hosted, pretraining
from shoal.training.settings import Settings
from shoal.training.sharding import plan_layout
from shoal.training.trainer import Trainer
from shoal.types import Learner
from support import processes, trained
from support.selection import quick

FLAGS: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "steps": 8 * 32,
    "num_workers": 0,
    "rows": 1000,
    "hidden": (8,),
    "eval_episodes": 0,
    "tensorboard": False,
    "checkpoint_seconds": 0.0,
    "keep": 100,
}
REPLAY: dict[str, Any] = {"batch_size": 8, "buffer_size": 32 * 6, "learning_starts": 40}


def flags_for(name: str, **more: Any) -> dict[str, Any]:
    known = set(flags_of(algorithms.get(name).Config())) | set(flags_of(Settings()))
    return {key: value for key, value in (FLAGS | REPLAY | more).items() if key in known}


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[Trainer]:
    """The trainers of the runs that a test makes."""
    made: list[Trainer] = []
    monkeypatch.setattr(training, "Trainer", lambda *args: made.append(Trainer(*args)) or made[-1])
    return made


@pytest.mark.parametrize(("name", "workers"), [("ippo", 2), ("qmix", 0)])
def test_a_run_on_the_host_equals_the_run_on_the_device(
    name: str, workers: int, tmp_path: Path, trainers: list[Trainer]
) -> None:
    """Update for update, the halves of the worker processes being two devices."""
    flags = flags_for(name, num_workers=workers, seeds=1, devices=2, epochs=1)
    for kind in ("hosted", "device"):
        env = counters.hosted() if kind == "hosted" else counters.device()
        assert shoal.train(name, env, folder=tmp_path / kind, progress=False, **flags).finished
    mine, theirs = (log.read_log(tmp_path / kind) for kind in ("hosted", "device"))
    assert [row["update"] for row in mine] == [row["update"] for row in theirs] == list(range(1, 9))
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys() and a["return"] == pytest.approx(b["return"], abs=1e-5)
        assert a["episode_length"] == pytest.approx(b["episode_length"], abs=1e-5)
        assert a["won"] == pytest.approx(b["won"], abs=1e-6) and a["gap"] == pytest.approx(b["gap"], abs=1e-5)
    assert len({row["won"][0] for row in mine}) > 1
    states = [trainer.state for trainer in trainers]
    assert all(dict(trainer.layout.mesh.shape)["devices"] == 2 for trainer in trainers)
    ours, others = (jax.tree.leaves((state.learner, state.feed)) for state in states if state is not None)
    assert len(ours) == len(others) > 10
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_an_environment_that_breaks_takes_nothing_that_was_learned(tmp_path: Path, trainers: list[Trainer]) -> None:
    """A game raises in its 41st step, after five updates. Mended, the run goes on in new episodes, and is judged."""
    flags, folder = flags_for("ippo", seeds=2), tmp_path / "run"
    shoal.train("ippo", counters.hosted(), folder=tmp_path / "calm", progress=False, **flags)
    with pytest.raises(GameError, match=r"raised ValueError: the counter is stuck in step \d of an episode, at the"):
        shoal.train("ippo", counters.hosted(False, "raise later"), folder=folder, progress=False, **flags)
    assert Checkpoints(folder / "checkpoints").latest() == Checkpoints(folder / "policy").latest() == 5
    calm, before = log.read_log(tmp_path / "calm"), log.read_log(folder)
    assert [row["return"] for row in before] == [row["return"] for row in calm[:5]]
    with pytest.raises(InputError, match="pass that environment again"):
        shoal.resume(folder, progress=False)

    broken = trainers[1].state
    assert broken is not None
    run = shoal.resume(folder, environment=counters.hosted(), progress=False)
    state = trainers[2].state
    assert run.finished and state is not None and state.learner.updates.tolist() == [8, 8]
    rows = log.read_log(folder)
    assert [row["update"] for row in rows] == list(range(1, 9)) and rows[:5] == before
    assert rows[5]["return"] != calm[5]["return"]  # new episodes, where the undisturbed run is in the middle of some
    learned, then, now = (trainer.state.learner.policy for trainer in trainers if trainer.state is not None)
    moved = [
        [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, pair), strict=True)]
        for pair in ((then, now), (learned, now))
    ]
    assert max(moved[0]) > 0 and max(moved[1]) < 10 * max(moved[0])  # it went on from there, not from the beginning

    judged = run.evaluate(5)
    assert judged.returns.shape == (2, 5, 2) and (judged.lengths <= counters.HORIZON).all()
    assert str(run.evaluate(5)) == str(judged)
    assert np.isin(judged.metrics["won"], (0, 1)).all() and judged.metrics["gap"].shape == (2, 5)
    assert (judged.metrics["won"][judged.lengths < counters.HORIZON] == 1).all()  # nothing else ends one early
    with Image.open(run.replay(tmp_path / "play.gif", episodes=1, seed=1)) as picture:
        assert getattr(picture, "n_frames", 1) > 1


def test_acting_compiles_before_its_time_is_measured() -> None:
    """In training and in evaluations: neither ``seconds`` nor the time budget contains it, nor ``greedy/seconds``."""
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **named: (
            compiled.append(str(named.get("fun_name"))) if "backend_compile" in event else None
        )
    )
    algorithm, env = counters.algorithm("ippo", 4, orthogonal=False), counters.hosted()
    algorithm = algorithm._replace(update=lambda learner, experience, key: (learner, {}))
    settings, layout = Settings(num_envs=4, rollout_length=8, num_workers=0), plan_layout(1, 4, 1)
    program = hosted.compile_host_program(env, algorithm, layout, settings, print, lambda: algorithm)
    evaluator = evaluation.Evaluator(env, algorithm, 2, None, Workers(0))
    state = program.init(layout.keys(0))
    learner = evaluation.learner_of(jax.device_get(state.learner.policy))
    advance, acting = program.start(state), {"jit(one)", "jit(_draw)"}
    evaluator.prepare(learner)
    assert acting <= set(compiled)
    compiled.clear()
    advance(state, np.int32(1))
    evaluator(learner, jax.random.key(0))
    assert acting.isdisjoint(compiled)
    program.close()
    evaluator.close()


def test_a_run_resumed_before_it_learns_begins_other_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The episodes of worker processes begin anew; their keys are not those of the episodes in the buffer."""
    keys, init = [], HostRollout.init

    def kept(self: Any, key: Any) -> None:
        keys.append(jax.random.key_data(key).tolist())
        init(self, key)

    monkeypatch.setattr(HostRollout, "init", kept)
    flags = flags_for("qmix", steps=32, learning_starts=150)
    run = shoal.train("qmix", counters.hosted(), folder=tmp_path / "run", progress=False, **flags)
    shoal.resume(run.folder, environment=counters.hosted(), steps=64, progress=False)
    shoal.resume(run.folder, environment=counters.hosted(), steps=96, progress=False)
    assert len(keys) == 3 and keys[0] != keys[1] != keys[2] != keys[0]


def test_nan_is_refused_before_it_is_learned_from(tmp_path: Path) -> None:
    with pytest.raises(GameError, match=r"gave two's reward as nan in step 3 of an episode"):
        shoal.train("ippo", counters.hosted(False, "nan"), folder=tmp_path, progress=False, **flags_for("ippo"))
    assert Checkpoints(tmp_path / "checkpoints").latest() == 0


def test_an_evaluation_of_endless_episodes_is_refused(tmp_path: Path) -> None:
    """It can be trained in, but not judged."""
    flags = flags_for("ippo", eval_episodes=3, steps=32)
    with pytest.raises(GameError, match="continues long after its horizon of 6 steps"):
        shoal.train("ippo", counters.hosted(False, "endless"), folder=tmp_path, progress=False, **flags)
    assert Checkpoints(tmp_path / "policy").latest() == 1


def test_a_run_that_was_killed_before_its_final_evaluation_plays_the_same_episodes(tmp_path: Path) -> None:
    flags = flags_for("ippo", eval_episodes=5, steps=32, epochs=1, minibatches=1)
    env = counters.hosted()
    shoal.train("ippo", env, folder=tmp_path, progress=False, **flags)
    said = (tmp_path / "evaluation.json").read_text()
    (tmp_path / "evaluation.json").unlink()
    assert shoal.resume(tmp_path, environment=env, progress=False).untouched
    assert (tmp_path / "evaluation.json").read_text() == said


def test_what_cannot_be_stepped_leaves_no_folder(tmp_path: Path) -> None:
    env = HostEnvironment(counters.spec_of(), lambda render=False: counters.Counters())
    with pytest.raises(InputError, match="num_workers 0"):
        shoal.train("ippo", env, folder=tmp_path / "run", progress=False, **flags_for("ippo", num_workers=2))
    assert not (tmp_path / "run").exists()


def test_every_rollout_waits_for_workers_as_long_as_training_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations, during training and after it, cross-play and preparation too."""
    made: list[Parallelism] = []

    def rollout(*given: Any) -> Any:
        made.append(next(one for one in given if isinstance(one, Parallelism)))
        raise InputError("enough")

    for module in (evaluation, crossplay, pretraining):
        monkeypatch.setattr(module, "HostRollout", rollout)
    settings, env = Settings(worker_timeout=7.0, num_workers=3, eval_every=64.0), counters.hosted()
    key = jax.random.key(0)
    run = api.Run(tmp_path, "ippo", "counters:hosted", {}, settings, ippo.Config(), env)
    acting, learner = run._acting(), Learner(jnp.zeros(1), (), (), (), jnp.zeros(1, jnp.int32))
    during = evaluation.selection_of(env, acting, settings, tmp_path, None, lambda: None)
    assert during is not None
    for play in (
        lambda: evaluation.Evaluator(env, acting, 2, True, run._workers()).prepare(learner),
        lambda: during.evaluator.prepare(learner),
        lambda: crossplay.make_matches(env, (acting, acting), (0,), 2, (True, True), run._workers())(
            learner, learner, key
        ),
        lambda: pretraining.collect(env, acting, 4, key, run._workers()),
    ):
        with pytest.raises(InputError, match="enough"):
            play()
    assert [(one.num_workers, one.timeout) for one in made] == [(3, 7.0)] * 4
    unsendable = HostEnvironment(env.spec, lambda: env.make())
    here = evaluation.selection_of(unsendable, acting, settings, tmp_path, None, lambda: None)
    assert here is not None and here.evaluator.workers[0] == 0


def test_a_preparation_by_worker_processes(tmp_path: Path) -> None:
    """SePS decides by what games of the host show who shares with whom."""
    more = {"clusters": 2, "pretrain_steps": 256, "pretrain_updates": 4, "steps": 32}
    run = shoal.train("seps", counters.hosted(), folder=tmp_path, progress=False, **flags_for("seps", **more))
    assert run.finished and run.decision is not None and (tmp_path / "preparation.json").exists()


def start(folder: Path, *words: str) -> subprocess.Popen:
    """``shoal train`` in another process."""
    sources = [str(Path(counters.__file__).parent), *sys.path]
    command = [sys.executable, "-m", "shoal.cli", "train", "ippo", "counters:hosted", "--folder", str(folder)]
    small = ["--num-envs", "4", "--rollout-length", "8", "--hidden", "8", "--num-workers", "2", "--no-tensorboard"]
    return subprocess.Popen(
        [*command, *small, *words],
        env=os.environ | trained.cache_environment() | {"PYTHONPATH": os.pathsep.join(sources)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    """Once while it trains; and twice where a game hangs, so that the call under way would not end."""
    folders = tmp_path / "calm", tmp_path / "hanging"
    both = [
        start(folders[0], "--steps", "1e9", "--checkpoint-seconds", "0"),
        start(folders[1], "--env.trouble", "hang", "--env.folder", str(tmp_path)),
    ]

    def wait(happened: Any) -> None:
        end = time.monotonic() + 90
        while not happened():
            assert time.monotonic() < end and all(one.poll() is None for one in both)
            time.sleep(0.02)

    calm, hanging = both
    wait(lambda: (tmp_path / "done").exists())
    wait(lambda: (Checkpoints(folders[0] / "checkpoints").latest() or 0) > 0)
    workers = [processes.descendants(one.pid) for one in both]
    calm.send_signal(signal.SIGINT)
    said = calm.communicate(timeout=30)[1]
    assert calm.returncode == 130 and "continue with" in said and "Traceback" not in said
    assert (Checkpoints(folders[0] / "checkpoints").latest() or 0) > 0

    hanging.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert hanging.poll() is None  # the first one waits for the call
    hanging.send_signal(signal.SIGINT)
    said = hanging.communicate(timeout=30)[1]
    assert hanging.returncode == 130 and "continue with" in said and "Traceback" not in said
    assert Checkpoints(folders[1] / "checkpoints").latest() == 0
    assert len(workers[0]) == len(workers[1]) == 2 and not processes.left(workers[0] | workers[1])


@pytest.mark.parametrize("name", quick(algorithms.NAMES, "mappo"))
def test_every_algorithm_acts_on_the_host(name: str) -> None:
    """Its trajectory has the device's shapes and types."""
    made = counters.algorithm(name, 4, **({"minibatches": 1} if name in ("ipqn", "pqn_vdn") else {}))
    learner = jax.jit(made.init)(jax.random.key(0))
    rolling = fused.make_rollout(counters.device(), 4, 3)

    def roll(key: Any) -> Any:
        state = rolling.init(key, made.initial_carry(4))
        return rolling.collect(made.act, learner, state, key)[1:]

    theirs = jax.eval_shape(roll, jax.random.key(1))
    rollout = HostRollout(counters.hosted(), made.initial_carry, Parallelism(1, 4, 0), 3)
    rollout.init(jax.random.split(jax.random.key(2), 1))
    ours = rollout.collect(
        made.act, jax.tree.map(lambda x: jnp.asarray(x)[None], learner), jax.random.split(jax.random.key(3), 1)
    )
    rollout.close()
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == (1, *b.shape) and a.dtype == b.dtype
    assert (
        ours[0].step.legal[0][np.arange(3)[:, None, None], np.arange(4)[:, None], np.arange(2), ours[0].action[0]].all()
    )
