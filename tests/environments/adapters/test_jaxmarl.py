"""``jaxmarl/…`` against JaxMARL's own ``step_env``, step by step; ends told from time limits."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.novel_oracle import check_novel, gather

pytest.importorskip("jaxmarl")

from shoal.environments import registry
from shoal.environments.adapters import jaxmarl as adapter
from shoal.environments.adapters.jaxmarl import FAMILIES, arguments_of
from shoal.types import Box, Discrete, Environment
from support.environments import device_env

BUILT_ALIKE = re.compile("_facmac_.a|world_comm|Learned|ant_|cheetah|hopper|humanoid|walker")


def both(identity: str, chosen: str = "", shaping: float = 0.0, **options) -> tuple:
    """JaxMARL's environment, and ours around the very same object, so that what it compiles serves both."""
    with adapter._quiet():
        import jaxmarl

        raw = jaxmarl.make(identity, **arguments_of(identity, chosen), **options)
    for function in ("reset", "step_env", "get_legal_moves"):
        if hasattr(raw, function):
            setattr(raw, function, jax.jit(getattr(raw, function)))
    return raw, adapter.jaxmarl_environment(f"jaxmarl/{identity}", raw, FAMILIES[identity], shaping)


def choose(rng: np.random.Generator, env: Environment, legal: np.ndarray) -> np.ndarray:
    if isinstance(env.spec.action, Box):
        low, high = env.spec.action.low, env.spec.action.high
        return rng.uniform(low, high, (env.spec.num_agents, env.spec.action.dim)).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in legal], np.int32)


def play(raw, env: Environment, seed: int) -> list:
    """An episode of random legal actions, compared at every step; what was seen."""
    spec, rng, key = env.spec, np.random.default_rng(seed), jax.random.key(seed)
    state, seen = env.reset(key)
    obs, own = raw.reset(key)
    assert bool(seen.first) and seen.alive.all() and seen.discount.all() and not seen.last and not seen.reward.any()
    episode = [seen]
    while True:
        for i, agent in enumerate(spec.agents):
            width = spec.obs_dims[i]
            np.testing.assert_allclose(seen.obs[i, :width], np.ravel(obs[agent]), atol=1e-5)
            assert not np.asarray(seen.obs[i, width:]).any()
        if "world_state" in obs:
            np.testing.assert_allclose(seen.state, obs["world_state"], atol=1e-5)
        else:
            np.testing.assert_allclose(seen.state, np.concatenate([np.ravel(obs[a]) for a in spec.agents]), atol=1e-5)
        if seen.last:
            return episode
        action = choose(rng, env, np.asarray(seen.legal))
        key = jax.random.fold_in(key, len(episode))
        chosen = {a: x if x.ndim == 0 else x[:w] for a, x, w in zip(spec.agents, action, spec.action_dims, strict=True)}
        obs, own, rewards, done, _ = raw.step_env(key, own, chosen)
        state, seen = env.step(key, state, jnp.asarray(action))
        np.testing.assert_allclose(seen.reward, [rewards[a] for a in spec.agents], rtol=1e-5, atol=1e-5)
        assert bool(seen.last) == bool(done["__all__"]) and not seen.first
        episode.append(seen)


@pytest.mark.parametrize(
    ("identity", "options"),
    [
        ("MPE_simple_speaker_listener_v4", {"max_steps": 4}),
        ("MPE_simple_spread_v3", {"action_type": "Continuous", "max_steps": 4}),
    ],
)
def test_a_particle_episode_is_jaxmarls_and_ends_with_a_time_limit(identity, options):
    raw, env = both(identity, **options)
    episode = play(raw, env, 0)
    assert len(episode) - 1 == env.spec.horizon == options["max_steps"] + 1
    assert episode[-1].last and episode[-1].discount.all()


