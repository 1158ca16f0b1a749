"""``rware/…``: the backends that wrap a library against it, step by step; ends told from time limits."""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters import rware
from shoal.errors import InputError
from shoal.game import HostEnvironment, blank, own_actions, refresh
from shoal.types import Environment
from support.environments import device_env, host_env

CROWDED = "tiny-6ag"
"""So many robots that two soon collide."""
HORIZON = 12


@pytest.fixture(scope="module")
def device() -> Environment:
    pytest.importorskip("jumanji")
    env = device_env(f"rware/{CROWDED}", backend="jumanji", horizon=HORIZON)
    assert isinstance(env, Environment)
    return dataclasses.replace(env, reset=jax.jit(env.reset), step=jax.jit(env.step))


def test_a_device_episode_is_jumanjis_but_for_the_time_limit(device: Environment):
    from jumanji.environments.routing.robot_warehouse.env import RobotWarehouse
    from jumanji.environments.routing.robot_warehouse.generator import RandomGenerator

    raw = RobotWarehouse(RandomGenerator(1, 3, 8, 6, 1, 6), time_limit=HORIZON)
    step = jax.jit(raw.step)
    rng = np.random.default_rng(0)
    ends = set()
    for seed in range(8):
        key = jax.random.key(seed)
        state, seen = device.reset(key)
        theirs = state
        assert bool(seen.first) and not seen.last and np.asarray(seen.discount).all()
        steps = 0
        while not seen.last:
            forward = rng.random(6) < 0.7
            action = np.where(np.asarray(seen.legal)[:, 1] & forward, 1, rng.integers(2, 4, 6)).astype(np.int32)
            theirs, timestep = step(theirs, action)
            state, seen = device.step(key, state, jnp.asarray(action))
            steps += 1
            view = np.asarray(timestep.observation.agents_view)
            np.testing.assert_array_equal(seen.obs, view)
            np.testing.assert_array_equal(seen.state, view.reshape(-1))
            np.testing.assert_array_equal(seen.legal, timestep.observation.action_mask)
            np.testing.assert_array_equal(seen.reward, np.full(6, timestep.reward))
            assert bool(seen.last) == bool(timestep.last())
        stands = np.asarray(state.grid)[1, state.agents.position.x, state.agents.position.y]
        collided = bool((stands != np.arange(1, 7)).any())  # someone else's number lies where a robot is
        assert timestep.discount == 0.0  # Jumanji says so of a collision and of the time limit alike
        np.testing.assert_array_equal(seen.discount, 0.0 if collided else 1.0)
        assert collided or steps == HORIZON
        ends.add(collided)
    assert ends == {True, False}, "both a collision and a time limit must have been seen"


def test_a_delivery_is_worth_one_to_everyone_on_the_device(device: Environment):
    state, _ = device.reset(jax.random.key(0))
    row, column, shelf = 10, 4, int(state.request_queue[0])  # one of the two goals
    spot, stand = state.agents.position, state.shelves.position
    grid = state.grid.at[1, spot.x[0], spot.y[0]].set(0).at[1, row, column].set(1)
    grid = grid.at[0, stand.x[shelf], stand.y[shelf]].set(0).at[0, row, column].set(shelf + 1)
    spot = spot._replace(x=spot.x.at[0].set(row), y=spot.y.at[0].set(column))
    stand = stand._replace(x=stand.x.at[shelf].set(row), y=stand.y.at[shelf].set(column))
    agents = state.agents._replace(position=spot, is_carrying=state.agents.is_carrying.at[0].set(1))
    state = state.replace(agents=agents, shelves=state.shelves._replace(position=stand), grid=grid)
    _, seen = device.step(jax.random.key(0), state, jnp.zeros(6, jnp.int32))
    np.testing.assert_array_equal(seen.reward, np.ones(6))


def test_the_device_backend_keeps_its_promises(device: Environment):
    registry.validate(device)
    large = device_env("rware/rware-small-4ag-hard-v2", backend="jumanji")
    registry.validate(large)
    assert large.spec.name == "rware/small-4ag-hard" and large.spec.horizon == 500
    assert large.spec.shared_reward and large.spec.score == "mean"
    hash(large.spec)


def host(task: str = "tiny-2ag", **options) -> HostEnvironment:
    pytest.importorskip("rware")
    env = host_env(f"rware/{task}", backend="host", **options)
    assert isinstance(env, HostEnvironment)
    return env


