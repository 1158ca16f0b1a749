"""What must hold whatever the data are."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.algorithms import mappo
from shoal.networks.body import Body
from shoal.networks.inputs import normalised
from shoal.types import Box, Scale
from support.algorithm_cases import BASE, CASES, data, seasoned
from support.trajectories import (
    FEED_FORWARD,
    E,
    N,
    T,
    acted,
    assert_trees_close,
    assert_trees_equal,
    compiled,
    distance,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
TIGHT = replace(BASE, clip=1e-5, normalise_inputs=True, critic_input="local", epochs=1)


def of_agents(f, tree):
    """``f`` on every leaf that has an axis of agents."""
    return jax.tree.map(lambda x: f(x) if x.ndim > 2 and x.shape[2] == N else x, tree)


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(N)), st.integers(0, 2**16))
def test_agents_that_share_everything_may_stand_in_any_order(order, seed):
    spec = make_spec()
    prog = program(spec, replace(BASE, critic_input="local", agent_id=False, minibatches=2, kl_coef=0.2))
    traj, learner = make_trajectory(spec, seed), seasoned(prog.learner)
    moved = of_agents(lambda x: x[:, :, jnp.array(order)], traj)
    assert_trees_close(prog.update(learner, moved, KEY), prog.update(learner, traj, KEY), 1e-4, 1e-5)
    step, moved = (jax.tree.map(lambda x: x[0], x.step) for x in (traj, moved))
    act = compiled(prog.algorithm.act, static_argnums=4)
    _, action, extras = act(learner, FEED_FORWARD, step, KEY, True)
    _, action_moved, extras_moved = act(learner, FEED_FORWARD, moved, KEY, True)
    np.testing.assert_array_equal(action_moved, action[:, jnp.array(order)])
    np.testing.assert_allclose(extras_moved["log_prob"], extras["log_prob"][:, jnp.array(order)], rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (make_spec(), {"sharing": "role"}),
        (make_spec(action=Box(2, -2.0, 1.0)), {}),
        (make_spec(action=Box(2, -2.0, 1.0)), {"squash": True, "sharing": "independent"}),
    ],
    ids=["discrete", "gaussian", "squashed"],
)
def test_before_the_first_gradient_step_every_ratio_is_one(spec, options):
    """Masks, normalised inputs and squashing are the same in acting and in the update."""
    prog = program(spec, replace(TIGHT, **options))
    learner = seasoned(prog.learner)
    traj = acted(prog, learner, make_trajectory(spec))
    _, metrics = prog.update(learner, traj, KEY)
    assert metrics["clip_fraction"] == 0 and metrics["kl"] < 1e-9
    other, _ = prog.update(learner, traj, KEY)
    _, metrics = prog.update(other, traj, KEY)
    assert metrics["clip_fraction"] > 0.5  # the metric can tell


def test_input_statistics_are_the_mean_and_variance_of_what_living_agents_saw():
    spec = make_spec()
    prog = program(spec, replace(TIGHT, sharing="role"))
    learner, obs, states = prog.learner, [], []
    for seed in (0, 1):
        traj = make_trajectory(spec, seed)
        traj = traj._replace(step=traj.step._replace(obs=traj.step.obs * 3 + 2, state=traj.step.state - 4))
        learner, _ = prog.update(learner, traj, KEY)
        padded = np.arange(spec.obs_dim) >= np.array(spec.obs_dims)[:, None]
        own = np.where(padded, np.nan, np.asarray(traj.step.obs))  # what pads a narrower agent is not an observation
        obs.append(np.where(np.asarray(traj.step.alive)[..., None], own, np.nan))
        states.append(np.asarray(traj.step.state))
        all_obs, inputs = np.concatenate(obs).astype(np.float64), learner.policy.inputs
        compared = [(inputs.state, np.concatenate(states).astype(np.float64))]
        for role, features in ((0, spec.obs_dim), (1, spec.obs_dim - 1)):
            for i in np.flatnonzero(np.array(spec.roles) == role):
                of_agent = jax.tree.map(lambda x, i=i, features=features: x[i, :features], inputs.obs)
                compared.append((of_agent, all_obs[..., np.array(spec.roles) == role, :features]))
        for stats, seen in compared:
            seen = seen.reshape(-1, seen.shape[-1])
            np.testing.assert_allclose(stats.mean, np.nanmean(seen, 0), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(stats.square - stats.mean**2, np.nanvar(seen, 0), rtol=1e-3)
    step = normalised(learner.policy.inputs, traj.step._replace(obs=traj.step.obs.at[0, 0, 0].set(1e6)))
    np.testing.assert_array_equal(step.obs[0, 0, 0], 10)
    seen = np.concatenate(states).reshape(-1, spec.state_dim)
    np.testing.assert_allclose(step.state, (traj.step.state - seen.mean(0)) / seen.std(0), rtol=1e-3, atol=1e-4)


def test_policies_do_not_learn_from_other_agents_samples():
    """Independent nets, no statistics in common: whatever agent 2 does, agents 0 and 1 learn the same."""
    spec, config, _ = CASES["alone"]
    prog, traj, other = program(spec, config), data("alone"), data("alone", 5)

    def agent_2(x, y):
        return x.at[:, :, 2].set(y[:, :, 2]) if x.ndim > 2 and x.shape[2] == N else x

    mixed = jax.tree.map(agent_2, traj, other)
    # The weight of a row is one over the number of living agents, so that number must stay.
    mixed = mixed._replace(step=mixed.step._replace(alive=traj.step.alive))
    (a, _), (b, _) = prog.update(prog.learner, traj, KEY), prog.update(prog.learner, mixed, KEY)
    for x, y in ((a.policy.actor, b.policy.actor), (a.critic, b.critic)):
        assert_trees_equal(jax.tree.map(lambda p: p[:2], x), jax.tree.map(lambda p: p[:2], y))
        assert distance(jax.tree.map(lambda p: p[2], x), jax.tree.map(lambda p: p[2], y)) > 1e-4


def test_copies_of_one_policy_act_as_agents_that_share_it():
    spec = make_spec()
    options = {"agent_id": False, "critic_input": "local"}
    shared = program(spec, replace(BASE, **options), Scale(E, T, 3))
    copies = program(spec, replace(BASE, sharing="independent", **options), Scale(E, T, 3))
    many = jax.tree.map(lambda x: jnp.repeat(x, N, 0), shared.learner.policy.actor)
    learner = copies.learner._replace(policy=copies.learner.policy._replace(actor=many))
    traj = make_trajectory(spec)
    one, several = acted(shared, shared.learner, traj), acted(copies, learner, traj)
    np.testing.assert_array_equal(one.action, several.action)
    np.testing.assert_allclose(one.extras["log_prob"], several.extras["log_prob"], rtol=1e-5, atol=1e-6)
    for x, n in ((shared.learner, 1), (copies.learner, N)):
        assert all(leaf.shape[0] == n for leaf in jax.tree.leaves((x.policy.actor, x.critic, x.optimiser)))


@pytest.mark.parametrize(("discount", "bootstraps"), [(0.0, False), (1.0, True)], ids=["termination", "time limit"])
def test_a_time_limit_bootstraps_on_what_came_after_and_a_termination_does_not(discount, bootstraps):
    spec, config, _ = CASES["by role"]
    prog, traj = program(spec, config), data("by role")
    end = (2, 1)
    outcome = traj.outcome._replace(
        last=traj.outcome.last.at[end].set(True),
        discount=traj.outcome.discount.at[end].set(discount),
        alive=traj.outcome.alive.at[end].set(True),
    )
    step = traj.step._replace(alive=traj.step.alive.at[end].set(True))
    traj = traj._replace(step=step, outcome=outcome)
    elsewhere = traj._replace(outcome=outcome._replace(obs=outcome.obs.at[end].add(2.0)))
    a, b = (prog.update(prog.learner, x, KEY)[0] for x in (traj, elsewhere))
    assert (distance(a.critic, b.critic) > 1e-5) == bootstraps
    assert (distance(a.policy.actor, b.policy.actor) > 1e-6) == bootstraps


def test_nothing_passes_from_an_episode_to_the_one_before_it():
    """λ = 1, every episode one step long: what happens at the last moment changes no earlier target."""
    spec, config, _ = CASES["by role"]
    prog, traj = program(spec, config), data("by role")
    traj = traj._replace(
        step=traj.step._replace(alive=traj.step.alive.at[-1].set(False)),
        outcome=traj.outcome._replace(last=jnp.ones((T, E), bool), discount=jnp.ones((T, E, N))),
    )
    rich = traj._replace(outcome=traj.outcome._replace(reward=traj.outcome.reward.at[-1].add(100.0)))
    assert_trees_equal(*(prog.update(prog.learner, x, KEY) for x in (traj, rich)))


@pytest.mark.parametrize("name", ["central", "alone", "squashed", "recurrent"])
def test_an_update_returns_a_learner_of_the_same_types(name):
    """So that a loop can be compiled around it and a checkpoint be restored into it."""
    spec, config, _ = CASES[name]
    algorithm = program(spec, config).algorithm
    before = jax.eval_shape(algorithm.init, KEY)
    after, metrics = jax.eval_shape(algorithm.update, before, data(name), KEY)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for (path, x), y in zip(jax.tree.leaves_with_path(after), jax.tree.leaves(before), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), jax.tree_util.keystr(path)
    assert all(x.shape == () for x in metrics.values())


def test_the_key_of_an_update_determines_only_the_order_of_samples():
    spec = make_spec()
    prog = program(spec, replace(BASE, critic_input="local", agent_id=False, minibatches=2, kl_coef=0.2))
    traj = make_trajectory(spec)
    once, twice, other = (prog.update(prog.learner, traj, jax.random.key(k))[0] for k in (1, 1, 2))
    assert_trees_equal(once, twice)
    assert 1e-5 < distance(once.policy.actor, other.policy.actor) < 1.0
    assert_trees_equal(once.statistics, other.statistics)


def test_layer_norms_and_activations_reach_actor_and_critic():
    spec = make_spec()
    nets = [
        Body((4,)),
        Body((4,), activation="relu"),
        Body((4,), layer_norm=True),
        Body((4,), input_layer_norm=True),
    ]
    counts = []
    for net in nets:
        learner = jax.eval_shape(mappo.make(spec, replace(BASE, network=net), Scale(E, T, 1)).init, KEY)
        counts.append([len(jax.tree.leaves(x)) for x in (learner.policy.actor, learner.critic)])
    assert counts == [[4, 4], [4, 4], [6, 6], [6, 6]]
