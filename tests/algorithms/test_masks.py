"""Illegal actions and dead agents: what is ruled out changes no number."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.networks.body import Body
from shoal.types import Scale
from support import naive
from support.algorithm_cases import BASE, CASES, data, seasoned
from support.trajectories import (
    E,
    T,
    acted,
    assert_trees_close,
    assert_trees_equal,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
RNG = np.random.default_rng(0)


def spoil(x, where):
    """NaN where nobody should look."""
    return jnp.where(where, x, jnp.nan)


@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
def test_no_agent_ever_takes_an_illegal_action(greedy):
    """A policy that wants nothing but action 3, which is often illegal."""
    spec = make_spec()
    prog = program(spec, replace(BASE, critic_input="local"), Scale(200, 2, 1))
    actor = prog.learner.policy.actor
    actor = {**actor, "head": {**actor["head"], "bias": actor["head"]["bias"].at[0, 3].set(20.0)}}
    learner = prog.learner._replace(policy=prog.learner.policy._replace(actor=actor))
    traj = naive.to_numpy(acted(prog, learner, make_trajectory(spec, length=2, envs=200), greedy=greedy))
    chosen = np.take_along_axis(traj.step.legal, traj.action[..., None], -1)[..., 0]
    assert chosen.all() and not traj.step.legal[..., 3].all()
    assert (traj.action == 3)[traj.step.legal[..., 3]].all()
    assert len(np.unique(traj.action)) == 4
    own = naive.of_policy(naive.to_numpy(actor), 0)
    y = np.stack([naive.forward(own, x) for x in naive.features(spec, traj.step, "local", True)], 2)
    for t, e, i in np.ndindex(2, 20, 3):
        legal = traj.step.legal[t, e, i]
        log_prob, _ = naive.log_prob_and_entropy(spec, BASE, y[t, e, i], None, legal, traj.action[t, e, i])
        np.testing.assert_allclose(traj.extras["log_prob"][t, e, i], log_prob, rtol=1e-4, atol=1e-4)
        if greedy:
            assert traj.action[t, e, i] == np.argmax(np.where(legal, y[t, e, i], -np.inf))


def test_an_illegal_action_s_logit_changes_nothing_and_learns_nothing():
    spec, config, _ = CASES["central"]
    prog, traj = program(spec, config), data("central")
    traj = traj._replace(
        step=traj.step._replace(legal=traj.step.legal.at[..., 3].set(False)),
        action=jnp.where(traj.action == 3, 0, traj.action),
    )

    def with_logit_3(shift, factor):
        head = prog.learner.policy.actor["head"]
        head = {"kernel": head["kernel"].at[..., 3].mul(factor), "bias": head["bias"].at[..., 3].add(shift)}
        return prog.learner._replace(
            policy=prog.learner.policy._replace(actor={**prog.learner.policy.actor, "head": head})
        )

    learner, other = prog.learner, with_logit_3(30.0, -5.0)
    (after, metrics), (other_after, other_metrics) = (prog.update(x, traj, KEY) for x in (learner, other))
    assert_trees_equal(metrics, other_metrics)
    for start, end in ((learner, after), (other, other_after)):
        for name in ("kernel", "bias"):
            before, now = start.policy.actor["head"][name], end.policy.actor["head"][name]
            np.testing.assert_array_equal(before[..., 3], now[..., 3])
            assert (before[..., :3] != now[..., :3]).any()
    assert_trees_equal(after.policy.actor["layers"], other_after.policy.actor["layers"])


@pytest.mark.parametrize("name", ["central", "by role", "alone", "gaussian", "squashed", "recurrent"])
def test_nan_of_dead_agents_does_not_reach_the_update(name):
    spec, config, _ = CASES[name]
    prog, traj = program(spec, config), data(name)
    alive, later = traj.step.alive[..., None], traj.outcome.alive[..., None]
    width = (slice(None),) * 3 + (None,) * (traj.action.ndim - 3)
    nonsense = traj._replace(
        step=traj.step._replace(obs=spoil(traj.step.obs, alive), legal=traj.step.legal & alive),
        outcome=traj.outcome._replace(obs=spoil(traj.outcome.obs, later)),
        action=jnp.where(traj.step.alive[width], traj.action, 0),
        extras={"log_prob": jnp.where(traj.step.alive, traj.extras["log_prob"], -1e9)},
    )
    assert jnp.isnan(nonsense.step.obs).any() and jnp.isnan(nonsense.outcome.obs).any()
    learner = seasoned(prog.learner)
    after = prog.update(learner, nonsense, KEY)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(after))
    assert_trees_equal(after, prog.update(learner, traj, KEY))


PADDED = replace(
    BASE,
    critic_input="local",
    agent_id=False,
    normalise_inputs=True,
    value_norm="popart",
    minibatches=2,
    kl_coef=0.1,
    target_entropy=0.5,
)


def test_an_agent_that_is_never_alive_changes_nothing():
    spec = make_spec(3)
    wide = replace(make_spec(4), obs_dims=(*spec.obs_dims, spec.obs_dim))
    small, large = program(spec, PADDED), program(wide, PADDED)
    traj, noise = make_trajectory(spec), make_trajectory(wide, 9)

    def pad(x, filler):
        return jnp.concatenate([x, filler[:, :, 3:]], 2) if x.ndim > 2 and x.shape[2] == 3 else x

    padded = jax.tree.map(pad, traj, noise)
    dead = {"alive": padded.step.alive.at[..., 3].set(False), "obs": padded.step.obs.at[..., 3, :].set(jnp.nan)}
    padded = padded._replace(step=padded.step._replace(**dead), outcome=padded.outcome._replace(**dead))
    traj = traj._replace(outcome=traj.outcome._replace(alive=traj.step.alive, obs=traj.step.obs))
    learner = seasoned(small.learner)

    def of_all_agents(learner, change):
        """With the statistics of the agents' observations, [N, O], changed."""
        inputs = learner.policy.inputs
        inputs = inputs._replace(obs=jax.tree.map(change, inputs.obs))
        return learner._replace(policy=learner.policy._replace(inputs=inputs))

    four = of_all_agents(learner, lambda x: jnp.concatenate([x, 2 * x[:1] + 1]))
    (alone, metrics), (crowded, others) = small.update(learner, traj, KEY), large.update(four, padded, KEY)
    assert_trees_equal(*(jax.tree.map(lambda x: x[3], one.policy.inputs.obs) for one in (crowded, four)))
    assert_trees_close((of_all_agents(crowded, lambda x: x[:3]), others), (alone, metrics), 1e-5, 1e-5)


