"""``lbf/…``: both backends against the libraries they wrap, step by step; ends told from time limits."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters import lbf
from shoal.environments.options import check_choice
from shoal.errors import InputError
from shoal.game import HostEnvironment, blank, own_actions, refresh
from shoal.types import Environment
from support.environments import device_env, host_env

SMALL = "5x5-2p-1f-coop"
LOAD = 5


def choose(rng: np.random.Generator, legal: np.ndarray) -> np.ndarray:
    """A random legal action for each player, who loads wherever possible."""
    return np.array([LOAD if row[LOAD] else rng.choice(np.flatnonzero(row)) for row in legal], np.int32)


# --- the device ----------------------------------------


@pytest.fixture(scope="module")
def device() -> Environment:
    pytest.importorskip("jumanji")
    env = device_env(f"lbf/{SMALL}", horizon=30)
    assert isinstance(env, Environment)
    return dataclasses.replace(env, reset=jax.jit(env.reset), step=jax.jit(env.step))


def test_a_device_episode_is_jumanjis_step_by_step(device: Environment):
    from jumanji.environments.routing.lbf.env import LevelBasedForaging

    raw = LevelBasedForaging(lbf.Starts(lbf.parse_lbf_task(SMALL)), time_limit=30)  # pyright: ignore[reportArgumentType]
    reset, step = jax.jit(raw.reset), jax.jit(raw.step)
    rng = np.random.default_rng(0)
    ends = set()
    for seed in range(16):
        key = jax.random.key(seed)
        theirs, timestep = reset(key)
        ours, seen = device.reset(key)
        assert bool(seen.first) and not seen.last and not np.asarray(seen.reward).any()
        earned = np.zeros(2)
        while True:
            view = np.asarray(timestep.observation.agents_view)
            np.testing.assert_array_equal(seen.obs, view)
            np.testing.assert_array_equal(seen.state, view.reshape(-1))
            np.testing.assert_array_equal(seen.legal, timestep.observation.action_mask)
            np.testing.assert_array_equal(seen.discount, timestep.discount)
            if not seen.first:
                share = float(timestep.extras["percent_eaten"]) / 100
                np.testing.assert_allclose(seen.metrics, [share == 1, share], rtol=1e-6)
            assert bool(seen.last) == bool(timestep.last())
            if seen.last:
                break
            action = choose(rng, np.asarray(seen.legal))
            theirs, timestep = step(theirs, action)
            ours, seen = device.step(key, ours, jnp.asarray(action))
            np.testing.assert_allclose(seen.reward, np.full(2, timestep.reward.sum()), atol=1e-7)
            assert not seen.first
            earned += np.asarray(seen.reward)
        ended = not np.asarray(seen.discount).any()
        np.testing.assert_allclose(earned, float(ended), atol=1e-6)  # all the food is worth 1 to the team
        ends.add(ended)
    assert ends == {True, False}, "both an end and a time limit must have been seen"


@pytest.mark.parametrize("task", ["8x8-2p-2f", "7x7-3p-2f-coop"])
def test_episodes_start_as_lbforagings_do(task: str):
    """Rows of foods and of players, and levels of foods, have the same distribution, and no two foods one loader."""
    pytest.importorskip("jumanji")
    pytest.importorskip("lbforaging")
    from lbforaging.foraging import ForagingEnv

    parsed, count = lbf.parse_lbf_task(task), 1500
    state = jax.jit(jax.vmap(lbf.Starts(parsed)))(jax.random.split(jax.random.key(0), count))
    ours = [np.asarray(x) for x in (state.food_items.position, state.food_items.level, state.agents.position)]
    raw = ForagingEnv(parsed.players, 1, 2, 1, None, (parsed.side,) * 2, parsed.foods, parsed.side, 50, parsed.coop)
    theirs = [np.zeros_like(x) for x in ours]
    for episode in range(count):
        for player in raw.players:
            player.position = None
        raw.reset(seed=episode)
        theirs[0][episode] = np.argwhere(raw.field)
        theirs[1][episode] = raw.field[raw.field > 0]
        theirs[2][episode] = [player.position for player in raw.players]
    for mine, other in zip(ours, theirs, strict=True):
        high = int(max(mine.max(), other.max())) + 1
        rows = [x[..., 0] if x.ndim == 3 else x for x in (mine, other)]
        one, two = (np.bincount(x.ravel(), minlength=high) / x.size for x in rows)
        # Four standard errors of the difference, if an episode's numbers counted as one.
        assert (np.abs(one - two) < 4 * np.sqrt((one + two) * (2 - one - two) / (2 * count)) + 1e-3).all(), (one, two)
    foods, players = ours[0], ours[2]
    distance = np.abs(foods[:, :, None] - foods[:, None])[:, *np.triu_indices(parsed.foods, 1)]
    assert (distance.sum(-1) > 2).all()  # nobody stands beside two foods
    assert foods.min() == 1 and foods.max() == parsed.side - 2
    assert (foods[:, :, None] != players[:, None]).any(-1).all()
    assert players.min() == 0 and players.max() == parsed.side - 1
    apart = np.abs(players[:, :, None] - players[:, None])[:, *np.triu_indices(parsed.players, 1)]
    assert (apart.sum(-1) > 0).all()


def test_a_full_field_has_all_its_foods_and_players():
    pytest.importorskip("jumanji")
    assert lbf.make("8x8-58p-6f").spec.num_agents == 58
    state = jax.jit(jax.vmap(lbf.Starts(lbf.parse_lbf_task("8x8-58p-6f"))))(jax.random.split(jax.random.key(1), 300))
    foods = np.asarray(state.food_items.position)
    distance = np.abs(foods[:, :, None] - foods[:, None])[:, *np.triu_indices(6, 1)]
    assert (distance.sum(-1) > 1).all() and foods.min() == 1 and foods.max() == 6
    taken = np.concatenate([foods, np.asarray(state.agents.position)], axis=1)
    assert (np.sort(taken @ [8, 1], axis=1) == np.arange(64)).all(), "each cell is taken once"


def test_individual_rewards_add_up_to_the_teams(device: Environment):
    env = device_env(f"lbf/{SMALL}", horizon=30, reward="individual")
    assert not env.spec.shared_reward and env.spec.score == "sum"
    assert device.spec.shared_reward and device.spec.score == "mean"
    state, _ = device.reset(jax.random.key(1))
    place = state.food_items.position[0]
    beside = jnp.stack([place + jnp.array([0, 1]), place - jnp.array([0, 1])])
    state = state.replace(agents=state.agents.replace(position=beside, level=jnp.array([1, 2])))
    state = state.replace(food_items=state.food_items.replace(level=jnp.array([3])))
    _, own = jax.jit(env.step)(jax.random.key(0), state, jnp.array([LOAD, LOAD]))
    _, team = device.step(jax.random.key(0), state, jnp.array([LOAD, LOAD]))
    np.testing.assert_allclose(own.reward, [1 / 3, 2 / 3], atol=1e-6)
    np.testing.assert_allclose(team.reward, [1.0, 1.0], atol=1e-6)
    assert own.last and not np.asarray(own.discount).any()


def test_the_device_backend_keeps_its_promises_and_draws(device: Environment):
    registry.validate(device)
    large = device_env("lbf/Foraging-2s-10x10-3p-3f-v3")
    registry.validate(large)
    assert large.spec.name == "lbf/2s-10x10-3p-3f" and large.spec.horizon == 100
    assert device.render is not None
    picture = device.render(device.reset(jax.random.key(0))[0])
    assert isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.shape[2] == 3


# --- the host ----------------------------------------


def host(task: str = SMALL, **options) -> HostEnvironment:
    pytest.importorskip("lbforaging")
    env = host_env(f"lbf/{task}", backend="host", **options)
    assert isinstance(env, HostEnvironment)
    return env


def test_a_host_episode_is_lbforagings_step_by_step():
    env = host(horizon=10)
    from lbforaging.foraging import ForagingEnv

    game, own = env.make(), own_actions(env.spec)
    out = blank(env.spec)
    rng = np.random.default_rng(0)
    ends = set()
    for seed in range(5):
        raw = ForagingEnv(2, 1, 2, 1, None, (5, 5), 1, 5, 10, True)
        observations, _ = raw.reset(seed=seed)
        refresh(out, own)
        game.reset(seed, out)
        earned = np.zeros(2)
        over = False
        while True:
            np.testing.assert_array_equal(out.obs, observations)
            np.testing.assert_array_equal(out.state, np.concatenate(observations))
            allowed = [[action.value for action in raw._valid_actions[player]] for player in raw.players]
            assert [list(np.flatnonzero(row)) for row in out.legal] == allowed
            assert bool(out.last) == over
            if over:
                break
            action = choose(rng, out.legal)
            observations, rewards, over, _, _ = raw.step(action.tolist())
            refresh(out, own)
            game.step(action, out)
            np.testing.assert_allclose(out.reward, np.full(2, sum(rewards)), atol=1e-7)
            earned += out.reward
            gathered = not raw.field.any()  # of one food
            assert out.metrics.tolist() == [gathered, gathered]
        ended = not out.discount.any()
        assert ended == (raw.field.sum() == 0)
        np.testing.assert_allclose(earned, float(ended), atol=1e-6)
        ends.add(ended)
    assert ends == {True, False}, "both an end and a time limit must have been seen"


def test_an_episode_depends_on_its_seed_alone():
    env = host("8x8-3p-2f")
    used = env.make()
    a, b = blank(env.spec), blank(env.spec)
    for seed in range(40):  # players left behind would sometimes stand where the next ones start
        fresh = env.make()
        fresh.reset(seed, a)
        used.reset(seed, b)
        np.testing.assert_array_equal(a.obs, b.obs)


def test_every_episode_on_the_host_has_a_food():
    """lbforaging itself starts four of ten episodes with so many players without food, which would count as won."""
    env = host("5x5-23p-1f")
    game, again = env.make(), env.make()
    out, same = blank(env.spec), blank(env.spec)
    for seed in range(12):
        refresh(out, own_actions(env.spec))
        game.reset(seed, out)
        again.reset(seed, same)
        np.testing.assert_array_equal(out.obs, same.obs)
        refresh(out, own_actions(env.spec))
        game.step(np.zeros(23, np.int32), out)
        assert not out.last and out.metrics.tolist() == [0, 0]


def test_individual_rewards_on_the_host():
    rewards = {}
    for reward in ("team", "individual"):
        env = host(reward=reward)
        game, out = env.make(), blank(env.spec)
        game.reset(0, out)
        inner = game._env  # pyright: ignore[reportAttributeAccessIssue]
        row, column = np.argwhere(inner.field)[0]
        for player, side, level in zip(inner.players, (1, -1), (1, 2), strict=True):
            player.position, player.level = (row, column + side), level
        inner.field[row, column] = inner._food_spawned = 3
        inner._gen_valid_moves()
        refresh(out, own_actions(env.spec))
        game.step(np.array([LOAD, LOAD], np.int32), out)
        rewards[reward] = out.reward.copy()
        assert out.last and not out.discount.any()
    np.testing.assert_allclose(rewards["team"], [1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(rewards["individual"], [1 / 3, 2 / 3], atol=1e-6)


# --- levels ----------------------------------------


@pytest.mark.parametrize("backend", ["device", "host"])
def test_players_have_their_levels_in_every_episode(backend: str):
    pytest.importorskip("jumanji" if backend == "device" else "lbforaging")
    make = device_env if backend == "device" else host_env
    env = make("lbf/8x8-4p-2f", backend=backend, levels=(3, 1, 2, 1))
    assert env.spec.roles == (2, 0, 1, 0)
    own, seen = 3 * 2 + 2, []  # the place of one's own level behind two foods
    if isinstance(env, HostEnvironment):
        game, out = env.make(), blank(env.spec)
        for seed in range(6):
            game.reset(seed, out)
            seen.append(out.obs.copy())
    else:
        seen = list(np.asarray(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 6))[1].obs))
    assert all(obs[:, own].tolist() == [3, 1, 2, 1] for obs in seen)
    foods = np.array([obs[0, [2, 5]] for obs in seen])
    assert foods.max() <= 1 + 1 + 2  # at most the three weakest players together
    assert len({tuple(row) for row in foods.tolist()}) > 1


# --- what is asked ----------------------------------------


def test_names_say_what_is_played():
    task = lbf.parse_lbf_task("2s-8x8-2p-2f-coop")
    assert task == ("2s-8x8-2p-2f-coop", 2, 8, 2, 2, True)
    assert lbf.parse_lbf_task("Foraging-15x15-4p-3f-v3") == ("15x15-4p-3f", 15, 15, 4, 3, False)


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("8x9-2p-2f", {}, "no foraging task"),
        ("nonsense", {}, "no foraging task"),
        ("4x4-2p-1f", {}, "a side of at least 5"),
        ("9s-8x8-2p-2f", {}, "a sight of 1 to 8"),
        ("5x5-25p-1f", {}, "no room for 25 players"),
        ("6x6-3p-5f", {}, "no room for 3 players and 5 foods that lie apart: use backend 'host'"),
        ("6x6-33p-4f", {}, "no room for 33 players and 4 foods that lie apart: use backend 'host'"),
        (SMALL, {"horizon": 0}, "horizon must be"),
        (SMALL, {"horizon": 2**31 - 1}, "horizon must be at most"),
        (SMALL, {"levels": (1, 2, 3)}, "one number for each of 2 players, not 3"),
        (SMALL, {"levels": (0, 2)}, "each of levels must be an integer of at least 1"),
    ],
)
def test_a_wrong_request_is_one_sentence(task, options, said):
    with pytest.raises(InputError, match=said):
        registry.make(f"lbf/{task}", **options)


def test_an_unknown_backend_is_refused():
    assert check_choice("backend", "host", ("device", "host")) == "host"
    with pytest.raises(InputError, match="no backend 'hots'; did you mean 'host'"):
        check_choice("backend", "hots", ("device", "host"))


@pytest.mark.parametrize(("backend", "library"), [("device", "jumanji"), ("host", "lbforaging")])
def test_a_missing_library_names_its_extra(monkeypatch, backend, library):
    for module in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"needs {library}: pip install 'jumanji>="):
        registry.make(f"lbf/{SMALL}", backend=backend)


def test_worker_processes_need_no_jax():
    modules = "shoal.environments.adapters.lbf, shoal.environments.adapters.rware"
    subprocess.run([sys.executable, "-c", f"import sys, {modules}; assert 'jax' not in sys.modules"], check=True)
