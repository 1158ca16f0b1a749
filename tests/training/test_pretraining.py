"""Experience before training: collected once, by initial policies, and what it decides is kept with the run."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.algorithms import mappo, seps
from shoal.environments import registry
from shoal.errors import InputError
from shoal.runs.api import trainer_of
from shoal.storage.checkpoint import Checkpoints
from shoal.training import pretraining
from shoal.types import Preparation, Scale

TEAM = {"type_distribution": (2, 1, 1), "horizon": 10}
FLAGS: dict[str, Any] = {
    "num_envs": 8,
    "rollout_length": 5,
    "hidden": (8,),
    "pretrain_steps": 4000,
    "pretrain_updates": 3000,
    "lr_final": 1.0,
    "steps": 800,
    "schedule_steps": 800,  # with which runs of fewer steps are the same program
    "seeds": 2,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return shoal.train("seps", "bps/spread", env=TEAM, folder=tmp_path_factory.mktemp("seps") / "run", **FLAGS)


def refuse(*_: Any) -> Any:
    raise AssertionError("experience was collected again")


def test_ctrl_c_interrupts_the_decision_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    released, threads = threading.Event(), []

    def decide(*_: Any) -> Any:
        threads.append(threading.current_thread())  # compiled code blocks signals in the main thread
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(20)

    monkeypatch.setattr(pretraining, "collect", lambda *_: None)
    env, algorithm = registry.make("bps/spread", **TEAM), seps.make  # the algorithm is not used
    module: Any = ModuleType("slow")
    module.prepare = lambda *_: Preparation(algorithm, 1, decide)  # type: ignore[arg-type]
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pretraining.decide(module, env, None, Scale(8, 5, 2), 0)
    released.set()
    assert time.monotonic() - began < 10 and threads != [threading.main_thread()]


def test_what_was_decided_is_kept(run: shoal.Run) -> None:
    assert run.config.sharing == (0, 0, 1, 2)
    said = json.loads((run.folder / "run.json").read_text())["config"]
    assert said["config"]["sharing"] == [0, 0, 1, 2]
    report = json.loads((run.folder / "preparation.json").read_text())
    assert report["policy_of"] == [0, 0, 1, 2] and np.shape(report["codes"]) == (4, 10)
    assert [row["clusters"] for row in report["tried"]] == [1, 2, 3]
    assert report["tried"][0]["error"] > 2 * report["own_error"]
    assert run.decision is not None and run.decision.message == "4 agents share 3 policies: 0 0 1 2."


def test_opening_loading_and_evaluating_do_not_decide_again(run: shoal.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "collect", refuse)
    again = shoal.open_run(run.folder)
    assert again.config == run.config and again.decision is None
    assert again.evaluate(4).returns.shape == (2, 4, 4)
    policies = shoal.load(run.folder)
    kernel = jax.tree.leaves(policies._learner.policy.actor)[0]
    assert kernel.shape[0] == 3


def test_a_resumed_run_is_the_undisturbed_one(
    run: shoal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = FLAGS | {"steps": 400, "progress": True}
    half = shoal.train("seps", "bps/spread", env=TEAM, folder=tmp_path / "half", **flags)
    assert "4 agents share 3 policies: 0 0 1 2.\n" in capsys.readouterr().err
    monkeypatch.setattr(pretraining, "collect", refuse)
    before = (half.folder / "preparation.json").read_text()
    shoal.resume(half.folder, steps=800, progress=False)
    leaves = []
    for folder in (half.folder, run.folder):
        template = trainer_of(shoal.open_run(folder), False).program.template()
        state, _, step = Checkpoints(folder / "checkpoints").restore(template)
        leaves.append([np.asarray(x).tobytes() for x in jax.tree.leaves(state._replace(key=()))])
        assert step == 20
    assert leaves[0] == leaves[1] and len(leaves[0]) > 20
    assert (half.folder / "preparation.json").read_text() == before


def test_one_decision_for_all_seeds_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experience depends on the first seed and on nothing else that a run may vary."""
    env, config = registry.make("bps/spread", **TEAM), seps.Config(pretrain_steps=10, pretrain_updates=1)
    seen = []

    def note(*arguments: Any) -> Any:
        seen.append(arguments)
        raise InterruptedError

    monkeypatch.setattr(pretraining, "collect", note)
    for seed, scale in ((3, Scale(8, 5, 2)), (3, Scale(2, 7, 90)), (4, Scale(8, 5, 2))):
        with pytest.raises(InterruptedError):
            pretraining.decide(seps, env, config, scale, seed)
    keys = [jax.random.key_data(key).tolist() for *_, key, _ in seen]
    assert keys[0] == keys[1] != keys[2]
    assert [length for _, _, length, *_ in seen] == [1, 1, 1]  # 10 steps in 64 environments
    assert keys[0] != jax.random.key_data(jax.random.key(3)).tolist()


def test_the_experience_is_of_policies_that_all_agents_share() -> None:
    env = registry.make("bps/spread", **TEAM)
    preparation = seps.prepare(env.spec, seps.Config(), Scale(8, 5, 2))
    assert preparation is not None and preparation.steps == 20_000
    traj = pretraining.collect(env, preparation.algorithm, 13, jax.random.key(0))
    assert traj.action.shape == (13, pretraining.ENVS, 4)
    # Nobody has learned anything: all five pushes are about equally likely for everyone.
    counts = np.stack([np.bincount(np.asarray(traj.action)[..., i].ravel(), minlength=5) for i in range(4)])
    assert (np.abs(counts / counts.sum(1, keepdims=True) - 0.2) < 0.07).all()
    shape = jax.eval_shape(preparation.algorithm.init, jax.random.key(0)).policy.actor
    assert {leaf.shape[0] for leaf in jax.tree.leaves(shape)} == {1}
    assert np.asarray(traj.outcome.last)[9].all()  # episodes of ten steps, one after the other


def test_algorithms_that_leave_nothing_open_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "collect", refuse)
    env, scale = registry.make("matrix/climbing"), Scale(8, 5, 2)
    assert pretraining.decide(mappo, env, mappo.Config(), scale, 0) is None
    assert pretraining.decide(seps, env, seps.Config(sharing="role"), scale, 0) is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"clusters": 9}, "clusters is 9, but bps/spread has only 4 agents"),
        ({"sharing": (0, 1)}, "must give each of the 4 agents a policy"),
        ({"recurrent": 4, "chunk_length": 3}, "chunk_length 3 does not divide"),
        ({"sharing": "learnt"}, "sharing must be 'shared' or .*, not 'learnt'"),
    ],
)
def test_a_bad_option_is_refused_before_the_decision(
    flags: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "collect", refuse)
    with pytest.raises(InputError, match=words):
        shoal.train("seps", "bps/spread", env=TEAM, folder=tmp_path / "run", **(FLAGS | flags))
    assert not (tmp_path / "run").exists()


def test_the_command_line_has_the_options_of_the_decision(shoal: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = shoal("train", "seps", "bps/1", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0 and "--sharing shared|role|independent|learned|INT... " in text
    assert "(default: learned; each in [0, 65535])" in text and "--pretrain-steps INT" in text
