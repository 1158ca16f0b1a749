"""MA-MuJoCo beside gymnasium-robotics' own environment: the same numbers, step by step."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.environments import registry
from shoal.environments.adapters import mamujoco
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from shoal.spec import Box
from support.environments import host_env

pytest.importorskip("gymnasium_robotics")

# task, the package's robot, its number of agents, state and widest observation with agent_obsk=1.
TASKS = [
    ("Ant-2x4", "Ant", 2, 105, 63),
    ("Ant-4x2", "Ant", 4, 105, 42),
    ("Ant-8x1", "Ant", 8, 105, 32),
    ("HalfCheetah-2x3", "HalfCheetah", 2, 17, 12),
    ("HalfCheetah-3x2", "HalfCheetah", 3, 17, 12),
    ("HalfCheetah-6x1", "HalfCheetah", 6, 17, 9),
    ("Walker-2x3", "Walker2d", 2, 17, 12),
    ("Walker2d-3x2", "Walker2d", 3, 17, 12),
    ("Walker-6x1", "Walker2d", 6, 17, 9),
    ("Humanoid-17x1", "Humanoid", 17, 348, 92),
    ("HumanoidStandup-17x1", "HumanoidStandup", 17, 348, 92),
    ("Swimmer-10x2", "ManySegmentSwimmer", 10, 44, 6),
]


def start(task: str, seed: int = 3, **options):
    """A game, its timesteps of the start of an episode, and a source of random actions."""
    environment = registry.make(f"mamujoco/{task}", **options)
    assert isinstance(environment, HostEnvironment)
    game: Any = pickle.loads(pickle.dumps(environment.make))()
    spec = game.spec
    assert isinstance(spec.action, Box)
    assert spec == environment.spec
    out = blank(spec)
    refresh(out, own_actions(spec))
    game.reset(seed, out)
    rng = np.random.default_rng(0)

    def draw() -> np.ndarray:
        return rng.uniform(spec.action.low, spec.action.high, (spec.num_agents, spec.action.dim)).astype(np.float32)

    return game, out, draw


def check(spec, out: HostTimestep, observations: dict, state: np.ndarray) -> None:
    """The timestep holds the original's observations, padded with zeros, and its state."""
    for i, agent in enumerate(spec.agents):
        width = spec.obs_dims[i]
        assert observations[agent].shape == (width,)
        np.testing.assert_array_equal(out.obs[i, :width], observations[agent].astype(np.float32))
        assert not out.obs[i, width:].any()
    np.testing.assert_array_equal(out.state, state.astype(np.float32))


def beside(task: str, robot: str, parts: str, steps: int, agent_obsk: int | None = 1) -> int:
    """Play ``steps`` in both and compare; the number of terminations on the way."""
    game, out, draw = start(task, agent_obsk=agent_obsk)
    spec = game.spec
    theirs = mamujoco.original(robot, parts, agent_obsk)
    observations, _ = theirs.reset(seed=3)
    check(spec, out, observations, theirs.state())
    ended = 0
    for step in range(steps):
        action = draw()
        refresh(out, own_actions(spec))
        game.step(action, out)
        own = {agent: action[i, : spec.action_dims[i]] for i, agent in enumerate(spec.agents)}
        observations, rewards, terminated, truncated, _ = theirs.step(own)
        check(spec, out, observations, theirs.state())
        for i, agent in enumerate(spec.agents):
            assert out.reward[i] == np.float32(rewards[agent])
            assert out.discount[i] == (0.0 if terminated[agent] else 1.0)
            assert out.last == (terminated[agent] or truncated[agent])
        assert out.alive.all()
        np.testing.assert_array_equal(out.legal, own_actions(spec))
        if out.last:
            ended += bool(terminated[spec.agents[0]])
            refresh(out, own_actions(spec))
            game.reset(step, out)
            observations, _ = theirs.reset(seed=step)
            check(spec, out, observations, theirs.state())
    theirs.close()
    game.close()
    return ended


@pytest.mark.parametrize(("task", "robot", "agents", "state", "widest"), TASKS, ids=[row[0] for row in TASKS])
def test_tasks_of_the_papers(task: str, robot: str, agents: int, state: int, widest: int):
    spec = registry.make(f"mamujoco/{task}").spec
    each = int(task.partition("x")[2])
    assert (spec.name, spec.num_agents, spec.state_dim, spec.obs_dim) == (f"mamujoco/{task}", agents, state, widest)
    assert spec.action_dims == (each,) * agents
    assert isinstance(spec.action, Box)
    assert spec.action.high == -spec.action.low == pytest.approx(0.4 if "Humanoid" in robot else 1.0)
    assert spec.horizon == 1000
    assert spec.shared_reward and spec.score == "mean"
    assert len(set(spec.roles)) == agents
    beside(task, robot, task.partition("-")[2], 4)


@pytest.mark.parametrize("agent_obsk", [0, 1, 2, None])
def test_a_walker_that_falls_terminates(agent_obsk: int | None):
    """Long enough for speeds that its state clips and its agents see unclipped."""
    assert beside("Walker-2x3", "Walker2d", "2x3", 60, agent_obsk) >= 1


@pytest.mark.parametrize(
    ("task", "robot", "parts"),
    [
        ("Ant-4x2", "Ant", "4x2"),
        ("Ant-2x4d", "Ant", "2x4d"),
        ("Humanoid-9|8", "Humanoid", "9|8"),
        ("Hopper-3x1", "Hopper", "3x1"),
        ("Pusher-3p", "Pusher", "3p"),
        ("Reacher-2x1", "Reacher", "2x1"),
        ("Swimmer-2x1", "Swimmer", "2x1"),
        ("ManySegmentAnt-2x2", "ManySegmentAnt", "2x2"),
    ],
)
def test_named_sharings(task: str, robot: str, parts: str):
    beside(task, robot, parts, 30)