def test_agents_stand_in_their_own_order_with_roles_and_widths_of_their_own():
    spec = registry.make("jaxmarl/MPE_simple_speaker_listener_v4").spec
    assert spec.agents == ("speaker_0", "listener_0")  # JaxMARL's dicts come back sorted, listener first
    assert spec.obs_dims == (3, 11) and spec.action_dims == (3, 5) and spec.action == Discrete(5)
    assert spec.roles == (0, 1)
    tag = registry.make("jaxmarl/MPE_simple_tag_v3").spec
    assert tag.roles == (0, 0, 0, 1) and tag.agents[0] == "adversary_0" and not tag.shared_reward


def test_hanabi_is_jaxmarls_and_ends_truly():
    raw, env = both("hanabi", num_colors=2, num_ranks=2, hand_size=2, num_cards_of_rank=np.array([2, 1]))
    assert env.spec.shared_reward and env.spec.score == "mean"
    for seed in range(2):
        episode = play(raw, env, seed)
        assert not np.asarray(episode[-1].discount).any() and len(episode) - 1 <= env.spec.horizon
        for seen in episode[:-1]:
            idle = np.asarray(seen.legal)[:, -1]
            assert idle.sum() == 1 and np.asarray(seen.legal)[idle].sum() == 1  # who is not on turn has one action


@pytest.fixture(scope="module")
def kitchen() -> tuple:
    return both("overcooked", "cramped_room", max_steps=5)


def test_overcooked_is_cut_off_and_takes_shaped_rewards(kitchen):
    raw, env = kitchen
    episode = play(raw, env, 0)
    assert len(episode) - 1 == env.spec.horizon == 5 and episode[-1].discount.all()
    shaped = registry.make("jaxmarl/overcooked/cramped_room", shaping=0.5).spec
    assert not shaped.shared_reward and env.spec.shared_reward


def test_the_second_version_of_overcooked_is_jaxmarls():
    raw, env = both("overcooked_v2", "cramped_room", max_steps=4)
    episode = play(raw, env, 0)
    assert len(episode) - 1 == env.spec.horizon == 4 and episode[-1].discount.all() and env.spec.shared_reward
    assert not registry.make("jaxmarl/overcooked_v2/cramped_room", shaping=0.5).spec.shared_reward


def test_shaped_rewards_are_added_with_their_weight(kitchen):
    """On a stand-in, since a random cook never earns any."""
    raw, _ = kitchen
    earned = {"shaped_reward": {"agent_0": jnp.float32(3.0), "agent_1": jnp.float32(0.0)}}
    stand_in = types.SimpleNamespace(
        agents=raw.agents,
        action_space=raw.action_space,
        reset=raw.reset,
        max_steps=5,
        step_env=lambda key, state, action: (
            raw.reset(key)[0],
            state,
            {"agent_0": jnp.float32(20.0), "agent_1": jnp.float32(20.0)},
            {"agent_0": False, "agent_1": False, "__all__": jnp.asarray(False)},
            earned,
        ),
    )
    env = adapter.jaxmarl_environment("jaxmarl/overcooked", stand_in, FAMILIES["overcooked"], shaping=0.5)
    state, _ = env.reset(jax.random.key(0))
    state, seen = env.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    np.testing.assert_allclose(seen.reward, [21.5, 20.0])
    _, seen = env.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    assert env.spec.metrics == ("sparse_return",)
    assert np.asarray(seen.metrics).tolist() == [40.0]  # one copy of the team's reward


@pytest.fixture(scope="module")
def battle() -> tuple:
    return both("HeuristicEnemySMAX", num_allies=2, num_enemies=2, max_steps=60)


def test_a_battle_is_jaxmarls_and_the_dead_stay_in_the_team(battle):
    raw, env = battle
    lost = play(raw, env, 1)
    assert lost[-1].last and not np.asarray(lost[-1].discount).any() and not lost[-1].alive.any()
    half = [seen for seen in lost if int(seen.alive.sum()) == 1]
    assert half, "one ally must have outlived the other"
    stop = np.arange(env.spec.action.width) == 4
    for seen in half:
        dead = int(np.argmin(seen.alive))
        assert not np.asarray(seen.obs[dead]).any() and seen.discount.all()
        np.testing.assert_array_equal(seen.legal[dead], stop)
        assert np.asarray(seen.legal[1 - dead]).sum() >= 5
        assert seen.reward[0] == seen.reward[1]
    for seen in lost:
        assert seen.legal.any(1).all()


