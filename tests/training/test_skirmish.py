"""Training on skirmish maps, whose environments have a batched form: every algorithm, devices, resume, deployment."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import shoal
from shoal import algorithms
from shoal.environments import registry
from shoal.runs.api import trainer_of
from shoal.storage.checkpoint import Checkpoints
from shoal.training import episodes
from support import trained
from support.selection import quick

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 6,
    "hidden": (4,),
    "orthogonal": False,
    "eval_episodes": 2,
    "tensorboard": False,
    "progress": False,
    "env": {"horizon": 12},
}
OFF_POLICY: dict[str, Any] = {"batch_size": 2, "buffer_size": 200, "learning_starts": 0}


def flags_of(name: str) -> dict[str, Any]:
    """Tiny settings; those that an algorithm does not have are left out."""
    known = set(algorithms.get(name).Config.__dataclass_fields__)
    own = {"epochs": 1, "minibatches": 1, "recurrent": None, "chunk_length": 6, "sequence_length": 3} | OFF_POLICY
    own |= {"heads": 1, "blocks": 1, "embedding": 4, "mixing_width": 4, "gradient_steps": 1}
    return {flag: value for flag, value in own.items() if flag in known}


@pytest.mark.parametrize("name", quick(algorithms.NAMES))
def test_every_algorithm_trains_in_it(name: str, tmp_path: Path):
    """Several seeds; agents die, have masks and types; an update leaves every number finite."""
    flags = SMALL | flags_of(name) | {"steps": 4 * 6 * 3, "seeds": 2, "folder": tmp_path}
    run = shoal.train(name, "skirmish/2s3z", **flags)
    learner = run._learner()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(learner.policy) if np.issubdtype(x.dtype, np.floating))
    scores = run.evaluate(episodes=2)
    assert scores.metrics.keys() == {"won", "dead_allies", "dead_enemies"}
    assert np.isfinite(scores.returns).all() and (scores.lengths <= 12).all()


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with noise for what it has learned."""
    folder = tmp_path_factory.mktemp("noise")
    with trained.untrained():
        shoal.train("mappo", "skirmish/3m", folder=folder, steps=4 * 24, **RECURRENT)
    return folder


RECURRENT: dict[str, Any] = SMALL | {
    "eval_episodes": 0,  # those of every algorithm are evaluated
    "recurrent": 4,
    "last_action": True,
    "chunk_length": 6,
    "epochs": 1,
    "minibatches": 1,
    "lr_final": 1.0,
    "schedule_steps": 4 * 24,  # with which runs of fewer steps are the same program
    "devices": 2,
    "checkpoint_seconds": 0.0,
    "keep": 100,
}


def test_a_run_on_two_devices_resumes_exactly(tmp_path: Path):
    whole = tmp_path / "whole"
    shoal.train("mappo", "skirmish/3m", folder=whole, steps=4 * 24, **RECURRENT)
    run = shoal.train("mappo", "skirmish/3m", folder=tmp_path / "run", steps=2 * 24, **RECURRENT)
    shoal.resume(run.folder, steps=4 * 24, progress=False)
    ends = []
    for folder in (whole, run.folder):
        opened = trainer_of(shoal.open_run(folder), False)
        assert dict(opened.layout.mesh.shape) == {"seed_shards": 1, "devices": 2}
        state = Checkpoints(folder / "checkpoints").restore(opened.program.template(), 4)[0]
        # The environments as well: positions, weapons, targets.
        ends.append([np.asarray(x) for x in jax.tree.leaves((state.learner, state.rollout.env, state.rollout.step))])
    assert len(ends[0]) > 30
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_team_is_deployed_from_its_folder(noise: Path):
    """It plays legal actions from observations alone, those of its recurrent policy in an evaluation."""
    team = shoal.load(noise)
    env = registry.make("skirmish/3m", horizon=12)
    assert not isinstance(env, registry.HostEnvironment)
    state, step = jax.jit(env.reset)(jax.random.key(0))
    for t in range(4):
        legal = np.asarray(step.legal)
        actions = team.act(np.asarray(step.obs), legal=legal, alive=[bool(x) for x in step.alive])
        assert legal[np.arange(3), actions].all()
        state, step = jax.jit(env.step)(jax.random.key(t), state, np.asarray(actions))


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three updates, the last two after a pause."""
    folder = tmp_path_factory.mktemp("unmasked")
    return shoal.train("mappo", "skirmish/3m", folder=folder, steps=3 * 24, **UNMASKED).folder


UNMASKED: dict[str, Any] = {**RECURRENT, "devices": 1, "action_mask": False}


def test_agents_that_are_shown_no_masks_train_and_are_deployed(unmasked: Path):
    """They choose illegal actions, and what is returned is legal."""
    run, team = shoal.open_run(unmasked), shoal.load(unmasked)
    learner = jax.tree.map(lambda x: x[0], run._learner())
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(learner.policy) if np.issubdtype(x.dtype, np.floating))
    played = episodes.record_episodes(
        run.env, run._acting(), learner, jax.random.key(0), 1, greedy=False, decisions=True
    )[0]
    assert played.decisions is not None and played.decisions["legal"].all()
    assert (played.decisions["probabilities"] > 0).all() and (played.actions >= 6).any()  # enemies are far
    env = registry.make("skirmish/3m", horizon=12)
    assert not isinstance(env, registry.HostEnvironment)
    step = jax.jit(env.reset)(jax.random.key(0))[1]
    legal = np.asarray(step.legal)
    for _ in range(4):
        actions = team.act(np.asarray(step.obs), legal=legal)
        assert legal[np.arange(3), actions].all()


def test_a_run_without_masks_resumes_exactly(unmasked: Path, tmp_path: Path):
    run = shoal.train("mappo", "skirmish/3m", folder=tmp_path / "run", steps=24, **UNMASKED)
    shoal.resume(run.folder, steps=3 * 24, progress=False)
    ends = []
    for folder in (unmasked, run.folder):
        program = trainer_of(shoal.open_run(folder), False).program
        state = Checkpoints(folder / "checkpoints").restore(program.template(), 3)[0]
        assert state.rollout.env.memory[-1].shape == (1, 4, 3, 9)  # the masks
        ends.append([np.asarray(x) for x in jax.tree.leaves((state.learner, state.rollout.env, state.rollout.step))])
    for a, b in zip(*ends, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pictures_of_a_battle_are_drawn_when_they_are_read(noise: Path, tmp_path: Path):
    """All of a long episode at once would fill the memory."""
    run = shoal.open_run(noise)
    played = episodes.record_episodes(
        run.env, run._acting(), jax.tree.map(lambda x: x[0], run._learner()), jax.random.key(0), 1
    )[0]
    assert isinstance(played.frames, episodes.Pictures) and len(played.frames) == len(played.actions) + 1
    one, again = (np.asarray(played.frames[3]) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert one.dtype == np.uint8 and (one != np.asarray(played.frames[0])).any()
    made = episodes.draw_episodes([played, played], run.env, tmp_path / "battle.gif", "battle")
    with Image.open(made) as picture:
        assert picture.n_frames == 2 * len(played.frames)  # type: ignore[attr-defined]
