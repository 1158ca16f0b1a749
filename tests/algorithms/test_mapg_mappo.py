"""MAPPO with Q̂ − b or R − b in place of GAE's advantage: the same update but for that, and Q fitted to V's targets."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.algorithms import mappo
from shoal.equations.returns import gae
from shoal.errors import InputError
from shoal.models.action_critic import make_action_critic
from shoal.models.actor_critic import make_nets
from shoal.networks.body import Body
from shoal.networks.sharing import policy_of
from shoal.types import Box, Scale
from support import naive
from support.algorithm_cases import BASE
from support.trajectories import E, N, T, assert_trees_close, compiled, distance, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
CONFIG = replace(BASE, critic_input="concat", epochs=1, value_norm="none", huber=None, max_grad_norm=None)
WITH_Q = replace(CONFIG, baseline="optimal")


def returns(learner, traj):
    """R, from V on its own parameters."""
    learner = learner._replace(critic={name: x for name, x in learner.critic.items() if name != "q"})
    now, out = make_nets(SPEC, CONFIG, (0,) * N).evaluate(learner, traj), traj.outcome
    value = jnp.array(naive.mask_dead_values(SPEC, np.asarray(now.value), np.asarray(traj.step.alive)))
    following = jnp.array(naive.mask_dead_values(SPEC, np.asarray(now.next_value), np.asarray(out.alive)))
    return gae(out.reward, out.discount, value, following, out.last, gamma=CONFIG.gamma, lam=CONFIG.lam)[1]


def advantage(config, learner, traj):
    """Q̂ − b or R − b from the parts, standardised over living agents."""
    index = policy_of(SPEC, config.sharing)
    nets = make_nets(SPEC, config, index)
    q = make_action_critic(SPEC, config.network, config.critic_input, (0,) * N, config.agent_id)
    _, dist = nets.actor.distribution(learner.policy.actor, (), traj.step)
    params = learner.critic["q"]
    options = q.options(params, traj.step, traj.action, dist, KEY, 1, 0.0)
    of_action = q.taken(params, traj.step, traj.action)
    from_what = of_action if config.baseline_from == "q" else returns(learner, traj)
    weight = options.p * (options.square + 1e-8 if config.baseline == "optimal" else 1.0)
    x = np.asarray(from_what - (weight * options.q).sum(-1) / weight.sum(-1))
    seen = x[np.asarray(traj.step.alive)]
    return (x - seen.mean()) / (seen.std() + 1e-5)


@pytest.mark.parametrize("baseline_from", ["q", "return"])
@pytest.mark.parametrize("baseline", ["counterfactual", "optimal"])
def test_the_actors_climb_q_or_the_return_minus_the_baseline(baseline, baseline_from):
    """Ratios are 1 before the first step, so that −policy_loss is the mean of X and its gradient that of log π X."""
    config = replace(WITH_Q, baseline=baseline, baseline_from=baseline_from, entropy_coef=0.0)
    prog, traj = program(SPEC, config), make_trajectory(SPEC)
    nets = make_nets(SPEC, config, policy_of(SPEC, config.sharing))
    _, dist = compiled(lambda theta, step: nets.actor.distribution(theta, (), step))(
        prog.learner.policy.actor, traj.step
    )
    traj = traj._replace(extras={"log_prob": dist.log_prob(traj.action)})
    x, alive = advantage(config, prog.learner, traj), np.asarray(traj.step.alive)

    def objective(theta):
        log_prob = nets.actor.distribution(theta, (), traj.step)[1].log_prob(traj.action)
        return -jnp.where(alive, log_prob * x, 0).sum() / alive.sum()

    slope = compiled(jax.grad(objective))(prog.learner.policy.actor)
    moved, _ = prog.update(prog.learner, traj, KEY)
    expected = jax.tree.map(
        lambda w, g: w - config.learning_rate * g / (jnp.abs(g) + config.adam_eps), prog.learner.policy.actor, slope
    )
    assert_trees_close(moved.policy.actor, expected, 1e-3, 1e-5)


def test_q_learns_v_s_targets_and_v_learns_what_it_did():
    prog, traj = program(SPEC, WITH_Q), make_trajectory(SPEC)
    plain = program(SPEC, CONFIG)
    v = {name: x for name, x in prog.learner.critic.items() if name != "q"}
    learner = plain.learner._replace(critic=v, policy=prog.learner.policy)
    (with_q, metrics), (without, _) = prog.update(prog.learner, traj, KEY), plain.update(learner, traj, KEY)
    assert_trees_close({k: x for k, x in with_q.critic.items() if k != "q"}, without.critic, 1e-4, 1e-6)
    target = returns(prog.learner, traj)
    critic = make_action_critic(SPEC, CONFIG.network, CONFIG.critic_input, (0,) * N, True)
    error = np.asarray(critic.taken(prog.learner.critic["q"], traj.step, traj.action) - target)
    np.testing.assert_allclose(metrics["q_loss"], np.square(error[traj.step.alive]).mean() / 2, rtol=1e-4)
    assert distance(with_q.critic["q"], prog.learner.critic["q"]) > 1e-4


OTHERS = {
    "ippo": (SPEC, {"critic_input": "local", "sharing": "independent"}),
    "recurrent": (SPEC, {"network": Body((4,), recurrent=4, orthogonal=False), "chunk_length": T, "sharing": "role"}),
    "gaussian": (make_spec(action=Box(2, -2.0, 1.0)), {"critic_input": "agent", "sharing": "role", "draws": 3}),
    "gaussian, return": (make_spec(action=Box(2, -2.0, 1.0)), {"baseline_from": "return", "draws": 3}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_learn_finite_numbers_and_keep_their_types(name):
    spec, options = OTHERS[name]
    prog = program(spec, replace(WITH_Q, value_norm="running", recompute_advantages=True, epochs=2, **options))
    traj = make_trajectory(spec, carry=prog.algorithm.initial_carry(E))
    gone = traj.step.alive[..., None]
    traj = traj._replace(step=traj.step._replace(obs=jnp.where(gone, traj.step.obs, jnp.nan)))
    learner, metrics = prog.update(prog.learner, traj, KEY)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((learner, metrics)))
    before = jax.eval_shape(prog.algorithm.init, KEY)
    after, _ = jax.eval_shape(prog.algorithm.update, before, traj, KEY)
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)


def test_unsupported_options_are_refused():
    for options, word in (({"value_norm": "popart"}, "popart"), ({"draws": 0}, "draws")):
        with pytest.raises(InputError, match=word):
            algorithms.get("mappo").make(SPEC, replace(WITH_Q, **options), Scale(E, T, 10))


def test_a_baseline_draws_from_a_key_that_no_epoch_has():
    """Children of a key by their numbers are those of ``split``, which the epochs have."""
    keys = []

    def baseline(learner, traj, key):
        keys.append(key)
        return jnp.zeros_like(traj.outcome.reward)

    config = replace(CONFIG, epochs=3)
    algorithm = mappo.make(SPEC, config, Scale(E, T, 10), baseline=baseline)
    learner, traj = algorithm.init(KEY), make_trajectory(SPEC)

    def of_baseline():
        algorithm.update(learner, traj, KEY)
        return jax.random.key_data(keys[-1])

    found = compiled(of_baseline)()  # without the rest of the update
    assert (jax.random.key_data(jax.random.split(KEY, 1000)) != found).any(1).all()
