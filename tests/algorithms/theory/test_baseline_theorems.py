"""Theorems on baselines, by going through every joint action: nothing is sampled.

Foerster et al. 2018 (COMA), lemma 1: the counterfactual baseline adds no bias. Kuba et al. 2021, theorem 1 (the excess
variance of the centralised estimator) and theorem 3 (the optimal baseline), with gradients with respect to logits.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import mapg
from shoal.equations.baselines import softmax_score_square
from shoal.equations.distributions import Categorical
from shoal.models.action_critic import Options, make_action_critic
from shoal.networks.body import Body
from shoal.types import Discrete, EnvSpec, Step

N, A = 3, 3
BASELINES = ("none", "counterfactual", "optimal")


def softmax(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def joint_actions(n, actions):
    return np.array(list(itertools.product(range(actions), repeat=n)))


def options_of(table, pi, agent):
    """For every joint action [A^n, 1, 1, A]: the agent's values with the others' actions held fixed."""
    joint = joint_actions(*pi.shape)
    rows = []
    for u in joint:
        chosen = [np.array(u) for _ in range(pi.shape[1])]
        for v, own in enumerate(chosen):
            own[agent] = v
        rows.append([table[tuple(own)] for own in chosen])
    p = jnp.array(np.broadcast_to(pi[agent], (len(joint), pi.shape[1])), jnp.float32)
    square = softmax_score_square(p, jnp.ones((1, pi.shape[1]), bool))
    return Options(*(x[:, None, None] for x in (jnp.array(rows, jnp.float32), p, square)))


def estimates(table, pi, agent, baseline):
    """(probability of each joint action, the agent's gradient estimate there [A^n, A])."""
    joint = joint_actions(*pi.shape)
    probability = np.prod([pi[i, joint[:, i]] for i in range(len(pi))], 0)
    q = jnp.array([table[tuple(u)] for u in joint], jnp.float32)[:, None, None]
    x = np.asarray(mapg.advantage_over(baseline, q, options_of(table, pi, agent)), np.float64)[:, 0]
    return probability, (np.eye(pi.shape[1])[joint[:, agent]] - pi[agent]) * x


def mean_and_variance(probability, g):
    mean = probability @ g
    return mean, probability @ np.square(g).sum(-1) - np.square(mean).sum()


@pytest.mark.parametrize("seed", range(4))
def test_variance_is_ordered_optimal_counterfactual_none(seed):
    """For values of one sign with max ≤ 2 min, b* and the counterfactual one are closer to each other than to 0."""
    rng = np.random.default_rng(seed)
    gains = []
    for _ in range(10):
        table, pi = rng.uniform(1, 2, (A,) * N), softmax(2 * rng.normal(size=(N, A)))
        for agent in range(N):
            means, variances = zip(
                *(mean_and_variance(*estimates(table, pi, agent, b)) for b in BASELINES), strict=True
            )
            np.testing.assert_allclose(means[1:], [means[0]] * 2, atol=1e-5)  # the same gradient in expectation
            none, counterfactual, optimal = variances
            assert optimal <= counterfactual + 1e-7 and counterfactual <= none + 1e-7
            gains.append((counterfactual / none, optimal / counterfactual))
    assert np.median(gains, 0)[0] < 0.2 and np.median(gains, 0)[1] < 0.95


def test_no_other_baseline_has_less_variance_than_the_optimal_one():
    rng = np.random.default_rng(0)
    table, pi = 10 * rng.normal(size=(A,) * N), softmax(rng.normal(size=(N, A)))
    probability, g = estimates(table, pi, 0, "optimal")
    least = mean_and_variance(probability, g)[1]
    joint = joint_actions(N, A)
    score = np.eye(A)[joint[:, 0]] - pi[0]
    for _ in range(100):
        shift = rng.normal(size=(A,) * (N - 1))[joint[:, 1], joint[:, 2]]  # any function of the others' actions
        assert mean_and_variance(probability, g - shift[:, None] * score)[1] > least


def loud(n):
    """r(u) = Σ_j ±1 and uniform policies: every agent is noise to every other one."""
    table = sum(2.0 * np.indices((2,) * n)[j] - 1.0 for j in range(n))
    return table, np.full((n, 2), 0.5)


def excess_and_bound(table, pi, agent):
    """Var[g_C] − Var[g_D] and Theorem 1's bound B_i² Σ_{j≠i} ε_j², for γ = 0."""
    probability, centralised = estimates(table, pi, agent, "none")
    joint = joint_actions(*pi.shape)
    given = probability @ np.eye(pi.shape[1])[joint[:, agent]]
    own = (probability * table.ravel()) @ np.eye(pi.shape[1])[joint[:, agent]] / given  # Q^i(u_i)
    score = np.eye(pi.shape[1])[joint[:, agent]] - pi[agent]
    decentralised = score * own[joint[:, agent], None]
    (mean_c, var_c), (mean_d, var_d) = (mean_and_variance(probability, g) for g in (centralised, decentralised))
    np.testing.assert_allclose(mean_c, mean_d, atol=1e-5)
    others = [j for j in range(len(pi)) if j != agent]
    advantage = [np.abs(estimates_of_advantage(table, pi, j)).max() for j in others]
    return var_c - var_d, np.square(score).sum(-1).max() * np.square(advantage).sum()


def estimates_of_advantage(table, pi, j):
    """A^j(u) = Q(u) − E_{u_j}[Q(u)], which is what the counterfactual baseline leaves."""
    joint = joint_actions(*pi.shape)
    q = jnp.array([table[tuple(u)] for u in joint], jnp.float32)[:, None, None]
    return np.asarray(mapg.advantage_over("counterfactual", q, options_of(table, pi, j)))


def test_excess_variance_grows_linearly_in_the_number_of_agents():
    """Each further agent adds B² ε² = ½: the bound of Theorem 1 is attained."""
    excess, bound = zip(*(excess_and_bound(*loud(n), 0) for n in range(2, 7)), strict=True)
    np.testing.assert_allclose(excess, 0.5 * np.arange(1, 6), rtol=1e-5)
    np.testing.assert_allclose(bound, excess, rtol=1e-5)


def test_excess_variance_stays_under_its_bound():
    rng = np.random.default_rng(1)
    for n in (2, 3, 4):
        for _ in range(5):
            table, pi = rng.normal(size=(2,) * n), softmax(rng.normal(size=(n, 2)))
            for agent in range(n):
                excess, bound = excess_and_bound(table, pi, agent)
                assert -1e-6 < excess < bound


SPEC = EnvSpec(
    name="toy",
    agents=("a", "b", "c"),
    obs_dims=(2, 2, 2),
    state_dim=2,
    action=Discrete(A),
    action_dims=(A,) * N,
    roles=(0,) * N,
    horizon=1,
    shared_reward=True,
)


def everywhere(rng):
    """One moment in A^N environments, a joint action in each."""
    envs = A**N

    def same(*shape):
        return jnp.broadcast_to(jnp.array(rng.normal(size=shape), jnp.float32), (1, envs, *shape))

    true, false = jnp.ones((1, envs), bool), jnp.zeros((1, envs), bool)
    legal = jnp.ones((1, envs, N, A), bool).at[..., 1, 0].set(False)
    zeros = jnp.zeros((1, envs, N))
    step = Step(same(N, 2), same(2), legal, jnp.ones((1, envs, N), bool), zeros, zeros, true, false)
    dist = Categorical(same(N, A), legal)
    return step, dist, jnp.array(joint_actions(N, A), jnp.int32)[None]


@pytest.mark.parametrize("baseline", ["counterfactual", "optimal"])
@pytest.mark.parametrize("kind", ["concat", "agent"])
def test_the_critic_s_baselines_have_no_bias(baseline, kind):
    """E[b ∇ log π] = 0 over all joint actions with b from a critic's net: it would not be if b knew the agent's own."""
    rng = np.random.default_rng(2)
    step, dist, u = everywhere(rng)
    critic = make_action_critic(SPEC, Body((8,)), kind, (0,) * N, True)
    params = critic.init(jax.random.key(0))
    params["head"] = jax.tree.map(lambda x: 100 * x, params["head"])  # a fresh critic is nearly flat
    options = jax.jit(lambda params, step, u, dist, key: critic.options(params, step, u, dist, key, 1, 0.0))(
        params, step, u, dist, jax.random.key(0)
    )
    q = critic.taken(params, step, u)
    b = np.asarray(q - mapg.advantage_over(baseline, q, options), np.float64)[0]
    assert b.std(0).min() > 1e-2  # it does know the others'
    pi = np.asarray(dist.probabilities(), np.float64)[0]
    u = np.asarray(u)[0]
    probability = np.prod(np.take_along_axis(pi, u[..., None], -1)[..., 0], -1)
    score = np.eye(A)[u] - pi
    np.testing.assert_allclose(probability.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(np.einsum("e,en,ena->na", probability, b, score), 0, atol=1e-6)
    leaking = b + 0.1 * u  # the test can tell
    assert np.abs(np.einsum("e,en,ena->na", probability, leaking, score)).min(1).max() > 1e-3
