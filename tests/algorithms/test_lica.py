"""LICA's update against NumPy: targets, the critic's gradient, and the actors' gradient through its weights."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from shoal.algorithms import lica
from shoal.equations.distributions import Categorical
from shoal.networks.body import Body
from support import naive
from support.trajectories import E, N, T, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
RATE, EPS = 1.0, 1.0
"""A step size and an ε of Adam whose first step, RATE · g / (|g| + EPS), shows the gradient g."""
BASE = lica.Config(
    network=Body((4,), orthogonal=False),
    mixing_width=3,
    adam_eps=EPS,
    learning_rate=RATE,
    critic_learning_rate=RATE,
    max_grad_norm=None,
    entropy_coef=0.3,
    gamma=0.9,
    lam=0.7,
    chunk_length=T,
)
CASES = {
    "shared": replace(BASE, critic_input="state"),
    "by role, batch entropy": replace(BASE, sharing="role", entropy_scale="batch", hyper_layers=1),
    "alone, plain entropy": replace(BASE, sharing="independent", entropy_scale="none", lam=0.0),
    "plain critic": replace(BASE, mixing="mlp", agent_id=False, entropy_final=0.1),
    "recurrent": replace(BASE, network=Body((4,), recurrent=3, orthogonal=False), sharing=(1, 0, 1)),
}


@cache
def played(name):
    """(program, learner whose target network is another one, trajectory in which the last action is forced at ends)."""
    prog = program(SPEC, CASES[name])
    rng = np.random.default_rng(7)

    def noise(x):
        return jnp.array(rng.normal(size=x.shape) / 2, jnp.float32)

    learner = prog.learner
    learner = learner._replace(statistics=learner.statistics._replace(target=jax.tree.map(noise, learner.critic)))
    carry = jax.tree.map(noise, prog.algorithm.initial_carry(E))
    traj = make_trajectory(SPEC, 3, carry)
    end = traj.outcome.last.at[-1].set(True)
    forced = jnp.arange(4) == 2
    legal = jnp.where(end[..., None, None], forced, traj.outcome.legal)
    last = traj.outcome.last.at[2, 0].set(True)  # a time limit for sure
    outcome = traj.outcome._replace(legal=legal, last=last, discount=traj.outcome.discount.at[2, 0].set(1.0))
    there = jnp.concatenate([traj.step.alive[1:], outcome.alive[-1:]])  # who lives in outcome_t lives in step_{t+1}
    alive = jnp.where(last[..., None], outcome.alive, there)
    outcome = outcome._replace(legal=outcome.legal.at[2, 0].set(forced), alive=alive)
    return prog, learner, traj._replace(outcome=outcome)


@cache
def updated(name):
    prog, learner, traj = played(name)
    return prog.update(learner, traj, KEY)


def relu_net(params, x):
    for i in sorted(params.get("layers", {})):
        x = np.maximum(x @ params["layers"][i]["kernel"][0] + params["layers"][i]["bias"][0], 0)
    return x @ params["head"]["kernel"][0] + params["head"]["bias"][0]


def q_of(c, phi, x, u):
    """[T, E] from features [T, E, F] and rows [T, E, N, A]."""
    u = u.reshape(T, E, -1)
    if c.mixing == "mlp":
        return relu_net(phi, np.concatenate([x, u], -1))[..., 0]
    w1 = relu_net(phi["w1"], x).reshape(T, E, u.shape[-1], -1)
    hidden = np.maximum((u[..., None] * w1).sum(2) + relu_net(phi["b1"], x), 0)
    return (hidden * relu_net(phi["w2"], x)).sum(-1) + relu_net(phi["b2"], x)[..., 0]


def one_hot(action, alive):
    return (action[..., None] == np.arange(4)) * 1.0 * alive[..., None]


def targets(c, phi, traj):
    """y_t = r + γ d [(1 − λ) Q(s', u') + λ y_{t+1}], one environment at a time; the forced action 2 at ends."""
    u = np.concatenate([traj.action[1:], np.full((1, E, N), 2)])
    u = np.where(traj.outcome.last[..., None], 2, u)
    x = naive.features(SPEC, traj.outcome, c.critic_input, False)[0]
    following = q_of(c, phi, x, one_hot(u, traj.outcome.alive))
    following = np.where(traj.outcome.alive.any(-1), following, 0.0)  # nothing is learned of a team that is dead
    y = np.zeros((T, E))
    for t, e in ((t, e) for t in reversed(range(T)) for e in range(E)):
        there = traj.step.alive[t, e] | traj.outcome.alive[t, e]
        step = c.gamma * traj.outcome.discount[t, e][there if there.any() else slice(None)].max()
        ahead = following[t, e] if traj.outcome.last[t, e] or t == T - 1 else y[min(t + 1, T - 1), e]
        y[t, e] = traj.outcome.reward[t, e].mean() + step * ((1 - c.lam) * following[t, e] + c.lam * ahead)
    return y


def policies(c, theta, traj):
    """Probabilities [T, E, N, A] and entropies [T, E, N]."""
    index = naive.policy_index(SPEC, c.sharing)
    rows = naive.features(SPEC, traj.step, "local", c.agent_id and max(index) + 1 < N)
    p = np.zeros((T, E, N, 4))
    for i in range(N):
        carry = traj.carry.actor[:, i] if len(traj.carry.actor) else None
        logits = naive.forward(naive.of_policy(theta, index[i]), rows[i], carry, traj.step.first)
        weights = np.exp(logits) * traj.step.legal[:, :, i]
        p[:, :, i] = weights / weights.sum(-1, keepdims=True)
    return p, -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def objective(c, phi, theta, fixed, traj):
    """J(θ): the critic's value of the policies, and the bonus with the entropies ``fixed`` in its denominator."""
    p, entropy = policies(c, theta, traj)
    alive, some = traj.step.alive, traj.step.alive.any(-1)
    x = naive.features(SPEC, traj.step, c.critic_input, False)[0]
    q = q_of(c, phi, x, p * alive[..., None])
    over = {"agent": np.maximum(fixed, 1e-5), "batch": fixed[alive].mean(), "none": 1.0}[c.entropy_scale]
    bonus = c.entropy_coef * (alive * entropy / over).sum(-1) / np.maximum(alive.sum(-1), 1)
    return (q + bonus)[some].mean(), q[some].mean(), entropy


