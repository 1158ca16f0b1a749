"""Schedules span the updates that a run makes: they end with it, however long a replay buffer waits to be filled."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.options.flags import override
from shoal.runs import api, build
from shoal.training import feed
from shoal.training.settings import Settings
from shoal.types import Replay, Scale, Step, Trajectory
from support.selection import quick

E, T, UPDATES = 4, 6, 10  # 240 steps
SETTINGS = Settings(steps=240.0, num_envs=E, rollout_length=T, devices=1, tensorboard=False, eval_episodes=0)
FLAGS: dict[str, Any] = {
    "hidden": (4,), "orthogonal": False, "buffer_size": 2400, "batch_size": 8, "sequence_length": T, "minibatches": 1,
    "learning_starts": 170, "chunk_length": T, "lr_final": 0.0, "epsilon": 0.9, "epsilon_final": 0.2,
    "epsilon_fraction": 1.0, "mixer_input": "concat",
}  # fmt: skip
LEARNING = 3  # 170 steps are in the buffer after 8 rollouts, which is when the first update is made
OFF_POLICY = [name for name in algorithms.NAMES if hasattr(algorithms.get(name).Config, "learning_starts")]


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> list[Scale]:
    """The sizes that algorithms are made for; the last one is that of the algorithm that trains."""
    seen, made = [], build.make_algorithm

    def spy(*args: Any, scale: Scale, **more: Any) -> Any:
        seen.append(scale)
        return made(*args, scale=scale, **more)

    monkeypatch.setattr(build, "make_algorithm", spy)
    return seen


def trainer_of(name: str, folder: Path, settings: Settings = SETTINGS) -> Any:
    config = override(algorithms.get(name).Config(), FLAGS)
    return api.trainer_of(api.Run(folder, name, "toys:busy", {}, settings, config, toys.busy()), False)


@pytest.mark.parametrize("name", quick([*OFF_POLICY, "mappo+iql", "mappo"], "qmix", "mappo+iql", "mappo"))
def test_an_algorithm_is_made_for_the_updates_that_are_made(name: str, tmp_path: Path, scales: list[Scale]) -> None:
    trainer_of(name, tmp_path)
    assert scales[-1] == Scale(E, T, UPDATES if name == "mappo" else LEARNING)


def test_epsilon_and_the_rate_arrive_with_the_last_update(tmp_path: Path, scales: list[Scale]) -> None:
    trainer = trainer_of("iql", tmp_path)
    assert trainer.run()
    assert trainer.state.learner.updates.tolist() == [scales[-1].num_updates] == [LEARNING]
    np.testing.assert_allclose(trainer.state.learner.policy.epsilon, 0.2, rtol=1e-6)  # ε of a run's end

    longer = replace(SETTINGS, steps=480.0)  # as when it is resumed with more steps
    trainer_of("iql", tmp_path, longer)
    assert scales[-1].num_updates == LEARNING + UPDATES


@pytest.mark.parametrize(
    ("warm_up", "length", "envs"),
    [(0, 1, 3), (1, 1, 3), (18, 1, 3), (19, 1, 3), (40, 1, 3), (0, 6, 3), (0, 7, 3), (10, 15, 3), (50, 4, 2)],
)
def test_the_wait_is_as_long_as_the_buffer_takes(warm_up: int, length: int, envs: int) -> None:
    replay = Replay(
        keep=lambda traj: traj.action, capacity=60 * envs, warm_up=warm_up, draws=1, batch=2, length=length, period=1
    )
    zeros = jnp.zeros((T, envs))
    rows = Step(*(zeros for _ in Step._fields))
    traj = Trajectory(rows, zeros, {}, rows, ())
    fed = feed.make_feed(replay, traj, envs, 1)
    state, stored = fed.init(), 0
    assert fed.ready is not None
    while not fed.ready(state):
        state, stored = fed.put(state, traj), stored + 1
    assert feed.updates_before_learning(replay, envs, T) == stored - 1


def test_several_buffers_wait_for_the_last_and_on_policy_for_none() -> None:
    small = Replay(lambda traj: traj.action, capacity=600, warm_up=10, draws=1, batch=2, length=1, period=1)
    assert feed.updates_before_learning((small, small._replace(warm_up=100)), E, T) == 4
    assert feed.updates_before_learning((), E, T) == 0