def test_a_dead_team_does_not_change_the_parameters():
    spec, config, _ = CASES["central"]
    prog, traj = program(spec, config), data("central")
    gone = jnp.zeros((T, E, 3), bool)
    traj = traj._replace(step=traj.step._replace(alive=gone), outcome=traj.outcome._replace(alive=gone))
    before, _ = prog.update(prog.learner, data("central"), KEY)  # Adam's moments are not 0 any more
    after, metrics = prog.update(before, traj, KEY)
    assert_trees_equal((after.policy, after.critic, after.optimiser), (before.policy, before.critic, before.optimiser))
    assert_trees_equal(after.statistics, before.statistics)
    assert all(jnp.isfinite(x) for x in metrics.values())


def test_a_dead_agent_s_features_are_zero_also_for_normalised_inputs_and_layer_norms():
    """Zero after normalising: the network reads the same whatever the statistics are."""
    spec = make_spec()
    config = replace(BASE, critic_input="local", normalise_inputs=True, network=Body((4,), input_layer_norm=True))
    prog = program(spec, config, Scale(8, 1, 1))
    traj = make_trajectory(spec, length=1, envs=8, dead=1.0)
    log_probs = [acted(prog, x, traj, greedy=True).extras["log_prob"] for x in (prog.learner, seasoned(prog.learner))]
    np.testing.assert_array_equal(log_probs[0], log_probs[1])
