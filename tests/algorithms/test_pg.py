"""The pieces that COMA, MAPG and LICA are made of, and what must hold of their updates whatever the data."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_pg_update import COMA, KEY, SPEC, data, start

from shoal.algorithms import coma, mapg
from shoal.equations import targets
from shoal.equations.distributions import Categorical, DiagGaussian, TanhGaussian
from shoal.errors import InputError
from shoal.models import action_critic
from shoal.models.action_critic import make_action_critic
from shoal.networks.body import Body
from shoal.types import Box, Scale
from support.trajectories import NUM_UPDATES, E, N, T, assert_trees_equal, distance, make_spec, make_trajectory, program

BOX = make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)


def test_the_next_action_is_the_one_taken_until_something_ends():
    traj = make_trajectory(SPEC, dead=0.0)
    traj = traj._replace(outcome=traj.outcome._replace(legal=jnp.ones((T, E, N, 4), bool).at[..., 2].set(False)))
    ahead = jax.tree.map(lambda x: x[None], traj.outcome)
    dist = Categorical(20 * (jnp.arange(4) == 3) * ahead.obs[..., :1], ahead.legal)
    drawn = [np.asarray(action_critic.next_action(dist, traj, jax.random.key(k))) for k in range(20)]
    end = np.asarray(traj.outcome.last).copy()
    end[-1] = True
    assert 0.2 < end.mean() < 0.8
    for u in drawn:
        np.testing.assert_array_equal(u[:-1][~end[:-1]], np.asarray(traj.action)[1:][~end[:-1]])
        assert (u[end] != 2).all()
    obs = np.asarray(traj.outcome.obs)[end][..., 0]  # the policy is asked in the outcome, not in the next start
    chance = np.mean([u[end] == 3 for u in drawn], 0)
    assert (chance[obs > 0.5] == 1).all() and (chance[obs < -0.5] == 0).all()
    assert len({u[end].tobytes() for u in drawn}) > 10


def test_a_dead_agent_s_action_is_never_the_next_one():
    traj = make_trajectory(SPEC, dead=0.5)
    traj = traj._replace(action=jnp.where(traj.step.alive, 1, -7))
    uniform = Categorical(jnp.zeros((1, T, E, N, 4)), traj.outcome.legal[None])
    assert (action_critic.next_action(uniform, traj, KEY) >= 0).all()


def test_the_team_s_reward_and_discount():
    traj = make_trajectory(SPEC, dead=0.0)
    reward = jnp.broadcast_to(jnp.array([1.0, 2.0, 6.0]), (T, E, N))
    discount = jnp.zeros((T, E, N)).at[0, 0, 1].set(1.0).at[0, 1, 1].set(1.0)
    alive = traj.step.alive.at[0, 1, 1].set(False)  # was dead already: the end is that of those who acted
    now = traj.outcome.alive.at[0, 1, 1].set(False)

    def ended(now):
        outcome = traj.outcome._replace(reward=reward, discount=discount, alive=now)
        return targets.team_reward(traj._replace(step=traj.step._replace(alive=alive), outcome=outcome))

    r, d = ended(now)
    np.testing.assert_allclose(r, 3.0)
    assert d[0, 0] == 1 and d[0, 1] == 0 and float(d.sum()) == 1
    assert ended(now.at[0, 1, 1].set(True))[1][0, 1] == 1  # has joined as the others ended: the team goes on


@pytest.mark.parametrize(("rate", "expected"), [(None, [0, 0, 3, 3, 3, 6]), (0.5, [0.5, 1.25, 2.125])])
def test_the_target_network_moves_towards_the_network(rate, expected):
    c = replace(COMA, target_interval=3) if rate is None else replace(COMA, target_interval=200, target_rate=rate)
    target, seen = {"w": jnp.zeros(())}, []
    for step in range(1, len(expected) + 1):
        target = targets.update_target(
            target, {"w": jnp.float32(step)}, jnp.int32(step), c.target_interval, c.target_rate
        )
        seen.append(float(target["w"]))
    np.testing.assert_allclose(seen, expected)


def test_the_target_network_moves_with_critic_steps_not_updates():
    """Two steps per update and C = 3: in the second update the target becomes the critic of its first step."""
    config = replace(COMA, minibatches=2, target_interval=3, learning_rate=0.1)
    prog, traj = program(SPEC, config), data("coma")
    first, _ = prog.update(prog.learner, traj, KEY)
    assert_trees_equal(first.statistics.target, prog.learner.statistics.target)
    second, _ = prog.update(first, traj, KEY)
    assert int(second.statistics.critic_steps) == 4
    assert distance(second.statistics.target, first.statistics.target) > 1e-4
    assert distance(second.statistics.target, second.critic) > 1e-4


@pytest.mark.parametrize("kind", ["concat", "state", "agent", "pruned"])
def test_a_centralised_critic_sees_the_others_actions_and_never_the_agent_s_own(kind):
    traj = make_trajectory(SPEC)
    critic = make_action_critic(SPEC, Body((8,)), kind, (0,) * N, True)
    params = jax.jit(critic.init)(jax.random.key(0))
    dist = Categorical(jnp.zeros((T, E, N, 4)), traj.step.legal)
    look = jax.jit(lambda u, step: critic.options(params, step, u, dist, KEY, 1, 0.0).q)
    q, alive = look(traj.action, traj.step), np.asarray(traj.step.alive)
    for agent in range(N):
        other = traj.action.at[..., agent].set((traj.action[..., agent] + 1) % 4)
        moved = np.any(np.asarray(look(other, traj.step) != q), -1)
        assert not moved[..., agent].any()
        rest = [i for i in range(N) if i != agent]
        np.testing.assert_array_equal(moved[..., rest], np.broadcast_to(alive[..., [agent]], (T, E, N - 1)))


def test_a_critic_of_continuous_actions_reads_the_agent_s_own_where_it_is_asked_for():
    traj = make_trajectory(BOX, dead=0.0)
    for kind in ("concat", "local"):
        critic = make_action_critic(BOX, Body((8,)), kind, (0,) * N, True)
        params = jax.jit(critic.init)(jax.random.key(0))
        moved = traj.action.at[..., 0, 0].add(0.3)
        change = np.asarray(critic.taken(params, traj.step, moved) != critic.taken(params, traj.step, traj.action))
        assert change[..., 0].all() and (change[..., 1:].all() if kind == "concat" else not change[..., 1:].any())
        beyond = traj.action.at[..., 2, 1].set(jnp.nan)  # the last agent has one dimension
        np.testing.assert_array_equal(
            critic.taken(params, traj.step, beyond), critic.taken(params, traj.step, traj.action)
        )


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_options_are_draws_from_the_policy(squash):
    """With a narrow policy all draws, and so the baseline, are worth what the mean action is worth."""
    traj = make_trajectory(BOX, dead=0.0)
    critic = make_action_critic(BOX, Body((8,)), "concat", (0,) * N, True)
    params, shape = jax.jit(critic.init)(jax.random.key(0)), (T, E, N, 2)
    mean, log_std = jnp.full(shape, 0.2), jnp.full(shape, -6.0)
    real = traj.step.legal
    dist = TanhGaussian(mean, log_std, -2.0, 1.0, real) if squash else DiagGaussian(mean, log_std, real)
    options = critic.options(params, traj.step, traj.action, dist, KEY, 3, 0.0)
    assert options.q.shape == (T, E, N, 3) and float(options.q.std(-1).min()) > 0
    np.testing.assert_allclose(options.p, 1 / 3)
    for agent in range(N):
        at_mean = traj.action.at[:, :, agent].set(dist.mode()[:, :, agent])
        expected = critic.taken(params, traj.step, at_mean)[..., agent]
        np.testing.assert_allclose(options.q[..., agent, :].mean(-1), expected, atol=0.02)
    scale = 1.0 if squash else 1.5  # σ in units of half the box
    assert float(options.square.mean()) > 0.5 * (scale / np.exp(-6.0)) ** 2


def test_coma_is_mapg_with_the_counterfactual_baseline():
    same = {f: getattr(COMA, f) for f in mapg.BaselineConfig.__dataclass_fields__}
    traj, learner = data("coma"), start("coma")
    one = program(SPEC, COMA).update(learner, traj, KEY)
    other = program(SPEC, mapg.Config(**same, baseline="counterfactual")).update(learner, traj, KEY)
    assert_trees_equal(one, other)


@pytest.mark.parametrize(("discount", "bootstraps"), [(0.0, False), (1.0, True)], ids=["termination", "time limit"])
def test_a_time_limit_bootstraps_on_what_came_after_and_a_termination_does_not(discount, bootstraps):
    prog, traj, end = program(SPEC, COMA), data("coma"), (2, 1)
    everyone = jnp.ones((T, E, N), bool)
    outcome = traj.outcome._replace(
        last=traj.outcome.last.at[end].set(True),
        discount=traj.outcome.discount.at[end].set(discount),
        alive=everyone,
    )
    traj = traj._replace(step=traj.step._replace(alive=everyone), outcome=outcome)
    elsewhere = traj._replace(outcome=outcome._replace(obs=outcome.obs.at[end].add(2.0)))
    a, b = (prog.update(start("coma"), x, KEY)[0] for x in (traj, elsewhere))
    assert (distance(a.critic, b.critic) > 1e-5) == bootstraps
    assert (distance(a.policy.actor, b.policy.actor) > 1e-6) == bootstraps


def test_exploration_decreases_linearly_and_is_part_of_the_policy():
    config = replace(COMA, epsilon=0.5, epsilon_final=0.1, epsilon_fraction=0.4)
    prog, traj = program(SPEC, config), data("coma")
    learner, seen = prog.learner, []
    for _ in range(6):
        seen.append(float(learner.policy.epsilon))
        learner, metrics = prog.update(learner, traj, KEY)
        assert metrics["epsilon"] == np.float32(seen[-1])
    assert 0.4 * NUM_UPDATES == 4
    np.testing.assert_allclose(seen, [0.5, 0.4, 0.3, 0.2, 0.1, 0.1], rtol=1e-5)


REFUSED = [
    (coma.Config(critic_input="local"), SPEC, "critic"),
    (coma.Config(), BOX, "continuous"),
    (mapg.Config(epsilon=0.1), BOX, "epsilon"),
    (mapg.Config(critic_input="local"), SPEC, "critic"),
    (mapg.Config(draws=0), BOX, "draws"),
    (mapg.Config(target_interval=0), SPEC, "target_interval"),
    (coma.Config(epsilon=1.0), SPEC, "epsilon"),
    (coma.Config(minibatches=7), SPEC, "minibatches"),
    (coma.Config(critic_input="agent"), replace(SPEC, state_dim=0, novel=()), "state"),
    (mapg.Config(network=Body((4,), recurrent=4), chunk_length=3), SPEC, "chunk"),
]


@pytest.mark.parametrize(("config", "spec", "word"), REFUSED)
def test_unsupported_options_are_refused_in_a_sentence(config: Any, spec, word):
    make: Any = coma.make if isinstance(config, coma.Config) else mapg.make
    with pytest.raises(InputError, match=word) as error:
        make(spec, config, Scale(E, T, NUM_UPDATES))
    assert str(error.value).endswith(".")