def test_the_state_of_a_battle_holds_what_is_not_relative(battle):
    """Health, cooldown and type of others, and all of oneself: cooldowns are clipped, and positions scaled."""
    raw, env = battle
    timesteps = [timestep for seed in range(2, 8) for timestep in play(raw, env, seed)]
    spec, own = env.spec, 4 + 6
    assert spec.novel is not None and len(spec.novel) == 3 * 5 and max(spec.novel) < spec.obs_dim - own
    check_novel(spec, gather(timesteps), hidden=True)
    conic = registry.make("jaxmarl/smax/3m", observation_type="conic").spec
    assert conic.novel == tuple(range(conic.obs_dim - own))  # where a unit stands depends on where it is


def test_observations_of_smax_are_those_of_the_second_version(battle):
    """Cooldowns and last targets, which were numbers of seconds and of actions, lie in [0, 1]; the dead do not move."""
    raw, env = battle
    inner = raw.reset(jax.random.key(0))[1]
    state = inner.replace(state=inner.state.replace(unit_weapon_cooldowns=jnp.full(4, 9.0)))
    obs = np.asarray(env.step(jax.random.key(0), state, jnp.array([5, 6]))[1].obs)
    assert (np.abs(obs) <= 1.0).all()
    health = inner.state.unit_health.at[0].set(0.0)
    dead = inner.replace(state=inner.state.replace(unit_health=health, unit_alive=health > 0))
    after = env.step(jax.random.key(0), dead, jnp.array([0, 0]))[0]
    places, before = np.asarray(after.state.unit_positions), np.asarray(inner.state.unit_positions)
    assert (places[0] == before[0]).all() and (places[1] != before[1]).any()


def weaken(state, side: slice):
    """A state in which one side falls at the first blow."""
    inner = state.state
    return state.replace(state=inner.replace(unit_health=inner.unit_health.at[side].set(1e-3)))


def test_victory_is_an_end_and_time_a_limit(battle):
    _, env = battle
    state, _ = env.reset(jax.random.key(0))
    close = state.state.unit_positions.at[:].set(jnp.array([[10.0, 10.0], [10.0, 12.0], [12.0, 10.0], [12.0, 12.0]]))
    state = state.replace(state=state.state.replace(unit_positions=close))
    won, seen = env.step(jax.random.key(0), weaken(state, slice(2, 4)), jnp.array([5, 6]))
    assert seen.last and not np.asarray(seen.discount).any() and seen.alive.any()
    assert (np.asarray(seen.reward) > 1.0).all()  # the bonus of 1 is paid to the winners alone
    late = state.replace(state=state.state.replace(step=jnp.array(60)))
    _, seen = env.step(jax.random.key(0), late, jnp.array([4, 4]))
    assert seen.last and seen.discount.all()
    late = weaken(late, slice(2, 4))
    _, seen = env.step(jax.random.key(0), late, jnp.array([5, 6]))
    assert seen.last and not np.asarray(seen.discount).any()  # a victory at the last timestep is one
    assert env.render is not None
    scene = env.render(won)
    assert scene.centres.shape == (int(np.asarray(won.state.unit_alive).sum()), 2)