def slopes(f, params, directions):
    flat, h = np.asarray(ravel_pytree(params)[0], np.float64), 1e-6

    def at(x):
        leaves, start = [], 0
        for leaf in jax.tree.leaves(params):
            leaves.append(x[start : start + leaf.size].reshape(leaf.shape))
            start += leaf.size
        return f(jax.tree.unflatten(jax.tree.structure(params), leaves))

    return [(at(flat + h * d) - at(flat - h * d)) / (2 * h) for d in directions(flat.size)]


def directions(size):
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, size)) / np.sqrt(size)


def stepped(before, after):
    """What the step from ``before`` to ``after`` says that the slopes along the same directions were."""
    step = np.asarray(ravel_pytree(after)[0], np.float64) - np.asarray(ravel_pytree(before)[0], np.float64)
    return directions(step.size) @ (step * EPS / (RATE - np.abs(step)))


@pytest.mark.parametrize("name", CASES)
def test_the_critic_descends_the_squared_error_to_the_target_networks_lambda_return(name):
    """And nothing else: what the actors climb leaves no gradient in it."""
    c, (_, learner, traj), (after, metrics) = CASES[name], played(name), updated(name)
    traj = naive.to_numpy(traj)
    y = targets(c, naive.to_numpy(learner.statistics.target), traj)
    x = naive.features(SPEC, traj.step, c.critic_input, False)[0]
    some = traj.step.alive.any(-1)

    def loss(phi):
        q = q_of(c, phi, x, one_hot(traj.action, traj.step.alive))
        return 0.5 * ((y - q)[some] ** 2).mean()

    phi = naive.to_numpy(learner.critic)
    np.testing.assert_allclose(metrics["value_loss"], loss(phi), rtol=1e-4)
    np.testing.assert_allclose(
        -stepped(learner.critic, after.critic), slopes(loss, phi, directions), rtol=5e-3, atol=2e-4
    )


@pytest.mark.parametrize("name", CASES)
def test_actors_climb_the_online_critic_and_their_entropy_over_its_own_value(name):
    c, (_, learner, traj), (after, metrics) = CASES[name], played(name), updated(name)
    traj, phi = naive.to_numpy(traj), naive.to_numpy(after.critic)
    theta = naive.to_numpy(learner.policy.actor)
    fixed = policies(c, theta, traj)[1]
    gradient = slopes(lambda theta: objective(c, phi, theta, fixed, traj)[0], theta, directions)
    np.testing.assert_allclose(stepped(learner.policy.actor, after.policy.actor), gradient, rtol=5e-3, atol=2e-4)
    _, q, entropy = objective(c, phi, theta, fixed, traj)
    np.testing.assert_allclose(metrics["policy_loss"], -q, rtol=1e-3)
    np.testing.assert_allclose(metrics["entropy"], entropy_per_moment(entropy, traj.step.alive), rtol=1e-4)


def entropy_per_moment(entropy, alive):
    some = alive.any(-1)
    return ((alive * entropy).sum(-1)[some] / alive.sum(-1)[some]).mean()


def test_the_bonus_pulls_on_a_probability_by_log_p_plus_one_over_the_entropy():
    """dH_i = −(log p_i + 1) / H (section 3.3), and through the softmax ∂p_i/∂z_j = p_i (δ_ij − p_j)."""
    rng = np.random.default_rng(0)
    logits = jnp.array(3 * rng.normal(size=(40, 2, 5)), jnp.float32)
    legal = jnp.array(rng.random((40, 2, 5)) > 0.3).at[..., 0].set(True).at[0].set(jnp.arange(5) == 1)

    def bonus(z):
        return lica.adaptive_entropy("agent", Categorical(z, legal).entropy(), jnp.float32(0)).sum()

    value, gradient = jax.value_and_grad(bonus)(logits)
    p = np.asarray(Categorical(logits, legal).probabilities(), np.float64)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1, keepdims=True)
    choice = entropy[..., 0] > 1e-9  # one legal action leaves no choice, and no gradient
    pull = -(np.log(np.where(p > 0, p, 1)) + 1) / np.where(entropy > 0, entropy, 1)
    expected = np.where(choice[..., None], p * (pull - (p * pull).sum(-1, keepdims=True)), 0)
    np.testing.assert_allclose(gradient, expected, rtol=2e-3, atol=1e-5)
    assert not choice[0].any() and value == pytest.approx(choice.sum(), rel=1e-4)


def test_a_nearly_certain_policy_is_pulled_on_as_hard_as_an_uncertain_one():
    """The slope in its logits tends to one; that of the plain entropy vanishes."""
    logits = jnp.array([[0.0, 12.0]])

    def slope(scale):
        def bonus(z):
            entropy = Categorical(z, jnp.ones((1, 2), bool)).entropy()
            return lica.adaptive_entropy(scale, entropy, entropy.mean()).sum()

        return float(jax.grad(bonus)(logits)[0, 0])

    assert slope("none") < 1e-3 and 0.7 < slope("agent") < 1.1
    assert slope("batch") == pytest.approx(slope("agent"))
