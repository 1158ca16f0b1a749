import numpy as np
import pytest

pytest.importorskip("Box2D")
multiwalker = pytest.importorskip("pettingzoo.sisl.multiwalker_v9")

from shoal.environments import registry  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402


def play(options, seed, steps=150):
    """What Shoal and the package give at each timestep."""
    env = registry.make("pettingzoo:sisl.multiwalker_v9", **options)
    assert isinstance(env, HostEnvironment)
    raw = multiwalker.parallel_env(**{"shared_reward": False, **options})
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(seed, timestep)
    seen, _ = raw.reset(seed=seed)
    yield env, raw, timestep, seen, {}, {}
    rng = np.random.default_rng(0)
    for _ in range(steps):
        action = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
        refresh(timestep, own)
        sent = {a: action[i] for i, a in enumerate(raw.possible_agents) if a in raw.agents}
        game.step(action, timestep)
        seen, rewards, ended, _, _ = raw.step(sent)
        yield env, raw, timestep, seen, rewards, ended
        if not raw.agents:
            return


def test_walkers_that_fall_leave_one_at_a_time():
    fallen = False
    for env, raw, timestep, seen, rewards, ended in play({"terminate_on_fall": False}, seed=0):
        assert env.spec.horizon == 500
        assert timestep.last == (not raw.agents)
        for i, agent in enumerate(raw.possible_agents):
            assert timestep.reward[i] == np.float32(rewards.get(agent, 0.0))
            if agent in raw.agents:
                np.testing.assert_array_equal(timestep.obs[i], seen[agent])
            if not timestep.last:
                assert timestep.alive[i] == (agent in raw.agents)
            assert (timestep.discount[i] == 0) == (timestep.last or ended.get(agent, False))
        fallen = fallen or (0 < len(raw.agents) < 3)
    assert fallen


def test_the_clock_is_no_termination():
    said = []
    for _, _, timestep, _, _, ended in play({"max_cycles": 5, "remove_on_fall": False}, seed=0):
        assert timestep.discount.all()
        said.append((bool(timestep.last), any(ended.values())))
    assert said == [(False, False)] * 5 + [(True, True)]  # the package calls it a termination


def test_a_shared_reward_is_the_packages_own():
    raw = multiwalker.parallel_env(shared_reward=True)
    env = registry.make("pettingzoo:sisl.multiwalker_v9", shared_reward=True)
    assert isinstance(env, HostEnvironment) and env.spec.shared_reward
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(0, timestep)
    raw.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
        refresh(timestep, own)
        game.step(action, timestep)
        _, rewards, *_ = raw.step(dict(zip(raw.possible_agents, action, strict=True)))
        np.testing.assert_allclose(timestep.reward, list(rewards.values()), rtol=1e-6, atol=1e-7)
