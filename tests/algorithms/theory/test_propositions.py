"""Propositions on tiny games, whose values and probabilities are computed exactly.

Kuba et al. 2022 (HAPPO/HATRPO), proposition 1: a policy shared by all earns at most 2 / 2ⁿ of the optimum.
Lowe et al. 2017 (MADDPG), proposition 1: a sampled policy gradient points the right way with probability 2⁻ᴺ.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.distributions import Categorical
from support.environments import device_env
from support.small_games import configured, exact_value, payoff, probabilities, train

SEEDS = 8
FLAGS = {"learning_rate": 0.03, "entropy_coef": 0.03, "entropy_final": 0.0, "lr_final": 0.0, "epochs": 4}


def proposition1(num_agents):
    return device_env("matrix/proposition1", num_agents=num_agents)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_a_shared_policy_reaches_its_best_return_but_not_the_optimum(n):
    """It starts far from its optimum, with a probability of 0.9 for one action, and has no bonus for entropy."""
    env = proposition1(n)
    flags = FLAGS | {"sharing": "shared", "agent_id": False, "entropy_coef": 0.0}
    config = configured("mappo", **flags)

    def lopsided(learner):
        head = learner.policy.actor["head"]
        actor = {**learner.policy.actor, "head": {**head, "bias": head["bias"] + jnp.array([0.0, np.log(9.0)])}}
        return learner._replace(policy=learner.policy._replace(actor=actor))

    teams = train("mappo", env, config, updates=60, seeds=SEEDS, num_envs=128, start=lopsided)
    best = 2 / 2**n
    p = probabilities(env, config, teams.after)
    np.testing.assert_allclose(p, p[:, :1].repeat(n, 1), rtol=1e-6)  # one policy, and nothing tells the agents apart
    before, value = exact_value(payoff(env), probabilities(env, config, teams.before)), exact_value(payoff(env), p)
    assert before.max() < 0.5 * best
    assert 0.9 * best < value.min() <= value.max() < best + 1e-6
    assert value.mean() > 0.97 * best


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "n"), [("mappo", 2), ("happo", 4)])
def test_separate_policies_reach_the_optimum(algorithm, n):
    env = proposition1(n)
    config = configured(algorithm, **FLAGS, sharing="independent")
    teams = train(algorithm, env, config, updates=80, seeds=SEEDS, num_envs=128)
    value = exact_value(payoff(env), probabilities(env, config, teams.after))
    assert value.min() > 0.95


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_sampled_gradient_points_the_right_way_with_probability_one_half_to_the_n(n):
    """All probabilities 1/2: ⟨ĝ, ∇J⟩ > 0 for one joint action in 2ᴺ, and = 0 for all the others."""
    env = device_env("matrix/all_ones", num_agents=n)
    legal = jnp.ones((n, 2), bool)

    def log_prob(logits, action):
        return Categorical(logits, legal).log_prob(action).sum()

    def sampled(action):
        """ĝ = r(a) ∇ log π(a), with the reward that the environment gives."""
        state, _ = env.reset(jax.random.key(0))
        _, outcome = env.step(jax.random.key(0), state, action)
        return outcome.reward[0] * jax.grad(log_prob)(jnp.zeros((n, 2)), action)

    joint = jnp.array(list(itertools.product(range(2), repeat=n)), jnp.int32)
    samples = 1 << 14
    noise = jax.random.uniform(jax.random.key(n), (samples, n))
    drawn = Categorical(jnp.zeros((samples, n, 2)), legal).sample_from(noise)
    estimates = np.asarray(jax.jit(jax.vmap(sampled))(jnp.concatenate([joint, drawn])), np.float64)
    every, seen = estimates[: len(joint)], estimates[len(joint) :]
    gradient = every.mean(0)  # ∇J: at 1/2 all joint actions are equally likely
    assert (gradient[:, 1] > 0).all()
    right = (every * gradient).sum((1, 2))
    assert (right > 0).mean() == 0.5**n and (right >= 0).all()
    share = ((seen * gradient).sum((1, 2)) > 0).mean()
    error = np.sqrt(0.5**n * (1 - 0.5**n) / samples)
    assert abs(share - 0.5**n) < 4 * error
    # A component's variance is 2⁻ᴺ − 2⁻²ᴺ in units of its value where the reward is 1 (the paper's second claim).
    unit = every[-1, 0, 1]
    np.testing.assert_allclose(every[:, 0, 1].var() / unit**2, 0.5**n - 0.25**n, rtol=1e-5)
