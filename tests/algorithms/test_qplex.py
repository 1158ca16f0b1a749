"""QPLEX's mixing against the paper's equations, agent by agent and head by head."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import qplex
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Scale, Step
from support.naive_q import at, dense, greedy, one_hot, team, utilities
from support.trajectories import ACTIONS, E, T, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
CONFIG = qplex.Config(
    network=Body((6,), activation="relu", orthogonal=False),
    heads=2,
    hyper_width=5,
    attention_width=3,
    attention_layers=2,
    adam_eps=0.5,
    learning_rate=0.5,
)


def q_tot(phi: Any, q: np.ndarray, best: np.ndarray, action: np.ndarray, step: Step) -> np.ndarray:
    """Σ_i V_i + Σ_i λ_i A_i (Wang et al. 2021, eq. 8, 9 and 11), moment by moment."""

    def sigmoid(x: float) -> float:
        return 1 / (1 + np.exp(-x))

    total = np.zeros(q.shape[:-1])
    for where in np.ndindex(total.shape):
        s, alive = np.asarray(step.state, np.float64)[where], np.asarray(step.alive)[where]
        both = np.concatenate([s, one_hot(action[where], alive, ACTIONS)])
        w, b, key = np.abs(dense(phi["w"], s)), dense(phi["b"], s), np.abs(dense(phi["key"], s))
        agents, actions = dense(phi["agents"], s).reshape(-1, 2), dense(phi["actions"], both).reshape(-1, 2)
        for i in np.flatnonzero(alive):
            lam = sum(key[k] * sigmoid(agents[i, k]) * sigmoid(actions[i, k]) for k in range(2))
            total[where] += w[i] * best[where][i] + b[i] + lam * w[i] * (q[where][i] - best[where][i])
    return total


def test_values_and_loss_are_those_of_a_loop() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    _, metrics = prog.update(prog.learner, traj, KEY)
    actor, (frozen, phi) = prog.learner.policy.actor, prog.learner.statistics.target
    now, (chooser, judge) = (
        utilities(SPEC, CONFIG, actor, traj)[0],
        (utilities(SPEC, CONFIG, x, traj)[1] for x in (actor, frozen)),
    )

    def mixed(phi: Any, q: np.ndarray, action: np.ndarray, step: Step) -> np.ndarray:
        return q_tot(phi, at(q, action, step.alive), at(q, greedy(q, step), step.alive), action, step)

    reward, discount = team(traj)
    target = reward + CONFIG.gamma * discount * mixed(phi, judge, greedy(chooser, traj.outcome), traj.outcome)
    value = mixed(prog.learner.critic, now, np.asarray(traj.action), traj.step)
    error = (target - value)[np.asarray(traj.step.alive).any(-1)]
    np.testing.assert_allclose(metrics["td_error"], np.abs(error).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["td_loss"], (error**2).mean() / 2, rtol=1e-4)


def test_without_gradient_through_advantages_the_value_is_the_same_and_the_slope_is_w() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    q, best = (jnp.array(np.random.default_rng(i).normal(size=(T, E, 3)), jnp.float32) for i in range(2))
    q, best = jnp.where(traj.step.alive, q, 0.0), jnp.where(traj.step.alive, best, 0.0)

    def slopes(stop: bool) -> tuple[np.ndarray, ...]:
        mixer = qplex.make_mixer(SPEC, replace(CONFIG, stop_gradient=stop))

        def total(q: jax.Array, best: jax.Array) -> jax.Array:
            return mixer.apply(prog.learner.critic, q, best, traj.action, traj.step).sum()

        value, slope = compiled(jax.value_and_grad(total, argnums=(0, 1)))(q, best)
        return np.asarray(value), *map(np.asarray, slope)

    (value, of_q, of_best), (same, of_q_through, of_best_through) = slopes(True), slopes(False)
    np.testing.assert_allclose(value, same, rtol=1e-5)
    np.testing.assert_array_equal(of_best, 0)
    # λ w to the utility and (1 − λ) w to the best one: together w, which is all that is left without them.
    np.testing.assert_allclose(of_q_through + of_best_through, of_q, rtol=1e-4, atol=1e-5)
    living = np.asarray(traj.step.alive)
    assert (of_q[living] > 0).all() and (of_q_through[living] > 0).all() and not of_q[~living].any()
    assert np.abs(of_best_through).max() > 0.1


@pytest.mark.parametrize(
    ("spec", "flags", "words"),
    [
        (make_spec(action=Box(2)), {}, "continuous ones"),
        (make_spec(state_dim=0), {}, "no global state"),
        (SPEC, {"heads": 0}, "heads must be at least 1"),
        (SPEC, {"attention_layers": 0}, "attention_layers must be at least 1"),
    ],
)
def test_invalid_input_is_refused(spec: Any, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        qplex.make(spec, replace(CONFIG, **flags), Scale(E, T, 1))
