"""κ follows the KL that an update ends with, in data that the acting policy made (Schulman et al. 2017, section 4).

The oracle knows nothing of the policy but what ``act`` notes: it plays the same timesteps again and again by the
updated learner, until every timestep's joint action has been drawn, and reads its log-probability there.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from shoal.algorithms import happo
from shoal.types import Learner, Trajectory
from support.algorithm_cases import BASE
from support.mat_cases import BASE as MAT
from support.selection import quick
from support.trajectories import E, N, Program, T, acted, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
SPEC = make_spec()
DRAWS = 20_000
KAPPA = 0.3
COMMON: dict[str, Any] = {"learning_rate": 0.3, "critic_input": "local", "value_norm": "none", "kl_coef": KAPPA}
# With one step the KL before it is 0, which would always halve κ; with many, the mean over them is several times lower.
CASES = {
    "one step": replace(BASE, **COMMON, epochs=1, kl_target=0.002),
    "eight steps": replace(BASE, **COMMON | {"learning_rate": 0.05}, epochs=4, minibatches=2, kl_target=0.006),
    "happo": replace(happo.Config(**COMMON), network=BASE.network, adam_eps=0.5, epochs=3, kl_target=0.02),
    "mat": replace(MAT, **COMMON, epochs=2, kl_target=0.005),
}


@cache
def played(name: str) -> tuple[Program, Trajectory]:
    prog = program(SPEC, CASES[name])
    return prog, acted(prog, prog.learner, make_trajectory(SPEC))


def log_prob_of(prog: Program, learner: Learner, traj: Trajectory) -> np.ndarray:
    """log π(u^i | what agent i has seen) [T, E, N] of the living agents' actions, from ``act`` alone."""

    def once(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        flat = jax.tree.map(lambda x: x.reshape(T * E, *x.shape[2:]), traj.step)
        carry = prog.algorithm.initial_carry(T * E)
        _, action, extras = prog.algorithm.act(learner, carry, flat, key, False)
        return action, extras["log_prob"]

    action, log_prob = compiled(lambda keys: jax.lax.map(once, keys))(jax.random.split(KEY, DRAWS))
    alive = np.asarray(traj.step.alive).reshape(T * E, N)
    same = ((np.asarray(action) == np.asarray(traj.action).reshape(T * E, N)) | ~alive).all(-1)  # [DRAWS, T E]
    assert same.any(0).all(), "an action was never drawn again"
    return np.asarray(log_prob)[same.argmax(0), np.arange(T * E)].reshape(T, E, N)


@pytest.mark.parametrize("name", quick(CASES, "eight steps"))
def test_the_weight_of_the_penalty_follows_the_kl_after_the_update(name: str) -> None:
    c, (prog, traj) = CASES[name], played(name)
    assert c.kl_target is not None
    learner, metrics = prog.update(prog.learner, traj, KEY)
    log_ratio = log_prob_of(prog, learner, traj) - np.asarray(traj.extras["log_prob"], np.float64)
    kl = (np.exp(log_ratio) - 1 - log_ratio)[np.asarray(traj.step.alive)].mean()
    np.testing.assert_allclose(metrics["kl_update"], kl, rtol=1e-3)
    factor = 2 if kl > 1.5 * c.kl_target else 0.5 if kl < c.kl_target / 1.5 else 1
    np.testing.assert_allclose(metrics["kl_coef"], KAPPA)
    _, later = prog.update(learner, traj, KEY)
    np.testing.assert_allclose(later["kl_coef"], KAPPA * factor)