def test_the_papers_tasks_are_gathered_from_the_state():
    """And not listed joint by joint in Python, which takes up to twice as long as the whole step."""
    assert all(start(task)[0]._where is not None for task, *_ in TASKS)


def test_no_two_joints_of_the_pusher_share_a_label():
    """The package sorts a set of joints by label, and puts those of one label in a different order in each process."""
    parts = mamujoco.original("Pusher", "3p", 1).agent_action_partitions
    assert len({joint.label for part in parts for joint in part}) == 7


def test_unnamed_sharing_takes_joints_in_order():
    """Each agent's action reaches its own motors: those of the cheetah, from the back thigh to the front foot."""
    game, out, _ = start("HalfCheetah-3x2")
    moved = []
    game._body.step, simulate = lambda torque: moved.append(torque.copy()) or simulate(torque), game._body.step
    game.step(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32), out)
    np.testing.assert_allclose(moved[0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], rtol=1e-6)


def test_time_limit_is_no_termination():
    game, out, draw = start("HalfCheetah-2x3")
    own = own_actions(game.spec)
    action = draw()
    for _ in range(999):
        refresh(out, own)
        game.step(action, out)
        assert not out.last
    refresh(out, own)
    game.step(action, out)
    assert out.last and out.discount.all()
    refresh(out, own)
    game.reset(5, out)
    game.step(action, out)
    assert not out.last


def test_an_episode_depends_on_its_seed_alone():
    game, first, draw = start("Ant-4x2", seed=8)
    action = draw()
    game.step(action, first)
    later = blank(game.spec)
    for seed, same in ((9, False), (8, True)):
        game.reset(seed, later)
        game.step(action, later)
        assert np.array_equal(first.obs, later.obs) is same
        assert np.array_equal(first.reward, later.reward) is same


def test_no_observation_depth_is_one_agent():
    spec = registry.make("mamujoco/Ant-4x2", agent_obsk=None).spec
    assert (spec.num_agents, spec.obs_dims, spec.action_dims) == (1, (105,), (8,))


def test_neighbours_are_seen_by_depth():
    widths = [registry.make("mamujoco/HalfCheetah-2x3", agent_obsk=depth).spec.obs_dims for depth in (0, 1, 2)]
    assert widths == [(11, 11), (12, 12), (13, 13)]


def test_all_agents_may_observe_the_whole_robot():
    """As in HARL's code, apart from its number of the agent and its norm."""
    game, out, draw = start("Walker-2x3", full_observation=True)
    theirs = mamujoco.original("Walker2d", "2x3", 1)
    theirs.reset(seed=3)
    for _ in range(30):
        np.testing.assert_array_equal(out.obs, np.tile(theirs.state().astype(np.float32), (2, 1)))
        action = draw()
        game.step(action, out)
        theirs.step(dict(zip(game.spec.agents, action, strict=True)))
    assert game.spec.obs_dims == (17, 17) and game.spec.novel == ()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Ants-4x2", "'Ant'"),
        ("Ant-3x2", "2x4, 2x4d, 4x2, 8x1"),
        ("Ant", "8 joints"),
        ("Humanoid-2x8", "9|8, 17x1"),
        ("ManySegmentSwimmer-ten", "NxM"),
    ],
)
def test_unknown_tasks_are_refused(task: str, said: str):
    with pytest.raises(InputError, match=said.replace("|", r"\|")):
        registry.make(f"mamujoco/{task}")


@pytest.mark.parametrize("depth", [-1, 1.5, "1", True])
def test_a_depth_that_is_no_count_is_refused(depth: Any, unchecked_annotations: None):
    del unchecked_annotations
    with pytest.raises(InputError, match="agent_obsk must be an integer of at least 0, not"):
        registry.make("mamujoco/Ant-4x2", agent_obsk=depth)


def test_building_prints_no_warnings_of_mujoco(capfd, tmp_path, monkeypatch):
    """MuJoCo warns of the cheetah's model file, on the terminal and in a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    registry.make("mamujoco/HalfCheetah-2x3")
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(InputError, match=r"pip install 'gymnasium-robotics>="):
        registry.make("mamujoco/Ant-4x2")


def test_the_camera_follows_the_robot(monkeypatch):
    """One that stands still shows an empty floor once the ant has learned to walk."""
    game: Any = host_env("mamujoco/Ant-4x2").make()
    renderer, model = game._body.unwrapped.mujoco_renderer, game._body.unwrapped.model
    looks: list[int] = []
    monkeypatch.setattr(game._body, "render", lambda: looks.append(renderer.camera_id))
    assert renderer.camera_id == -1 and game.render() is None
    assert [model.camera(i).name for i in looks] == ["track"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["happo", "mappo"])
@pytest.mark.parametrize("task", [row[0] for row in TASKS])
def test_the_papers_tasks_train(task: str, algorithm: str, tmp_path: Path):
    """An update with the preset's nets and a rollout of a few steps."""
    settings: dict[str, Any] = {"steps": 40, "num_envs": 4, "rollout_length": 10, "epochs": 1, "eval_episodes": 0}
    run = shoal.train(algorithm, f"mamujoco/{task}", folder=tmp_path / "run", num_workers=0, **settings)
    assert run.last_step == 40 and run.spec.num_agents == int(task.partition("-")[2].partition("x")[0])
