import subprocess
import sys

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from shoal.environments import registry  # noqa: E402
from shoal.errors import InputError  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402
from shoal.spec import Box, Discrete  # noqa: E402


def made(name, **options) -> HostEnvironment:
    env = registry.make(name, **options)
    assert isinstance(env, HostEnvironment)
    return env


def started(env: HostEnvironment, seed: int = 0):
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(seed, timestep)

    def step(action):
        refresh(timestep, own)
        game.step(np.asarray(action), timestep)

    return timestep, step, game


@pytest.mark.parametrize(
    ("task", "action", "horizon"),
    [
        ("LunarLander-v3", Discrete(4), 1000),
        ("CartPole-v1", Discrete(2), 500),
        ("Pendulum-v1", Box(1, -2.0, 2.0), 200),
    ],
)
def test_an_environment_is_gymnasiums_own(task, action, horizon):
    if task.startswith("Lunar"):
        pytest.importorskip("Box2D")
    env, raw = made(f"gymnasium:{task}"), gymnasium.make(task)
    assert (env.spec.action, env.spec.horizon, env.spec.score) == (action, horizon, "mean")
    timestep, step, _ = started(env, seed=11)
    seen, _ = raw.reset(seed=11)
    rng = np.random.default_rng(0)
    reward, over, cut = 0.0, False, False
    while True:
        np.testing.assert_array_equal(timestep.obs[0], seen)
        np.testing.assert_array_equal(timestep.state, seen)
        assert timestep.reward[0] == np.float32(reward)
        assert timestep.last == (over or cut)
        assert timestep.discount[0] == (0.0 if over else 1.0)
        if over or cut:
            break
        if isinstance(action, Box):
            joint = rng.uniform(-2, 2, (1, 1)).astype(np.float32)
            sent = joint[0]
        else:
            joint = rng.integers(0, action.n, 1, np.int32)
            sent = int(joint[0])
        step(joint)
        seen, reward, over, cut, _ = raw.step(sent)


def test_a_mask_in_the_info_gives_the_legal_actions():
    env = made("gymnasium:Taxi-v4")
    timestep, _, _ = started(env, seed=3)
    mask = gymnasium.make("Taxi-v4").reset(seed=3)[1]["action_mask"]
    assert not mask.all()
    np.testing.assert_array_equal(timestep.legal[0], mask.astype(bool))
    assert timestep.obs.sum() == 1


def test_a_time_limit_is_no_termination():
    env = made("gymnasium:CartPole-v1", time_limit=3)
    assert env.spec.horizon == 3
    timestep, step, _ = started(env)
    for t in range(3):
        step(np.array([t % 2], np.int32))
        assert timestep.last == (t == 2)
    assert timestep.discount[0] == 1


def test_render_returns_the_frames_of_the_environment():
    pytest.importorskip("pygame")
    env = made("gymnasium:CartPole-v1")
    game, timestep = env.make(render=True), blank(env.spec)
    game.reset(0, timestep)
    picture = game.render()
    assert picture is not None
    assert picture.shape == (400, 600, 3)
    game.close()


class Plain:
    """Gymnasium's interface without its base class, and so without ``unwrapped``."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1), {}

    def step(self, action):
        return np.zeros(1), 0.0, True, False, {}

    def render(self):
        return np.full((4, 5, 3), 7, np.uint8)

    def close(self):
        pass


def test_an_environment_without_gymnasiums_base_class_is_drawn():
    game = made(Plain).make(render=True)
    game.reset(0, blank(game.spec))
    picture = game.render()
    assert picture is not None and picture.shape == (4, 5, 3)


class Transparent(Plain):
    def render(self):
        return np.full((4, 5, 4), [1, 2, 3, 255], np.uint8)  # as the canvas of Matplotlib gives it


def test_a_picture_with_transparency_is_drawn_without():
    game = made(Transparent).make(render=True)
    picture = game.render()
    assert picture is not None and picture.shape == (4, 5, 3) and (picture == [1, 2, 3]).all()


class Foragers(gymnasium.Env):
    """Two agents in Tuples; the first ends on step 2, the second on step 3."""

    def __init__(self, separate: bool = True):
        self.separate = separate
        self.observation_space = spaces.Tuple((spaces.Box(0, 9, (2,)), spaces.Box(0, 9, (3,))))
        self.action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(4)))

    def _seen(self):
        return tuple(np.full(2 + i, self.time + i, np.float32) for i in range(2))

    def reset(self, *, seed=None, options=None):
        self.time = 1
        return self._seen(), {}

    def step(self, action):
        assert action == (1, 3)
        self.time += 1
        over = [self.time >= 3, self.time >= 4] if self.separate else self.time >= 4
        return self._seen(), [1.0, 2.0], over, False, {}


def test_a_tuple_of_spaces_is_a_team():
    env = made(Foragers)
    assert env.spec.agents == ("agent_0", "agent_1")
    assert (env.spec.obs_dims, env.spec.action_dims, env.spec.roles) == ((2, 3), (2, 4), (0, 1))
    timestep, step, _ = started(env)
    np.testing.assert_array_equal(timestep.obs, [[1, 1, 0], [2, 2, 2]])
    np.testing.assert_array_equal(timestep.state, [1, 1, 2, 2, 2])
    rows = []
    for t in range(3):
        step(np.array([1, 3], np.int32))
        rows.append(
            (timestep.alive.tolist(), timestep.discount.tolist(), timestep.reward.tolist(), bool(timestep.last))
        )
        seen = np.concatenate([np.full(2, timestep.alive[0] * (t + 2)), np.full(3, t + 3)])
        np.testing.assert_array_equal(timestep.state, seen)
        np.testing.assert_array_equal(timestep.obs, [[*seen[:2], 0], seen[2:]])
    assert rows == [
        ([True, True], [1, 1], [1, 2], False),
        ([False, True], [0, 1], [1, 2], False),
        ([False, True], [0, 0], [0, 2], True),
    ]


def test_a_tuple_team_ends_when_one_flag_is_set():
    timestep, step, _ = started(made(Foragers, separate=False))
    for _ in range(3):
        step(np.array([1, 3], np.int32))
    assert timestep.last
    assert timestep.alive.all()
    assert not timestep.discount.any()


class Unbounded(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (Unbounded, {}, "finite bounds"),
        ("gymnasium:Nothing-v0", {}, "Nothing"),
        ("gymnasium:CartPole-v1", {"weight": 1}, "weight"),
        ("gymnasium:CartPole-v1", {"time_limit": 0}, "time_limit"),
    ],
)
def test_impossible_options_are_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        registry.make(name, **options)


def test_a_missing_package_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(InputError, match=r"pip install 'gymnasium[^']*>="):
        registry.make("gymnasium:CartPole-v1")


def test_a_package_that_a_task_lacks_is_named_as_gymnasium_does(monkeypatch):
    def entry():
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run `pip install 'gymnasium[box2d]'`")

    monkeypatch.setitem(gymnasium.registry, "Lacking-v0", gymnasium.envs.registration.EnvSpec("Lacking-v0", entry))
    said = r"gymnasium:Lacking-v0 needs more than is installed: Box2D is not installed, run `pip [^`]*`\."
    with pytest.raises(InputError, match=f"^{said}$"):
        registry.make("gymnasium:Lacking-v0")


def test_workers_need_no_jax():
    names = ("spaces", "teams", "pettingzoo", "gymnasium", "foreign")
    lines = [f"import shoal.environments.adapters.{name}" for name in names]
    lines.append("import sys; assert not {'jax', 'gymnasium', 'pettingzoo'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
