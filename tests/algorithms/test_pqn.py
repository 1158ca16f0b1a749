"""PQN-VDN, IPQN and examples/sarsa.py: their updates against loops in NumPy, and what a tiny game teaches them.

What they have in common with every algorithm is tested with them, in test_every_algorithm.py.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sarsa
from shoal.algorithms import get, ipqn, pqn_vdn, vdn
from shoal.environments.matrix import TWO_STEP
from shoal.errors import InputError
from shoal.learning.optimiser import optimiser
from shoal.models.utilities import make_utilities
from shoal.networks.body import Body
from shoal.networks.sharing import policy_of
from shoal.types import Box, Scale, Trajectory
from support.environments import device_env
from support.joint_values import after, tables
from support.naive import alone
from support.naive_q import at, team
from support.small_games import configured, train
from support.trajectories import E, N, T, compiled, leaving, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
SMALL: dict[str, Any] = {
    "network": Body((4, 3), activation="relu", layer_norm=True, orthogonal=False),
    "gamma": 0.9,
    "lam": 0.7,
    "epochs": 1,
    "minibatches": 1,
    "learning_rate": 0.3,
    "lr_final": 1.0,
    "adam_eps": 0.5,
    "max_grad_norm": 0.5,
    "epsilon": 0.4,
}
CONFIGS = {"pqn_vdn": pqn_vdn.Config(**SMALL), "ipqn": ipqn.Config(**SMALL), "sarsa": sarsa.Config(**SMALL)}
GRU = replace(CONFIGS["pqn_vdn"], network=Body((4,), recurrent=3, layer_norm=True))


@cache
def data(carry: float | None = None) -> Trajectory:
    """Noise in which a third of the steps terminate for the whole team, in one nobody is alive, and most agents that
    die while the others play on are cut off by a time limit of their own."""
    rng = np.random.default_rng(3)
    start = () if carry is None else jnp.array(carry * rng.normal(size=(E, N, 3)), jnp.float32)
    traj = make_trajectory(SPEC, 3, start)
    goes_on = rng.random((T, E, 1)) > 0.3
    traj = traj._replace(step=traj.step._replace(alive=traj.step.alive.at[1, 2].set(False)))
    traj = leaving(traj._replace(outcome=traj.outcome._replace(discount=traj.outcome.discount * goes_on)))
    assert not np.asarray(traj.step.alive).any(-1).all() and np.asarray(traj.outcome.last).any()
    return traj


def targets(config: Any, following: np.ndarray, traj: Trajectory) -> np.ndarray:
    """G [T, E], or [T, E, N] of independent learners, from the utilities in each outcome."""
    out = jax.tree.map(np.asarray, traj.outcome)
    value = np.zeros((T, E, N))
    for where in np.argwhere(out.alive):
        q = following[*where][out.legal[*where]]
        value[*where] = q.max()
        if isinstance(config, sarsa.Config):
            value[*where] = (1 - config.epsilon) * q.max() + config.epsilon * q.mean()
    own = isinstance(config, ipqn.Config)
    reward, discount = (out.reward, out.discount) if own else team(traj)
    value = value if own else value.sum(-1)
    target = np.zeros_like(value)
    for one in np.ndindex(value.shape[1:]):
        for t in reversed(range(T)):
            now = (t, *one)
            later = value[now]
            if not (t == T - 1 or out.last[t, one[0]] or (own and alone(traj.outcome, traj.step, *now))):
                later = (1 - config.lam) * later + config.lam * target[t + 1, *one]
            target[now] = reward[now] + config.gamma * discount[now] * later
    return target


def chosen(config: Any, q: np.ndarray, traj: Trajectory) -> np.ndarray:
    """Q_tot [T, E] of the actions, or Q^i [T, E, N] of independent learners."""
    each = at(q, traj.action, traj.step.alive)
    return each if isinstance(config, ipqn.Config) else each.sum(-1)


def counted(config: Any, traj: Trajectory) -> np.ndarray:
    """Where there is something to learn."""
    alive = np.asarray(traj.step.alive)
    return alive if isinstance(config, ipqn.Config) else np.asarray(alive.any(-1))


def forward(theta: Any, step: Any) -> np.ndarray:
    """The utilities [T, E, N, A] of a feed-forward net with layer normalisation, in float64."""
    x = np.where(np.asarray(step.alive)[..., None], np.asarray(step.obs, np.float64), 0.0)
    x = np.concatenate([x, np.broadcast_to(np.eye(N), (*x.shape[:-1], N))], -1)
    for i in range(len(theta["layers"])):
        x = np.maximum(x @ theta["layers"][i]["kernel"][0] + theta["layers"][i]["bias"][0], 0.0)
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = x * theta["norms"][i]["scale"][0] + theta["norms"][i]["bias"][0]
    return x @ theta["head"]["kernel"][0] + theta["head"]["bias"][0]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_update_is_one_step_down_the_loss_of_a_loop(name: str) -> None:
    """Targets, loss, clip and step: the gradient is that of finite differences, with targets held still."""
    config = CONFIGS[name]
    prog, traj = program(SPEC, config), data()
    theta = jax.tree.map(lambda x: np.array(x, np.float64), prog.learner.policy.actor)
    learner = prog.learner._replace(policy=prog.learner.policy._replace(epsilon=jnp.float32(config.epsilon)))
    target, acted = targets(config, forward(theta, traj.outcome), traj), counted(config, traj)

    def error() -> np.ndarray:
        return (target - chosen(config, forward(theta, traj.step), traj))[acted]

    learner, metrics = prog.update(learner, traj, KEY)
    np.testing.assert_allclose(metrics["td_loss"], (error() ** 2).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error()).mean(), rtol=1e-4)
    q = chosen(config, forward(theta, traj.step), traj)[acted].mean()
    np.testing.assert_allclose(metrics["q"], q, rtol=1e-4)

    leaves, slopes = jax.tree.leaves(theta), []
    for leaf in leaves:
        slope = np.zeros(leaf.shape)
        for where in np.ndindex(leaf.shape):
            ends = []
            for move in (1e-6, -2e-6):
                leaf[where] += move
                ends.append((error() ** 2).mean())
            leaf[where] += 1e-6
            slope[where] = (ends[0] - ends[1]) / 2e-6
        slopes.append(slope)
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-3)
    assert norm > config.max_grad_norm  # so that the clip is seen
    for leaf, slope, after_step in zip(leaves, slopes, jax.tree.leaves(learner.policy.actor), strict=True):
        clipped = slope * config.max_grad_norm / norm
        step = (
            clipped / (np.abs(clipped) + 0.5) if name == "sarsa" else clipped
        )  # RAdam's first step has no denominator
        np.testing.assert_allclose(after_step, leaf - 0.3 * step, rtol=1e-3, atol=1e-4)


def test_radam_is_that_of_a_loop() -> None:
    """Algorithm 2 of Liu et al. 2020 without a clip, over its first twelve steps, of which five are not rectified."""
    rng, rate, eps = np.random.default_rng(0), 0.1, 1e-3
    slopes = rng.normal(size=(12, 1, 3)).astype(np.float32)
    radam = optimiser(rate, 1.0, [100], None, eps, rectified=True)
    params = jnp.zeros((1, 3))
    _, found = compiled(
        lambda state, slopes: jax.lax.scan(
            lambda c, g: (lambda p, s, _: ((p, s), p))(*radam.step(g, c[1], c[0])), state, slopes
        )
    )((params, radam.init(params)), slopes)
    x, m, v = np.zeros(3), np.zeros(3), np.zeros(3)
    most = 2 / (1 - 0.999) - 1
    for t, g in enumerate(slopes[:, 0], 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean, length = m / (1 - 0.9**t), most - 2 * t * 0.999**t / (1 - 0.999**t)
        step = mean
        if length >= 5:
            r = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            step = r * mean / (np.sqrt(v / (1 - 0.999**t)) + eps)
        x = x - rate * step
        np.testing.assert_allclose(found[t - 1, 0], x, rtol=2e-3, atol=1e-5, err_msg=str(t))


def naive(config: Any, theta: Any, traj: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """(targets, values) of the actions where they count, from states that are carried through the rollout."""
    q = compiled(make_utilities(SPEC, config.network, policy_of(SPEC, config.sharing), config.agent_id)[1])
    state, now, following = traj.carry, [], []
    for t in range(T):
        step, outcome = (jax.tree.map(lambda x, t=t: x[t : t + 1], x) for x in (traj.step, traj.outcome))
        state, value = q(theta, state, step)
        state = jax.tree.map(lambda h: h[-1], state)
        now.append(value[0])
        following.append(q(theta, state, outcome)[1][0])
    acted = counted(config, traj)
    return targets(config, np.array(following), traj)[acted], chosen(config, np.array(now), traj)[acted]


@pytest.mark.parametrize("kind", ["feed-forward", "recurrent"])
def test_a_recurrent_net_computes_its_targets_again_for_every_gradient_step(kind: str) -> None:
    """From the states that it acted from; a feed-forward net keeps its targets."""
    config = GRU if kind == "recurrent" else CONFIGS["pqn_vdn"]
    traj = data(1.0 if kind == "recurrent" else None)
    one, two = (program(SPEC, replace(config, epochs=epochs)) for epochs in (1, 2))
    learner, first = one.update(one.learner, traj, KEY)
    both = two.update(one.learner, traj, KEY)[1]
    target, value = naive(config, one.learner.policy.actor, traj)
    np.testing.assert_allclose(first["td_loss"], ((target - value) ** 2).mean(), rtol=1e-4)
    again, moved = naive(config, learner.policy.actor, traj)
    assert np.abs(again - target).max() > 0.01
    error = (again if kind == "recurrent" else target) - moved
    np.testing.assert_allclose(2 * both["td_loss"] - first["td_loss"], (error**2).mean(), rtol=1e-3)


def test_rollouts_of_a_recurrent_net_keep_their_states_in_shuffled_minibatches() -> None:
    """The step is too small to change a value."""
    config = replace(GRU, epochs=2, minibatches=2, learning_rate=1e-12)
    prog, traj = program(SPEC, config), make_trajectory(SPEC, 3, data(1.0).carry, dead=0.0)  # all weigh the same
    metrics = prog.update(prog.learner, traj, KEY)[1]
    target, value = naive(config, prog.learner.policy.actor, traj)
    np.testing.assert_allclose(metrics["td_loss"], ((target - value) ** 2).mean(), rtol=1e-4)


def test_epsilon_decreases_linearly_and_then_is_constant() -> None:
    prog = program(SPEC, replace(CONFIGS["pqn_vdn"], epsilon=0.8, epsilon_final=0.2, epsilon_fraction=0.5))  # of 10
    learner, traj = prog.learner, data()
    for k in range(8):
        assert float(learner.policy.epsilon) == pytest.approx(0.8 - 0.12 * min(k, 5), abs=1e-6)
        learner, metrics = prog.update(learner, traj, KEY)
        assert float(metrics["epsilon"]) == pytest.approx(0.8 - 0.12 * min(k, 5), abs=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_invalid_input_is_refused(name: str) -> None:
    module, config = get(name), CONFIGS[name]
    with pytest.raises(InputError, match="continuous ones"):
        module.make(make_spec(action=Box(2)), config, Scale(E, T, 1))
    with pytest.raises(InputError, match=r"20 timesteps per device .* do not divide into 7 minibatches"):
        module.make(SPEC, replace(config, minibatches=7), Scale(E, T, 1))
    with pytest.raises(InputError, match="epsilon_final must be at least 0"):
        module.make(SPEC, replace(config, epsilon_final=1.5), Scale(E, T, 1))


@pytest.mark.parametrize("name", ["pqn_vdn", "ipqn"])
def test_values_of_the_two_step_game_under_a_uniform_policy(name: str) -> None:
    """The sum has table 1a of Rashid et al. 2018: it thinks 2B's best is 6.5, and prefers 7. Independent learners have
    the mean over the other's actions, (0.5, 4.5)."""
    env = device_env("matrix/two_step")
    explore = {"epsilon": 1.0, "epsilon_final": 1.0, "lam": 0.0, "learning_rate": 1e-2, "sharing": "independent"}
    config = configured(name, **explore, epochs=2, minibatches=4)
    teams = train(name, env, config, updates=150, seeds=4, num_envs=32, length=2)
    q, greedy = tables(env, config, vdn.MIX, teams.after, [after(env), after(env, (0, 0)), after(env, (1, 0))])
    assert (greedy[:, 0, 0] == 0).all()
    if name == "pqn_vdn":
        np.testing.assert_allclose(q[:, 1], np.broadcast_to(TWO_STEP[1], q[:, 1].shape), atol=0.3)
        np.testing.assert_allclose(q[:, 2].mean(0), [[-1.5, 2.5], [2.5, 6.5]], atol=0.3)
    else:
        np.testing.assert_allclose(q[:, 2].mean(0), [[1.0, 5.0], [5.0, 9.0]], atol=0.4)


def test_mixers_that_need_more_than_a_sum_are_refused() -> None:
    for one in ({"learning_rate": 0.1}, {"draw": lambda key, step: ()}, {"constraints": lambda *parts: ()}):
        with pytest.raises(InputError, match=r"use qmix\.make"):
            pqn_vdn.make(SPEC, CONFIGS["pqn_vdn"], Scale(E, T, 1), vdn.MIX._replace(**one))
