import numpy as np
import pytest

pytest.importorskip("Box2D")
pytest.importorskip("pymunk")
multiwalker = pytest.importorskip("pettingzoo.sisl.multiwalker_v9")

from shoal.environments import registry  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402


def play(options, seed, steps=150):
    """What Shoal and the package give, moment by moment."""
    env = registry.make("pettingzoo:sisl.multiwalker_v9", **options)
    assert isinstance(env, HostEnvironment)
    raw = multiwalker.parallel_env(**{"shared_reward": False, **options})
    game, moment, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(moment, own)
    game.reset(seed, moment)
    seen, _ = raw.reset(seed=seed)
    yield env, raw, moment, seen, {}, {}
    rng = np.random.default_rng(0)
    for _ in range(steps):
        action = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
        refresh(moment, own)
        sent = {a: action[i] for i, a in enumerate(raw.possible_agents) if a in raw.agents}
        game.step(action, moment)
        seen, rewards, ended, _, _ = raw.step(sent)
        yield env, raw, moment, seen, rewards, ended
        if not raw.agents:
            return


def test_walkers_fall_one_by_one():
    fallen = False
    for env, raw, moment, seen, rewards, ended in play({"terminate_on_fall": False}, seed=0):
        assert env.spec.horizon == 500
        assert moment.last == (not raw.agents)
        for i, agent in enumerate(raw.possible_agents):
            assert moment.reward[i] == np.float32(rewards.get(agent, 0.0))
            if agent in raw.agents:
                np.testing.assert_array_equal(moment.obs[i], seen[agent])
            if not moment.last:
                assert moment.alive[i] == (agent in raw.agents)
            assert (moment.discount[i] == 0) == (moment.last or ended.get(agent, False))
        fallen = fallen or (0 < len(raw.agents) < 3)
    assert fallen


def test_the_clock_is_no_termination():
    said = []
    for _, _, moment, _, _, ended in play({"max_cycles": 5, "remove_on_fall": False}, seed=0):
        assert moment.discount.all()
        said.append((bool(moment.last), any(ended.values())))
    assert said == [(False, False)] * 5 + [(True, True)]  # the package calls it a termination


def test_a_shared_reward_is_the_packages_own():
    raw = multiwalker.parallel_env(shared_reward=True)
    env = registry.make("pettingzoo:sisl.multiwalker_v9", shared_reward=True)
    assert isinstance(env, HostEnvironment) and env.spec.shared_reward
    game, moment, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(moment, own)
    game.reset(0, moment)
    raw.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
        refresh(moment, own)
        game.step(action, moment)
        _, rewards, *_ = raw.step(dict(zip(raw.possible_agents, action, strict=True)))
        np.testing.assert_allclose(moment.reward, list(rewards.values()), rtol=1e-6, atol=1e-7)