def original(robots: int, horizon: int):
    from rware.warehouse import RewardType, Warehouse

    return Warehouse(3, 8, 1, robots, 0, 1, robots, None, horizon, RewardType.INDIVIDUAL)


def deliver(env, robot: int) -> None:
    """Put a robot on a goal with a requested shelf, so that the next step delivers it."""
    agent, shelf = env.agents[robot], env.request_queue[0]
    agent.x, agent.y = env.goals[0]
    shelf.x, shelf.y = env.goals[0]
    agent.carrying_shelf = shelf
    env._recalc_grid()


def test_a_host_episode_is_rwares_but_for_the_time_limit():
    env, raw = host("tiny-3ag", horizon=30), original(3, 30)
    game, own, out = env.make(), own_actions(env.spec), blank(env.spec)
    rng = np.random.default_rng(0)
    earned = 0.0
    for seed in (3, 4):
        observations: Any = raw.reset(seed=seed)[0]
        refresh(out, own)
        game.reset(seed, out)
        over = False
        while not over:
            np.testing.assert_array_equal(out.obs, observations)
            np.testing.assert_array_equal(out.state, np.concatenate(list(observations)))
            assert out.legal.all() and not out.last
            action = rng.integers(0, 5, 3).astype(np.int32)
            if rng.random() < 0.2:
                action[1] = 0
                deliver(raw, 1)
                deliver(game._env, 1)  # pyright: ignore[reportAttributeAccessIssue]
            observations, rewards, over, _, _ = raw.step(action.tolist())
            refresh(out, own)
            game.step(action, out)
            np.testing.assert_array_equal(out.reward, np.full(3, sum(rewards)))
            earned += sum(rewards)
        np.testing.assert_array_equal(out.obs, observations)
        assert out.last and out.discount.all()  # rware says terminated
    assert earned > 0, "a delivery must have been seen"


def test_individual_rewards_on_the_host():
    env = host(reward="individual")
    assert not env.spec.shared_reward and env.spec.score == "sum"
    game, out = env.make(), blank(env.spec)
    game.reset(0, out)
    deliver(game._env, 1)  # pyright: ignore[reportAttributeAccessIssue]
    refresh(out, own_actions(env.spec))
    game.step(np.zeros(2, np.int32), out)
    np.testing.assert_array_equal(out.reward, [0.0, 1.0])


def test_names_say_what_is_played():
    assert rware.parse_rware_task("tiny-2ag") == ("tiny-2ag", 1, 3, 2, 2, 0)
    assert rware.parse_rware_task("rware-2color-tiny-4ag-v1") == ("2color-tiny-4ag", 1, 3, 4, 4, 2)
    assert rware.parse_rware_task("rware-medium-5ag-hard-v2") == ("medium-5ag-hard", 2, 5, 5, 2, 0)
    assert rware.parse_rware_task("large-4ag-easy") == ("large-4ag-easy", 3, 5, 4, 8, 0)


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("huge-2ag", {}, "no warehouse task"),
        ("tiny-0ag", {}, "needs 1 to 19 robots"),
        ("tiny-1ag-hard", {}, "from 1 to 31 requested shelves"),
        ("tiny-19ag-easy", {}, "from 1 to 31 requested shelves"),
        ("tiny-2ag", {"horizon": 0}, "horizon must be"),
        ("tiny-2ag", {"reward": "individual", "backend": "jumanji"}, "set backend='device' or backend='host'"),
        ("5color-tiny-4ag", {}, "needs 1 to 4 colours"),
        ("3color-tiny-2ag", {}, "at least 3 robots"),
        ("2colour-tiny-4ag", {}, "2color-tiny-4ag"),
        ("tiny-2ag", {"backend": "jumanji", "horizon": 2**31 - 1}, "horizon must be at most"),
        ("2color-tiny-4ag", {"backend": "jumanji"}, "only backend='device' has"),
        ("2color-tiny-4ag", {"backend": "host"}, "only backend='device' has"),
    ],
)
def test_a_wrong_request_is_one_sentence(task, options, said):
    with pytest.raises(InputError, match=said):
        registry.make(f"rware/{task}", **options)


@pytest.mark.parametrize(("backend", "library"), [("jumanji", "jumanji"), ("host", "rware")])
def test_a_missing_library_names_its_extra(monkeypatch, backend, library):
    for module in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"needs {library}: pip install 'jumanji>="):
        registry.make("rware/tiny-2ag", backend=backend)