@pytest.mark.parametrize(("allies", "enemies"), [((), ()), ((0,), (1,)), ((), (0, 1)), ((0, 1), ()), ((0, 1), (0, 1))])
def test_who_won_a_battle_is_what_jaxmarl_says(battle, allies, enemies):
    """As its SMAXLogWrapper counts: the last reward is 1 or more, which holds the bonus."""
    raw, env = battle
    state, _ = env.reset(jax.random.key(0))
    dead = [*allies, *(2 + i for i in enemies)]
    inner = state.state
    health = inner.unit_health.at[jnp.array(dead, int)].set(0.0)
    alive = inner.unit_alive.at[jnp.array(dead, int)].set(False)
    state = state.replace(state=inner.replace(unit_health=health, unit_alive=alive))
    _, outcome = env.step(jax.random.key(0), state, jnp.array([4, 4]))
    _, _, reward, _, _ = raw.step_env(
        jax.random.key(0), state, dict(zip(env.spec.agents, jnp.array([4, 4]), strict=True))
    )
    assert env.spec.metrics == ("won", "dead_allies", "dead_enemies")
    assert outcome.metrics.tolist() == [float(reward["ally_0"] >= 1.0), len(allies), len(enemies)]
    assert bool(outcome.metrics[0]) == (len(enemies) == 2 and len(allies) < 2)
    both_play = FAMILIES["SMAX"].metrics
    assert list(both_play) == ["won", "lost", "dead_allies", "dead_enemies"]
    assert bool(both_play["lost"](raw, state)) == (len(allies) == 2 and len(enemies) < 2)


def test_the_usual_names_of_smax_are_understood():
    spec = registry.make("jaxmarl/smax/3m").spec
    assert spec.name == "jaxmarl/smax/3m" and spec.horizon == 101 and spec.num_agents == 3
    assert spec.action_dims == (8, 8, 8) and spec.shared_reward and spec.score == "mean"
    assert spec.roles == (0, 0, 0) and registry.make("jaxmarl/smax/2s3z").spec.roles == (0, 0, 1, 1, 1)
    assert registry.make("jaxmarl/SMAX/2s3z").spec.roles == (0,) * 5 + (1,) * 5  # rivals, so that each army is a side
    assert registry.make("jaxmarl/smax/smacv2_5_units").spec.roles == (0,) * 5  # drawn for every episode
    sides = registry.make("jaxmarl/SMAX/3m").spec
    assert sides.roles == (0, 0, 0, 1, 1, 1) and not sides.shared_reward
    assert registry.make("jaxmarl/HeuristicEnemySMAX/3m", action_type="continuous").spec.action == Box(4, 0.0, 1.0)


@pytest.mark.parametrize("name", [name for name in FAMILIES if not BUILT_ALIKE.search(name)])
def test_every_environment_is_valid(name):
    registry.validate(device_env(f"jaxmarl/{name}"))


def test_bodies_of_brax_are_cut_off_by_their_step_counter_alone():
    family = FAMILIES["ant_4x2"]
    for done, truncation, ended in ((1, 0, True), (1, 1, False), (0, 0, False)):
        state = types.SimpleNamespace(info={"truncation": jnp.float32(truncation)})
        assert bool(family.terminated(None, state, jnp.asarray(bool(done)))) == ended
    assert arguments_of("ant_4x2", "") == {"auto_reset": False}  # Brax would lose the last observation


@pytest.mark.filterwarnings("ignore:Accessing .* directly from `Data`:DeprecationWarning")
def test_bodies_of_brax_keep_their_promises(tmp_path, monkeypatch):
    """Traced alone: to compile one takes 10 s."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file there
    for name, widths, dims in (("ant_4x2", (18,) * 4, (2,) * 4), ("humanoid_9x8", (248, 176), (9, 8))):
        env = device_env(f"jaxmarl/{name}")
        registry.validate(env)
        assert env.spec.horizon == 1000 and env.spec.shared_reward
        assert env.spec.obs_dims == widths and env.spec.action_dims == dims
        assert env.spec.roles == tuple(range(len(dims))) and env.spec.novel == ()
    short = registry.make("jaxmarl/ant_4x2", episode_length=9, action_repeat=2)
    assert short.spec.horizon == 5 and short.spec.state_dim == 27
