"""PQN, the algorithm of examples/pqn.py: its update against loops in NumPy, and what a tiny game teaches it.

What it has in common with every algorithm is tested with them, in test_every_algorithm.py and test_stop_and_resume.py.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pqn
from shoal.algorithms import vdn
from shoal.environments.matrix import TWO_STEP
from shoal.errors import InputError
from shoal.models.utilities import make_utilities
from shoal.networks.body import Body
from shoal.networks.sharing import policy_of
from shoal.types import Box, Scale, Trajectory
from support.environments import device_env
from support.joint_values import after, tables
from support.small_games import configured, train
from support.trajectories import E, N, T, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
OWN = "pqn"
CONFIG = pqn.Config(
    network=Body((4, 3), activation="relu", layer_norm=True, orthogonal=False),
    gamma=0.9,
    lam=0.7,
    epochs=1,
    minibatches=1,
    learning_rate=0.3,
    lr_final=1.0,
    adam_eps=0.5,
    max_grad_norm=0.5,
)


def data(carry: Any = (), dead: float = 0.3) -> Trajectory:
    """Noise in which a third of the steps terminate for the whole team, and in one nobody is alive."""
    traj = make_trajectory(SPEC, 3, carry, dead=dead)
    goes_on = np.random.default_rng(3).random((T, E, 1)) > 0.3
    alive = traj.step.alive.at[1, 2].set(dead == 0)
    outcome = traj.outcome._replace(discount=traj.outcome.discount * goes_on)
    return traj._replace(step=traj.step._replace(alive=alive), outcome=outcome)


def targets(config: pqn.Config, following: np.ndarray, traj: Trajectory) -> np.ndarray:
    """G [T, E] from the utilities in each outcome, one timestep after the other from the end."""
    out, target = jax.tree.map(np.asarray, traj.outcome), np.zeros((T, E))
    for e in range(E):
        for t in reversed(range(T)):
            best = [max(following[t, e, i][out.legal[t, e, i]]) for i in range(N) if out.alive[t, e, i]]
            acting = [i for i in range(N) if traj.step.alive[t, e, i]] or range(N)
            discount = max(out.discount[t, e, i] for i in acting)
            later = sum(best)
            if t + 1 < T and not out.last[t, e]:
                later = (1 - config.lam) * later + config.lam * target[t + 1, e]
            target[t, e] = sum(out.reward[t, e]) / N + config.gamma * discount * later
    return target


def chosen(q: np.ndarray, traj: Trajectory) -> np.ndarray:
    """Q_tot [T, E] of the actions."""
    value = np.zeros((T, E))
    for t, e, i in np.argwhere(np.asarray(traj.step.alive)):
        value[t, e] += q[t, e, i, int(traj.action[t, e, i])]
    return value


def forward(theta: Any, step: Any) -> np.ndarray:
    """The utilities [T, E, N, A] of a feed-forward net with layer normalisation, in float64."""
    x = np.where(np.asarray(step.alive)[..., None], np.asarray(step.obs, np.float64), 0.0)
    x = np.concatenate([x, np.broadcast_to(np.eye(N), (*x.shape[:-1], N))], -1)
    for i in range(len(theta["layers"])):
        x = np.maximum(x @ theta["layers"][i]["kernel"][0] + theta["layers"][i]["bias"][0], 0.0)
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = x * theta["norms"][i]["scale"][0] + theta["norms"][i]["bias"][0]
    return x @ theta["head"]["kernel"][0] + theta["head"]["bias"][0]


def test_an_update_is_one_step_of_adam_down_the_loss_of_a_loop() -> None:
    """Targets, loss, clip and step: the gradient is that of finite differences, with targets held still."""
    prog, traj = program(SPEC, CONFIG), data()
    theta = jax.tree.map(lambda x: np.array(x, np.float64), prog.learner.policy.actor)
    assert not np.asarray(traj.step.alive).any(-1).all() and np.asarray(traj.outcome.last).any()
    target, acted = targets(CONFIG, forward(theta, traj.outcome), traj), np.asarray(traj.step.alive).any(-1)

    def error() -> np.ndarray:
        return (target - chosen(forward(theta, traj.step), traj))[acted]

    learner, metrics = prog.update(prog.learner, traj, KEY)
    np.testing.assert_allclose(metrics["td_loss"], (error() ** 2).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error()).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["q"], chosen(forward(theta, traj.step), traj)[acted].mean(), rtol=1e-4)

    leaves, slopes = jax.tree.leaves(theta), []
    for leaf in leaves:
        slope = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            ends = []
            for move in (1e-6, -2e-6):
                leaf[at] += move
                ends.append((error() ** 2).mean())
            leaf[at] += 1e-6
            slope[at] = (ends[0] - ends[1]) / 2e-6
        slopes.append(slope)
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-3)
    assert norm > CONFIG.max_grad_norm  # so that the clip is seen
    for leaf, slope, after_step in zip(leaves, slopes, jax.tree.leaves(learner.policy.actor), strict=True):
        clipped = slope * CONFIG.max_grad_norm / norm
        np.testing.assert_allclose(after_step, leaf - 0.3 * clipped / (np.abs(clipped) + 0.5), rtol=1e-3, atol=1e-4)


def test_a_recurrent_net_is_trained_from_the_states_that_it_acted_from() -> None:
    """Also where rollouts are cut into minibatches and shuffled; the step is too small to change a value."""
    config = replace(CONFIG, network=Body((4,), recurrent=3, layer_norm=True), epochs=2, minibatches=2)
    config = replace(config, learning_rate=1e-12)
    prog, rng = program(SPEC, config), np.random.default_rng(0)
    start = jnp.array(rng.normal(size=(E, N, 3)), jnp.float32)
    traj = data(start, dead=0.0)
    traj = traj._replace(outcome=traj.outcome._replace(alive=jnp.ones((T, E, N), bool)))
    _, metrics = prog.update(prog.learner, traj, KEY)

    q = compiled(make_utilities(SPEC, config.network, policy_of(SPEC, config.sharing), config.agent_id)[1])
    state, now, following = start, [], []
    for t in range(T):
        step, outcome = (jax.tree.map(lambda x, t=t: x[t : t + 1], x) for x in (traj.step, traj.outcome))
        state, value = q(prog.learner.policy.actor, state, step)
        state = state[-1]
        now.append(value[0])
        following.append(q(prog.learner.policy.actor, state, outcome)[1][0])
    error = targets(config, np.array(following), traj) - chosen(np.array(now), traj)
    np.testing.assert_allclose(metrics["td_loss"], (error**2).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error).mean(), rtol=1e-4)


def test_epsilon_decreases_linearly_and_then_is_constant() -> None:
    prog = program(SPEC, replace(CONFIG, epsilon=0.8, epsilon_final=0.2, epsilon_fraction=0.5))  # of 10 updates
    learner, traj = prog.learner, data()
    for k in range(8):
        assert float(learner.policy.epsilon) == pytest.approx(0.8 - 0.12 * min(k, 5), abs=1e-6)
        learner, metrics = prog.update(learner, traj, KEY)
        assert float(metrics["epsilon"]) == pytest.approx(0.8 - 0.12 * min(k, 5), abs=1e-6)


def test_invalid_input_is_refused() -> None:
    with pytest.raises(InputError, match="continuous ones"):
        pqn.make(make_spec(action=Box(2)), CONFIG, Scale(E, T, 1))
    with pytest.raises(InputError, match=r"20 timesteps per device .* do not divide into 7 minibatches"):
        pqn.make(SPEC, replace(CONFIG, minibatches=7), Scale(E, T, 1))
    with pytest.raises(InputError, match="epsilon_final must be at least 0"):
        pqn.make(SPEC, replace(CONFIG, epsilon_final=1.5), Scale(E, T, 1))


def test_pqn_learns_the_additive_values_of_the_two_step_game() -> None:
    """Sunehag's sum under a uniform policy (Rashid et al. 2018, table 1a): as VDN it thinks 2B's best is 6.5."""
    env = device_env("matrix/two_step")
    explore = {"epsilon": 1.0, "epsilon_final": 1.0, "lam": 0.0, "learning_rate": 1e-2, "sharing": "independent"}
    config = configured(OWN, **explore, epochs=2, minibatches=4)
    teams = train(OWN, env, config, updates=150, seeds=4, num_envs=32, length=2)
    q, greedy = tables(env, config, vdn.MIX, teams.after, [after(env), after(env, (0, 0)), after(env, (1, 0))])
    assert (greedy[:, 0, 0] == 0).all()
    np.testing.assert_allclose(q[:, 1], np.broadcast_to(TWO_STEP[1], q[:, 1].shape), atol=0.3)
    np.testing.assert_allclose(q[:, 2].mean(0), [[-1.5, 2.5], [2.5, 6.5]], atol=0.3)
